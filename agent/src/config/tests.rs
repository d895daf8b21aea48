//! What a configuration file may say, and what each mistake in one looks like.
use super::{Beside, CgroupMode, Config, MemoryMeasure, Mode};
use ebb_policy::limits::{Ranking, Victims};

fn mistakes(text: &str) -> Vec<String> {
    Config::parse(text).unwrap_err().to_string().lines().map(str::to_owned).collect()
}

#[test]
fn the_built_in_defaults_are_valid_and_bounded() {
    let config = Config::standalone_default();
    assert_eq!(config.mode, Mode::Standalone);
    let thresholds = config.limits.thresholds();
    let memory = thresholds[0].value.resolve(Some(1 << 40));
    assert_eq!(memory.to_string(), "1Gi");
    assert_eq!(thresholds[0].value.resolve(Some(2 << 30)).ceil(), 107_374_184);
    assert!(thresholds.iter().any(|t| t.signal.name() == "pid.available"));
}

#[test]
fn reading_what_was_printed_gives_the_same_configuration() {
    let text = r#"
evictionHard: { memory.available: "7%", nodefs.available: 1.5Gi }
evictionSoft: { memory.available: 10% }
evictionSoftGracePeriod: { memory.available: 90s }
evictionMinimumReclaim: { memory.available: "0" }
evictionMaxPodGracePeriod: -1
enforceNodeAllocatable: [pods, kube-reserved, system-reserved-compressible]
cgroupDriver: systemd
kubeReserved: { cpu: "0.5", memory: 1Gi }
kubeReservedCgroup: /kubelet.slice
systemReserved: { cpu: 200m, pid: "1000" }
systemReservedCgroup: /system.slice
qosReserved: { memory: 50% }
podPidsLimit: 1024
cpuCFSQuotaPeriod: 50ms
memorySwap: { swapBehavior: LimitedSwap }
featureGates: { MemoryQoS: true, CustomCPUCFSQuotaPeriod: true }
memoryThrottlingFactor: 0.8
memoryReservationPolicy: TieredReservation
singleProcessOOMKill: true
ebb:
  cgroups: { mode: enforce, beside: nobody, create: true, orphanedPods: remove, podManifests: /etc/ebb/pods, period: 500ms, containerWeightCurve: old }
  mode: kubernetes
  enforce: true
  memoryAvailable: workingSet
  protected: ["system.slice/*.service", "with space and \"quotes\": #"]
  priorities: [{ match: "batch*", priority: -5 }, { match: "*", priority: 7 }]
  incidents: { directory: /var/lib/ebb/incidents }
  ranking: attributed
  percentageAtMost: { memory.available: 1500M }
  forecast: { enabled: true, gracePeriod: 1500ms }
  quirks: { noReclaimForNodeFs: false }
"#;
    let once = Config::parse(text).unwrap();
    let again = Config::parse(&once.to_yaml()).unwrap();
    assert_eq!(once, again);
    assert_eq!(once.memory_available, MemoryMeasure::WorkingSet);
    assert_eq!(once.limits.options().ranking, Ranking::Attributed);
    assert_eq!(once.limits.options().victims, Victims::One, "the default of the mode");
    assert_eq!(once.incidents.unwrap().keep, 100);
    let cgroups = &once.cgroups;
    assert_eq!((cgroups.mode, cgroups.beside), (CgroupMode::Enforce, Beside::Nobody));
    assert_eq!(cgroups.options.kube_reserved.milli("cpu"), 500);
}

#[test]
fn every_mistake_about_cgroups_names_its_key() {
    let text = r#"
cgroupDriver: docker
cgroupRoot: /a/../b
kubeReserved: { cpu: 1x, gpu: "1" }
enforceNodeAllocatable: [pods, none, system-reserved, system-reserved-compressible, kube-reserved, all]
qosReserved: { memory: 120%, cpu: 10% }
cpuCFSQuotaPeriod: 2s
podPidsLimit: 9000000
memorySwap: { swapBehavior: Plenty }
memoryThrottlingFactor: 1.5
"#;
    let said = mistakes(text).join("\n");
    for key in [
        "cgroupDriver = \"docker\": not one of the choices; write one of cgroupfs, systemd",
        "cgroupRoot = \"/a/../b\": it is not a name",
        "kubeReserved[\"cpu\"] = \"1x\":",
        "kubeReserved[\"gpu\"] = \"1\": this cannot be reserved",
        "enforceNodeAllocatable = \"all\": not one of the choices",
        "none stands beside others; write none alone",
        "the full and the compressible form of one cgroup contradict each other",
        "systemReservedCgroup: enforceNodeAllocatable asks to hold this cgroup",
        "kubeReservedCgroup: enforceNodeAllocatable asks to hold this cgroup",
        "qosReserved[\"memory\"] = \"120%\": not a percentage",
        "qosReserved[\"cpu\"] = \"10%\": only memory",
        "cpuCFSQuotaPeriod = \"2s\": not a duration between 1ms and 1s",
        "podPidsLimit = \"9000000\": more than the kernel takes",
        "memorySwap.swapBehavior = \"Plenty\": not one of the choices",
        "memoryThrottlingFactor = \"1.5\": out of range",
    ] {
        assert!(said.contains(key), "{key}\nis not in\n{said}");
    }
    let own = mistakes("ebb: { cgroups: { mode: maybe } }").join("\n");
    assert!(own.contains("ebb.cgroups.mode = \"maybe\": not one of the choices"), "{own}");
    assert_eq!(
        Config::parse("ebb: { cgroups: { mode: off } }").unwrap().cgroups.mode,
        CgroupMode::Off
    );
}

#[test]
fn an_unknown_key_suggests_the_nearest_with_its_line() {
    assert_eq!(
        mistakes("evictionMaxPodGracePeriod: 5\nevictionHrad: {}\n"),
        ["configuration:2: evictionHrad: unknown key; did you mean `evictionHard`?"]
    );
    assert_eq!(
        mistakes("ebb:\n  colour: red\n"),
        ["configuration:2: ebb.colour: unknown key; remove it"]
    );
}

#[test]
fn all_mistakes_are_reported_together_in_the_order_of_the_file() {
    let found = mistakes(
        "evictionHard:\n  memory.available: 10 Mi\n  nodefs.available: 120%\nimageGCHighThresholdPercent: 70\nebb:\n  victims: two\n",
    );
    assert_eq!(
        found,
        [
            "configuration:2: evictionHard[\"memory.available\"] = \"10 Mi\": not a number followed by a suffix; write a positive quantity such as \"100Mi\", or a percentage such as \"5%\"",
            "configuration:3: evictionHard[\"nodefs.available\"] = \"120%\": a percentage is between 0% and 100%; write a positive quantity such as \"100Mi\", or a percentage such as \"5%\"",
            "configuration:4: imageGCHighThresholdPercent = \"70\": not above imageGCLowThresholdPercent = 80; write a number above 80, or lower imageGCLowThresholdPercent below 70",
            "configuration:6: ebb.victims = \"two\": not one of the choices; write one of one, enough",
        ]
    );
}

#[test]
fn a_soft_threshold_that_the_hard_one_forestalls_is_refused_and_beside_a_kubelet_warned_about() {
    let text = "evictionHard: {memory.available: 500Mi}\nevictionSoft: {memory.available: 300Mi}\nevictionSoftGracePeriod: {memory.available: 1m}\n";
    assert!(mistakes(text)[0].contains("which acts first and at once"));
    let config = Config::parse(&format!("{text}ebb: {{mode: kubernetes}}\n")).unwrap();
    let warnings: Vec<String> = config.limits.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "evictionSoft[\"memory.available\"] = \"300Mi\": not above evictionHard[\"memory.available\"] = \"500Mi\", which acts first and at once; raise the soft threshold above \"500Mi\" or lower the hard one below \"300Mi\""
        ]
    );
}

#[test]
fn what_is_not_yaml_or_not_a_section_is_one_clear_mistake() {
    assert!(mistakes("evictionHard: [")[0].contains("not YAML that can be read"));
    assert_eq!(
        mistakes("- a\n- b\n"),
        [
            "configuration:1: the file: a list where keys belong; write keys and values, as in `key: value`"
        ]
    );
}

#[test]
fn a_kubelet_configuration_is_read_as_it_is_and_the_rest_named() {
    let text = r#"{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "evictionHard": {"memory.available": "200Mi"}, "clusterDNS": ["10.0.0.1"], "evictonSoft": {}, "featureGates": {"X": true}}"#;
    let config = super::kubelet::parse(super::Draft::default(), text).unwrap();
    assert_eq!(config.mode, Mode::Kubernetes);
    assert_eq!(config.unused, ["clusterDNS", "featureGates.X"]);
    assert_eq!(config.slips, ["2: evictonSoft: unknown field; did you mean evictionSoft?"]);
    let signals: Vec<&str> = config.limits.thresholds().iter().map(|t| t.signal.name()).collect();
    assert_eq!(signals, ["memory.available", "allocatableMemory.available"]);
}

#[test]
fn another_kind_of_file_is_not_taken_for_a_kubelet_configuration() {
    let errors = super::kubelet::parse(super::Draft::default(), "apiVersion: v1\nkind: Pod\n")
        .unwrap_err()
        .to_string();
    assert!(
        errors.contains("apiVersion = \"v1\": this is not a KubeletConfiguration of v1beta1"),
        "{errors}"
    );
    assert!(errors.contains("kind = \"Pod\""), "{errors}");
}

#[test]
fn an_unknown_signal_suggests_the_nearest() {
    let found = mistakes("evictionHard: {memory.avail: 1Gi}");
    assert!(
        found[0].contains("unknown eviction signal; did you mean memory.available? use one of"),
        "{found:?}"
    );
}

#[test]
fn a_key_given_twice_is_refused_with_both_lines() {
    let found = mistakes(
        "evictionHard:\n  memory.available: 1Gi\n  memory.available: 2Gi\nebb:\n  mode: standalone\nebb: {}\n",
    );
    assert_eq!(
        found,
        [
            "configuration:3: evictionHard.memory.available: given twice, first in line 2; keep one of them",
            "configuration:6: ebb: given twice, first in line 4; keep one of them",
        ]
    );
}

#[test]
fn a_section_that_is_misspelt_is_reported_in_the_line_of_its_key() {
    assert_eq!(
        mistakes("evictionMaxPodGracePeriod: 5\nevictionHrd:\n  memory.available: 1Gi\n"),
        ["configuration:2: evictionHrd: unknown key; did you mean `evictionHard`?"]
    );
}

#[test]
fn a_kubelet_configuration_in_the_place_of_ebbs_own_file_is_told_where_it_belongs() {
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDomain: cluster.local\nevictionHard: {}\n";
    assert_eq!(
        mistakes(text),
        [
            "configuration:2: kind = \"KubeletConfiguration\": this is a KubeletConfiguration, not ebb's own file; use --kubelet-config"
        ]
    );
}

#[test]
fn a_signal_by_another_name_suggests_the_kubelets() {
    for (written, meant) in [
        ("disk.available", "nodefs.available"),
        ("disk.inodesFree", "nodefs.inodesFree"),
        ("images.available", "imagefs.available"),
        ("mem.free", "memory.available"),
        ("pids.available", "pid.available"),
    ] {
        let found = mistakes(&format!("evictionHard: {{{written}: 10%}}"));
        assert!(found[0].contains(&format!("did you mean {meant}?")), "{found:?}");
    }
}

#[test]
fn memory_is_combined_with_swap_by_default_only_without_kubernetes() {
    use ebb_policy::Signal;
    let also = |text: &str| {
        let config = Config::parse(text).unwrap();
        let again = Config::parse(&config.to_yaml()).unwrap();
        assert_eq!(config, again, "{text}");
        let memory = |t: &&ebb_policy::limits::Threshold| t.signal == Signal::MemoryAvailable;
        let threshold = config.limits.thresholds().iter().find(memory).copied();
        threshold.and_then(|threshold| threshold.also).map(|also| also.signal)
    };
    let swap = Some(Signal::SwapAvailable);
    assert_eq!(also(""), swap);
    assert_eq!(also("evictionHard: {memory.available: 1Gi}"), swap);
    assert_eq!(also("ebb: {alsoBelow: {}}"), None);
    assert_eq!(also("ebb: {alsoBelow: {memory.available: {}}}"), None);
    assert_eq!(also("ebb: {mode: kubernetes}"), None);
    let told = "ebb: {mode: kubernetes, alsoBelow: {memory.available: {swap.available: 1Gi}}}";
    assert_eq!(also(told), swap);
    assert_eq!(also("evictionHard: {memory.available: 0%, pid.available: 5%}"), None, "off");
}

#[test]
fn a_wrong_pair_is_reported_in_the_line_of_its_inner_key() {
    let text = "evictionHard:\n  memory.available: 1Gi\nebb:\n  alsoBelow:\n    memory.available:\n      swap.available: lots\n";
    let found = mistakes(text);
    let said =
        "configuration:6: ebb.alsoBelow[\"memory.available\"][\"swap.available\"] = \"lots\"";
    assert!(found.len() == 1 && found[0].starts_with(said), "{found:?}");
}

/// What is left out is printed with its default, and reads back as the same.
#[test]
fn a_watched_cgroup_reads_back_as_it_was_printed() {
    let text = "ebb:\n  mode: standalone\n  memoryPressure:\n  - cgroup: /user.slice\n    duration: 10s\nevictionHard:\n  memory.available: 100Mi\n";
    let config = Config::parse(text).unwrap();
    let printed = config.to_yaml();
    assert!(printed.contains("limit: 60%") && printed.contains("duration: 10s"), "{printed}");
    assert_eq!(Config::parse(&printed).unwrap(), config);
}

/// Owners, budgets and what pods ask by annotations are told by an API server alone: where there is one they count unless the text says otherwise, and where there is none asking for them is a mistake.
#[test]
fn what_an_api_server_feeds_is_on_where_there_is_one() {
    let fed = |has_api_server, text| {
        let config = super::Reader { has_api_server }.parse(text).unwrap();
        let options = config.limits.options();
        let on = [options.preferences, options.spread_owners, options.disruption_budgets];
        (on, config.unfed().len())
    };
    let silent = "ebb: {mode: kubernetes}";
    let off = "ebb: {mode: kubernetes, preferences: false, spreadOwners: false}";
    assert_eq!(fed(true, silent), ([true, true, true], 0));
    assert_eq!(fed(true, off), ([false, false, true], 0));
    assert_eq!(fed(false, silent), ([false, false, false], 0));
    let asked = "ebb: {mode: kubernetes, spreadOwners: true}";
    assert_eq!(fed(false, asked), ([false, true, false], 1));
    let of_kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let draft = super::Draft { has_api_server: true, ..super::Draft::default() };
    let config = super::kubelet::parse(draft, of_kubelet).unwrap();
    let options = config.limits.options();
    assert!(options.preferences && options.spread_owners && options.disruption_budgets);
}

#[test]
fn a_hook_reads_back_as_it_was_printed_and_has_two_seconds_unless_the_text_says_otherwise() {
    let of = |text: &str| {
        let config = Config::parse(text).unwrap();
        assert_eq!(Config::parse(&config.to_yaml()).unwrap(), config);
        config.before_eviction.map(|hook| (hook.socket, hook.deadline.as_millis()))
    };
    let socket = std::path::PathBuf::from("/run/app/hook.sock");
    let short = "ebb: {hooks: {beforeEviction: {socket: /run/app/hook.sock}}}";
    assert_eq!(of(short), Some((socket.clone(), 2_000)));
    for (written, ms) in [("10s", 10_000), ("1ms", 1)] {
        let text = format!(
            "ebb: {{hooks: {{beforeEviction: {{socket: /run/app/hook.sock, deadline: {written}}}}}}}"
        );
        assert_eq!(of(&text), Some((socket.clone(), ms)));
    }
    for none in ["", "ebb: {hooks: {}}", "ebb: {hooks: {beforeEviction: null}}"] {
        assert_eq!(of(none), None);
    }
}

#[test]
fn every_mistake_about_a_hook_names_its_key_and_what_would_be_right() {
    let of = |before: &str| {
        mistakes(&format!("ebb:\n  hooks:\n    beforeEviction:\n{before}\n")).join("\n")
    };
    let socket = "      socket: /run/hook.sock\n";
    let key = "ebb.hooks.beforeEviction";
    for (before, said) in [
        (
            "      deadline: 2s",
            format!(
                "configuration:3: {key}.socket: missing; write the absolute path of a Unix stream socket"
            ),
        ),
        (
            "      socket: run/hook.sock",
            format!(
                "configuration:4: {key}.socket = \"run/hook.sock\": not the absolute path of a socket; write the absolute path"
            ),
        ),
        ("      socket: /run/", format!("{key}.socket = \"/run/\": not the absolute path")),
        (&format!("      socket: /{}", "x".repeat(107)), "longer than the 107 bytes".to_owned()),
        (
            &format!("{socket}      deadline: 0s"),
            format!(
                "configuration:5: {key}.deadline = \"0s\": out of range; write a duration above 0 and up to 10s"
            ),
        ),
        (
            &format!("{socket}      deadline: 10001ms"),
            format!("{key}.deadline = \"10001ms\": out of range"),
        ),
        (
            &format!("{socket}      deadline: -1s"),
            format!("{key}.deadline = \"-1s\": not a duration"),
        ),
        (
            &format!("{socket}      deadline: 2"),
            format!("{key}.deadline = \"2\": a number where text belongs; write it in quotes"),
        ),
        (
            &format!("{socket}      command: /bin/true"),
            format!("{key}.command: unknown key; remove it"),
        ),
    ] {
        let found = of(before);
        assert!(found.contains(&said), "{said}\nis not in\n{found}");
    }
    let found = mistakes("ebb:\n  hooks:\n    beforeEvicting: {}\n").join("\n");
    assert!(
        found.contains("ebb.hooks.beforeEvicting: unknown key; did you mean `beforeEviction`?"),
        "{found}"
    );
}

#[test]
fn namespaces_that_may_protect_their_pods_are_written_out_one_by_one() {
    let text = "ebb: {mode: kubernetes, evictNeverIn: [payments], evictAvoidIn: [batch]}";
    let config = Config::parse(text).unwrap();
    assert!(config.contract.honours_avoid("batch") && !config.contract.honours_avoid("payments"));
    assert!(config.contract.honours_never("payments"));
    assert!(!config.contract.honours_never("payment") && !config.contract.honours_never(""));
    let again = Config::parse(&config.to_yaml()).unwrap();
    assert_eq!(again.contract, config.contract);
    for key in ["evictNeverIn", "evictAvoidIn"] {
        for wrong in ["'*'", "''", "Payments", "'pay/ments'"] {
            let text = format!("ebb: {{mode: kubernetes, {key}: [{wrong}]}}");
            let errors = Config::parse(&text).unwrap_err().to_string();
            assert!(errors.contains(&format!("ebb.{key}")), "{wrong}: {errors}");
            assert!(errors.contains("write each namespace out"), "{wrong}: {errors}");
        }
    }
    let errors = config.unfed();
    let keys: Vec<&str> = errors.iter().map(|error| error.key.as_str()).collect();
    // Only an API server tells of annotations.
    assert_eq!(keys, ["ebb.evictNeverIn", "ebb.evictAvoidIn"]);
}
