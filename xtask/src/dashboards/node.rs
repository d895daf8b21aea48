//! The agents: how much headroom the nodes have, whom ebb evicted and how fast, and what ebb costs.

use super::Kind::{BadNumber, Bars, Lines, Number};
use super::{Dashboard, Panel, Row, Variable};

pub(super) const DASHBOARD: Dashboard = Dashboard {
    uid: "ebb-node",
    title: "ebb: nodes",
    variables: &[Variable { name: "node", label: "Node", query: "label_values(ebb_ready, node)" }],
    rows: &[NOW, HEADROOM, EVICTIONS, SPEED, COLLECTION, TROUBLE, COST],
};

const NOW: Row = Row {
    title: "Now",
    panels: &[
        Panel {
            title: "Agents ready",
            about: "Agents whose sources of pods all answer. Memory is watched by the others, too.",
            kind: Number,
            unit: "none",
            width: 4,
            queries: &[("sum(ebb_ready{node=~\"$node\"})", "ready")],
        },
        Panel {
            title: "Agents not ready",
            about: "The container runtime or the API server does not tell them of pods; their /readyz says which.",
            kind: BadNumber,
            unit: "none",
            width: 4,
            queries: &[("sum(ebb_ready{node=~\"$node\"} == bool 0)", "not ready")],
        },
        Panel {
            title: "Signals below a threshold",
            about: "Of all nodes together, at this moment. One with a second condition (alsoBelow) counts although that may not hold.",
            kind: BadNumber,
            unit: "none",
            width: 4,
            queries: &[(
                "sum(ebb_signal_available{node=~\"$node\"} < bool ebb_signal_threshold{node=~\"$node\"})",
                "short",
            )],
        },
        Panel {
            title: "Workloads terminated",
            about: "Workloads of which nothing runs any more because ebb evicted them, in the time that is shown.",
            kind: Number,
            unit: "none",
            width: 4,
            queries: &[(
                "sum(increase(ebb_terminations_total{node=~\"$node\"}[$__range]))",
                "terminated",
            )],
        },
        Panel {
            title: "Terminations timed out",
            about: "Workloads that were still there when their time was over: their processes wait for a disk or another process, most likely.",
            kind: BadNumber,
            unit: "none",
            width: 4,
            queries: &[(
                "sum(increase(ebb_terminations_timed_out_total{node=~\"$node\"}[$__range]))",
                "timed out",
            )],
        },
        Panel {
            title: "OOM kills for lack of the node's memory",
            about: "The kernel was faster than ebb, or ebb found nobody that it may evict.",
            kind: BadNumber,
            unit: "none",
            width: 4,
            queries: &[(
                "sum(increase(ebb_oom_kills_total{limit=\"node\",node=~\"$node\"}[$__range]))",
                "killed",
            )],
        },
    ],
};

const HEADROOM: Row = Row {
    title: "Headroom above the highest threshold",
    panels: &[
        Panel {
            title: "Memory and swap",
            about: "What is left above the threshold; at zero it is met.",
            kind: Lines,
            unit: "bytes",
            width: 8,
            queries: &[(
                "clamp_min(ebb_signal_available{signal=~\".*emory.*|swap.*\",node=~\"$node\"} - ebb_signal_threshold{signal=~\".*emory.*|swap.*\",node=~\"$node\"}, 0)",
                "{{node}} {{signal}}",
            )],
        },
        Panel {
            title: "Disk",
            about: "The same of the filesystems of the node, of images and of containers.",
            kind: Lines,
            unit: "bytes",
            width: 8,
            queries: &[(
                "clamp_min(ebb_signal_available{signal=~\".*fs.available\",node=~\"$node\"} - ebb_signal_threshold{signal=~\".*fs.available\",node=~\"$node\"}, 0)",
                "{{node}} {{signal}}",
            )],
        },
        Panel {
            title: "Inodes and task ids",
            about: "The same of what is counted.",
            kind: Lines,
            unit: "short",
            width: 8,
            queries: &[(
                "clamp_min(ebb_signal_available{signal=~\".*inodesFree|pid.available\",node=~\"$node\"} - ebb_signal_threshold{signal=~\".*inodesFree|pid.available\",node=~\"$node\"}, 0)",
                "{{node}} {{signal}}",
            )],
        },
    ],
};

const EVICTIONS: Row = Row {
    title: "Evictions",
    panels: &[
        Panel {
            title: "Thresholds crossed",
            about: "How often each signal fell below a threshold.",
            kind: Bars,
            unit: "short",
            width: 8,
            queries: &[(
                "sum by (signal) (increase(ebb_thresholds_crossed_total{node=~\"$node\"}[$__interval]))",
                "{{signal}}",
            )],
        },
        Panel {
            title: "Decisions to evict",
            about: "By what was short: a signal, or the memory of a cgroup whose pressure is watched.",
            kind: Bars,
            unit: "short",
            width: 8,
            queries: &[(
                "sum by (signal) (increase(ebb_evictions_decided_total{node=~\"$node\"}[$__interval]))",
                "{{signal}}",
            )],
        },
        Panel {
            title: "What ebb did",
            about: "Kills, signals, requests to terminate; dryRun is what it would have done.",
            kind: Bars,
            unit: "short",
            width: 8,
            queries: &[(
                "sum by (method) (increase(ebb_evictions_total{node=~\"$node\"}[$__interval]))",
                "{{method}}",
            )],
        },
        Panel {
            title: "What the kernel's OOM killer did",
            about: "By whose limit: that of the node, or a cgroup's own.",
            kind: Bars,
            unit: "short",
            width: 8,
            queries: &[(
                "sum by (limit) (increase(ebb_oom_kills_total{node=~\"$node\"}[$__interval]))",
                "{{limit}}",
            )],
        },
        Panel {
            title: "What became of evictions",
            about: "Terminated; not terminated in time; not done, because they were refused or not needed any more.",
            kind: Bars,
            unit: "short",
            width: 8,
            queries: &[
                (
                    "sum(increase(ebb_terminations_total{node=~\"$node\"}[$__interval]))",
                    "terminated",
                ),
                (
                    "sum(increase(ebb_terminations_timed_out_total{node=~\"$node\"}[$__interval]))",
                    "timed out",
                ),
                (
                    "sum(increase(ebb_evictions_not_done_total{node=~\"$node\"}[$__interval]))",
                    "not done",
                ),
            ],
        },
        Panel {
            title: "Evictions at the API server",
            about: "Those that were reported to it, and those that a disruption budget refused.",
            kind: Bars,
            unit: "short",
            width: 8,
            queries: &[
                (
                    "sum(increase(ebb_evictions_told_total{node=~\"$node\"}[$__interval]))",
                    "reported",
                ),
                (
                    "sum(increase(ebb_evictions_refused_total{node=~\"$node\"}[$__interval]))",
                    "refused by a budget",
                ),
            ],
        },
    ],
};

const SPEED: Row = Row {
    title: "From the crossing on",
    panels: &[
        Panel {
            title: "p50, in the time that is shown",
            about: "From the crossing of a threshold to the look that found it, the decision, the kill or signal, and until enough was available again. Grace periods of soft thresholds count, and so do dry runs. 30 s stands for that or longer.",
            kind: Number,
            unit: "s",
            width: 12,
            queries: &[
                (
                    "histogram_quantile(0.5, sum by (le) (increase(ebb_crossing_seen_seconds_bucket{node=~\"$node\"}[$__range]))) >= 0",
                    "seen",
                ),
                (
                    "histogram_quantile(0.5, sum by (le) (increase(ebb_crossing_decided_seconds_bucket{node=~\"$node\"}[$__range]))) >= 0",
                    "decided",
                ),
                (
                    "histogram_quantile(0.5, sum by (le) (increase(ebb_crossing_ended_seconds_bucket{node=~\"$node\"}[$__range]))) >= 0",
                    "acted",
                ),
                (
                    "histogram_quantile(0.5, sum by (le) (increase(ebb_crossing_relieved_seconds_bucket{node=~\"$node\"}[$__range]))) >= 0",
                    "relieved",
                ),
            ],
        },
        Panel {
            title: "p99, in the time that is shown",
            about: "The same for the slowest of a hundred. A node whose processors are starved shows here first.",
            kind: Number,
            unit: "s",
            width: 12,
            queries: &[
                (
                    "histogram_quantile(0.99, sum by (le) (increase(ebb_crossing_seen_seconds_bucket{node=~\"$node\"}[$__range]))) >= 0",
                    "seen",
                ),
                (
                    "histogram_quantile(0.99, sum by (le) (increase(ebb_crossing_decided_seconds_bucket{node=~\"$node\"}[$__range]))) >= 0",
                    "decided",
                ),
                (
                    "histogram_quantile(0.99, sum by (le) (increase(ebb_crossing_ended_seconds_bucket{node=~\"$node\"}[$__range]))) >= 0",
                    "acted",
                ),
                (
                    "histogram_quantile(0.99, sum by (le) (increase(ebb_crossing_relieved_seconds_bucket{node=~\"$node\"}[$__range]))) >= 0",
                    "relieved",
                ),
            ],
        },
    ],
};

const COLLECTION: Row = Row {
    title: "Garbage collection",
    panels: &[Panel {
        title: "Removed",
        about: "Dead containers and sandboxes, unused images, logs of pods that are gone; in a dry run, what would have been.",
        kind: Bars,
        unit: "short",
        width: 24,
        queries: &[(
            "sum by (kind) (increase(ebb_collected_total{node=~\"$node\"}[$__interval]))",
            "{{kind}}",
        )],
    }],
};

const TROUBLE: Row = Row {
    title: "What ebb misses",
    panels: &[
        Panel {
            title: "Sources of pods that answer",
            about: "1 where the runtime or the API server tells of pods, 0 where it does not: what was told last counts then.",
            kind: Lines,
            unit: "none",
            width: 8,
            queries: &[("min by (source) (ebb_source_up{node=~\"$node\"})", "{{source}}")],
        },
        Panel {
            title: "Degradations",
            about: "Records `degraded`: each says what was not to be had and what that means.",
            kind: Bars,
            unit: "short",
            width: 8,
            queries: &[(
                "sum by (node, part) (increase(ebb_degradations_total{node=~\"$node\"}[$__interval]))",
                "{{node}} {{part}}",
            )],
        },
        Panel {
            title: "Events and records lost",
            about: "Events of the kernel that found no room, after which state is read anew, and records that nobody can read later.",
            kind: Bars,
            unit: "short",
            width: 8,
            queries: &[
                (
                    "sum by (kind) (increase(ebb_kernel_events_lost_total{node=~\"$node\"}[$__interval]))",
                    "{{kind}}",
                ),
                (
                    "sum(increase(ebb_records_dropped_total{node=~\"$node\"}[$__interval]))",
                    "records",
                ),
                (
                    "sum(increase(ebb_incidents_lost_total{node=~\"$node\"}[$__interval]))",
                    "incident records",
                ),
            ],
        },
    ],
};

const COST: Row = Row {
    title: "What ebb costs",
    panels: &[
        Panel {
            title: "Processor",
            about: "Share of one core that each agent uses.",
            kind: Lines,
            unit: "percentunit",
            width: 12,
            queries: &[(
                "rate(process_cpu_seconds_total{node=~\"$node\"}[$__rate_interval]) and on (node, instance) ebb_ready",
                "{{node}}",
            )],
        },
        Panel {
            title: "Memory",
            about: "What each agent has resident.",
            kind: Lines,
            unit: "bytes",
            width: 12,
            queries: &[(
                "process_resident_memory_bytes{node=~\"$node\"} and on (node, instance) ebb_ready",
                "{{node}}",
            )],
        },
    ],
};
