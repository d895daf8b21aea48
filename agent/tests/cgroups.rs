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
        ("", NODE, &POD.replace("u-1", "../../x"), "pods[\"n/a\"].metadata.uid"),
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
    let config = "enforceNodeAllocatable: [pods, kube-reserved]\nkubeReservedCgroup: /kube.slice\nkubeReserved: {cpu: 1}\n";
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
