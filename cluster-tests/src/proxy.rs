//! A proxy between a collector and the API server: it breaks what a test wants broken, and judges every delete.
//!
//! ```text
//! collector ──HTTP──► Proxy: fault? ──► oracle (deletes) ──TLS──► kube-apiserver
//!                       │ close · answer by itself · hold back        ▲
//!                       └── the oracle reads the store directly ──────┘
//! ```
//! One connection carries one request: what is cut is one watch, and nothing else.
use crate::api::Api;
use crate::oracle;
use crate::plane::{Plane, User};
use anyhow::{Context, Result, bail, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a request may have before its body.
const HEAD: usize = 64 << 10;

/// A request as the collector sent it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// `GET`, `DELETE`, …
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// What it says beyond that.
    pub body: Vec<u8>,
    headers: Vec<String>,
}

impl Asked {
    /// Whether it is a watch of a resource by its plural, as in `configmaps`.
    #[must_use]
    pub fn is_watch_of(&self, plural: &str) -> bool {
        self.is_watch() && self.resource() == plural
    }

    /// Whether it is a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.path.contains("watch=1")
    }

    /// Whether it changes anything.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.method != "GET"
    }

    /// The path without its query.
    #[must_use]
    pub fn place(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    fn resource(&self) -> &str {
        self.place().rsplit('/').next().unwrap_or_default()
    }
}

/// What becomes of a request.
#[derive(Debug, Clone)]
pub enum Fate {
    /// The API server answers it.
    Pass,
    /// Its connection is closed without an answer.
    Close,
    /// It is answered with this code and this body.
    Answer(u16, Value),
    /// It is answered with a stream that has this one line.
    Stream(Value),
}

type Fault = Arc<dyn Fn(&Asked) -> Fate + Send + Sync>;

/// A proxy that serves until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    port: u16,
    tls: Arc<ClientConfig>,
    api: Api,
    fault: Mutex<Option<Fault>>,
    asked: Mutex<Vec<Asked>>,
    /// Requests that are answered now, by the sockets of both sides.
    open: Mutex<Vec<(u64, Asked, [TcpStream; 2])>>,
    judged: Mutex<Vec<oracle::Judgement>>,
    is_over: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Serves on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When there is no port, or the certificate of the server cannot be read.
    pub fn start(plane: &Plane) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(plane.authority()) {
            roots.add(certificate.context("no PEM")?).context("no authority")?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("no TLS")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let url = format!("http://{}", listener.local_addr().context("a port without a number")?);
        let shared = Arc::new(Shared {
            port: plane.port(),
            tls: Arc::new(tls),
            api: plane.api(User::Admin)?,
            fault: Mutex::default(),
            asked: Mutex::default(),
            open: Mutex::default(),
            judged: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (id, client) in (0..).zip(listener.incoming()) {
                if serving.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || {
                    // Whoever asked sees that its connection broke, which is what is tested.
                    let _ = shared.serve(id, client);
                    locked(&shared.open).retain(|(other, ..)| *other != id);
                });
            }
        });
        Ok(Self { url, shared })
    }

    /// Where it serves.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on `fault` says what becomes of each request. It may take its time: the request is held back so long.
    pub fn fault(&self, fault: impl Fn(&Asked) -> Fate + Send + Sync + 'static) {
        *locked(&self.shared.fault) = Some(Arc::new(fault));
    }

    /// From now on every request passes.
    pub fn mend(&self) {
        *locked(&self.shared.fault) = None;
    }

    /// Breaks the connections of what is being answered now; how many.
    pub fn cut(&self, which: impl Fn(&Asked) -> bool) -> usize {
        let open = locked(&self.shared.open);
        let cut = open.iter().filter(|(_, asked, _)| which(asked));
        let ends = cut.map(|(_, _, ends)| {
            // One that is closed already is cut.
            ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        });
        ends.count()
    }

    /// Whether the API server answers such a request now.
    pub fn is_open(&self, which: impl Fn(&Asked) -> bool) -> bool {
        locked(&self.shared.open).iter().any(|(_, asked, _)| which(asked))
    }

    /// How many requests there were so far of which this is true.
    pub fn count(&self, which: impl Fn(&Asked) -> bool) -> usize {
        locked(&self.shared.asked).iter().filter(|asked| which(asked)).count()
    }

    /// Fails with every delete that was wrong in the store at its moment; else, how many deletes were judged.
    ///
    /// # Errors
    /// When one was wrong.
    pub fn judged(&self) -> Result<usize> {
        let judged = locked(&self.shared.judged);
        let wrong: Vec<&str> = judged.iter().filter_map(|one| one.wrong.as_deref()).collect();
        ensure!(wrong.is_empty(), "the oracle: {}", wrong.join("; "));
        Ok(judged.len())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.mend();
        self.cut(|_| true);
        // Whoever accepts connections looks whether it is over.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

impl Shared {
    fn serve(&self, id: u64, mut client: TcpStream) -> Result<()> {
        let asked = read(&mut client)?;
        locked(&self.asked).push(asked.clone());
        let fault = locked(&self.fault).clone();
        match fault.map_or(Fate::Pass, |fault| fault(&asked)) {
            Fate::Pass => {}
            Fate::Close => return Ok(()),
            Fate::Answer(code, body) => return answer(&mut client, code, &body),
            Fate::Stream(line) => return answer(&mut client, 200, &line),
        }
        if asked.method == "DELETE" {
            // What cannot be judged does not pass.
            let judgement = oracle::judge(&self.api, &asked)?;
            locked(&self.judged).push(judgement);
        }
        let server = TcpStream::connect(("127.0.0.1", self.port)).context("no API server")?;
        let ends = [&client, &server].map(TcpStream::try_clone);
        let [Ok(here), Ok(there)] = ends else { bail!("no more descriptors") };
        locked(&self.open).push((id, asked.clone(), [here, there]));
        let name = ServerName::try_from("127.0.0.1").context("no name")?;
        let session = ClientConnection::new(Arc::clone(&self.tls), name).context("no TLS")?;
        let mut server = StreamOwned::new(session, server);
        let mut head = format!("{} {} HTTP/1.1\r\n", asked.method, asked.path);
        asked.headers.iter().for_each(|header| head += &format!("{header}\r\n"));
        head += "Connection: close\r\n\r\n";
        server.write_all(head.as_bytes()).context("cannot ask")?;
        server.write_all(&asked.body).context("cannot ask")?;
        server.flush().context("cannot ask")?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            match server.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(read) => client.write_all(&buffer[..read]).context("nobody listens")?,
            }
        }
        Ok(())
    }
}

/// One request.
fn read(client: &mut TcpStream) -> Result<Asked> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).context("no whole request")?;
        text.push(byte[0]);
        ensure!(text.len() < HEAD, "a request without end");
    }
    let text = String::from_utf8(text).context("a request that is no text")?;
    let mut lines = text.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let is = |line: &str, name: &str| {
        line.split(':').next().is_some_and(|found| found.eq_ignore_ascii_case(name))
    };
    let mut length = 0;
    let mut headers = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        ensure!(!is(line, "transfer-encoding"), "a request in chunks");
        if is(line, "content-length") {
            length = line.split(':').nth(1).unwrap_or_default().trim().parse().context("length")?;
        }
        if !is(line, "connection") {
            headers.push(line.to_owned());
        }
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body).context("no whole body")?;
    Ok(Asked { method: method.to_owned(), path: path.to_owned(), body, headers })
}

fn answer(client: &mut TcpStream, code: u16, body: &Value) -> Result<()> {
    let body = format!("{body}\n");
    let head = format!(
        "HTTP/1.1 {code} By the proxy\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all((head + &body).as_bytes()).context("nobody listens")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
