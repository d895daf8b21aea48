//! The server as clients meet it: many of them, slow ones, and those that never end.
use super::*;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

/// No test is about how long something takes on a busy machine, but a probe that waits for the connection of another client to end waits for longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server on a thread of its own, until the test's process ends.
fn served() -> SocketAddr {
    let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let at = listener.local_addr().unwrap();
    serve_on_a_thread(listener);
    at
}

fn serve_on_a_thread(listener: std::net::TcpListener) {
    std::thread::spawn(move || {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        executor.block_on(async {
            serve(TcpListener::from_std(listener).unwrap(), |_| Answer::ok()).await;
        });
    });
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// All that comes for a request, until the server closes the connection.
fn ask(mut stream: TcpStream) -> std::io::Result<String> {
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: ebb\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What a probe is answered. One that was cut off asks again: on a busy machine it may have had its moment before it had asked, or before anybody had looked.
fn probe(at: SocketAddr) -> String {
    loop {
        let begun = Instant::now();
        let asked = ask(connect(at));
        let took = begun.elapsed();
        let why = match asked {
            Ok(answer) if !answer.is_empty() => return answer,
            Ok(_) => ErrorKind::UnexpectedEof,
            Err(error) => error.kind(),
        };
        let is_cut_off =
            [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(is_cut_off.contains(&why), "{why} after {took:?}");
        assert!(took >= places::MOMENT, "cut off after {took:?}");
    }
}

/// Each of them asks again and again, and keeps its connection for as long as it may.
#[test]
fn a_probe_is_answered_beside_eighty_others_that_ask_all_the_time() {
    let at = served();
    let is_over = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..80)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(at).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: ebb\r\n\r\n");
                    std::thread::sleep(Duration::from_millis(100));
                    if asked.is_err() {
                        stream = TcpStream::connect(at).unwrap();
                    }
                }
            })
        })
        .collect();
    for _ in 0..5 {
        let answer = probe(at);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
    is_over.store(true, Ordering::Relaxed);
    others.into_iter().for_each(|other| other.join().unwrap());
}

#[test]
fn a_probe_is_answered_beside_a_hundred_others_that_ask_for_nothing() {
    let at = served();
    let others: Vec<TcpStream> = (0..100).map(|_| connect(at)).collect();
    assert!(probe(at).ends_with("ok\n"));
    drop(others);
}

#[test]
fn a_connection_is_for_one_request_and_is_closed_after_its_answer() {
    let answer = ask(connect(served())).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.to_lowercase().contains("connection: close"), "{head}");
    assert_eq!(body, "ok\n");
}

/// What `client` does with a server, by a clock that goes on whenever there is nothing to do.
fn by_a_paused_clock<C: Future<Output = ()>>(client: impl FnOnce(SocketAddr) -> C) {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    executor.block_on(async {
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let at = listener.local_addr().unwrap();
        let server =
            tokio::spawn(serve(TcpListener::from_std(listener).unwrap(), |_| Answer::ok()));
        client(at).await;
        server.abort();
    });
}

#[test]
fn who_asks_for_nothing_is_cut_off_after_seconds() {
    by_a_paused_clock(async |at| {
        let begun = tokio::time::Instant::now();
        let mut silent = tokio::net::TcpStream::connect(at).await.unwrap();
        let read = tokio::io::AsyncReadExt::read(&mut silent, &mut [0; 64]).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        let after = begun.elapsed();
        assert!(after >= CONNECTION && after < CONNECTION * 2, "{after:?}");
    });
}

/// Whoever goes has a moment first. No time passes here: the clock goes on of itself only while nothing blocks.
#[test]
fn a_newcomer_does_not_wait_until_others_have_left() {
    by_a_paused_clock(async |at| {
        let asked = tokio::task::spawn_blocking(move || {
            let others: Vec<TcpStream> = (0..40).map(|_| connect(at)).collect();
            let answer = ask(connect(at));
            drop(others);
            answer
        });
        assert!(asked.await.unwrap().unwrap().ends_with("ok\n"));
    });
}

/// They came at once, and nobody has looked yet what they ask for.
#[test]
fn whoever_asked_at_once_is_answered_though_others_came_right_behind() {
    let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let at = listener.local_addr().unwrap();
    let clients: Vec<TcpStream> = (0..12)
        .map(|_| {
            let mut stream = connect(at);
            stream.write_all(b"GET /livez HTTP/1.1\r\nHost: ebb\r\n\r\n").unwrap();
            stream
        })
        .collect();
    serve_on_a_thread(listener);
    for mut client in clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
    }
}
