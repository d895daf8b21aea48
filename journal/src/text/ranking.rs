//! Rankings: a candidate's place, and the keys that placed it.

use super::amount::amount;
use super::notes::filesystem;
use ebb_policy::Signal;
use ebb_policy::plan::{RankKey, Ranked};
use ebb_policy::snapshot::Preference;

/// One line of a ranking: the place, the name, and the keys in the order in which they were compared.
#[must_use]
pub fn ranked(ranked: &Ranked) -> String {
    format!("{:>3}. {}  {}", ranked.place, ranked.workload.name, rank_keys(ranked))
}

/// The keys that placed a candidate, in the order in which they were compared.
#[must_use]
pub fn rank_keys(ranked: &Ranked) -> String {
    let signal = ranked.signal.unwrap_or(Signal::MemoryAvailable);
    let keys: Vec<_> = ranked.keys.iter().map(|k| rank_key(signal, k)).collect();
    keys.join(", ")
}

fn rank_key(signal: Signal, key: &RankKey) -> String {
    match key {
        RankKey::Stats { found } => if *found { "measured" } else { "not measured" }.into(),
        RankKey::ExceedsRequest { exceeds, usage, request } => format!(
            "uses {} {} its request of {}",
            amount(signal, *usage),
            if *exceeds { "above" } else { "within" },
            amount(signal, *request)
        ),
        RankKey::Priority { priority } => format!("priority {priority}"),
        RankKey::Preference { preference } => match preference {
            Preference::Prefer => "preferred victim",
            Preference::Neutral => "no preference",
            Preference::Avoid => "avoided",
        }
        .into(),
        RankKey::Growth { per_second } => {
            let sign = if *per_second < 0 { "-" } else { "+" };
            format!("growth {sign}{}/s", amount(signal, per_second.unsigned_abs()))
        }
        RankKey::Filled { added, over, percent } => format!(
            "wrote {} in the last {over}, {percent} % of what {} lost",
            amount(signal, *added),
            filesystem(signal)
        ),
        RankKey::Swapped { bytes } => format!("{} swapped out", amount(signal, *bytes)),
        RankKey::AboveRequest { above } => {
            let sign = if *above < 0 { "-" } else { "+" };
            format!("{sign}{} to its request", amount(signal, above.unsigned_abs()))
        }
        RankKey::PagesScanned { per_second, percent } => {
            format!("{per_second} pages scanned a second, {percent} % of those below the cgroup")
        }
        RankKey::Processes { count } => format!("{count} processes"),
        RankKey::Restarted { .. } => "restarted after its eviction".into(),
    }
}
