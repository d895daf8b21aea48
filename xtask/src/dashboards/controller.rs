//! The cluster collector: whether it sees everything, what it does, and how soon.

use super::Kind::{BadNumber, Bars, Lines, Number};
use super::{Dashboard, Panel, Row};

pub(super) const DASHBOARD: Dashboard = Dashboard {
    uid: "ebb-controller",
    title: "ebb: cluster collector",
    variables: &[],
    rows: &[NOW, WORK, WATCHES],
};

const NOW: Row = Row {
    title: "Now",
    panels: &[
        Panel {
            title: "Leading",
            about: "Collectors that may act: one, or none for some seconds after a leader is gone.",
            kind: Number,
            unit: "none",
            width: 6,
            queries: &[("sum(ebb_controller_leading)", "leading")],
        },
        Panel {
            title: "Not ready",
            about: "Collectors of which a watch is neither synced nor known to be broken.",
            kind: BadNumber,
            unit: "none",
            width: 6,
            queries: &[("sum(ebb_controller_ready == bool 0)", "not ready")],
        },
        Panel {
            title: "Kinds that cannot be watched",
            about: "What depends on an owner of such a kind stays as it is.",
            kind: BadNumber,
            unit: "none",
            width: 6,
            queries: &[("sum(max by (resource) (ebb_controller_resource_broken))", "kinds")],
        },
        Panel {
            title: "Objects",
            about: "Objects in the graph of owners and dependents.",
            kind: Number,
            unit: "short",
            width: 6,
            queries: &[("max(ebb_controller_objects)", "objects")],
        },
    ],
};

const WORK: Row = Row {
    title: "Work",
    panels: &[
        Panel {
            title: "Verdicts",
            about: "What was judged, by kind.",
            kind: Bars,
            unit: "short",
            width: 12,
            queries: &[(
                "sum by (verdict) (increase(ebb_controller_verdicts_total[$__interval]))",
                "{{verdict}}",
            )],
        },
        Panel {
            title: "Requests",
            about: "Requests to the API server each second, by verb and code.",
            kind: Lines,
            unit: "reqps",
            width: 12,
            queries: &[(
                "sum by (verb, code) (rate(ebb_controller_requests_total[$__rate_interval]))",
                "{{verb}} {{code}}",
            )],
        },
        Panel {
            title: "Time from an event to success",
            about: "How long an act took from the event that made it due until the API server had done it.",
            kind: Lines,
            unit: "s",
            width: 12,
            queries: &[
                (
                    "histogram_quantile(0.5, sum by (le) (rate(ebb_controller_act_seconds_bucket[$__rate_interval])))",
                    "p50",
                ),
                (
                    "histogram_quantile(0.99, sum by (le) (rate(ebb_controller_act_seconds_bucket[$__rate_interval])))",
                    "p99",
                ),
            ],
        },
        Panel {
            title: "Waiting and under way",
            about: "Objects and look-ups that wait for their turn; requests under way, and how many may be, which follows how fast the API server answers.",
            kind: Lines,
            unit: "short",
            width: 12,
            queries: &[
                ("max(ebb_controller_queued)", "waiting"),
                ("max(ebb_controller_requests_in_flight)", "under way"),
                ("max(ebb_controller_requests_window)", "may be under way"),
            ],
        },
    ],
};

const WATCHES: Row = Row {
    title: "Watches",
    panels: &[
        Panel {
            title: "Kinds that are not synced",
            about: "Of which not everything is known yet: 1 for each.",
            kind: Lines,
            unit: "none",
            width: 12,
            queries: &[(
                "(1 - min by (resource) (ebb_controller_resource_synced)) > 0",
                "{{resource}}",
            )],
        },
        Panel {
            title: "Since a watch last reported",
            about: "The ten kinds that have been quiet for longest. An API server sends a bookmark every minute.",
            kind: Lines,
            unit: "s",
            width: 12,
            queries: &[(
                "topk(10, max by (resource) (ebb_controller_resource_quiet_seconds))",
                "{{resource}}",
            )],
        },
    ],
};
