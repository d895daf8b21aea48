//! `ebb run --listen`: what probes and scrapers are told of a running agent, and that they cannot hold it up.

use crate::lab::{CONFIG, Lab, Pod};
use crate::trouble::{add_trap, goes_on_after_a_panic, is_in_open};
use crate::{Agent, arguments, config, ebb, start};
use ebb_tests::fake_node::{FakeNode, wait_for};
use ebb_tests::repository;
use ebb_tests::runtime::Flavour;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// For as long as ebb keeps a connection that it has not answered.
const KEPT: Duration = Duration::from_secs(10);

/// An address where nobody listens: a host of its own for each that this process asks for, so that nobody takes its port before ebb does.
pub(crate) fn free_address() -> String {
    static GIVEN: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, high, low, GIVEN.fetch_add(1, Ordering::Relaxed));
    let listener = TcpListener::bind((host, 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Status and body; `None` while nobody listens.
pub(crate) fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: ebb\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.split_whitespace().nth(1)?.parse().ok()?;
    Some((code, body.to_owned()))
}

fn metric(address: &str, name: &str) -> Option<f64> {
    let (_, text) = get(address, "/metrics")?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.parse().ok()
}

/// An agent that is asked at this address, and a pod to be evicted.
fn listening() -> (Lab, Pod, String, Agent) {
    listening_by(CONFIG)
}

/// The same, with this configuration.
pub(crate) fn listening_by(config: &str) -> (Lab, Pod, String, Agent) {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let hog = lab.pod("hog", &image, 1500);
    let (address, file) = (free_address(), lab.dir("state").join("config.yaml"));
    std::fs::write(&file, config).unwrap();
    let mut agent = lab.start(&file, &["--enforce", "--listen", &address]);
    agent.wait("inventory");
    (lab, hog, address, agent)
}

#[test]
fn an_eviction_is_counted_and_an_agent_without_its_runtime_is_not_ready() {
    let (mut lab, hog, address, mut agent) = listening();
    wait_for("ebb to be ready", || get(&address, "/readyz").is_some_and(|(code, _)| code == 200));
    // A loop that was kept from running is not alive for a moment.
    let is_alive = || get(&address, "/livez").is_some_and(|(code, _)| code == 200);
    wait_for("ebb to be alive", is_alive);
    assert_eq!(get(&address, "/").unwrap().0, 404);
    let killed = "ebb_evictions_total{method=\"kill\"}";
    assert_eq!(metric(&address, killed), Some(0.0));
    assert_eq!(
        metric(&address, "ebb_signal_threshold{signal=\"memory.available\"}"),
        Some(f64::from(100 << 20))
    );
    lab.node.gives_back_when_killed(&hog.payload, 1500);
    lab.node.set_available(60);
    agent.wait("evicted");
    wait_for("the eviction to be counted", || metric(&address, killed) == Some(1.0));
    assert_eq!(metric(&address, "ebb_crossing_ended_seconds_count"), Some(1.0));
    let decided = "ebb_evictions_decided_total{signal=\"memory.available\"}";
    assert_eq!(metric(&address, decided), Some(1.0));
    let threshold = |what: &str| {
        let labels = "{signal=\"memory.available\",strength=\"hard\"}";
        metric(&address, &format!("ebb_threshold_{what}{labels}"))
    };
    assert_eq!(threshold("limit"), Some(f64::from(100 << 20)));
    let [evaluated, met, acted] =
        ["evaluated", "met", "acted"].map(|what| threshold(&format!("{what}_timestamp_seconds")));
    assert!(acted.is_some() && evaluated >= met && met >= Some(1.7e9), "{evaluated:?} {met:?}");
    let crossed = "ebb_thresholds_crossed_total{signal=\"memory.available\"}";
    assert_eq!(metric(&address, crossed), Some(1.0));
    let (_, text) = get(&address, "/metrics").unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(!text.contains("hog"), "a workload is named: {text}");
    lab.runtime.stop();
    assert_eq!(agent.wait("runtime")["up"], false);
    wait_for("ebb not to be ready", || {
        get(&address, "/readyz").is_some_and(|(code, _)| code == 503)
    });
    wait_for("ebb to be alive without it", is_alive);
    agent.stop();
}

/// More connections than are served at a time, none of which reads or asks for anything.
#[test]
fn clients_that_never_read_do_not_hold_up_a_kill() {
    let (lab, hog, address, agent) = listening();
    let clients: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for mut client in clients.iter().take(32) {
        // It takes no answer in, and goes on asking until it is closed.
        let request = b"GET /metrics HTTP/1.1\r\nHost: ebb\r\n\r\n";
        let _ = (0..100).try_for_each(|_| client.write_all(request));
    }
    lab.node.gives_back_when_killed(&hog.payload, 1500);
    lab.node.set_available(60);
    wait_for("the kill", || hog.payload.is_killed());
    drop(clients);
    agent.stop();
}

/// The thread that answers is not the loop's.
#[test]
fn an_agent_whose_loop_hangs_is_not_alive_until_it_comes_round_again() {
    let (mut node, address) = (FakeNode::new(), free_address());
    let config = config(crate::CONFIG);
    // So near that workloads are read every few milliseconds.
    node.set_available(120);
    let agent = start(&node, config.path(), &["--enforce", "--listen", &address]);
    let is = |wanted: u16| get(&address, "/livez").is_some_and(|(code, _)| code == wanted);
    wait_for("ebb to be alive", || is(200));
    let file = add_trap(&mut node);
    let pipe = file.with_file_name("pipe");
    wait_for("the loop to open it", || is_in_open(agent.child.id(), &file));
    wait_for("ebb not to be alive", || is(503));
    let (_, why) = get(&address, "/livez").unwrap();
    assert!(why.contains("the loop does not come round"), "{why}");
    assert!(is_in_open(agent.child.id(), &file), "it hangs no more");
    // What is read next does not hang, and then somebody at the other end lets the loop go on.
    std::fs::rename(&file, &pipe).unwrap();
    std::fs::write(&file, "1048576\n").unwrap();
    drop(std::fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    wait_for("ebb to be alive again", || is(200));
    agent.stop();
}

#[test]
fn an_address_that_is_none_or_not_this_hosts_is_refused_by_name() {
    let (node, file) = (FakeNode::new(), config(CONFIG));
    for (given, word) in [("8080", "127.0.0.1:8080"), ("192.0.2.1:8080", "192.0.2.1:8080")] {
        let mut command = ebb();
        arguments(&mut command, &node, file.path()).args(["--listen", given]);
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("--listen") && told.contains(word), "{told}");
    }
}

/// Anybody may take a port while no ebb runs: that must not keep the node without one.
#[test]
fn an_address_that_somebody_has_is_told_and_served_once_they_are_gone() {
    // Not the address that this test connects from: it might connect to itself meanwhile.
    let squatter = TcpListener::bind("127.0.0.2:0").unwrap();
    let address = squatter.local_addr().unwrap().to_string();
    let mut node = FakeNode::new();
    let (hog, file) = (node.add("apps/hog", 1500), config(crate::CONFIG));
    let mut agent = start(&node, file.path(), &["--enforce", "--listen", &address]);
    let started = agent.seen.iter().find(|record| record["event"] == "started").unwrap();
    let unavailable = started["unavailable"].to_string();
    assert!(unavailable.contains(&format!("--listen {address}: somebody")), "{unavailable}");
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    agent.wait("pressureRelieved");
    drop(squatter);
    wait_for("ebb to be asked", || get(&address, "/livez").is_some_and(|(code, _)| code == 200));
    agent.stop();
}

/// They reach one address and not the other; and whatever they do, whoever comes next is answered.
#[test]
fn other_clients_that_keep_all_connections_do_not_keep_a_probe_waiting() {
    let (node, file) = (FakeNode::new(), config(crate::CONFIG));
    let [open, probes] = [free_address(), free_address()];
    let agent = start(&node, file.path(), &["--listen", &open, "--listen-probes", &probes]);
    let others = || -> Vec<TcpStream> {
        let clients = (0..100).map(|_| {
            let mut stream = TcpStream::connect(&open).unwrap();
            // It asks and goes on asking, as one that keeps its connection.
            let _ = write!(stream, "GET /livez HTTP/1.1\r\nHost: ebb\r\n\r\n");
            stream
        });
        clients.collect()
    };
    let asked = [
        (&probes, "/livez", 200),
        (&probes, "/readyz", 200),
        (&open, "/livez", 200),
        (&open, "/readyz", 200),
        (&open, "/metrics", 200),
        // A scraper has the other address.
        (&probes, "/metrics", 404),
    ];
    for (address, path, wanted) in asked {
        // On a busy machine it may be cut off before it has asked, or ebb may not be alive for a moment: then it asks again, beside as many. Who is answered when the others have gone has waited.
        wait_for(&format!("{wanted} for {address}{path}"), || {
            let (begun, _others) = (Instant::now(), others());
            get(address, path).is_some_and(|(code, _)| code == wanted) && begun.elapsed() < KEPT
        });
    }
    // Whoever asks waits behind what the node needs.
    let threads = std::fs::read_dir(format!("/proc/{}/task", agent.child.id())).unwrap().flatten();
    let stats =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    let nice: Vec<String> = stats
        .filter(|stat| stat.contains("(ebb-http)") || stat.contains("(ebb-probes)"))
        .filter_map(|stat| stat.rsplit_once(") ")?.1.split(' ').nth(16).map(str::to_owned))
        .collect();
    assert_eq!(nice, ["10", "10"]);
    agent.stop();
}

#[test]
fn a_panic_of_what_is_served_is_told_and_the_agent_goes_on() {
    let extra = ["--listen", &free_address()];
    goes_on_after_a_panic("ebb-http", &extra, "http", "is served no more: it panicked");
}

/// The port of its metrics is on every address of the node, where any pod can keep it busy.
#[test]
fn the_probes_of_the_daemon_set_ask_where_no_other_client_does() {
    let file = repository().join("deploy/kustomize/node/daemonset.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let set: Value = serde_saphyr::from_str(&text).unwrap();
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"].as_array().unwrap().iter().filter_map(Value::as_str);
    let own = args.filter_map(|arg| arg.strip_prefix("--listen-probes=")).next().unwrap();
    for probe in ["livenessProbe", "readinessProbe"] {
        let asks = &container[probe]["httpGet"];
        assert_eq!(format!("{}:{}", asks["host"].as_str().unwrap(), asks["port"]), own, "{probe}");
    }
    let own: std::net::SocketAddr = own.parse().unwrap();
    assert!(own.ip().is_loopback() && container["ports"][0]["containerPort"] != own.port());
}
