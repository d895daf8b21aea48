//! With which privileges `ebb run` would go on once it is set up, and what is missing of those that it has a use for. Pure.

use super::Facts;
use super::finding::{Finding, Status};
use ebb_agent::privileges::{Features, Held, Row, TABLE, kept};

/// What the finding is about.
pub(super) const CONFINED: &str = "give up privileges after set-up";

/// Why the third of the usual means is not among them; decision 0025.
const LANDLOCK: &str =
    "Landlock not used: it forbids to read the programs and namespaces of other processes";

/// With what this host and these privileges leave.
pub(super) fn finding(facts: &Facts) -> Finding {
    let features = Features {
        enforce: facts.enforce,
        cgroups: facts.cgroups.unified().is_some(),
        bpf: !facts.told().is_empty(),
        reflex: false,
        // As where limits may be raised.
        memlock: true,
        rtprio: true,
    };
    let Some(held) = &facts.privileges else {
        return Finding {
            what: CONFINED,
            status: Status::Degraded,
            source: "nothing: which capabilities this process has cannot be read".into(),
            advice: Some("mount procfs at /proc".into()),
        };
    };
    let has = |row: &&Row| held.has(row.capability.index());
    let names: Vec<String> = kept(&features).filter(has).map(Row::name).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    let mut by = format!(
        "capabilities kept: {names}; no_new_privs on; seccomp {}; {LANDLOCK}",
        facts.seccomp.word()
    );
    if let Some((pid, held)) = &facts.running {
        by = format!("{by}. In force in the running ebb (pid {pid}): {held}");
    }
    let absent = TABLE.iter().filter(|row| !has(row) && is_of_use(row, held, facts.enforce));
    let absent: Vec<String> = absent
        .map(|row| format!("{} ({}) is missing: {}", row.name(), row.for_what, row.without))
        .collect();
    let advice = (!absent.is_empty()).then(|| absent.join("; "));
    let status = if absent.is_empty() { Status::Live } else { Status::Degraded };
    Finding { what: CONFINED, status, source: by, advice }
}

/// Whether its absence costs anything: in a dry run nothing is killed, and one capability may imply another.
fn is_of_use(row: &Row, held: &Held, enforce: bool) -> bool {
    use caps::Capability as C;
    match row.capability {
        C::CAP_KILL | C::CAP_DAC_OVERRIDE => enforce,
        C::CAP_DAC_READ_SEARCH => !held.has(C::CAP_DAC_OVERRIDE.index()),
        C::CAP_BPF | C::CAP_PERFMON => !held.has(C::CAP_SYS_ADMIN.index()),
        _ => true,
    }
}
