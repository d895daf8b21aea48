//! Who suffers and who causes it: memory stall that others bring about, told apart from what a workload does to itself.
//!
//! ```text
//!  its tasks wait, and it neither grows nor is held down by a limit of its own  ─► it suffers
//!  it grows while another suffers                                              ─► it is a cause
//! ```
//! This explains and does not order: growth already decides who goes first, and a workload that only waits may be too
//! large for the node and so the cause of its own waiting; to spare it or to end it for that would be wrong as often as right.
use crate::{history::Growth, plan::Note};
use alloc::vec::Vec;

/// Waiting below this many microseconds a second, summed over tasks, is no suffering.
const MIN_STALL: i64 = 20_000;
/// Growth below this many bytes a second causes nothing; the ranking's own bound.
pub(crate) const MIN_GROWTH: i64 = 1 << 20;
/// Fewer reclaims than this in a thousand seconds because of a limit of its own explain no waiting.
const MIN_OWN: i64 = 1000;
/// Most of each that are named.
const NAMED: usize = 3;

/// Notes the sufferers, the one that waits most first, and with them the causes, the fastest first.
pub(crate) fn explain(growth: &[Growth], notes: &mut Vec<Note>) {
    let grows = |of: &&Growth| of.memory_rate.is_some_and(|rate| rate >= MIN_GROWTH);
    let mut sufferers: Vec<&Growth> =
        growth.iter().filter(|of| suffers(of) && !grows(of)).collect();
    if sufferers.is_empty() {
        return;
    }
    let mut causes: Vec<&Growth> = growth.iter().filter(grows).collect();
    // Lists are in the order of who they are, so ties fall the same way every time.
    sufferers.sort_by_key(|of| core::cmp::Reverse(of.stall_rate));
    causes.sort_by_key(|of| core::cmp::Reverse(of.memory_rate));
    notes.extend(sufferers.into_iter().take(NAMED).map(|of| Note::Suffers {
        workload: (*of.workload).clone(),
        stall_us: of.stall_rate.unwrap_or_default(),
    }));
    notes.extend(causes.into_iter().take(NAMED).map(|of| Note::Causes {
        workload: (*of.workload).clone(),
        per_second: of.memory_rate.unwrap_or_default(),
        reclaims: of.reclaim_rate.map(|rate| rate / 1000),
    }));
}

/// Whether its tasks wait for memory, and not because of a limit of its own. Where nobody tells of its own limits it is not known to suffer by others.
fn suffers(of: &Growth) -> bool {
    of.stall_rate.is_some_and(|rate| rate >= MIN_STALL)
        && of.own_reclaim_rate.is_some_and(|rate| rate < MIN_OWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Time, snapshot::WorkloadKey};

    fn grown(name: &str, memory: i64, stall: i64, own: Option<i64>) -> Growth {
        Growth {
            workload: WorkloadKey { name: name.into(), ..WorkloadKey::default() }.into(),
            at: Time(0),
            memory: None,
            memory_rate: Some(memory),
            processes: None,
            process_rate: None,
            refaults: None,
            kernel_counts: None,
            stall_rate: Some(stall),
            reclaim_rate: Some(7000),
            own_reclaim_rate: own,
        }
    }

    fn named(growth: &[Growth]) -> Vec<(bool, &str)> {
        let mut notes = Vec::new();
        explain(growth, &mut notes);
        let names = notes.into_iter().map(|note| match note {
            Note::Suffers { workload, .. } => (false, workload.name),
            Note::Causes { workload, .. } => (true, workload.name),
            other => panic!("{other:?}"),
        });
        let known = |name: &str| growth.iter().find(|of| of.workload.name == name);
        names.filter_map(|(is, name)| Some((is, known(&name)?.workload.name.as_str()))).collect()
    }

    #[test]
    fn who_waits_suffers_and_who_grows_meanwhile_is_the_cause() {
        let calm = grown("calm", 0, 0, Some(0));
        let leak = grown("leak", 50 << 20, 300_000, Some(0));
        let slow = grown("slow", 2 << 20, 0, Some(0));
        let some = grown("some", 0, 30_000, Some(0));
        let waits = grown("waits", 0, 400_000, Some(0));
        let all = [calm, leak, slow, some, waits];
        let expected = [(false, "waits"), (false, "some"), (true, "leak"), (true, "slow")];
        assert_eq!(named(&all), expected);
    }

    #[test]
    fn what_waits_by_a_limit_of_its_own_or_by_its_own_growth_suffers_by_nobody() {
        let limited = grown("limited", 0, 400_000, Some(9000));
        let unknown = grown("unknown", 0, 400_000, None);
        let leak = grown("leak", 50 << 20, 300_000, Some(0));
        assert_eq!(named(&[leak.clone(), limited, unknown]), []);
        assert_eq!(named(&[leak]), []);
    }
}
