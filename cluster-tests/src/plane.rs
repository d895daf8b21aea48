//! etcd and kube-apiserver on free ports of 127.0.0.1, with their data in a directory that goes with them.
use crate::api::Api;
use crate::children::Child;
use crate::store::Store;
use crate::wait;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Both fill empty stores first, on a host that others use too.
const STARTS_IN: Duration = Duration::from_secs(120);
const READERS: &str = "ebb-tests:readers";

/// Who may ask; the name is the token too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// May read everything and write nothing.
    Reader,
    /// The service account of ebb's agents: may do nothing, unless a test lets it, and is served in turn as every service account is.
    Agent,
}

impl User {
    /// As the server knows them.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Reader => "reader",
            Self::Agent => "system:serviceaccount:ebb-system:ebb-node",
        }
    }
}

/// A running control plane, without any controller.
#[derive(Debug)]
pub struct Plane {
    // Ended in this order: the server while its store is there.
    server: Option<Child>,
    etcd: Child,
    dir: TempDir,
    store: Store,
    program: PathBuf,
    arguments: Vec<String>,
    port: u16,
    authority: Vec<u8>,
}

impl Plane {
    /// Starts both programs of a directory, and waits until they serve.
    ///
    /// # Errors
    /// When a program is missing, ends, or is not ready in time.
    pub fn start(assets: &Path) -> Result<Self> {
        let dir = TempDir::with_prefix("ebb-cluster-").context("cannot create a directory")?;
        let [client, peer, secure] = free_ports()?;
        let mut etcd = Child::start(
            "etcd",
            &assets.join("etcd"),
            &etcd(dir.path(), client, peer),
            dir.path(),
        )?;
        listens(&mut etcd, client)?;
        let store = Store::new(client);
        prepare(dir.path())?;
        let program = assets.join("kube-apiserver");
        let arguments = api_server(dir.path(), client, secure);
        let server = serve(&program, &arguments, dir.path(), secure)?;
        // With its own certificate is that of the authority that has signed it.
        let path = dir.path().join("apiserver.crt");
        let authority = fs::read(&path).with_context(|| format!("cannot read {path:?}"))?;
        let (server, port) = (Some(server), secure);
        let plane = Self { server, etcd, dir, store, program, arguments, port, authority };
        plane.is_ready()?;
        allow_reading(&plane.api(User::Admin)?)?;
        Ok(plane)
    }

    /// Kills the API server; what it has stored stays.
    pub fn stop_server(&mut self) {
        self.server = None;
    }

    /// Starts the API server again on the same port, and waits until it is ready.
    ///
    /// # Errors
    /// When it is not ready in time.
    pub fn start_server(&mut self) -> Result<()> {
        self.server = None;
        self.server = Some(serve(&self.program, &self.arguments, self.dir.path(), self.port)?);
        self.is_ready()
    }

    fn is_ready(&self) -> Result<()> {
        let api = self.api(User::Admin)?;
        let last = || self.server.as_ref().map(Child::last_words).unwrap_or_default();
        wait::until_some(
            STARTS_IN,
            || format!("ready, {}", last()),
            || {
                let answer = api.ask("GET", "/readyz", None);
                Ok(answer.is_ok_and(|(status, _)| status == 200).then_some(()))
            },
        )
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The port of the API server.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Who has signed its certificate, as PEM.
    pub(crate) fn authority(&self) -> &[u8] {
        &self.authority
    }

    /// A client for a user.
    ///
    /// # Errors
    /// When the server's certificate cannot be read.
    pub fn api(&self, user: User) -> Result<Api> {
        Api::new(&self.url(), &self.authority, user.name())
    }

    /// A kubeconfig for a user.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig(&self, user: User) -> Result<PathBuf> {
        let authority = self.dir.path().join("apiserver.crt");
        let cluster = json!({"server": self.url(), "certificate-authority": authority});
        self.kubeconfig_of(user, user.name(), &cluster)
    }

    /// A kubeconfig for the administrator by way of a proxy.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn kubeconfig_through(&self, file: &str, proxy: &str) -> Result<PathBuf> {
        self.kubeconfig_of(User::Admin, file, &json!({"server": proxy}))
    }

    fn kubeconfig_of(&self, user: User, file: &str, cluster: &Value) -> Result<PathBuf> {
        let name = user.name();
        let path = self.dir.path().join(format!("{file}.kubeconfig"));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": name}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": name}}],
        });
        fs::write(&path, config.to_string()).with_context(|| format!("cannot write {path:?}"))?;
        Ok(path)
    }

    /// The processor time that the API server and etcd have used so far, in seconds.
    ///
    /// # Errors
    /// When one of them has ended.
    pub fn processor_time(&self) -> Result<f64> {
        let server = self.server.as_ref().context("the API server is stopped")?;
        Ok(server.processor_time()? + self.etcd.processor_time()?)
    }

    /// What is below the API server.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Where data and logs are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Every request of the reader that the server has answered, as its audit log has them.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn audit(&self) -> Result<Vec<Value>> {
        let path = self.dir.path().join("audit.log");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path:?}"))?;
        // The last line may be on its way.
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

fn serve(program: &Path, arguments: &[String], dir: &Path, port: u16) -> Result<Child> {
    let mut server = Child::start("kube-apiserver", program, arguments, dir)?;
    listens(&mut server, port)?;
    Ok(server)
}

fn etcd(dir: &Path, client: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    vec![
        format!("--data-dir={}", dir.join("etcd").display()),
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]
}

/// It makes its own key pair, which signs the tokens of service accounts too.
fn api_server(dir: &Path, etcd: u16, port: u16) -> Vec<String> {
    let in_dir = |option: &str, file: &str| format!("{option}={}", dir.join(file).display());
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        // Nobody asks for it; without it the host would need a network.
        "--advertise-address=192.0.2.1".into(),
        "--endpoint-reconciler-type=none".into(),
        format!("--cert-dir={}", dir.display()),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        in_dir("--service-account-key-file", "apiserver.key"),
        in_dir("--service-account-signing-key-file", "apiserver.key"),
        in_dir("--token-auth-file", "tokens"),
        "--authorization-mode=RBAC".into(),
        "--allow-privileged=true".into(),
        "--service-cluster-ip-range=10.96.0.0/24".into(),
        in_dir("--audit-policy-file", "audit.json"),
        in_dir("--audit-log-path", "audit.log"),
        // Nobody makes service accounts here, and tests set the taints of nodes.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
    ]
}

/// The files that the server reads.
fn prepare(dir: &Path) -> Result<()> {
    let [admin, reader, agent] = [User::Admin, User::Reader, User::Agent].map(User::name);
    let tokens = format!(
        "{admin},{admin},{admin},system:masters\n{reader},{reader},{reader},{READERS}\n{agent},{agent},{agent},system:serviceaccounts\n"
    );
    let audit = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [reader]}, {"level": "None"}],
    });
    for (name, text) in [("tokens", tokens), ("audit.json", audit.to_string())] {
        fs::write(dir.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

fn allow_reading(api: &Api) -> Result<()> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let verbs = ["get", "list", "watch"];
    let role = json!({
        "metadata": {"name": READERS},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}],
    });
    let binding = json!({
        "metadata": {"name": READERS},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READERS},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": READERS}],
    });
    api.create(&format!("{rbac}/clusterroles"), &role)?;
    api.create(&format!("{rbac}/clusterrolebindings"), &binding)?;
    Ok(())
}

/// Ports that nobody listens on now; they are held together, so they differ.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        *port = listener.local_addr().context("a port without a number")?.port();
        held.push(listener);
    }
    drop(held);
    Ok(ports)
}

fn listens(child: &mut Child, port: u16) -> Result<()> {
    wait::until_some(
        STARTS_IN,
        || format!("port {port} listens"),
        || {
            child.runs()?;
            Ok(TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(()))
        },
    )
}
