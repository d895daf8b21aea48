//! How far ebb's thresholds must stand above the kubelet's.
use super::*;
use crate::config::Reader;

const GIB: u64 = 1 << 30;
/// What the agent of each node is shipped with.
const SHIPPED: &str = include_str!("../../../../deploy/kustomize/node/ebb.yaml");

fn kubelet(text: &str) -> Kubelet {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let limits = kubelet::limits(&format!("{head}{text}")).unwrap();
    let thresholds = limits.thresholds().to_vec();
    Kubelet { file: Some("/k".into()), errors: Vec::new(), thresholds }
}

fn ebb(text: &str) -> Config {
    Reader { has_api_server: true }.parse(text).unwrap()
}

/// A node of so much memory, with 100 GiB of disk and 32768 task ids; the filesystem of images is not known before there is a runtime.
fn node(memory: u64) -> Capacities {
    [
        (Signal::MemoryAvailable, memory),
        (Signal::NodeFsAvailable, 100 * GIB),
        (Signal::PidAvailable, 32768),
    ]
    .into()
}

/// Of the only threshold of the kubelet: whether there is room, and what to write.
fn of(ebbs: &str, kubelets: &str, memory: u64) -> (Option<bool>, Option<String>) {
    let found = guard_band(&ebb(ebbs).limits, &kubelet(kubelets), &node(memory));
    let [band] = found.thresholds.as_slice() else { panic!("{found:#?}") };
    (band.has_room, band.change.clone())
}

fn write(line: &str) -> (Option<bool>, Option<String>) {
    (Some(false), Some(format!("write `{line}` below `evictionHard:`")))
}

const ROOM: (Option<bool>, Option<String>) = (Some(true), None);

#[test]
fn memory_needs_twice_the_kubelets_and_two_percent_of_the_node_whichever_is_more() {
    let of = |ebbs: &str, memory| {
        of(
            &format!("evictionHard: {{memory.available: {ebbs}}}"),
            "evictionHard: {memory.available: 100Mi}",
            memory,
        )
    };
    // 2 % of 4 GiB are 82 MiB, of 24 GiB 492 MiB.
    assert_eq!(of("199Mi", 4 * GIB), write("memory.available: 200Mi"));
    assert_eq!(of("200Mi", 4 * GIB), ROOM);
    assert_eq!(of("491Mi", 24 * GIB), write("memory.available: 492Mi"));
    assert_eq!(of("492Mi", 24 * GIB), ROOM);
    assert_eq!(of("2%", 24 * GIB), ROOM);
    assert_eq!(of("2%", 4 * GIB), write("memory.available: 200Mi"));
}

#[test]
fn where_the_kubelet_takes_more_than_half_of_the_memory_what_is_left_is_halved() {
    let high = "evictionHard: {memory.available: 62.5%}";
    let said = of("evictionHard: {memory.available: 63%}", high, 16 * GIB);
    assert_eq!(said, write("memory.available: 13312Mi"));
    assert_eq!(of("evictionHard: {memory.available: 13Gi}", high, 16 * GIB), ROOM);
    // No room is left: nothing that could be written would help.
    let all = "evictionHard: {memory.available: 20Gi}";
    assert_eq!(of("evictionHard: {memory.available: 1Gi}", all, 10 * GIB), (Some(false), None));
}

#[test]
fn disk_inodes_and_task_ids_must_be_above_the_kubelets() {
    let of = |signal: &str, ebbs: &str, kubelets: &str| {
        of(
            &format!("evictionHard: {{{signal}: {ebbs}}}"),
            &format!("evictionHard: {{{signal}: {kubelets}}}"),
            4 * GIB,
        )
    };
    assert_eq!(of("nodefs.available", "10%", "10%"), write("nodefs.available: 12%"));
    assert_eq!(of("nodefs.available", "10.5%", "10%"), ROOM);
    assert_eq!(of("nodefs.available", "10Gi", "10Gi"), write("nodefs.available: 12288Mi"));
    assert_eq!(of("nodefs.available", "11Gi", "10Gi"), ROOM);
    // 10 % of 100 GiB.
    assert_eq!(of("nodefs.available", "10Gi", "10%"), write("nodefs.available: 12%"));
    assert_eq!(of("nodefs.available", "10.1Gi", "10%"), ROOM);
    assert_eq!(of("imagefs.inodesFree", "5%", "5%"), write("imagefs.inodesFree: 7%"));
    assert_eq!(of("nodefs.available", "99%", "99%"), write("nodefs.available: 99.5%"));
    let numbers = of("pid.available", "\"1000\"", "\"1000\"");
    assert_eq!(numbers, write("pid.available: \"1200\""));
    assert_eq!(of("pid.available", "\"1001\"", "\"1000\""), ROOM);
}

#[test]
fn what_is_not_known_is_neither_enough_nor_too_little() {
    let unknown = (None, None);
    let images = "evictionHard: {imagefs.available: 15%}";
    assert_eq!(of("evictionHard: {imagefs.available: 1Gi}", images, 4 * GIB), unknown);
    assert_eq!(of("evictionHard: {imagefs.available: 16%}", images, 4 * GIB), ROOM);
    let memory = "evictionHard: {memory.available: 100Mi}";
    assert_eq!(of("evictionHard: {memory.available: 1Gi}", memory, 0), unknown);
    let found = guard_band(&ebb("").limits, &kubelet(memory), &node(0));
    assert_eq!(found.thresholds[0].needed, None);
}

#[test]
fn a_threshold_that_the_kubelet_does_not_wait_for_does_not_count() {
    let memory = "evictionHard: {memory.available: 100Mi}";
    let missing = write("memory.available: 200Mi");
    assert_eq!(of("evictionHard: {nodefs.available: 12%}", memory, 4 * GIB), missing);
    let soft = "evictionHard: {}\nevictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 30s}";
    assert_eq!(of(soft, memory, 4 * GIB), missing);
    let also = "evictionHard: {memory.available: 1Gi}\nebb: {alsoBelow: {memory.available: {swap.available: 10%}}}";
    assert_eq!(of(also, memory, 4 * GIB), missing);
}

#[test]
fn a_soft_threshold_of_the_kubelet_is_preceded_by_one_that_waits_no_longer() {
    let soft = |value: &str, grace: &str| {
        format!(
            "evictionHard: {{}}\nevictionSoft: {{memory.available: {value}}}\nevictionSoftGracePeriod: {{memory.available: {grace}}}"
        )
    };
    let kubelets = soft("500Mi", "90s");
    let said = of(&soft("600Mi", "2m"), &kubelets, 4 * GIB);
    let change = "write `memory.available: 600Mi` below `evictionSoft:` and `memory.available: 90s` below `evictionSoftGracePeriod:`";
    assert_eq!(said, (Some(false), Some(change.to_owned())));
    assert_eq!(of(&soft("500Mi", "30s"), &kubelets, 4 * GIB).0, Some(false), "not above");
    assert_eq!(of(&soft("501Mi", "90s"), &kubelets, 4 * GIB), ROOM);
    assert_eq!(of("evictionHard: {memory.available: 501Mi}", &kubelets, 4 * GIB), ROOM);
}

#[test]
fn a_kubelet_that_says_nothing_has_its_defaults_and_one_that_says_something_no_others() {
    let signals = |kubelet: &Kubelet| -> Vec<String> {
        kubelet.compared().map(|t| format!("{} {}", t.signal, t.written())).collect()
    };
    let all = [
        "memory.available 100Mi",
        "nodefs.available 10%",
        "nodefs.inodesFree 5%",
        "imagefs.available 15%",
        "imagefs.inodesFree 5%",
    ];
    assert_eq!(signals(&Kubelet::defaults()), all);
    assert_eq!(signals(&kubelet("")), all);
    let some = "evictionHard: {memory.available: 1Gi}";
    assert_eq!(signals(&kubelet(some)), ["memory.available 1Gi"]);
    let merged = kubelet(&format!("{some}\nmergeDefaultEvictionSettings: true"));
    assert_eq!(signals(&merged).len(), 5);
}

#[test]
fn hard_thresholds_that_are_left_out_stay_above_the_kubelets() {
    let written = |text: &str, kubelet: &Kubelet, memory| -> Vec<String> {
        let config = ebb(text).above(kubelet, &node(memory));
        assert_eq!(Config::parse(&config.to_yaml()).unwrap().limits, config.limits);
        let hard = config.limits.thresholds().iter().filter(|t| is_compared(t.signal));
        hard.map(|t| format!("{} {}", t.signal, t.written())).collect()
    };
    let disk = [
        "nodefs.available 12%",
        "nodefs.inodesFree 7%",
        "imagefs.available 17%",
        "imagefs.inodesFree 7%",
    ];
    let default = Kubelet::defaults();
    assert_eq!(written("", &default, 4 * GIB), [&["memory.available 200Mi"], &disk[..]].concat());
    assert_eq!(written("", &default, 24 * GIB), [&["memory.available 492Mi"], &disk[..]].concat());
    // What the kubelet alone watches is watched; what it does not watch keeps its default.
    let other = kubelet("evictionHard: {memory.available: 1Gi, pid.available: 10%}");
    let said = written("", &other, 8 * GIB);
    assert_eq!(said[0], "memory.available 2Gi");
    assert!(said.contains(&"pid.available 12%".to_owned()), "{said:?}");
    assert!(said.contains(&"nodefs.available 10%".to_owned()), "{said:?}");
    // What the file says holds, and what it leaves out of a list that it gives is off, as for the kubelet.
    let given = "evictionHard: {memory.available: 150Mi}";
    assert_eq!(written(given, &default, 4 * GIB), ["memory.available 150Mi"]);
    let merged =
        written(&format!("{given}\nmergeDefaultEvictionSettings: true"), &default, 4 * GIB);
    assert_eq!(merged, [&["memory.available 150Mi"], &disk[..]].concat());
    let off = "evictionHard: {memory.available: 0%}\nmergeDefaultEvictionSettings: true";
    assert_eq!(written(off, &default, 4 * GIB), disk);
}

#[test]
fn what_is_shipped_leaves_room_above_any_kubelet_on_nodes_of_every_size() {
    let kubelets = [
        Kubelet::defaults(),
        kubelet(
            "evictionHard: {memory.available: 500Mi, nodefs.available: 20%, pid.available: 10%}",
        ),
    ];
    for memory in [4 * GIB, 24 * GIB, 256 * GIB] {
        for kubelet in &kubelets {
            let config = ebb(SHIPPED).above(kubelet, &node(memory));
            let found = guard_band(&config.limits, kubelet, &node(memory));
            assert!(found.thresholds.len() >= 3);
            for band in &found.thresholds {
                assert_eq!(band.has_room, Some(true), "{memory}: {}", band.shown());
            }
            assert!(config.out_of_reach(&node(memory)).is_empty());
        }
    }
}

#[test]
fn a_kubelet_configuration_that_cannot_be_read_is_told_and_the_defaults_are_assumed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    let shown = file.display().to_string();
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    for (text, said) in [
        (None, ": the file: it cannot be read: "),
        (
            Some("apiVersion: v1\nkind: Pod\n"),
            ":2: kind = \"Pod\": this is not a KubeletConfiguration",
        ),
        (
            Some(&*format!("{head}evictionHard: {{memory.available: lots}}\n")),
            ":3: evictionHard[\"memory.available\"] = \"lots\": not a number",
        ),
    ] {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let kubelet = Kubelet::load(&file);
        let errors = kubelet.errors.join("\n");
        assert!(errors.contains(&format!("{shown}{said}")), "{said}: {errors}");
        assert_eq!((kubelet.file, kubelet.thresholds), (None, Kubelet::defaults().thresholds));
    }
    // What ebb itself would refuse or does not know is none of its business here.
    std::fs::write(
        &file,
        format!("{head}kubeReserved: {{gpu: many}}\nimageGCHighThresholdPercent: 7\nnew: {{}}\n"),
    )
    .unwrap();
    assert_eq!(Kubelet::load(&file).file, Some(file));
}
