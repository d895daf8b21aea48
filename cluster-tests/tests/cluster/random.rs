//! Random sequences of operations, played under one collector and then under the other: what is left is the same.
//!
//! Many sequences are played at once, each in a namespace of its own, step by step: after each step all of them wait
//! until the collector has done what there is to do. So what is left does not hang on who was faster, and is compared
//! after each step. `EBB_SEED` plays the same again, `EBB_SEQUENCES` says how many.
use crate::Alone;
use crate::kinds::Kind;
use crate::session::Session;
use crate::shrink;
use crate::state;
use crate::world::{KEEP, items};
use anyhow::{Context, Result, bail, ensure};
use ebb_cluster_tests::api::{Api, Policy};
use ebb_cluster_tests::collector::Collector;
use ebb_cluster_tests::wait;
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) const TEST: Alone = ("random_sequences_end_alike", end_alike);

const SEQUENCES: usize = 500;
const STEPS: usize = 9;
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
const KINDS: [Kind; 4] = [Kind::ConfigMap, Kind::Secret, Kind::Gadget, Kind::Pod];
const FINALIZERS: [(&str, f64); 3] = [(KEEP, 0.2), ("orphan", 0.12), ("foregroundDeletion", 0.08)];
/// Until a collector has done what one step of all sequences gives it to do.
const SETTLES_IN: Duration = Duration::from_secs(120);
/// Requests at once.
const CLIENTS: usize = 8;
const SEQUENCE: &str = "tests.ebb.dev/sequence";

/// Which object, and whether the reference to it blocks.
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
/// After each step: how the operation was answered, and a line for each object that is left.
pub(crate) type Trace = Vec<Vec<String>>;

fn end_alike(session: &Session) -> Result<()> {
    let seed = seed()?;
    let count = number("EBB_SEQUENCES").context("EBB_SEQUENCES is no number")?;
    let count = count.map_or(Ok(SEQUENCES), usize::try_from)?;
    eprintln!("{count} random sequences of {STEPS} steps: EBB_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let sequences: Vec<Sequence> = (0..count).map(|_| sequence(&mut random)).collect();
    let [kcm, ebb] = play_both(session, &sequences)?;
    let different: Vec<usize> = (0..count).filter(|&at| kcm[at] != ebb[at]).collect();
    if different.is_empty() {
        return Ok(());
    }
    eprintln!("{} of {count} differ, and are played again", different.len());
    let again: Vec<Sequence> = different.iter().map(|&at| sequences[at].clone()).collect();
    let Some(found) = shrink::shrink(session, again)? else {
        let first = different[0];
        let once = shrink::Difference::new(&sequences[first], &kcm[first], &ebb[first]);
        bail!("{} of {count} differed once (EBB_SEED={seed}), {once}", different.len());
    };
    bail!("{} of {count} sequences differ (EBB_SEED={seed}), {found}", different.len())
}

fn number(name: &str) -> Result<Option<u64>, std::num::ParseIntError> {
    std::env::var(name).ok().map(|text| text.parse()).transpose()
}

/// `EBB_SEED`, or one that nobody knows before.
pub(crate) fn seed() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("no clock")?;
    let seed = number("EBB_SEED").context("EBB_SEED is no number")?;
    Ok(seed.unwrap_or(u64::from(now.subsec_nanos())))
}

/// Plays sequences under one collector and then under the other.
pub(crate) fn play_both(session: &Session, sequences: &[Sequence]) -> Result<[Vec<Trace>; 2]> {
    let play = |collector| {
        let begun = Instant::now();
        let traces = Play::new(session, collector, sequences)?.run()?;
        eprintln!("{collector:?}: {} sequences, {} s", sequences.len(), begun.elapsed().as_secs());
        Ok::<_, anyhow::Error>(traces)
    };
    Ok([play(Collector::Kcm)?, play(Collector::Ebb)?])
}

/// Sequences on their way, each in its namespace.
pub(crate) struct Play<'a> {
    api: Api,
    run: String,
    actors: Vec<Actor<'a>>,
}

pub(crate) struct Actor<'a> {
    sequence: &'a Sequence,
    pub(crate) namespace: String,
    /// Of the object that was made last under each name.
    pub(crate) uids: [Option<String>; OBJECTS.len()],
    trace: Trace,
}

impl<'a> Play<'a> {
    pub(crate) fn new(
        session: &Session,
        collector: Collector,
        sequences: &'a [Sequence],
    ) -> Result<Self> {
        session.run(collector)?;
        let api = session.api()?;
        let run = session.namespace(&api)?;
        let actor = |sequence| {
            let namespace = session.namespace(&api)?;
            Ok(Actor { sequence, namespace, uids: Default::default(), trace: vec![] })
        };
        let actors = sequences.iter().map(actor).collect::<Result<_>>()?;
        Ok(Self { api, run, actors })
    }

    /// Does all operations of each sequence, and waits until nothing changes any more; returns all objects then.
    pub(crate) fn prepare(&mut self) -> Result<Vec<(Kind, Value)>> {
        let (api, run) = (&self.api, &self.run);
        all(&mut self.actors, |actor| {
            for operation in actor.sequence {
                let answer = actor.operate(api, run, operation)?;
                ensure!(answer < 300, "{operation}: answered {answer}");
            }
            Ok(())
        })?;
        self.settle()
    }

    /// Does one operation for each sequence, and waits until nothing changes any more; returns all objects then.
    pub(crate) fn then(
        &mut self,
        operation: impl Fn(usize) -> Operation + Sync,
    ) -> Result<Vec<(Kind, Value)>> {
        let (api, run) = (&self.api, &self.run);
        let mut actors: Vec<(usize, &mut Actor<'_>)> = self.actors.iter_mut().enumerate().collect();
        all(&mut actors, |(at, actor)| {
            let answer = actor.operate(api, run, &operation(*at))?;
            ensure!(answer < 300, "{}: answered {answer}", operation(*at));
            Ok(())
        })?;
        self.settle()
    }

    /// Where each sequence is played.
    pub(crate) fn actors(&self) -> &[Actor<'a>] {
        &self.actors
    }

    fn run(mut self) -> Result<Vec<Trace>> {
        let steps = self.actors.iter().map(|actor| actor.sequence.len()).max().unwrap_or(0);
        for step in 0..steps {
            let (api, run) = (&self.api, &self.run);
            all(&mut self.actors, |actor| {
                let Some(operation) = actor.sequence.get(step) else { return Ok(()) };
                let answer = actor.operate(api, run, operation)?;
                actor.trace.push(vec![format!("answered {answer}")]);
                Ok(())
            })?;
            let mut left = self.settle_all()?;
            for actor in self.actors.iter_mut().filter(|actor| actor.trace.len() > step) {
                let lines = left.remove(&actor.namespace).unwrap_or_default();
                actor.trace[step].extend(lines);
            }
        }
        self.clear()?;
        Ok(self.actors.into_iter().map(|actor| actor.trace).collect())
    }

    /// Waits until nothing changes any more, and not either when the collector looks again at what it may have left.
    ///
    /// kube-controller-manager looks at what comes to be a dependent of an object that waits for its dependents only
    /// when something else makes it look, or at its next start; ebb looks at once.
    fn settle_all(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let mut left = self.settle()?;
        loop {
            self.nudge()?;
            let now = self.settle()?;
            if now == left {
                return Ok(by_namespace(&now));
            }
            left = now;
        }
    }

    /// Makes the collector look again at dependents of objects that wait for their dependents: by one more owner,
    /// which never was. Either the dependent goes, or it loses this owner again.
    fn nudge(&self) -> Result<()> {
        let mut objects = self.objects()?;
        let waits = |line: &str| line.ends_with("foregroundDeletion terminating");
        let waiting: BTreeSet<String> = objects
            .iter()
            .filter(|(_, object)| waits(&state::line(object)))
            .map(|(_, object)| object["metadata"]["uid"].to_string())
            .collect();
        let owners = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.cloned().unwrap_or_default()
        };
        objects.retain(|(_, object)| {
            let is_terminating = !object["metadata"]["deletionTimestamp"].is_null();
            !is_terminating
                && owners(object).iter().any(|owner| waiting.contains(&owner["uid"].to_string()))
        });
        all(&mut objects, |(kind, object)| {
            let metadata = &object["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            let name = metadata["name"].as_str().unwrap_or_default();
            let mut owners = owners(object);
            owners.push(json!({
                "apiVersion": "v1", "kind": "Secret", "name": "nudge",
                "uid": format!("nudge-{}", metadata["uid"]),
            }));
            let patch = json!({"metadata": {"ownerReferences": owners}});
            // Which the collector may do first.
            let path = format!("{}/{name}", kind.path(namespace));
            self.api.ask("PATCH", &path, Some(&patch)).map(drop)
        })
    }

    /// Waits until nothing changes while an object that is garbage is made and collected; what is left.
    fn settle(&self) -> Result<Vec<(Kind, Value)>> {
        let mut before = self.objects()?;
        wait::until_some(
            SETTLES_IN,
            || "nothing changes any more".into(),
            || {
                self.collects()?;
                let now = self.objects()?;
                let is_settled = now == before;
                before = now;
                Ok(is_settled.then(|| before.clone()))
            },
        )
    }

    fn collects(&self) -> Result<()> {
        let path = Kind::Secret.path(&self.run);
        let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": "never", "uid": "never"});
        let garbage = json!({"metadata": {"generateName": "garbage-", "ownerReferences": [owner]}});
        let made = self.api.create(&path, &garbage)?;
        let path = format!("{path}/{}", made["metadata"]["name"].as_str().unwrap_or_default());
        wait::until_some(
            SETTLES_IN,
            || "garbage is collected".into(),
            || Ok((self.api.ask("GET", &path, None)?.0 == 404).then_some(())),
        )
    }

    /// All objects of all sequences.
    fn objects(&self) -> Result<Vec<(Kind, Value)>> {
        let mut objects = Vec::new();
        for kind in KINDS {
            let path = format!("{}?labelSelector={SEQUENCE}={}", kind.everywhere(), self.run);
            let list = self.api.get(&path)?;
            objects.extend(items(&list).map(|object| (kind, object.clone())));
        }
        Ok(objects)
    }

    pub(crate) fn clear(&self) -> Result<()> {
        let mut objects = self.objects()?;
        all(&mut objects, |(kind, object)| {
            let metadata = &object["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            let path = format!(
                "{}/{}",
                kind.path(namespace),
                metadata["name"].as_str().unwrap_or_default()
            );
            let bare = json!({"metadata": {"finalizers": null, "ownerReferences": null}});
            self.api.ask("PATCH", &path, Some(&bare))?;
            self.api.ask("DELETE", &path, Some(&Policy::Background.options()))?;
            Ok(())
        })
    }
}

impl Actor<'_> {
    /// Does one operation; how it was answered.
    fn operate(&mut self, api: &Api, run: &str, operation: &Operation) -> Result<u16> {
        let path = |at: usize| format!("{}/{}", OBJECTS[at].path(&self.namespace), name(at));
        let (answer, _) = match operation {
            Operation::Create { at, owners, finalizers } => {
                let kind = OBJECTS[*at];
                let mut object = kind.body();
                object["apiVersion"] = json!(kind.api_version());
                object["kind"] = json!(kind.name());
                object["metadata"] = json!({
                    "name": name(*at), "labels": {SEQUENCE: run},
                    "ownerReferences": self.references(owners), "finalizers": finalizers,
                });
                let (status, made) = api.ask("POST", &kind.path(&self.namespace), Some(&object))?;
                if status == 201 {
                    self.uids[*at] = made["metadata"]["uid"].as_str().map(str::to_owned);
                }
                (status, made)
            }
            Operation::Delete { at, policy } => {
                api.ask("DELETE", &path(*at), Some(&policy.options()))?
            }
            Operation::SetOwners { at, owners } => {
                let patch = json!({"metadata": {"ownerReferences": self.references(owners)}});
                api.ask("PATCH", &path(*at), Some(&patch))?
            }
            Operation::SetFinalizers { at, finalizers } => {
                let patch = json!({"metadata": {"finalizers": finalizers}});
                api.ask("PATCH", &path(*at), Some(&patch))?
            }
        };
        Ok(answer)
    }

    fn references(&self, owners: &[Reference]) -> Vec<Value> {
        let reference = |&Reference { to, blocks }: &Reference| {
            let never = format!("never-{to}");
            json!({
                "apiVersion": OBJECTS[to].api_version(), "kind": OBJECTS[to].name(),
                "name": name(to), "uid": self.uids[to].as_ref().unwrap_or(&never),
                "blockOwnerDeletion": blocks,
            })
        };
        owners.iter().map(reference).collect()
    }
}

pub(crate) fn name(at: usize) -> String {
    format!("o{at}")
}

/// Lines of what is left.
fn by_namespace(objects: &[(Kind, Value)]) -> BTreeMap<String, Vec<String>> {
    let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, object) in objects {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        left.entry(namespace.to_owned()).or_default().push(state::line(object));
    }
    left.values_mut().for_each(|lines| lines.sort());
    left
}

/// Does the same for each, several at once.
pub(crate) fn all<T: Send>(
    things: &mut [T],
    each: impl Fn(&mut T) -> Result<()> + Sync,
) -> Result<()> {
    let share = things.len().div_ceil(CLIENTS).max(1);
    std::thread::scope(|scope| {
        let work = |chunk: &mut [T]| chunk.iter_mut().try_for_each(&each);
        let threads: Vec<_> =
            things.chunks_mut(share).map(|chunk| scope.spawn(move || work(chunk))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| bail!("a thread of the test panicked"))
        })
    })
}

/// What a sequence is made of: it has neither of two races, in which either collector ends one way or the other.
///
/// A foreground deletion does not wait for dependents that do not block. Whether they are judged while it lasts or after
/// it, and so what is left, is decided by who is faster.
/// Of two owners of an object, one that goes and one that goes with it and has the finalizer `orphan`, the object loses
/// the one reference or the other first: then it stays, or has no owner left that is there and goes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Flavour {
    /// All references block, or nothing is deleted in the foreground.
    foreground: bool,
    /// Objects have one owner at most, or no finalizer `orphan`.
    orphans: bool,
}

fn sequence(random: &mut Rng) -> Sequence {
    let flavour = Flavour { foreground: random.u8(..100) < 65, orphans: random.u8(..100) < 40 };
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

/// None, one, or two of different owners; at times the object itself.
fn references(random: &mut Rng, flavour: Flavour) -> Vec<Reference> {
    let most = if flavour.orphans { 1 } else { 2 };
    let count = [0, 1, 1, 1, 2, 2][random.usize(..6)].min(most);
    let mut owners: Vec<usize> = (0..ABOUT).collect();
    random.shuffle(&mut owners);
    let mut blocks = || flavour.foreground || random.bool();
    owners.into_iter().take(count).map(|to| Reference { to, blocks: blocks() }).collect()
}

fn finalizers(random: &mut Rng, flavour: Flavour) -> Vec<&'static str> {
    let mut chosen = FINALIZERS.to_vec();
    chosen.retain(|&(name, often)| {
        let is_apart = match name {
            "foregroundDeletion" => !flavour.foreground,
            "orphan" => !flavour.orphans,
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
