//! The whole agent on a filesystem that a pod fills, without any manifest: the pod that fills it is evicted, and nobody else.

use crate::lab::{Lab, Pod};
use crate::{Agent, config};
use ebb_tests::fake_node::wait_for;
use ebb_tests::runtime::Flavour;
use nix::sys::statvfs::statvfs;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Written before the threshold is crossed.
const BEFORE: u64 = 8;

/// Written fast, so that it is plain who fills it. Where that is to be seen the rest comes slowly, and goes on for longer than ebb may be kept from looking.
const FAST: u64 = 64;

/// Written at most: it is memory.
const AT_MOST: u64 = 256;

/// One after the other: whoever writes to this filesystem has the turn meanwhile.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A node whose filesystem is a directory of a tmpfs, which nothing else writes to.
struct Scene {
    lab: Lab,
    dir: tempfile::TempDir,
    writer: Pod,
    idle: Vec<Pod>,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    fn new() -> Self {
        let turn = turn();
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut lab = Lab::new(Flavour::Containerd17);
        lab.put_node_fs(dir.path());
        let image = lab.world().add_image("app:1", &[("base", 10)]);
        // By name the writer is last: what decides between equals would not choose it.
        let idle = ["a", "b", "c"].map(|name| lab.pod(name, &image, 10)).into();
        let writer = lab.pod("writer", &image, 10);
        let scene = Self { lab, dir, writer, idle, _turn: turn };
        for name in ["a", "b", "c", "writer"] {
            fs::create_dir_all(scene.volume(name)).unwrap();
            fs::create_dir_all(scene.logs(name)).unwrap();
            fs::write(scene.volume(name).join("small"), [b'x'; 12 << 10]).unwrap();
        }
        scene
    }

    fn volume(&self, pod: &str) -> PathBuf {
        let volumes = format!("pods/uid-{pod}/volumes/kubernetes.io~empty-dir/data");
        self.dir.path().join(volumes)
    }

    fn logs(&self, pod: &str) -> PathBuf {
        self.dir.path().join(format!("log/ns_{pod}_uid-{pod}/main"))
    }

    /// Starts ebb with a threshold that is crossed once [`BEFORE`] MiB are written.
    fn start(&self) -> Agent {
        let fs = statvfs(self.dir.path()).unwrap();
        let line = fs.blocks_available() * fs.fragment_size() - BEFORE * MIB;
        let text = format!(
            "evictionHard:\n  nodefs.available: \"{line}\"\nebb:\n  mode: kubernetes\n  memoryAvailable: memAvailable\n"
        );
        let config = config(&text);
        let mut agent = self.lab.start(config.path(), &["--enforce"]);
        agent.wait("inventory");
        agent
    }

    /// Whom ebb has evicted while `file` grew.
    fn filled_through(&self, file: &Path, also: impl Fn(u64) + Send + 'static) -> Vec<Value> {
        let mut agent = self.start();
        let writing = Writing::start(file.to_owned(), FAST, also);
        let planned = agent.wait("decided");
        wait_for("the end of its container", || {
            self.writer.payload.is_killed() || self.lab.world().count("StopContainer") > 0
        });
        drop(writing);
        assert!(self.idle.iter().all(|pod| !pod.payload.is_killed()), "{planned}");
        let records = agent.stop();
        let planned = records.iter().filter(|record| record["event"] == "decided");
        let evicted = planned.flat_map(|record| record["evict"].as_array().unwrap().clone());
        evicted.collect()
    }
}

/// Somebody who writes a mebibyte every few milliseconds, and after so many of them ten in a second.
struct Writing {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writing {
    fn start(file: PathBuf, fast: u64, also: impl Fn(u64) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut file = File::create(file).unwrap();
            for mib in 1..=AT_MOST {
                if told.load(Ordering::Relaxed) {
                    return;
                }
                file.write_all(&vec![b'x'; 1 << 20]).unwrap();
                also(mib);
                std::thread::sleep(Duration::from_millis(if mib < fast { 20 } else { 100 }));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Every eviction was of the writer, and said that it fills the filesystem.
fn only_the_writer(evicted: &[Value]) {
    assert!(!evicted.is_empty());
    for evict in evicted {
        assert_eq!(evict["workload"]["name"], "ns/writer", "{evicted:#?}");
    }
    let why = evicted[0]["why"].as_array().unwrap();
    let filled = why.iter().find(|key| key["key"] == "filled");
    let filled = filled.unwrap_or_else(|| panic!("{why:#?}"));
    assert!(filled["added"].as_u64().unwrap() >= MIB, "{filled}");
}

#[test]
fn who_fills_an_empty_dir_is_evicted_without_any_manifest() {
    let scene = Scene::new();
    let file = scene.volume("writer").join("large");
    only_the_writer(&scene.filled_through(&file, |_| ()));
}

#[test]
fn who_fills_the_disk_by_its_log_is_evicted_though_the_runtime_writes_it() {
    let scene = Scene::new();
    let file = scene.logs("writer").join("0.log");
    only_the_writer(&scene.filled_through(&file, |_| ()));
}

/// No directory that is known grows, as with a writable layer, or a file that is deleted and still open.
#[test]
fn who_writes_where_nobody_can_look_is_found_by_its_cgroup() {
    let scene = Scene::new();
    let payload = scene.writer.payload.clone();
    let dirty = move |mib: u64| {
        payload.set("memory.stat", &format!("anon 1000\nfile_dirty {}\n", mib * MIB));
    };
    let file = scene.dir.path().join("layer");
    only_the_writer(&scene.filled_through(&file, dirty));
}

/// Nobody can look there at once, and its cgroup tells nothing: it is found by what it has once that was walked.
#[test]
fn who_fills_it_from_far_below_is_found_by_what_it_has() {
    let scene = Scene::new();
    let far = scene.volume("writer").join("d/".repeat(300));
    fs::create_dir_all(&far).unwrap();
    let mut agent = scene.start();
    let writing = Writing::start(far.join("large"), AT_MOST, |_| ());
    let planned = agent.wait("decided");
    drop(writing);
    let first = &planned["evict"][0]["workload"]["name"];
    assert_eq!(first, "ns/writer", "{planned:#}");
    agent.stop();
}

#[test]
fn nobody_is_evicted_for_a_disk_that_no_pod_fills() {
    let scene = Scene::new();
    let mut agent = scene.start();
    let writing = Writing::start(scene.dir.path().join("not-of-a-pod"), FAST, |_| ());
    let held = agent.wait("evictionDeferred");
    drop(writing);
    let why = held["notes"].to_string();
    assert!(why.contains("eviction deferred") || why.contains("every candidate"), "{held}");
    let records = agent.stop();
    assert!(records.iter().all(|record| record["event"] != "decided"), "{records:#?}");
    assert_eq!(scene.lab.world().count("StopContainer"), 0);
}
