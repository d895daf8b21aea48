//! A real Prometheus that scrapes a running agent: it reads what ebb writes, every panel of the dashboard has something to show, and exemplars name the incident.
//!
//! Its program is $EBB_PROMETHEUS; `cargo xtask test` has it from Debian's package.

use crate::lab::Lab;
use crate::listen::{free_address, get, listening_by};
use ebb_tests::fake_node::wait_for;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const DASHBOARD: &str = include_str!("../../../deploy/grafana/ebb-node.json");

/// A threshold of each kind that a panel shows; that of the disk, which is this machine's, is never met.
const CONFIG: &str = "\
evictionHard:
  memory.available: 100Mi
  nodefs.available: 1Mi
  pid.available: \"10\"
ebb:
  mode: kubernetes
  memoryAvailable: memAvailable
";

/// What Grafana puts in place of its variables.
const VARIABLES: [(&str, &str); 4] =
    [("$__rate_interval", "1m"), ("$__interval", "1m"), ("$__range", "1m"), ("$node", ".*")];

struct Prometheus {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Prometheus {
    /// One that scrapes this address every second, and says in its log which scrapes have failed.
    fn of(lab: &Lab, target: &str) -> Self {
        let program = std::env::var_os("EBB_PROMETHEUS")
            .expect("EBB_PROMETHEUS names the program; `cargo xtask test` sets it");
        let dir = lab.dir("prometheus");
        fs::create_dir(&dir).unwrap();
        let config = dir.join("prometheus.yml");
        let text = format!(
            "scrape_configs:\n- job_name: ebb\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  static_configs:\n  - targets: [\"{target}\"]\n    labels: {{node: fake}}\n"
        );
        fs::write(&config, text).unwrap();
        let address = free_address();
        let log = dir.join("log");
        let child = Command::new(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--enable-feature=exemplar-storage")
            .arg("--log.level=debug")
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, address, log }
    }

    /// What its API answers; `None` while it does not listen.
    fn ask(&self, path: &str) -> Option<Value> {
        let (_, body) = get(&self.address, &format!("/api/v1/{path}"))?;
        serde_json::from_str(&body).ok()
    }

    /// The series of an expression now.
    fn query(&self, expression: &str) -> Vec<Value> {
        let answer = self.ask(&format!("query?query={}", escaped(expression)));
        let series = answer.as_ref().and_then(|answer| answer["data"]["result"].as_array());
        series.cloned().unwrap_or_default()
    }

    /// What its log says of scrapes of which it could not read the answer.
    fn unread(&self) -> Vec<String> {
        let log = fs::read_to_string(&self.log).unwrap();
        let failed = log.lines().filter(|line| line.contains("Append failed"));
        failed.map(str::to_owned).collect()
    }

    /// The value of an expression that has one series.
    fn value(&self, expression: &str) -> Option<f64> {
        self.query(expression).first()?["value"][1].as_str()?.parse().ok()
    }
}

/// A text as part of a URL.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(byte.into());
        } else {
            write!(out, "%{byte:02X}").unwrap();
        }
        out
    })
}

#[test]
fn prometheus_reads_an_agent_at_work_and_the_dashboard_has_something_to_show() {
    let (lab, hog, address, mut agent) = listening_by(CONFIG);
    let prometheus = Prometheus::of(&lab, &address);
    let killed = "ebb_evictions_total{method=\"kill\"}";
    wait_for("Prometheus to scrape", || prometheus.value(killed) == Some(0.0));
    lab.node.gives_back_when_killed(&hog.payload, 1500);
    lab.node.set_available(60);
    agent.wait("pressureRelieved");
    wait_for("Prometheus to see the eviction", || {
        prometheus.value(killed) == Some(1.0)
            && prometheus.value("ebb_crossing_relieved_seconds_count") == Some(1.0)
    });
    // On a busy machine a scrape may come too late; one that was answered was read.
    let is_well = || {
        let targets = prometheus.ask("targets")?;
        Some(
            targets["data"]["activeTargets"][0]["lastError"] == "" && prometheus.value("up")? > 0.0,
        )
    };
    wait_for("a scrape in time", || is_well() == Some(true));
    assert_eq!(prometheus.unread(), [""; 0]);

    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut asked = 0;
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let plain = VARIABLES
                .iter()
                .fold(target["expr"].as_str().unwrap().to_owned(), |expression, (name, value)| {
                    expression.replace(name, value)
                });
            wait_for(&format!("{}: {plain}", panel["title"]), || {
                !prometheus.query(&plain).is_empty()
            });
            asked += 1;
        }
    }
    assert!(asked > 20, "{asked}");

    // From a slow crossing one comes to its record.
    let exemplars =
        "query_exemplars?start=0&end=9999999999&query=ebb_crossing_ended_seconds_bucket";
    let mut answer = None;
    wait_for("exemplars", || {
        answer = prometheus.ask(exemplars);
        answer.as_ref().is_some_and(|answer| answer["data"][0].is_object())
    });
    let exemplars = answer.unwrap();
    let incident = &exemplars["data"][0]["exemplars"][0]["labels"]["incident"];
    assert!(incident.as_str().is_some_and(|id| id.ends_with("-memory.available")), "{exemplars:#}");
    drop(prometheus);
    agent.stop();
}
