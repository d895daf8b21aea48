//! Random sequences of operations, played under one collector and then under the other: what is left is the same.
//!
//! Many sequences are played at once, each in a namespace of its own, step by step: after each step all of them wait
//! until the collector has done what there is to do. So what is left does not hang on who was faster, and is compared
//! after each step. `EBB_SEED` plays the same again, `EBB_SEQUENCES` says how many.
use crate::Alone;
use crate::kinds::Kind;
use crate::sequence::{ABROAD, OBJECTS, Operation, Reference, STEPS, Sequence, name, sequence};
use crate::session::Session;
use crate::shrink;
use crate::state;
use crate::world::items;
use anyhow::{Context, Result, bail, ensure};
use ebb_cluster_tests::api::{Api, Policy};
use ebb_cluster_tests::collector::Collector;
use ebb_cluster_tests::wait;
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) const TEST: Alone = ("random_sequences_end_alike", end_alike);

const SEQUENCES: usize = 500;
const KINDS: [Kind; 4] = [Kind::ConfigMap, Kind::Secret, Kind::Gadget, Kind::Pod];
/// Until a collector has done what one step of all sequences gives it to do.
const SETTLES_IN: Duration = Duration::from_secs(600);
/// Requests at once.
const CLIENTS: usize = 8;
const SEQUENCE: &str = "tests.ebb.dev/sequence";

const INVALID: &str = "OwnerRefInvalidNamespace";
/// The name of an owner that never was.
const NUDGE: &str = "nudge";

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
    run: Run,
    actors: Vec<Actor<'a>>,
}

/// What all sequences of a run share: a namespace, and an object in it.
struct Run {
    namespace: String,
    abroad: Value,
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
        let namespace = session.namespace(&api)?;
        let path = Kind::ConfigMap.path(&namespace);
        let abroad = api.create(&path, &json!({"metadata": {"name": "abroad"}}))?;
        let run = Run { namespace, abroad };
        let actor = |sequence| {
            let namespace = session.namespace(&api)?;
            Ok(Actor { sequence, namespace, uids: Default::default(), trace: vec![] })
        };
        let actors = sequences.iter().map(actor).collect::<Result<_>>()?;
        let play = Self { api, run, actors };
        // The collector is to know the object abroad before anything refers to it.
        play.collects()?;
        Ok(play)
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
        let mut warned = self.warnings()?;
        for actor in &mut self.actors {
            let lines = warned.remove(&actor.namespace).unwrap_or_default();
            actor.trace.last_mut().into_iter().for_each(|last| last.extend(lines.clone()));
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
    /// which never was. Either the dependent is deleted, or it loses this owner again.
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
                "apiVersion": "v1", "kind": "Secret", "name": NUDGE,
                "uid": format!("{NUDGE}-{}", metadata["uid"]),
            }));
            let patch = json!({"metadata": {"ownerReferences": owners}});
            // Which the collector may do first.
            let path = format!("{}/{name}", kind.path(namespace));
            self.api.ask("PATCH", &path, Some(&patch)).map(drop)
        })
    }

    /// Waits until nothing changes while garbage of every kind is made and collected, twice; what is left.
    ///
    /// Each kind has a watch of its own, which may be behind the others': that its garbage goes proves that the
    /// collector has seen all that was done to its objects before.
    fn settle(&self) -> Result<Vec<(Kind, Value)>> {
        let mut before = self.objects()?;
        let mut unchanged = 0;
        wait::until_some(
            SETTLES_IN,
            || "nothing changes any more".into(),
            || {
                self.collects()?;
                let now = self.objects()?;
                unchanged = if now == before { unchanged + 1 } else { 0 };
                before = now;
                Ok((unchanged == 2).then(|| before.clone()))
            },
        )
    }

    /// Which objects an Event says to have an owner in another namespace, by namespace.
    ///
    /// Events are written behind what they are about: those of an object that is made last come last.
    fn warnings(&self) -> Result<BTreeMap<String, BTreeSet<String>>> {
        let owners = [self.run.reference(false)];
        let last = json!({"metadata": {"name": "last", "ownerReferences": owners}});
        let namespace = self.actors.last().map_or(&self.run.namespace, |actor| &actor.namespace);
        self.api.create(&Kind::Secret.path(namespace), &last)?;
        let mut before = None;
        wait::until_some(
            SETTLES_IN,
            || "all Events are written".into(),
            || {
                let path = format!("/api/v1/events?fieldSelector=reason%3D{INVALID}");
                let events = self.api.get(&path)?;
                let mut now: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
                for event in items(&events) {
                    let about = &event["involvedObject"];
                    let [of, name] = [&about["namespace"], &about["name"]]
                        .map(|text| text.as_str().unwrap_or_default().to_owned());
                    now.entry(of).or_default().insert(format!("{INVALID} {name}"));
                }
                let last = format!("{INVALID} last");
                let is_last = now.get_mut(namespace).is_some_and(|all| all.remove(&last));
                let is_whole = is_last && before.as_ref() == Some(&now);
                before = Some(now.clone());
                Ok(is_whole.then_some(now))
            },
        )
    }

    fn collects(&self) -> Result<()> {
        let namespace = &self.run.namespace;
        let mut all = Vec::new();
        for kind in KINDS {
            let mut body = kind.body();
            body["apiVersion"] = json!(kind.api_version());
            body["kind"] = json!(kind.name());
            all.push(self.api.create_garbage(namespace, &kind.path(namespace), body)?);
        }
        wait::until_some(
            SETTLES_IN,
            || "garbage is collected".into(),
            || {
                for garbage in &all {
                    if !self.api.is_gone(garbage)? {
                        return Ok(None);
                    }
                }
                Ok(Some(()))
            },
        )
    }

    /// All objects of all sequences.
    fn objects(&self) -> Result<Vec<(Kind, Value)>> {
        let mut objects = Vec::new();
        for kind in KINDS {
            let path =
                format!("{}?labelSelector={SEQUENCE}={}", kind.everywhere(), self.run.namespace);
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

impl Run {
    /// To the object abroad.
    fn reference(&self, blocks: bool) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "abroad",
            "uid": self.abroad["metadata"]["uid"], "blockOwnerDeletion": blocks,
        })
    }
}

impl Actor<'_> {
    /// Does one operation; how it was answered.
    fn operate(&mut self, api: &Api, run: &Run, operation: &Operation) -> Result<u16> {
        let path = |at: usize| format!("{}/{}", OBJECTS[at].path(&self.namespace), name(at));
        let (answer, _) = match operation {
            Operation::Create { at, owners, finalizers } => {
                let kind = OBJECTS[*at];
                let mut object = kind.body();
                object["apiVersion"] = json!(kind.api_version());
                object["kind"] = json!(kind.name());
                object["metadata"] = json!({
                    "name": name(*at), "labels": {SEQUENCE: run.namespace},
                    "ownerReferences": self.references(run, owners), "finalizers": finalizers,
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
                let patch = json!({"metadata": {"ownerReferences": self.references(run, owners)}});
                api.ask("PATCH", &path(*at), Some(&patch))?
            }
            Operation::SetFinalizers { at, finalizers } => {
                let patch = json!({"metadata": {"finalizers": finalizers}});
                api.ask("PATCH", &path(*at), Some(&patch))?
            }
        };
        ensure!(answer < 500, "{operation:?} was answered {answer}");
        Ok(answer)
    }

    fn references(&self, run: &Run, owners: &[Reference]) -> Vec<Value> {
        let reference = |&Reference { to, blocks }: &Reference| {
            if to == ABROAD {
                return run.reference(blocks);
            }
            let never = format!("never-{}-{to}", self.namespace);
            json!({
                "apiVersion": OBJECTS[to].api_version(), "kind": OBJECTS[to].name(),
                "name": name(to), "uid": self.uids[to].as_ref().unwrap_or(&never),
                "blockOwnerDeletion": blocks,
            })
        };
        owners.iter().map(reference).collect()
    }
}

/// Lines of what is left.
fn by_namespace(objects: &[(Kind, Value)]) -> BTreeMap<String, Vec<String>> {
    let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, object) in objects {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        left.entry(namespace.to_owned()).or_default().push(state::line(&without_nudge(object)));
    }
    left.values_mut().for_each(|lines| lines.sort());
    left
}

/// An object as it is compared. One that was deleted for the nudge and waits for a finalizer keeps that owner, and nobody looks at it any more; ebb needs no nudge.
fn without_nudge(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = &mut object["metadata"];
    let is_terminating = !metadata["deletionTimestamp"].is_null();
    if let Some(owners) = metadata["ownerReferences"].as_array_mut().filter(|_| is_terminating) {
        owners.retain(|owner| owner["name"] != NUDGE);
    }
    object
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
