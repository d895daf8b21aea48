//! What it costs an agent to be watched, on this machine: processor time of a second, alone, and with a scraper that asks once a second, three `ebb watch` and an `ebb top`.
//!
//! The node is made of files, 500 cgroups with a process each, and calm. The agent is the optimised program without BPF.
use ebb_tests::fake_node::{FakeNode, wait_for};
use ebb_tests::program::{run_on, used};
use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CGROUPS: usize = 500;
const WATCHERS: usize = 3;
const CONFIG: &str =
    "evictionHard:\n  memory.available: 100Mi\nebb:\n  memoryAvailable: memAvailable\n";
/// What the agent does at its start is over then.
const SETTLING: Duration = Duration::from_secs(15);
/// On a calm node the loop looks at everything once a minute.
const WATCHED: Duration = Duration::from_secs(120);
const SCRAPED_EVERY: Duration = Duration::from_secs(1);

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    // As `cargo test --benches` calls it, there is nothing to be measured.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let ebb = ebb_tests::program::build(true).expect("ebb is built");
    let mut node = FakeNode::new();
    for n in 0..CGROUPS {
        node.add(&format!("work.slice/sleeper-{n}.service"), 3);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (config, api) = (dir.path().join("ebb.yaml"), dir.path().join("api.sock"));
    std::fs::write(&config, CONFIG).expect("a configuration");
    let metrics = free_port();
    let agent = agent(&ebb, &node, &config, &api, metrics);
    wait_for("the agent serves", || api.exists() && scrape(metrics).is_some());
    thread::sleep(SETTLING);
    let (alone, _) = over_time(&agent, &[]);

    let (is_over, scrapes, drawn) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::default());
    let mut clients: Vec<Running> = (0..WATCHERS).map(|_| watcher(&ebb, &api)).collect();
    clients.push(top(&ebb, &api, Arc::clone(&drawn)));
    let scraper = {
        let (is_over, scrapes) = (Arc::clone(&is_over), Arc::clone(&scrapes));
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                scrape(metrics).expect("an answer to a scrape");
                scrapes.fetch_add(1, Ordering::Relaxed);
                thread::sleep(SCRAPED_EVERY);
            }
        })
    };
    wait_for("ebb top shows something", || drawn.load(Ordering::Relaxed) > 1000);
    thread::sleep(SETTLING);
    let before = scrapes.load(Ordering::Relaxed);
    let (watched, of_clients) = over_time(&agent, &clients);
    let scraped = scrapes.load(Ordering::Relaxed) - before;
    is_over.store(true, Ordering::Relaxed);
    scraper.join().expect("the scraper goes on to the end");
    for client in &mut clients {
        let ended = client.0.try_wait().expect("a client can be looked at");
        assert!(ended.is_none(), "a client has ended by itself: {ended:?}");
    }
    println!("{alone} {watched} {of_clients} {scraped}");
}

fn agent(ebb: &Path, node: &FakeNode, config: &Path, api: &Path, metrics: SocketAddr) -> Running {
    let mut command = run_on(ebb, node);
    command.args(["--leave-out", "all", "--config"]).arg(config).arg("--api").arg(api);
    command.arg("--listen").arg(metrics.to_string());
    Running(command.stdout(Stdio::null()).spawn().expect("the agent starts"))
}

fn watcher(ebb: &Path, api: &Path) -> Running {
    let mut command = Command::new(ebb);
    command.args(["watch", "--output", "json", "--api"]).arg(api).stdout(Stdio::null());
    Running(command.spawn().expect("a watcher starts"))
}

/// An `ebb top` in a terminal, of which it is counted how much it has drawn.
fn top(ebb: &Path, api: &Path, drawn: Arc<AtomicU64>) -> Running {
    let size = Winsize { ws_row: 40, ws_col: 140, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(Some(&size), None).expect("a terminal");
    let input = terminal.slave.try_clone().expect("its other end");
    let mut command = Command::new(ebb);
    command.args(["top", "--api"]).arg(api).env("TERM", "xterm-256color");
    let started = command.stdin(input).stdout(terminal.slave).spawn();
    let mut screen = File::from(terminal.master);
    thread::spawn(move || {
        let mut some = [0; 4096];
        while let Ok(length @ 1..) = screen.read(&mut some) {
            drawn.fetch_add(length as u64, Ordering::Relaxed);
        }
    });
    Running(started.expect("ebb top starts"))
}

/// Nanoseconds of a second that the agent is on a processor, and that all of the others are.
fn over_time(agent: &Running, others: &[Running]) -> (u64, u64) {
    let all = || others.iter().map(|other| used(&other.0)[0]).sum::<u64>();
    let (at, before, others_before) = (Instant::now(), used(&agent.0)[0], all());
    thread::sleep(WATCHED);
    let (own, of_others) = (used(&agent.0)[0] - before, all() - others_before);
    let seconds = at.elapsed().as_secs();
    (own / seconds, of_others / seconds)
}

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("its address")
}

/// One whole answer, as a scraper reads it.
fn scrape(at: SocketAddr) -> Option<()> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: ebb\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.ends_with("# EOF\n").then_some(())
}
