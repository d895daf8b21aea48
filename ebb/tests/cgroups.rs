//! `ebb cgroups` as an operator runs it: files in, answer and exit code out, on a tree made of directories.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const NODE: &str =
    "capacity: {cpu: 4, memory: 8Gi, pid: 32768}\ncontrollers: [cpu, memory, pids]\n";
const POD: &str = "kind: Pod\nmetadata: {name: a, namespace: n, uid: u-1}\nspec: {containers: [{name: c, resources: {limits: {cpu: 500m, memory: 64Mi}}}]}\nstatus: {containerStatuses: [{name: c, containerID: containerd://c1}]}\n";

struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().expect("the case is what it was made");
        fs::create_dir(dir.path().join("pods")).expect("the case is what it was made");
        for (file, text) in [("config.yaml", config), ("node.yaml", NODE), ("pods/a.yaml", POD)] {
            fs::write(dir.path().join(file), text).expect("the case is what it was made");
        }
        // A tree like the kernel's, as far as it is looked at.
        fs::create_dir(dir.path().join("cgroup")).expect("the case is what it was made");
        fs::write(dir.path().join("cgroup/cgroup.controllers"), "cpu memory pids\n")
            .expect("the case is what it was made");
        Self { dir }
    }

    fn ebb(&self, command: &str, more: &[&str]) -> Output {
        let path = |name: &str| self.dir.path().join(name);
        let mut ebb = Command::new(env!("CARGO_BIN_EXE_ebb"));
        ebb.args(["cgroups", command, "--config"]).arg(path("config.yaml"));
        ebb.arg("--pods").arg(path("pods")).arg("--node").arg(path("node.yaml"));
        if command != "plan" {
            ebb.arg("--cgroup-root").arg(path("cgroup"));
        }
        ebb.args(more).output().expect("the case is what it was made")
    }

    /// `ebb cgroups` with these arguments and the tree alone.
    fn bare(&self, command: &str, more: &[&str]) -> Output {
        let mut ebb = Command::new(env!("CARGO_BIN_EXE_ebb"));
        ebb.args(["cgroups", command, "--cgroup-root"]).arg(self.dir.path().join("cgroup"));
        ebb.arg("--config").arg(self.dir.path().join("config.yaml"));
        ebb.args(more).output().expect("the case is what it was made")
    }

    /// A pod's cgroup in which something runs, or nothing.
    fn pod(&self, path: &str, populated: u8) -> std::path::PathBuf {
        let at = self.cgroup(path);
        fs::create_dir_all(&at).expect("the case is what it was made");
        fs::write(at.join("cgroup.events"), format!("populated {populated}\n"))
            .expect("the case is what it was made");
        at
    }

    /// Makes the tree that the plan demands.
    fn make(&self) -> Value {
        let plan: Value = serde_json::from_slice(&self.ebb("plan", &["-o", "json"]).stdout)
            .expect("the case is what it was made");
        for cgroup in plan["cgroups"].as_array().expect("the case is what it was made") {
            let dir = self.cgroup(cgroup["path"].as_str().expect("the case is what it was made"));
            fs::create_dir_all(&dir).expect("the case is what it was made");
            for (file, value) in cgroup["values"].as_object().expect("the case is what it was made")
            {
                fs::write(
                    dir.join(file),
                    value["value"].as_str().expect("the case is what it was made"),
                )
                .expect("the case is what it was made");
            }
        }
        plan
    }

    fn cgroup(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join("cgroup").join(path.trim_start_matches('/'))
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("the case is what it was made")
}

#[test]
fn a_plan_needs_nothing_but_its_files() {
    let case = Case::new("");
    let out = case.ebb("plan", &["-o", "json"]);
    assert!(out.status.success(), "{out:?}");
    let plan: Value = serde_json::from_slice(&out.stdout).unwrap();
    let pod = &plan["cgroups"].as_array().unwrap()[3];
    assert_eq!(pod["path"], "/kubepods/podu-1");
    assert_eq!(pod["values"]["cpu.max"]["value"], "50000 100000");
    for form in ["text", "tree"] {
        let out = case.ebb("plan", &["-o", form]);
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.contains("/kubepods/podu-1") && text.contains("67108864"), "{text}");
    }
}

#[test]
fn an_audit_names_path_file_values_and_rule_and_says_so_by_its_exit_code() {
    let case = Case::new("");
    case.make();
    let same = case.ebb("audit", &[]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    fs::write(case.cgroup("/kubepods/podu-1").join("memory.max"), "1048576\n").unwrap();
    fs::remove_dir_all(case.cgroup("/kubepods/besteffort")).unwrap();
    let out = case.ebb("audit", &["-o", "json"]);
    assert_eq!(out.status.code(), Some(4), "{out:?}");
    let audit: Value = serde_json::from_slice(&out.stdout).unwrap();
    let found = audit["differences"].as_array().unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0]["kind"], "noCgroup");
    assert_eq!(found[1]["file"], "memory.max");
    assert_eq!(
        (&found[1]["expected"], &found[1]["found"]),
        (&"67108864".into(), &"1048576".into())
    );
    assert!(found[1]["rule"].as_str().unwrap().contains("memory limits"));
    let tree = case.ebb("tree", &[]);
    let text = String::from_utf8(tree.stdout).unwrap();
    assert!(text.contains("memory.max 1048576 ! expected 67108864"), "{text}");
}

#[test]
fn enforcing_beside_a_kubelet_leaves_classes_and_containers_alone() {
    let case = Case::new("");
    case.make();
    let files = ["/kubepods/podu-1", "/kubepods/burstable", "/kubepods/podu-1/c1"];
    let drift = || {
        for path in files {
            fs::write(case.cgroup(path).join("cpu.weight"), "77").unwrap();
        }
    };
    drift();
    let out = case.ebb("enforce", &["-o", "json"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let now = || files.map(|path| read(&case.cgroup(path).join("cpu.weight")));
    assert_eq!(now(), ["20", "77", "77"]);
    drift();
    assert_eq!(case.ebb("enforce", &["--alone"]).status.code(), Some(0));
    assert_eq!(now(), ["20", "1", "59"]);
    let again: Value =
        serde_json::from_slice(&case.ebb("enforce", &["--alone", "-o", "json"]).stdout).unwrap();
    assert_eq!(again["written"], Value::Array(Vec::new()));
}

#[test]
fn what_cannot_be_held_to_is_refused_by_the_name_of_its_field() {
    for (config, node, pod, says) in [
        ("systemReserved: {memory: 9Gi}", NODE, POD, "systemReserved[\"memory\"]"),
        ("", "capacity: {cpu: 4}", POD, "node.capacity[\"memory\"]"),
        ("", NODE, &POD.replace("u-1", "../../x"), "a.yaml: pod n/a: metadata.uid = \"../../x\""),
        ("enforceNodeAllocatable: [kube-reserved]", NODE, POD, "kubeReservedCgroup"),
        ("", "capacity: {cpu: 4, memory: 1Gi}\ncontrollers: [cpuu]", POD, "node.controllers"),
    ] {
        let case = Case::new(config);
        fs::write(case.dir.path().join("node.yaml"), node).unwrap();
        fs::write(case.dir.path().join("pods/a.yaml"), pod).unwrap();
        let out = case.ebb("plan", &["-o", "json"]);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains(says), "{says} is not in {said}");
    }
}

#[test]
fn a_reserved_cgroup_that_is_not_there_is_refused() {
    let config = "enforceNodeAllocatable: [pods, kube-reserved]\nkubeReservedCgroup: /kube.slice\nkubeReserved: {cpu: \"1\"}\n";
    let case = Case::new(config);
    case.make();
    fs::remove_dir_all(case.cgroup("/kube.slice")).unwrap();
    let out = case.ebb("enforce", &["--create"]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(
        said.contains("kubeReservedCgroup = \"/kube.slice\": there is no such cgroup"),
        "{said}"
    );
}

/// Files below a directory, each with its content.
fn files(at: &Path) -> Vec<(std::path::PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push((path.clone(), fs::read_to_string(&path).unwrap_or_default())),
        }
    }
    found.sort();
    found
}

#[test]
fn a_stock_node_audits_clean() {
    let stock = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stock");
    let case = Case::new("ebb: {mode: kubernetes}");
    let proc = case.dir.path().join("proc");
    for line in read(&stock.join("tree.txt")).lines() {
        let mut words = line.splitn(3, ' ');
        let (path, file) = (words.next().unwrap(), words.next().unwrap());
        let dir = match path.strip_prefix("/proc/") {
            Some(pid) => proc.join(pid),
            None => case.cgroup(path),
        };
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(file), format!("{}\n", words.next().unwrap_or_default())).unwrap();
    }
    fs::write(proc.join("meminfo"), "MemTotal: 2097152 kB\n").unwrap();
    let path = |name: &str| stock.join(name).display().to_string();
    let proc = proc.display().to_string();
    let (pods, node) = (path("pods.yaml"), path("node.yaml"));
    let arguments = ["--proc-root", &proc, "--pods", &pods, "--node", &node, "-o", "json"];
    let out = case.bare("audit", &arguments);
    let audit: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(audit["differences"], Value::Array(Vec::new()), "{audit:#}");
    assert_eq!((&audit["found"], out.status.code()), (&11.into(), Some(0)), "{audit:#}");
    // And nothing is written to it, by whomever it is enforced.
    let before = files(&case.cgroup("/"));
    let out = case.bare("enforce", &[&arguments[..], &["--alone"]].concat());
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(files(&case.cgroup("/")), before);
}

#[test]
fn no_name_in_a_manifest_leads_out_of_the_cgroup_root() {
    let outside_text = "untouched";
    for (from, to, says) in [
        (
            "containerd://c1",
            "\"../../../../outside://c1\"",
            "a.yaml: pod n/a: status.containerStatuses[name=c].containerID = \"../../../../outside://c1\"",
        ),
        ("containerd://c1", "\"containerd://../../../outside\"", "containerID = "),
        ("uid: u-1", "uid: \"/../../../outside\"", "a.yaml: pod n/a: metadata.uid = "),
        ("namespace: n", "namespace: \"../n\"", "a.yaml: pod ../n/a: metadata.namespace = "),
    ] {
        for driver in ["cgroupfs", "systemd"] {
            let case = Case::new(&format!("cgroupDriver: {driver}"));
            let outside = case.dir.path().join("outside-c1.scope");
            for dir in [&outside, &case.dir.path().join("outside")] {
                fs::create_dir(dir).unwrap();
                fs::write(dir.join("memory.max"), outside_text).unwrap();
            }
            let before = files(case.dir.path());
            fs::write(case.dir.path().join("pods/a.yaml"), POD.replace(from, to)).unwrap();
            let out = case.ebb("enforce", &["--alone", "--create"]);
            let said = String::from_utf8(out.stderr).unwrap();
            assert_eq!(out.status.code(), Some(2), "{to}: {said}");
            assert!(said.contains(says), "{says} is not in {said}");
            fs::write(case.dir.path().join("pods/a.yaml"), POD).unwrap();
            assert_eq!(files(case.dir.path()), before, "{to}");
        }
    }
}

#[test]
fn a_link_in_the_tree_is_not_followed_out_of_it() {
    let case = Case::new("");
    case.make();
    let outside = case.dir.path().join("outside");
    fs::rename(case.cgroup("/kubepods"), &outside).unwrap();
    fs::write(outside.join("podu-1/memory.max"), "untouched").unwrap();
    std::os::unix::fs::symlink(&outside, case.cgroup("/kubepods")).unwrap();
    let before = files(&outside);
    let out = case.ebb("enforce", &["--alone", "--create"]);
    assert_eq!(out.status.code(), Some(4), "{out:?}");
    assert_eq!(files(&outside), before);
}

const SOON: &str = "ebb: {cgroups: {period: 50ms}}";
const NOBODY_ELSE: &str = "ebb: {cgroups: {period: 50ms, beside: nobody}}";

#[test]
fn orphaned_pods_are_removed_after_two_looks_and_what_runs_is_left_to_the_runtime() {
    let case = Case::new(SOON);
    case.make();
    // A directory of files does not go as a cgroup would; what is below it does.
    let empty = case.pod("/kubepods/burstable/podgone", 0);
    fs::create_dir(empty.join("c")).unwrap();
    let runs = case.pod("/kubepods/burstable/podruns", 1);
    // A cgroup that cannot be told to be empty is not.
    let unclear = case.pod("/kubepods/besteffort/podunclear", 0);
    fs::remove_file(unclear.join("cgroup.events")).unwrap();
    let audit = case.ebb("audit", &[]);
    let text = String::from_utf8(audit.stdout).unwrap();
    assert_eq!(audit.status.code(), Some(4), "orphaned pods are a difference: {text}");
    let out = case.ebb("enforce", &["--remove-orphaned-pods", "-o", "json"]);
    let done: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(done["cleanedUp"], Value::Array(Vec::new()), "{done:#}");
    assert!(!empty.join("c").exists(), "what is empty is removed");
    assert!(runs.is_dir() && unclear.is_dir());
    let errors = done["errors"].to_string();
    assert!(errors.contains("podruns: skipped") && errors.contains("--cri"), "{errors}");
}

#[test]
fn orphaned_pods_and_what_was_left_out_are_told_by_each_command_and_set_its_exit_code() {
    let case = Case::new("");
    case.make();
    let unnamed = POD.replace(", uid: u-1", "").replace("name: a,", "name: b,");
    fs::write(case.dir.path().join("pods/b.yaml"), unnamed).unwrap();
    for command in ["audit", "tree", "enforce"] {
        let out = case.ebb(command, &[]);
        let text = String::from_utf8(out.stdout).unwrap();
        assert_eq!(out.status.code(), Some(0), "{command}: {text}");
        assert!(text.contains("note: n/b: metadata.uid"), "{command}: {text}");
    }
    fs::remove_file(case.dir.path().join("pods/b.yaml")).unwrap();
    case.pod("/kubepods/burstable/podgone", 0);
    for command in ["audit", "tree", "enforce"] {
        let out = case.ebb(command, &[]);
        let text = String::from_utf8(out.stdout).unwrap();
        assert_eq!(out.status.code(), Some(4), "{command}: {text}");
        assert!(text.contains("/kubepods/burstable/podgone: orphaned"), "{command}: {text}");
    }
    let out = case.ebb("enforce", &["-o", "json"]);
    let done: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(done["orphanedPods"][0]["path"], "/kubepods/burstable/podgone", "{done:#}");
}

/// Two limits for one cgroup would be written in turn for ever.
#[test]
fn one_container_id_for_two_containers_is_refused() {
    let case = Case::new("");
    let two = POD.replace("[{name: c, resources", "[{name: d}, {name: c, resources").replace(
        "[{name: c, containerID",
        "[{name: d, containerID: containerd://c1}, {name: c, containerID",
    );
    fs::write(case.dir.path().join("pods/a.yaml"), two).unwrap();
    for command in ["plan", "audit", "enforce"] {
        let out = case.ebb(command, &[]);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("containerd://c1") && said.contains("another container"), "{said}");
    }
}

#[test]
fn a_pod_that_is_told_of_between_the_two_looks_stays() {
    let case = Case::new("ebb: {cgroups: {period: 1s}}");
    case.make();
    let pods = case.dir.path().join("pods");
    let gone = case.cgroup("/kubepods/burstable/podgone");
    fs::create_dir_all(gone.join("c")).unwrap();
    let events = gone.join("cgroup.events");
    fs::write(&events, "populated 0\n").unwrap();
    let mut ebb = Command::new(env!("CARGO_BIN_EXE_ebb"));
    ebb.args(["cgroups", "enforce", "--remove-orphaned-pods", "--config"]);
    ebb.arg(case.dir.path().join("config.yaml")).arg("--pods").arg(&pods);
    ebb.arg("--node").arg(case.dir.path().join("node.yaml"));
    ebb.arg("--cgroup-root").arg(case.dir.path().join("cgroup"));
    ebb.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut child = ebb.spawn().unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("looking again") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut stderr, &mut line).unwrap() > 0, "no second look");
    }
    // Between the looks the pod is told of.
    fs::write(pods.join("b.yaml"), POD.replace("u-1", "gone").replace("name: a,", "name: b,"))
        .unwrap();
    child.wait().unwrap();
    assert!(gone.join("c").is_dir(), "a pod that was told of in time stays");
}

#[test]
fn an_empty_manifest_directory_removes_nothing_and_that_is_said() {
    let case = Case::new(NOBODY_ELSE);
    case.make();
    let empty = case.dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let live = case.pod("/kubepods/burstable/podlive", 1);
    let (empty, node) =
        (empty.display().to_string(), case.dir.path().join("node.yaml").display().to_string());
    let out = case.bare(
        "enforce",
        &["--alone", "--remove-orphaned-pods", "--pods", &empty, "--node", &node, "-o", "json"],
    );
    let done: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(done["cleanedUp"], Value::Array(Vec::new()), "{done:#}");
    assert!(done["errors"].to_string().contains("no source names a pod"), "{done:#}");
    assert!(live.is_dir());
    for command in ["audit", "tree", "enforce"] {
        for form in ["text", "json"] {
            let out = case.bare(command, &["--pods", &empty, "--node", &node, "-o", form]);
            let text = String::from_utf8(out.stdout).unwrap();
            let said = "pod cgroups without a pod are not looked for: no source names a pod";
            assert!(text.contains(said), "{command} -o {form}: {text}");
        }
    }
}

/// A controller is on one of the hierarchies: its values are where they are, whichever command looks.
#[test]
fn in_a_mixed_layout_enforce_sees_what_audit_sees_and_leaves_cgroup_v1_alone() {
    let case = Case::new(NOBODY_ELSE);
    let plan = case.make();
    let at = |name: &str| case.dir.path().join(name);
    fs::write(at("cgroup/cgroup.controllers"), "cpu memory\n").unwrap();
    fs::create_dir(at("proc")).unwrap();
    let mounts = format!(
        "none {} cgroup2 rw 0 0\nnone {} cgroup rw,pids 0 0\n",
        at("cgroup").display(),
        at("pids").display()
    );
    fs::write(at("proc/mounts"), mounts).unwrap();
    fs::write(at("proc/meminfo"), "MemTotal: 8388608 kB\nMemAvailable: 8388608 kB\n").unwrap();
    let mut moved = 0;
    for cgroup in plan["cgroups"].as_array().unwrap() {
        let path = cgroup["path"].as_str().unwrap().trim_start_matches('/');
        let Some(value) = cgroup["values"]["pids.max"]["value"].as_str() else { continue };
        fs::remove_file(at("cgroup").join(path).join("pids.max")).unwrap();
        fs::create_dir_all(at("pids").join(path)).unwrap();
        fs::write(at("pids").join(path).join("pids.max"), value).unwrap();
        moved += 1;
    }
    assert!(moved > 0, "{plan:#}");
    let proc = at("proc").display().to_string();
    let look = |command: &str, key: &str| {
        let out = case.ebb(command, &["--proc-root", &proc, "-o", "json"]);
        let said: Value =
            serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{command}: {out:?}"));
        (out.status.code(), said[key].clone(), said["errors"].to_string())
    };
    let (code, found, _) = look("audit", "differences");
    assert_eq!((code, &found), (Some(0), &Value::Array(Vec::new())));
    let (code, left, errors) = look("enforce", "remaining");
    assert_eq!((code, &left), (Some(0), &found), "{errors}");
    let pids = at("pids/kubepods/pids.max");
    fs::write(&pids, "7").unwrap();
    let (code, found, _) = look("audit", "differences");
    assert_eq!((code, found[0]["file"].as_str()), (Some(4), Some("pids.max")), "{found:#}");
    let (code, left, errors) = look("enforce", "remaining");
    assert_eq!((code, &left), (Some(4), &found), "{errors}");
    assert!(errors.contains("/kubepods: pids.max is on cgroup v1"), "{errors}");
    assert_eq!(read(&pids), "7", "cgroup v1 is not written");
    assert!(!at("cgroup/kubepods/pids.max").exists());
}

#[test]
fn controllers_on_cgroup_v1_count_where_they_are() {
    let case = Case::new("ebb: {mode: kubernetes}");
    let at = |name: &str| case.dir.path().join(name);
    fs::write(at("cgroup/cgroup.controllers"), "\n").unwrap();
    fs::create_dir_all(at("proc/sys/kernel")).unwrap();
    fs::write(at("proc/meminfo"), "MemTotal: 8388608 kB\nSwapTotal: 0 kB\n").unwrap();
    fs::write(at("proc/sys/kernel/pid_max"), "32768\n").unwrap();
    let mut mounts = format!("none {} cgroup2 rw 0 0\n", at("cgroup").display());
    for controller in ["memory", "cpu", "pids"] {
        mounts += &format!("none {} cgroup rw,{controller} 0 0\n", at(controller).display());
        for path in ["kubepods/podu-1/c1", "kubepods/burstable", "kubepods/besteffort"] {
            fs::create_dir_all(at(controller).join(path)).unwrap();
        }
    }
    fs::write(at("proc/mounts"), mounts).unwrap();
    fs::write(at("memory/kubepods/podu-1/memory.limit_in_bytes"), "4096\n").unwrap();
    fs::write(at("cpu/kubepods/podu-1/cpu.shares"), "9999\n").unwrap();
    fs::write(at("cpu/kubepods/podu-1/cpu.cfs_quota_us"), "1000\n").unwrap();
    fs::write(at("cpu/kubepods/podu-1/cpu.cfs_period_us"), "100000\n").unwrap();
    fs::write(at("pids/kubepods/pids.max"), "7\n").unwrap();
    let (proc, pods) = (at("proc").display().to_string(), at("pods").display().to_string());
    let mut ebb = Command::new(env!("CARGO_BIN_EXE_ebb"));
    ebb.args(["cgroups", "audit", "-o", "json", "--proc-root", &proc, "--pods", &pods]);
    let out = ebb.output().unwrap();
    let audit: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(4), "{audit:#}");
    for (path, file, found) in [
        ("/kubepods/podu-1", "memory.max", "4096"),
        ("/kubepods/podu-1", "cpu.weight", "382"),
        ("/kubepods/podu-1", "cpu.max", "1000 100000"),
        ("/kubepods", "pids.max", "7"),
    ] {
        let differences = audit["differences"].as_array().unwrap();
        let is_it = |d: &&Value| d["path"] == path && d["file"] == file && d["found"] == found;
        assert!(differences.iter().any(|d| is_it(&d)), "{path} {file} is not in {audit:#}");
    }
}

#[test]
fn without_pods_both_sources_are_named_and_where_there_is_no_kubernetes_that_is_said() {
    let case = Case::new("");
    let said = |out: Output| String::from_utf8(out.stderr).unwrap();
    let none = case.bare("tree", &[]);
    assert_eq!(none.status.code(), Some(2));
    let text = said(none);
    for part in ["--pods", "--cri", "no Kubernetes here"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    fs::create_dir_all(case.cgroup("/kubepods.slice")).unwrap();
    let text = said(case.bare("tree", &[]));
    assert!(text.contains("--cri") && !text.contains("no Kubernetes"), "{text}");
}

#[test]
fn a_systemd_tree_is_recognised_without_configuration() {
    let case = Case::new("");
    fs::create_dir_all(case.cgroup("/kubepods.slice")).unwrap();
    let out = case.ebb("audit", &["-o", "json"]);
    let audit = String::from_utf8(out.stdout).unwrap();
    assert!(audit.contains("cgroupDriver is not configured: systemd"), "{audit}");
    assert!(audit.contains("kubepods-podu_1.slice"), "{audit}");
}

#[test]
fn pods_are_read_from_standard_input() {
    let case = Case::new("");
    let node = case.dir.path().join("node.yaml");
    let mut ebb = Command::new(env!("CARGO_BIN_EXE_ebb"));
    ebb.args(["cgroups", "plan", "--pods", "-", "--node"]).arg(node);
    let pods = fs::File::open(case.dir.path().join("pods/a.yaml")).unwrap();
    let out = ebb.stdin(pods).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("/kubepods/podu-1"), "{text}");
}

#[test]
fn huge_pages_that_say_the_same_are_one_line() {
    let case = Case::new("");
    let node = "capacity: {cpu: 4, memory: 8Gi}\nhugePageSizes: [2Mi, 1Gi]\n";
    fs::write(case.dir.path().join("node.yaml"), node).unwrap();
    case.make();
    for command in ["plan", "tree"] {
        let text = String::from_utf8(case.ebb(command, &[]).stdout).unwrap();
        let lines = text.lines().filter(|line| line.contains("hugetlb."));
        assert_eq!(lines.count(), 5, "one for each cgroup: {text}");
        assert!(text.contains("hugetlb.{1GB.max,1GB.rsvd.max,2MB.max,2MB.rsvd.max}"), "{text}");
    }
    for size in ["1GB", "2MB"] {
        fs::write(
            case.cgroup("/kubepods/podu-1").join(format!("hugetlb.{size}.max")),
            "1073741824",
        )
        .unwrap();
    }
    let text = String::from_utf8(case.ebb("audit", &[]).stdout).unwrap();
    assert!(text.contains("hugetlb.{1GB.max,2MB.max} is 1073741824, expected 0"), "{text}");
}

/// A reader is told of the mistake, not of the library that found it.
#[test]
fn a_key_that_a_manifest_gives_twice_is_told_in_plain_words() {
    let case = Case::new("");
    let twice = POD.replace("kind: Pod\n", "kind: Pod\nkind: Pod\n");
    fs::write(case.dir.path().join("pods/a.yaml"), twice).unwrap();
    let out = case.ebb("plan", &[]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("a.yaml") && said.contains("duplicate mapping key: kind"), "{said}");
    assert!(!said.contains("DuplicateKeyPolicy"), "{said}");
}
