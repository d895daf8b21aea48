//! Attaching a probe set, one fact at a time, and saying for every program how that went.
use crate::Options;
use crate::catalogue::{Fact, Hook, Tier, Way};
use crate::core_tier::CoreTier;
use crate::probe_set::{ProbeSet, Verdict};
use crate::rust_tier::RustTier;
use crate::shared_maps::SharedMaps;
use serde::Serialize;
use std::os::fd::{BorrowedFd, OwnedFd};

/// How it stands with one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbeStatus {
    /// Its name.
    pub name: &'static str,
    /// The object that it is in.
    pub family: &'static str,
    /// Where it is attached, or would be.
    pub hook: Hook,
    /// Which half it belongs to.
    pub tier: Tier,
    /// What it tells.
    pub feeds: Fact,
    /// Whether it does.
    pub state: ProbeState,
}

/// Whether a program is at work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeState {
    /// It is.
    Attached,
    /// Not needed: a better one tells the same.
    Spare,
    /// The host does not offer what it needs, for this reason.
    Absent(String),
    /// The kernel would not take it; this is its answer.
    Refused(String),
}

/// Why attaching could not even begin. A refused program is not an error but a [`ProbeState`].
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// An option that no kernel would accept.
    #[error("cannot size the BPF maps: {0}")]
    Options(String),
    /// The rings exist but cannot be read.
    #[error("cannot open the BPF rings")]
    Rings(#[from] crate::RingError),
}

/// A program at work.
pub(crate) struct Running {
    /// What it tells.
    pub(crate) fact: Fact,
    /// Its name in full; the kernel keeps only a part of it.
    pub(crate) name: &'static str,
    /// The program.
    pub(crate) fd: OwnedFd,
}

/// A way was not taken: what was attempted, and the answer.
#[derive(Clone, Debug)]
pub(crate) struct Refusal(pub String);

impl Refusal {
    pub(crate) fn no_object(object: &str) -> Self {
        Self(format!("this build has no object `{object}`; `cargo xtask bpf` makes it"))
    }

    pub(crate) fn no_program(object: &str, program: &str) -> Self {
        Self(format!("the object `{object}` has no program `{program}`"))
    }
}

/// A descriptor of a loader's, for ourselves.
pub(crate) fn keep(fd: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Refusal> {
    fd.try_clone_to_owned().map_err(|error| Refusal(format!("keeping {name}: {error}")))
}

/// What is attached, and the account of it.
pub(crate) struct Attached {
    pub rust: Option<RustTier>,
    /// Held for its links.
    pub core: CoreTier,
    pub maps: SharedMaps,
    pub status: Vec<ProbeStatus>,
}

/// Attach the best way on offer for every fact.
pub(crate) fn attach(set: &ProbeSet, options: &Options) -> Attached {
    let mut maps = SharedMaps::new(options);
    let mut states: Vec<Option<ProbeState>> =
        set.verdicts.iter().map(|(_, verdict)| verdict.state()).collect();

    let wants_rust =
        |(way, verdict): &(&Way, Verdict)| way.tier == Tier::Rust && *verdict == Verdict::Offered;
    let mut rust = match set.verdicts.iter().any(wants_rust) {
        true => RustTier::load(&mut maps),
        false => Err(Refusal("not wanted".to_owned())),
    };
    let mut core = CoreTier::new();

    attach_whole_objects(set, &mut states, &mut core, &mut maps);
    for (index, (way, _)) in set.verdicts.iter().enumerate() {
        if states[index].is_some() {
            continue;
        }
        let told = set.verdicts.iter().zip(&states).any(|((other, _), state)| {
            other.fact == way.fact && *state == Some(ProbeState::Attached)
        });
        states[index] = Some(if told {
            ProbeState::Spare
        } else {
            let result = match (way.tier, &mut rust) {
                (Tier::C, _) => core.attach(&[way], &mut maps),
                (Tier::Rust, Ok(rust)) => rust.attach(way),
                (Tier::Rust, Err(refusal)) => Err(refusal.clone()),
            };
            result.into()
        });
    }

    let mut rust = rust.ok();
    if let Some(rust) = &mut rust {
        rust.settle();
    }
    Attached { rust, core, maps, status: status(set, states) }
}

/// Load each C object once with the preferred way of each of its facts. What an object's refusal leaves open is tried
/// way by way afterwards.
fn attach_whole_objects(
    set: &ProbeSet,
    states: &mut [Option<ProbeState>],
    core: &mut CoreTier,
    maps: &mut SharedMaps,
) {
    let mut preferred: Vec<(usize, &Way)> = Vec::new();
    for (index, (way, verdict)) in set.verdicts.iter().enumerate() {
        if *verdict == Verdict::Offered && !preferred.iter().any(|(_, p)| p.fact == way.fact) {
            preferred.push((index, way));
        }
    }
    preferred.retain(|(_, way)| way.tier == Tier::C);
    preferred.sort_by_key(|(_, way)| way.object);
    for family in preferred.chunk_by(|(_, a), (_, b)| a.object == b.object) {
        let ways: Vec<&Way> = family.iter().map(|(_, way)| *way).collect();
        let result = core.attach(&ways, maps);
        match (&result, family) {
            (Ok(()), _) => {
                for (index, _) in family {
                    states[*index] = Some(ProbeState::Attached);
                }
            }
            (Err(_), [(index, _)]) => states[*index] = Some(result.into()),
            (Err(Refusal(reason)), _) => {
                tracing::debug!("{} as a whole: {reason}; trying its parts", ways[0].object);
            }
        }
    }
}

fn status(set: &ProbeSet, states: Vec<Option<ProbeState>>) -> Vec<ProbeStatus> {
    let ways = set.verdicts.iter().zip(states);
    ways.flat_map(|((way, _), state)| {
        let state = state.unwrap_or(ProbeState::Spare);
        way.programs.iter().map(move |program| ProbeStatus {
            name: program.name,
            family: way.object,
            hook: program.hook,
            tier: way.tier,
            feeds: way.fact,
            state: state.clone(),
        })
    })
    .collect()
}

impl Verdict {
    /// The state that follows from the verdict alone.
    fn state(&self) -> Option<ProbeState> {
        match self {
            Self::Offered => None,
            Self::Absent(reason) => Some(ProbeState::Absent(reason.clone())),
        }
    }
}

impl From<Result<(), Refusal>> for ProbeState {
    fn from(result: Result<(), Refusal>) -> Self {
        match result {
            Ok(()) => Self::Attached,
            Err(Refusal(reason)) => Self::Refused(reason),
        }
    }
}
