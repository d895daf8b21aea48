//! The command line as a newcomer meets it: help, exit codes, colours, mistakes.
use serde_json::{Value, json};
use std::fs;
use std::io::BufRead as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn ebb(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebb")).args(args).output().expect("ebb can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("what ebb says is text")
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).expect("the file can be written");
    path.display().to_string()
}

/// A node made of files: 4 GiB of memory, and a cgroup tree with one service.
fn fake_node() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory can be made");
    for sub in ["proc/sys/kernel", "proc/self", "cgroup/system.slice/db.service"] {
        fs::create_dir_all(dir.path().join(sub)).expect("a directory can be made");
    }
    for (file, text) in [
        ("proc/meminfo", "MemTotal: 4194304 kB\nMemFree: 2097152 kB\nMemAvailable: 2097152 kB\n"),
        ("proc/loadavg", "0.00 0.00 0.00 1/200 300\n"),
        ("proc/sys/kernel/pid_max", "32768\n"),
        ("proc/sys/kernel/threads-max", "30000\n"),
        ("cgroup/cgroup.controllers", "cpu memory pids\n"),
    ] {
        write(dir.path(), file, text);
    }
    dir
}

/// Arguments that name the roots of a fake node.
fn roots(node: &tempfile::TempDir) -> [String; 4] {
    let at = |name: &str| node.path().join(name).display().to_string();
    ["--proc-root".into(), at("proc"), "--cgroup-root".into(), at("cgroup")]
}

fn on(node: &tempfile::TempDir, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(args)
        .args(roots(node))
        .output()
        .expect("ebb can be started")
}

#[test]
fn each_exit_code_means_what_help_says() {
    let help = text(&ebb(&["--help"]).stdout);
    for code in [
        "0  done",
        "1  failed on the way",
        "2  bad input",
        "3  this host",
        "4  what was compared differs",
    ] {
        assert!(help.contains(code), "{code} is not in\n{help}");
    }
    let guide =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operating.md")).unwrap();
    for code in 0..5 {
        assert!(guide.contains(&format!("| {code} | ")), "{code} is not in the guide");
    }
    let dir = tempfile::tempdir().unwrap();
    let code = |output: Output| output.status.code();
    assert_eq!(code(ebb(&["rank", "--help"])), Some(0));
    // 1: nothing was wrong with what was asked for, and it could not be done.
    let snapshot = write(dir.path(), "one.json", r#"{"schemaVersion":1,"takenAt":1}"#);
    let nowhere = dir.path().join("no/such/dir/history.json").display().to_string();
    assert_eq!(code(ebb(&["plan", "--snapshot", &snapshot, "--history-out", &nowhere])), Some(1));
    // 2: arguments, configuration, files.
    assert_eq!(code(ebb(&["plan"])), Some(2));
    assert_eq!(code(ebb(&["plan", "--snapshot", "/nowhere"])), Some(2));
    assert_eq!(code(ebb(&["rank", "--signal", "bogus"])), Some(2));
    // 3: no runtime listens there.
    let socket = dir.path().join("no.sock").display().to_string();
    assert_eq!(code(on(&fake_node(), &["pods", "--cri", &socket])), Some(3));
    // Nor is one found where they usually listen; to be told to ask none is another matter.
    let bare = dir.path().display().to_string();
    for command in [&["pods"][..], &["images"], &["gc", "images"]] {
        let with = |more: &[&str]| on(&fake_node(), &[command, more].concat());
        let none = with(&["--host-root", &bare]);
        let said = text(&none.stderr);
        assert_eq!(none.status.code(), Some(3), "{command:?}: {said}");
        assert!(said.contains("--cri SOCKET") && said.contains("containerd.sock"), "{said}");
        let told = with(&["--cri", "none"]);
        let said = text(&told.stderr);
        assert_eq!(told.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains("--cri none"), "{said}");
    }
    // 4: the tree of pods is not there.
    let node = fake_node();
    let pods = write(
        dir.path(),
        "pod.yaml",
        "kind: Pod\napiVersion: v1\nmetadata: {name: a, namespace: ns, uid: u}\nspec: {containers: [{name: main}]}\n",
    );
    assert_eq!(code(on(&node, &["cgroups", "audit", "--pods", &pods])), Some(4));
}

#[test]
fn nothing_is_printed_when_no_event_is_asked_for() {
    for output in ["text", "json"] {
        let output = ebb(&["events", "-n", "0", "-o", output]);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!((text(&output.stdout), text(&output.stderr)), (String::new(), String::new()));
    }
}

#[test]
fn a_program_that_there_is_not_cannot_be_left_out() {
    for args in
        [&["run", "--leave-out", "bogus"][..], &["events", "-n", "0", "--leave-out", "bogus"]]
    {
        let output = ebb(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let errors = text(&output.stderr);
        assert!(
            errors.contains("--leave-out bogus: there is no such program; use one of "),
            "{errors}"
        );
        assert!(errors.contains("oom"), "the known names are said: {errors}");
        assert!(errors.trim_end().ends_with("all"), "{errors}");
    }
}

#[test]
fn the_answer_of_check_is_one_line_of_json() {
    let output = on(&fake_node(), &["check", "-o", "json"]);
    let said = text(&output.stdout);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(serde_json::from_str::<Value>(&said).unwrap()["findings"].is_array());
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display().to_string();
    assert_eq!(ebb(&["complete", "man", "--dir", &at]).status.code(), Some(0));
    let help = text(&ebb(&["--help"]).stdout);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .collect();
    assert!(names.contains(&"run") && names.contains(&"cgroups"), "{names:?}");
    for name in names {
        let page = fs::read_to_string(dir.path().join(format!("ebb-{name}.1"))).expect(name);
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(dir.path().join("ebb-cgroups-audit.1").exists());
    let main = fs::read_to_string(dir.path().join("ebb.1")).unwrap();
    assert!(main.contains("Exit codes"), "{main}");
}

/// Through a terminal that `script` makes, as a person has it.
fn on_a_terminal(args: &[&str], set: &[(&str, &str)], stderr_to: Option<&str>) -> Option<String> {
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let to = stderr_to.map(|file| format!(" 2>{file}")).unwrap_or_default();
    let line = format!("'{}' {}{to}", env!("CARGO_BIN_EXE_ebb"), quoted.join(" "));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env_remove("NO_COLOR").env("TERM", "xterm");
    let output = command.envs(set.iter().copied()).output().ok()?;
    Some(text(&output.stdout))
}

#[test]
fn colours_reach_a_terminal_alone_and_only_one_that_wants_them() {
    let node = fake_node();
    let roots = roots(&node);
    let args: Vec<&str> = ["check"].into_iter().chain(roots.iter().map(String::as_str)).collect();
    let piped = ebb(&args);
    assert!(!text(&piped.stdout).contains('\x1b'));
    let Some(shown) = on_a_terminal(&args, &[], None) else {
        // There is no `script` here to make a terminal; what a pipe gets is held all the same.
        return;
    };
    assert!(shown.contains("\x1b[3"), "a terminal gets colours: {shown}");
    for set in [("TERM", "dumb"), ("NO_COLOR", "1")] {
        let shown = on_a_terminal(&args, &[set], None).unwrap();
        assert!(!shown.contains('\x1b'), "{set:?}: {shown}");
    }
}

/// Diagnostics of the program itself go another way than records.
#[test]
fn warnings_carry_no_colours_into_a_file() {
    let node = fake_node();
    let errors = node.path().join("stderr");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["run", "--leave-out", "all"]).args(roots(&node));
    command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("RUST_LOG");
    command.stdout(Stdio::piped()).stderr(fs::File::create(&errors).unwrap());
    let mut child = command.spawn().expect("ebb can be started");
    let mut started = String::new();
    let records = child.stdout.take().expect("it is piped");
    let read = std::io::BufReader::new(records).read_line(&mut started);
    // A node that cannot be read is warned about.
    fs::write(node.path().join("proc/meminfo"), "").unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut said = String::new();
    while said.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        said = fs::read_to_string(&errors).unwrap();
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    read.expect("it has started");
    assert!(said.contains("could not be read"), "{said:?}");
    assert!(!said.contains('\x1b'), "{said:?}");
}

#[test]
fn who_must_never_go_is_listed_by_rank_as_skipped_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let workload = |name: &str, more: Value| {
        let mut workload =
            json!({ "key": { "name": name }, "stats": { "memory": { "workingSet": 1 << 20 } } });
        workload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        workload
    };
    let snapshot = json!({
        "schemaVersion": 1,
        "takenAt": 1,
        "workloads": [
            workload("/init.scope", json!({ "protected": "init" })),
            workload("/ebb.service", json!({ "protected": "agent" })),
            workload("kube-system/etcd", json!({ "kind": "pod", "staticPod": true })),
            workload("/import.service", json!({})),
        ],
    });
    let snapshot = write(dir.path(), "node.json", &snapshot.to_string());
    let said = text(&ebb(&["rank", "--snapshot", &snapshot]).stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("  1. /import.service"), "{said}");
    assert!(said.contains("/init.scope  skipped: protected: process 1 is in it"), "{said}");
    assert!(said.contains("/ebb.service  skipped: protected: ebb itself"), "{said}");
    assert!(said.contains("kube-system/etcd  skipped: critical"), "{said}");
    let answer: Value =
        serde_json::from_slice(&ebb(&["rank", "--snapshot", &snapshot, "-o", "json"]).stdout)
            .unwrap();
    assert_eq!(answer[0]["workload"]["name"], "/import.service");
    assert_eq!(
        answer.as_array().unwrap().iter().filter(|line| line["skipped"].is_object()).count(),
        3
    );
}

/// This process and process 1 on the machine that runs the test.
#[test]
fn on_a_real_machine_neither_init_nor_ebb_is_a_candidate() {
    let output = ebb(&["rank", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    for line in answer.as_array().unwrap() {
        let is_init =
            line["workload"]["process"]["pid"] == 1 || line["workload"]["name"] == "/init.scope";
        assert!(!is_init || line["skipped"].is_object(), "{line}");
    }
}

#[test]
fn a_threshold_above_what_the_machine_has_is_refused_where_that_is_known() {
    let node = fake_node();
    let config =
        write(node.path(), "ebb.yaml", "ebb: {}\nevictionHard: {memory.available: 900Gi}\n");
    let wanted = "ebb.yaml:2: evictionHard[\"memory.available\"] = \"900Gi\": there are only 4.0 GiB here, so it would be met for ever; write less than 4.0 GiB";
    for command in [&["run", "--leave-out", "all"][..], &["check"]] {
        let output = on(&node, &[command, &["--config", &config]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(wanted), "{command:?}: {errors}");
        assert!(output.stdout.is_empty(), "nothing was begun");
    }
    let snapshot = json!({
        "schemaVersion": 1,
        "takenAt": 1,
        "signals": { "memory.available": { "available": 1, "capacity": 4u64 << 30 } },
    });
    let file = write(node.path(), "node.json", &snapshot.to_string());
    let output = ebb(&["plan", "-c", &config, "--snapshot", &file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(wanted), "{}", text(&output.stderr));
    let batch = ebb(&["plan", "-c", &config, "--batch", &file]);
    assert!(text(&batch.stdout).contains("there are only 4.0 GiB here"), "{}", text(&batch.stdout));
    // A snapshot that does not say how much there is cannot be held against it.
    let unknown = write(node.path(), "unknown.json", r#"{"schemaVersion":1,"takenAt":1}"#);
    assert_eq!(ebb(&["plan", "-c", &config, "--snapshot", &unknown]).status.code(), Some(0));
}

#[test]
fn an_option_that_nothing_feeds_is_refused_by_run_and_obeyed_by_plan() {
    let node = fake_node();
    let config =
        write(node.path(), "ebb.yaml", "ebb:\n  spreadOwners: true\n  disruptionBudgets: true\n");
    let output = on(&node, &["run", "--leave-out", "all", "--config", &config]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(
        errors
            .contains("ebb.yaml:2: ebb.spreadOwners = \"true\": nothing here tells who owns a pod"),
        "{errors}"
    );
    assert!(errors.contains("ebb.yaml:3: ebb.disruptionBudgets"), "{errors}");
    let snapshot = write(node.path(), "node.json", r#"{"schemaVersion":1,"takenAt":1}"#);
    assert_eq!(ebb(&["plan", "-c", &config, "--snapshot", &snapshot]).status.code(), Some(0));
}

#[test]
fn what_follows_from_leaving_a_field_out_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let config = write(
        dir.path(),
        "ebb.yaml",
        "evictionHard: {memory.available: 200Mi}\nmergeDefaultEvictionSettings: true\nkubeReserved: {memory: 100Mi}\nebb: {mode: kubernetes}\n",
    );
    let said = text(&ebb(&["plan", "--explain-config", "-c", &config]).stdout);
    for line in [
        "given    evictionHard[\"memory.available\"]: 200Mi",
        "default  evictionHard[\"allocatableMemory.available\"]: 200Mi",
        "default  enforceNodeAllocatable: [pods]",
        "default  evictionPressureTransitionPeriod: 300s",
        "default  imageGCHighThresholdPercent: 85",
        "given    ebb.mode: kubernetes",
        "default  ebb.afterEviction: wait",
        "given    kubeReserved: {memory: 100Mi}",
        "default  cgroupDriver: cgroupfs",
        "default  memorySwap.swapBehavior: NoSwap",
        "default  evictionHard[\"imagefs.available\"]: 15%",
    ] {
        assert!(said.contains(line), "{line}\nis not in\n{said}");
    }
    let bare = text(&ebb(&["plan", "--explain-config"]).stdout);
    assert!(bare.contains("default  evictionHard[\"memory.available\"]: 5%"), "{bare}");
    let check = text(&on(&fake_node(), &["check", "-c", &config]).stdout);
    assert!(check.contains("given    evictionHard[\"memory.available\"]: 200Mi"), "{check}");
}

#[test]
fn what_the_libraries_say_of_a_file_is_said_in_plain_words() {
    let dir = tempfile::tempdir().unwrap();
    for (text_of_file, wanted) in [
        (&b"evictionHard: {}\n---\nevictionHard: {}\n"[..], "there are several documents"),
        (b"a: &a [*a]\n", "an alias stands for a value that contains it"),
        (b"\xff\xfe", "not text in UTF-8"),
    ] {
        let config = dir.path().join("ebb.yaml");
        fs::write(&config, text_of_file).unwrap();
        let output = ebb(&["plan", "--explain-config", "-c", config.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains(wanted), "{said}");
        for word in ["from_str", "recursion types", "stream did not"] {
            assert!(!said.contains(word), "{said}");
        }
    }
}

#[test]
fn a_history_says_its_version_and_what_stands_beside_it_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let snapshot = write(dir.path(), "node.json", r#"{"schemaVersion":1,"takenAt":1}"#);
    for (history, wanted) in [
        ("{}", "schemaVersion: missing"),
        (r#"{"plan":{},"zzz":1,"history":{"schemaVersion":1}}"#, "unknown field `zzz`"),
        (
            r#"{"plan":{},"history":{"schemaVersion":1,"images":{"a":{"firstDetected":"x"}}}}"#,
            "history: images.a.firstDetected",
        ),
    ] {
        let history = write(dir.path(), "history.json", history);
        let output = ebb(&["plan", "--snapshot", &snapshot, "--history", &history]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(wanted), "{}", text(&output.stderr));
    }
}

/// A host with a socket file where a runtime usually has it; nobody listens.
fn with_sockets(
    node: &tempfile::TempDir,
    names: &[&str],
) -> (String, Vec<std::os::unix::net::UnixListener>) {
    let root = node.path().join("host");
    let listeners = names.iter().map(|name| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a directory can be made");
        std::os::unix::net::UnixListener::bind(path).expect("a socket can be made")
    });
    let listeners = listeners.collect();
    (root.display().to_string(), listeners)
}

#[test]
fn the_usual_sockets_are_found_and_used_only_where_pods_are_meant() {
    let node = fake_node();
    let (host, listeners) = with_sockets(&node, &["run/k3s/containerd/containerd.sock"]);
    // Whoever asks the runtime is hung up on at once.
    for listener in listeners {
        std::thread::spawn(move || listener.incoming().for_each(drop));
    }
    let rank = |more: &[&str]| on(&node, &[&["rank", "--host-root", &host], more].concat());
    let standalone = rank(&[]);
    assert_eq!(standalone.status.code(), Some(0), "{}", text(&standalone.stderr));
    let note = text(&standalone.stderr);
    assert!(note.contains("k3s/containerd/containerd.sock, which is not used: --cri"), "{note}");
    assert_eq!(text(&rank(&["--cri", "none"]).stderr), "", "none says that this is meant");
    let kubernetes = write(node.path(), "ebb.yaml", "ebb: {mode: kubernetes}\n");
    let asked = rank(&["-c", &kubernetes]);
    assert_eq!(asked.status.code(), Some(3), "the runtime was asked: {}", text(&asked.stderr));
    assert!(text(&asked.stderr).contains("k3s/containerd/containerd.sock, found there"));
    assert_eq!(rank(&["-c", &kubernetes, "--cri", "none"]).status.code(), Some(0));
    let pods = on(&node, &["pods", "--host-root", &host]);
    assert_eq!(pods.status.code(), Some(3), "{}", text(&pods.stderr));
    let elsewhere = node.path().join("other.sock").display().to_string();
    let explicit = text(&on(&node, &["pods", "--host-root", &host, "--cri", &elsewhere]).stderr);
    assert!(explicit.contains("other.sock") && !explicit.contains("k3s"), "{explicit}");
}

#[test]
fn a_socket_on_which_nobody_listens_is_told_and_is_no_runtime() {
    let node = fake_node();
    let (host, listeners) = with_sockets(&node, &["run/k3s/containerd/containerd.sock"]);
    drop(listeners);
    let rank = on(&node, &["rank", "--host-root", &host]);
    assert_eq!(rank.status.code(), Some(0), "{}", text(&rank.stderr));
    let note = text(&rank.stderr);
    assert!(note.contains("nobody listens on") && note.contains("--cri"), "{note}");
}

#[test]
fn where_several_sockets_are_ebb_does_not_guess() {
    let node = fake_node();
    let (host, _listeners) =
        with_sockets(&node, &["run/crio/crio.sock", "run/containerd/containerd.sock"]);
    let output = on(&node, &["pods", "--host-root", &host]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(errors.contains("containerd.sock") && errors.contains("crio.sock"), "{errors}");
    assert!(errors.contains("--cri SOCKET, or --cri none"), "{errors}");
    let empty = node.path().join("empty").display().to_string();
    let none = on(&node, &["pods", "--host-root", &empty]);
    assert_eq!(none.status.code(), Some(3));
    assert!(
        text(&none.stderr).contains("/run/containerd/containerd.sock"),
        "the usual ones are named"
    );
}

const KUBELET: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 150Mi, nodefs.available: 10%}
";

/// Beside a kubelet, the change to make is said for each threshold on which ebb would not act first.
#[test]
fn check_names_each_threshold_on_which_ebb_does_not_act_before_the_kubelet() {
    let node = fake_node();
    let kubelet = write(node.path(), "kubelet.yaml", KUBELET);
    let of = |hard: &str| {
        let file =
            format!("evictionHard: {hard}\nebb: {{mode: kubernetes, disruptionBudgets: true}}\n");
        let config = write(node.path(), "ebb.yaml", &file);
        let args = ["check", "--kubernetes", "--config", &config, "--kubelet-config", &kubelet];
        let said = text(&on(&node, &args).stdout);
        let json: Value =
            serde_json::from_slice(&on(&node, &[&args[..], &["-o", "json"]].concat()).stdout)
                .unwrap();
        (said, json["facts"]["guardBand"].clone())
    };
    let (said, facts) = of("{memory.available: 200Mi, nodefs.available: 12%}");
    for line in [
        &*format!("live      know the kubelet's thresholds: read from {kubelet}; its flags"),
        "degraded  act before the kubelet: memory.available: the kubelet acts below 150Mi, ebb acts below 200Mi; at least 300Mi is needed\n            write `memory.available: 300Mi` below `evictionHard:`\n",
    ] {
        assert!(said.contains(line), "{line}\nis not in\n{said}");
    }
    assert!(!said.contains("act before the kubelet: nodefs"), "{said}");
    let memory = serde_json::json!({
        "signal": "memory.available", "strength": "hard", "kubelet": "150Mi", "ebb": "200Mi",
        "needed": "at least 300Mi", "hasRoom": false,
        "change": "write `memory.available: 300Mi` below `evictionHard:`",
    });
    assert_eq!(
        (&facts["file"], &facts["thresholds"][0]),
        (&Value::from(kubelet.as_str()), &memory),
        "{facts:#}"
    );
    let (said, facts) = of("{memory.available: 300Mi, nodefs.available: 12%}");
    let line =
        "act before the kubelet: with room between the two: memory.available, nodefs.available";
    assert!(said.contains(line), "{said}");
    assert_eq!(facts["thresholds"][0]["hasRoom"], true);
}

/// What ebb itself decides by is meant as it is, also where it is the kubelet's: both then act at once, which is said.
#[test]
fn a_kubelet_configuration_alone_is_not_raised_above_itself() {
    let node = fake_node();
    let silent = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let kubelet = write(node.path(), "kubelet.yaml", silent);
    let output = on(&node, &["check", "--kubernetes", "--kubelet-config", &kubelet]);
    let said = text(&output.stdout);
    assert!(said.contains("default  evictionHard[\"memory.available\"]: 100Mi"), "{said}");
    assert_eq!(said.matches("degraded  act before the kubelet").count(), 5, "{said}");
}

/// The kubelet's root directory is where its file is looked for.
#[test]
fn check_finds_the_kubelets_file_and_says_what_it_assumes_without_one() {
    let node = fake_node();
    let config = write(node.path(), "ebb.yaml", "ebb: {mode: kubernetes}\n");
    let root = node.path().display().to_string();
    let args = ["check", "--kubernetes", "--config", &config, "--node-fs", &root];
    let said = |args: &[&str]| {
        let output = on(&node, args);
        assert_ne!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let file = node.path().join("config.yaml").display().to_string();
    let without = said(&args);
    let assumed = format!(
        "degraded  know the kubelet's thresholds: the kubelet's defaults are assumed; its flags and drop-in files are not read\n            {file}: the file: it cannot be read: No such file or directory (os error 2); name a readable file; if it is elsewhere, name it with --kubelet-config FILE\n"
    );
    assert!(without.contains(&assumed), "{without}");
    assert!(without.contains("default  evictionHard[\"memory.available\"]: 200Mi"), "{without}");
    write(node.path(), "config.yaml", KUBELET);
    let with = said(&args);
    assert!(with.contains(&format!("read from {file}")), "{with}");
    assert!(with.contains("default  evictionHard[\"memory.available\"]: 300Mi"), "{with}");
    write(node.path(), "config.yaml", &KUBELET.replace("150Mi", "much"));
    let wrong = said(&args);
    assert!(
        wrong.contains(&format!(
            "{file}:3: evictionHard[\"memory.available\"] = \"much\": not a number"
        )),
        "{wrong}"
    );
    // Without a kubelet beside it nothing is compared.
    assert!(!said(&["check", "--config", &config]).contains("kubelet's thresholds"));
}

/// Only beside a kubelet is there a use for both files.
#[test]
fn two_configurations_are_refused_where_nothing_holds_them_against_each_other() {
    let node = fake_node();
    let config = write(node.path(), "ebb.yaml", "ebb: {mode: kubernetes}\n");
    let kubelet = write(node.path(), "kubelet.yaml", KUBELET);
    let both = ["--config", &config, "--kubelet-config", &kubelet];
    for command in [&["run", "--leave-out", "all"][..], &["check"], &["rank"]] {
        let output = on(&node, &[command, &both].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains("--kubelet-config beside --config: only"), "{errors}");
    }
    let standalone = write(node.path(), "ebb.yaml", "ebb: {mode: standalone}\n");
    let output = on(&node, &["check", "--kubernetes", "--config", &standalone]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("write `mode: kubernetes`"));
}
