//! Random sequences of operations: what they are made of, and how they are written down.
use crate::kinds::Kind;
use crate::world::KEEP;
use ebb_cluster_tests::api::Policy;
use fastrand::Rng;
use std::fmt;

/// Operations of a sequence.
pub(crate) const STEPS: usize = 9;
/// The objects that there may be, by their kind.
pub(crate) const OBJECTS: [Kind; 9] = [
    Kind::ConfigMap,
    Kind::Secret,
    Kind::Gadget,
    Kind::ConfigMap,
    Kind::Pod,
    Kind::Gadget,
    Kind::ConfigMap,
    Kind::Secret,
    Kind::ConfigMap,
];
/// A sequence is about so many of them: few, so that they meet.
const ABOUT: usize = 5;
const FINALIZERS: [(&str, f64); 3] = [(KEEP, 0.2), ("orphan", 0.12), ("foregroundDeletion", 0.08)];
/// Refers to an object in another namespace, which no object may have as its owner.
pub(crate) const ABROAD: usize = OBJECTS.len();

/// Which object, or [`ABROAD`], and whether the reference to it blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference {
    pub(crate) to: usize,
    pub(crate) blocks: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Create { at: usize, owners: Vec<Reference>, finalizers: Vec<&'static str> },
    Delete { at: usize, policy: Policy },
    SetOwners { at: usize, owners: Vec<Reference> },
    SetFinalizers { at: usize, finalizers: Vec<&'static str> },
}

pub(crate) type Sequence = Vec<Operation>;

pub(crate) fn name(at: usize) -> String {
    if at == ABROAD { "abroad".into() } else { format!("o{at}") }
}

/// What a sequence is made of: it has none of three races, in which either collector ends one way or the other.
///
/// A foreground deletion does not wait for dependents that do not block. Whether they are judged while it lasts or after
/// it, and so what is left, is decided by who is faster.
/// Of two owners of an object, one that goes and one that goes with it and has the finalizer `orphan`, the object loses
/// the one reference or the other first: then it stays, or has no owner left that is there and goes.
/// Of two owners that both come to be deleted in the foreground, an object loses the reference to the one that is so
/// first. Where a finalizer of others keeps it, it then holds up the other one alone.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Flavour {
    /// All references block, or nothing is deleted in the foreground.
    foreground: bool,
    /// Objects may have two owners. Then there is no finalizer `orphan`, and in the foreground none of others.
    pairs: bool,
}

pub(crate) fn sequence(random: &mut Rng) -> Sequence {
    let flavour = Flavour { foreground: random.u8(..100) < 65, pairs: random.u8(..100) < 60 };
    // Without objects there is nothing to do something to.
    (0..STEPS).map(|step| operation(random, flavour, step < 3)).collect()
}

fn operation(random: &mut Rng, flavour: Flavour, creates: bool) -> Operation {
    let at = random.usize(..ABOUT);
    let kind = random.u8(..100);
    let owners = references(random, flavour);
    let finalizers = finalizers(random, flavour);
    match kind {
        kind if creates || kind < 30 => Operation::Create { at, owners, finalizers },
        30..65 => {
            let last = if flavour.foreground { Policy::Foreground } else { Policy::Background };
            let policies = [Policy::Unsaid, Policy::Background, Policy::Orphan, last];
            Operation::Delete { at, policy: policies[random.usize(..policies.len())] }
        }
        65..82 => Operation::SetOwners { at, owners },
        _ => Operation::SetFinalizers { at, finalizers },
    }
}

/// None, one, or two of different owners; at times the object itself, or one abroad.
fn references(random: &mut Rng, flavour: Flavour) -> Vec<Reference> {
    let most = if flavour.pairs { 2 } else { 1 };
    let count = [0, 1, 1, 1, 2, 2][random.usize(..6)].min(most);
    let mut owners: Vec<usize> = (0..ABOUT).collect();
    random.shuffle(&mut owners);
    if random.u8(..100) < 8 {
        owners.insert(0, ABROAD);
    }
    let mut blocks = || flavour.foreground || random.bool();
    owners.into_iter().take(count).map(|to| Reference { to, blocks: blocks() }).collect()
}

fn finalizers(random: &mut Rng, flavour: Flavour) -> Vec<&'static str> {
    let mut chosen = FINALIZERS.to_vec();
    chosen.retain(|&(name, often)| {
        let is_apart = match name {
            "foregroundDeletion" => !flavour.foreground,
            "orphan" => flavour.pairs,
            KEEP => flavour.pairs && flavour.foreground,
            _ => false,
        };
        random.f64() < often && !is_apart
    });
    chosen.into_iter().map(|(name, _)| name).collect()
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owners = |owners: &[Reference]| {
            let word = |owner: &Reference| {
                format!("{}{}", name(owner.to), if owner.blocks { "!" } else { "" })
            };
            owners.iter().map(word).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Create { at, owners: of, finalizers } => {
                let kind = OBJECTS[*at].name();
                write!(f, "create {kind} {} of [{}] with {finalizers:?}", name(*at), owners(of))
            }
            Self::Delete { at, policy } => write!(f, "delete {} {policy:?}", name(*at)),
            Self::SetOwners { at, owners: of } => {
                write!(f, "set owners of {} to [{}]", name(*at), owners(of))
            }
            Self::SetFinalizers { at, finalizers } => {
                write!(f, "set finalizers of {} to {finalizers:?}", name(*at))
            }
        }
    }
}
