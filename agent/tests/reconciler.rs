//! The reconciler of cgroups on a tree made of directories: what is changed behind its back is right again at once, and nobody is fought for ever.

use ebb_agent::act::Mode;
use ebb_agent::cgroups::node;
use ebb_agent::cgroups::reconciler::Reconciler;
use ebb_agent::clock::{Boot, Clock};
use ebb_agent::config::Config;
use ebb_agent::report::Reporter;
use ebb_agent::sense::Roots;
use ebb_agent::sense::runtime::{ContainerSeen, Inventory, PodSeen};
use ebb_journal::Output;
use ebb_model::pod::Asked;
use ebb_policy::Time;
use ebb_policy::cgroups::plan;
use ebb_policy::snapshot::{Container, ContainerState, Sandbox};
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// For what must happen, however busy the machine is.
const SOON: Duration = Duration::from_secs(60);

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
    reconciler: Reconciler,
}

/// Where pods are known from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pods {
    OfManifests,
    OfTheRuntime,
}

impl Case {
    /// A node whose tree is as planned, with a reconciler that looks at everything only once.
    fn start(mode: &str) -> io::Result<Self> {
        Self::start_with(mode, Pods::OfManifests)
    }

    fn start_with(mode: &str, pods: Pods) -> io::Result<Self> {
        Self::start_as(Mode::Enforce, mode, "1h", pods, |_| Ok(()))
    }

    /// The same with another hand and period; `prepare` is given the directory that everything is in.
    fn start_as(
        hand: Mode,
        mode: &str,
        period: &str,
        pods: Pods,
        prepare: impl FnOnce(&std::path::Path) -> io::Result<()>,
    ) -> io::Result<Self> {
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
            "podPidsLimit: 77\nebb: {{cgroups: {{mode: {mode}, beside: nobody, {from}period: {period}}}}}"
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
        prepare(dir.path())?;
        let (sender, records) = channel();
        let reporter =
            move || Reporter::new(Clock::of_process(), hand, Output::Json.to(Lines(sender), false));
        let reconciler =
            Reconciler::start(cgroups, roots.clone(), pods == Pods::OfTheRuntime, hand, reporter)
                .map_err(io::Error::other)?;
        let case = Self { _dir: dir, roots, records, reconciler };
        Ok(case)
    }

    fn weight(&self) -> PathBuf {
        self.roots.cgroup.join("kubepods/burstable/cpu.weight")
    }

    /// Writes in one step, as the kernel takes a value; the values here only get longer.
    fn disturb(&self, value: &str) -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(self.weight())?.write_all(value.as_bytes())
    }

    /// Waits for looks at the whole tree: a file that is moved into place is not noticed, only found.
    fn looked_at_everything(&self, times: usize) -> io::Result<()> {
        let moved = self._dir.path().join("moved");
        for _ in 0..times {
            fs::write(&moved, "77")?;
            fs::rename(&moved, self.weight())?;
            if !self.becomes("1") {
                return Err(io::Error::other("nobody looks"));
            }
        }
        Ok(())
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
        (told["written"].as_array().map(Vec::len), told["remaining"].as_array().map(Vec::len)),
        (Some(0), Some(3)),
        "{told}"
    );
    assert_eq!(fs::read_to_string(case.weight()).unwrap(), "100");
}

#[test]
fn who_writes_again_and_again_is_not_fought_for_ever() {
    let case = Case::start("enforce").unwrap();
    assert!(case.becomes("1"), "it is repaired at first");
    let first = case.told();
    assert_eq!(first["written"].as_array().map(Vec::len), Some(3), "{first}");
    // Twenty repairs, of which one was the first.
    for round in 2..=20 {
        case.disturb(&(1000 + round).to_string()).unwrap();
        let repair = case.told();
        assert_eq!(repair["written"][0]["now"], "1", "repair {round}: {repair}");
        assert!(case.becomes("1"), "repair {round}");
    }
    case.disturb("1021").unwrap();
    // Another file, written later, is noticed later, and still repaired.
    let other = case.roots.cgroup.join("kubepods/besteffort/cpu.weight");
    fs::OpenOptions::new().write(true).open(&other).unwrap().write_all(b"77").unwrap();
    let repair = case.told();
    assert_eq!(repair["written"].as_array().map(Vec::len), Some(1), "{repair}");
    assert_eq!(repair["written"][0]["path"], "/kubepods/besteffort", "{repair}");
    assert_eq!(fs::read_to_string(case.weight()).unwrap(), "1021", "it is left to who wants it");
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
    let listed = PodSeen {
        sandbox: Sandbox { id: "s".into(), pod_uid: "u1".into(), ready: true, created_at: Time(0) },
        name: "web/a".into(),
        is_static: false,
        is_of_api_server: false,
        cgroup: None,
    };
    let main = ContainerSeen {
        container: Container {
            id: "abc".into(),
            name: "main".into(),
            pod_uid: "u1".into(),
            sandbox_id: Some("s".into()),
            state: ContainerState::Running,
            created_at: Time(0),
            image: None,
        },
        cgroup: Some("kubepods/burstable/podu1/abc".into()),
        mounted_images: Vec::new(),
        asked: Asked { memory: Some(8192), ..Asked::default() },
    };
    let inventory = Inventory {
        at: Boot(0),
        pods: vec![listed],
        containers: vec![main],
        exited: Vec::new(),
        images: None,
    };
    case.reconciler.listed(Some(inventory.into()));
    assert!(comes_to_say(&pod.join("pids.max"), "77"), "podPidsLimit holds for every pod");
    let left = loop {
        let told = case.told();
        let left = told["remaining"].as_array().cloned().unwrap_or_default();
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

/// Every file below a directory with its content, and every directory.
fn everything(at: &std::path::Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.push((path.clone(), String::new()));
            found.extend(everything(&path));
        } else {
            found.push((path.clone(), fs::read_to_string(&path).unwrap_or_default()));
        }
    }
    found.sort();
    found
}

/// A pod's cgroup in which a process of this test runs.
fn populated(at: &std::path::Path, pod: &str, pid: u32) -> io::Result<()> {
    let pod = at.join("cgroup/kubepods/burstable").join(pod);
    fs::create_dir_all(&pod)?;
    fs::write(pod.join("cgroup.events"), "populated 1\n")?;
    fs::write(pod.join("cgroup.procs"), format!("{pid}\n"))?;
    fs::write(pod.join("cgroup.kill"), "")?;
    fs::create_dir_all(at.join("proc/self"))?;
    fs::write(at.join("proc/self/mountinfo"), "")
}

#[test]
fn without_enforce_the_reconciler_says_what_it_would_do_and_changes_nothing() {
    let text = "kind: Pod\nmetadata: {name: a, uid: u-1}\nspec: {containers: [{name: c}]}\n";
    let prepare = |at: &std::path::Path| {
        fs::write(at.join("pods/a.yaml"), text)?;
        populated(at, "podgone", 1)?;
        fs::write(at.join("cgroup/kubepods/burstable/podgone/cgroup.events"), "populated 0\n")
    };
    let mode = "enforce, create: true, orphanedPods: remove, dying: reclaim";
    let case = Case::start_as(Mode::DryRun, mode, "100ms", Pods::OfManifests, prepare).unwrap();
    let before = everything(&case.roots.cgroup);
    let first = case.told();
    assert_eq!(first["written"], Value::Array(Vec::new()), "{first}");
    let would = first["wouldWrite"].as_array().unwrap();
    assert!(would.iter().any(|d| d["path"] == "/kubepods/burstable" && d["expected"] == "1"));
    assert_eq!(first["wouldCreate"], serde_json::json!(["/kubepods/besteffort/podu-1"]));
    let mut told = case.told();
    while told["wouldCleanUp"].is_null() {
        assert_eq!(told["event"], "orphanedPodCgroups", "{told}");
        told = case.told();
    }
    assert_eq!(told["wouldCleanUp"], serde_json::json!(["/kubepods/burstable/podgone"]));
    assert_eq!(told["cleanedUp"], Value::Array(Vec::new()), "{told}");
    assert_eq!(everything(&case.roots.cgroup), before, "a dry run changes nothing");
}

#[test]
fn an_empty_manifest_directory_makes_no_live_pod_an_orphan() {
    let prepare = |at: &std::path::Path| populated(at, "podlive", 1);
    let mode = "enforce, orphanedPods: remove";
    let case = Case::start_as(Mode::Enforce, mode, "100ms", Pods::OfManifests, prepare).unwrap();
    let mut told = case.told();
    while told["event"] != "degraded" {
        assert_eq!(told["event"], "cgroups", "{told}");
        told = case.told();
    }
    let what = told["what"].as_str().unwrap();
    assert!(what.contains("no pod cgroup is removed") && what.contains("mounted"), "{what}");
    let pod = case.roots.cgroup.join("kubepods/burstable/podlive");
    case.looked_at_everything(3).unwrap();
    assert!(pod.is_dir() && fs::read_to_string(pod.join("cgroup.kill")).unwrap().is_empty());
}

/// Memory is plugged in, and task ids are limited otherwise, while ebb runs.
#[test]
fn a_machine_that_grows_has_its_limits_worked_out_anew() {
    let case =
        Case::start_as(Mode::Enforce, "enforce", "50ms", Pods::OfManifests, |_| Ok(())).unwrap();
    let all = case.roots.cgroup.join("kubepods/memory.max");
    assert!(comes_to_say(&all, &(8_u64 << 30).to_string()), "what there was at start");
    fs::write(case.roots.proc.join("meminfo"), "MemTotal: 16777216 kB\nSwapTotal: 0 kB\n").unwrap();
    assert!(comes_to_say(&all, &(16_u64 << 30).to_string()), "what there is now");
    // One that cannot be told is not none.
    fs::write(case.roots.proc.join("meminfo"), "").unwrap();
    case.looked_at_everything(3).unwrap();
    assert_eq!(fs::read_to_string(&all).unwrap(), (16_u64 << 30).to_string());
}
