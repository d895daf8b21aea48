//! The keeper of cgroups on a tree made of directories: what is changed behind its back is right again at once, and nobody is fought for ever.

use ebb::cgroups::keeper::Keeper;
use ebb::cgroups::node;
use ebb::cgroups::sources::{SeenContainer, SeenPod};
use ebb::clock::Clock;
use ebb::config::Config;
use ebb::report::{Output, Reporter};
use ebb::sense::Roots;
use ebb_policy::cgroups::plan;
use ebb_policy::cgroups::pod::Asked;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// Takes records as a reader of standard output does.
struct Lines(Sender<Value>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let record = serde_json::from_slice(line)?;
        // The test may be over.
        let _ = self.0.send(record);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Case {
    _dir: tempfile::TempDir,
    roots: Roots,
    records: Receiver<Value>,
    keeper: Keeper,
}

/// Where pods are known from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pods {
    OfManifests,
    OfTheRuntime,
}

impl Case {
    /// A node whose tree is as planned, with a keeper that looks at everything only once.
    fn start(mode: &str) -> io::Result<Self> {
        Self::start_with(mode, Pods::OfManifests)
    }

    fn start_with(mode: &str, pods: Pods) -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let at = |name: &str| dir.path().join(name);
        for sub in ["proc/sys/kernel", "cgroup", "pods"] {
            fs::create_dir_all(at(sub))?;
        }
        fs::write(at("proc/meminfo"), "MemTotal: 8388608 kB\nSwapTotal: 0 kB\n")?;
        fs::write(at("proc/sys/kernel/pid_max"), "32768\n")?;
        fs::write(at("cgroup/cgroup.controllers"), "cpu memory pids\n")?;
        fs::write(at("cgroup/cpuset.cpus.effective"), "0-3\n")?;
        let roots = Roots { proc: at("proc"), cgroup: at("cgroup") };
        let from = match pods {
            Pods::OfManifests => format!("podManifests: {}, ", at("pods").display()),
            Pods::OfTheRuntime => String::new(),
        };
        let text = format!(
            "podPidsLimit: 77\nebb: {{cgroups: {{mode: {mode}, beside: nobody, {from}period: 1h}}}}"
        );
        let cgroups = Config::parse(&text).map_err(io::Error::other)?.cgroups;
        let facts = node::of_this_machine(&roots).map_err(io::Error::other)?;
        let plan = plan(&cgroups.options, &facts, &[]).map_err(|_| io::Error::other("no plan"))?;
        for cgroup in &plan.cgroups {
            let path = cgroup.path.clone().unwrap_or_default();
            let at = roots.cgroup.join(path.trim_start_matches('/'));
            fs::create_dir_all(&at)?;
            for (file, value) in &cgroup.values {
                // At first something is to be done everywhere.
                let text = if file == "cpu.weight" { "100" } else { &value.value };
                fs::write(at.join(file), text)?;
            }
        }
        let (sender, records) = channel();
        let reporter = move || {
            Reporter::new(Output::Json, false, Clock::anchored_now(), Box::new(Lines(sender)))
        };
        let keeper = Keeper::start(cgroups, roots.clone(), pods == Pods::OfTheRuntime, reporter)
            .map_err(io::Error::other)?;
        let case = Self { _dir: dir, roots, records, keeper };
        Ok(case)
    }

    fn weight(&self) -> PathBuf {
        self.roots.cgroup.join("kubepods/burstable/cpu.weight")
    }

    /// Writes in one step, as the kernel takes a value; the values here only get longer.
    fn disturb(&self, value: &str) -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(self.weight())?.write_all(value.as_bytes())
    }

    fn becomes(&self, wanted: &str) -> bool {
        let deadline = Instant::now() + SOON;
        while Instant::now() < deadline {
            if fs::read_to_string(self.weight()).is_ok_and(|text| text == wanted) {
                return true;
            }
            sleep(Duration::from_millis(1));
        }
        false
    }

    fn told(&self) -> Value {
        self.records.recv_timeout(SOON).unwrap_or_default()
    }
}

#[test]
fn drift_is_repaired_when_it_is_written_and_told() {
    let case = Case::start("enforce").unwrap();
    let first = case.told();
    assert_eq!(first["event"], "cgroups", "{first}");
    assert_eq!(first["written"].as_array().unwrap().len(), 3, "{first}");
    assert!(case.becomes("1"));
    case.disturb("77").unwrap();
    let repair = case.told();
    assert_eq!(repair["written"][0]["now"], "1", "{repair}");
    assert!(repair["afterMs"].is_number(), "{repair}");
    assert!(case.becomes("1"));
}

#[test]
fn an_audit_tells_and_leaves_everything_as_it_is() {
    let case = Case::start("audit").unwrap();
    let told = case.told();
    assert_eq!(
        (told["written"].as_array().map(Vec::len), told["left"].as_array().map(Vec::len)),
        (Some(0), Some(3)),
        "{told}"
    );
    assert_eq!(fs::read_to_string(case.weight()).unwrap(), "100");
}

#[test]
fn who_writes_again_and_again_is_not_fought_for_ever() {
    let case = Case::start("enforce").unwrap();
    assert!(case.becomes("1"), "it is repaired at first");
    let mut repairs = 0;
    for round in 0..40 {
        let wrong = (1000 + round).to_string();
        case.disturb(&wrong).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut now = wrong.clone();
        while now != "1" && Instant::now() < deadline {
            sleep(Duration::from_millis(1));
            now = fs::read_to_string(case.weight()).unwrap();
        }
        if now == wrong {
            break;
        }
        repairs += 1;
    }
    // Twenty repairs, of which one was the first; one may answer two disturbances that came close together.
    assert!((15..=25).contains(&repairs), "{repairs} repairs");
}

/// Whether a file comes to say this.
fn comes_to_say(file: &std::path::Path, wanted: &str) -> bool {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        if fs::read_to_string(file).is_ok_and(|text| text == wanted) {
            return true;
        }
        sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn of_a_pod_that_only_the_runtime_knows_only_what_is_certain_is_written() {
    let case = Case::start_with("enforce", Pods::OfTheRuntime).unwrap();
    let pod = case.roots.cgroup.join("kubepods/burstable/podu1");
    let container = pod.join("abc");
    fs::create_dir_all(&container).unwrap();
    let values = [("cpu.weight", "55"), ("cpu.max", "max 100000"), ("memory.max", "12288")];
    for (file, value) in values {
        fs::write(pod.join(file), value).unwrap();
        fs::write(container.join(file), value).unwrap();
    }
    fs::write(pod.join("pids.max"), "max").unwrap();
    // Before it is known to be one, nothing is done to it.
    case.keeper.pods(Some(vec![SeenPod {
        uid: "u1".into(),
        name: "web/a".into(),
        is_static: false,
        inside: Some("/kubepods/burstable/podu1/abc".into()),
        containers: vec![SeenContainer {
            name: "main".into(),
            id: "containerd://abc".parse().ok(),
            asked: Asked { memory: Some(8192), ..Asked::default() },
        }],
    }]));
    assert!(comes_to_say(&pod.join("pids.max"), "77"), "podPidsLimit holds for every pod");
    let left = loop {
        let told = case.told();
        let left = told["left"].as_array().cloned().unwrap_or_default();
        if left.iter().any(|difference| difference["container"] == "main") {
            break left;
        }
        assert_eq!(told["event"], "cgroups", "{told}");
    };
    let memory: Vec<_> = left.iter().filter(|d| d["file"] == "memory.max").collect();
    assert_eq!((memory.len(), &memory[0]["expected"]), (1, &"8192".into()), "{left:?}");
    for (file, value) in values {
        assert_eq!(fs::read_to_string(pod.join(file)).unwrap(), value, "the pod's {file}");
        assert_eq!(fs::read_to_string(container.join(file)).unwrap(), value, "main's {file}");
    }
    // Nor is a sum over pods that are not all known.
    let class = case.roots.cgroup.join("kubepods/burstable/cpu.weight");
    fs::write(&class, "44").unwrap();
    // What is written later is noticed later.
    fs::write(pod.join("pids.max"), "99").unwrap();
    assert!(comes_to_say(&pod.join("pids.max"), "77"));
    assert_eq!(fs::read_to_string(class).unwrap(), "44");
}
