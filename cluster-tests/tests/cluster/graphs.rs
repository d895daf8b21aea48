//! `ebb graph KIND/NAME --cascade POLICY` against what the delete then removes, on random graphs of real objects.
//!
//! Each graph has a namespace of its own. All are made, then foretold by the command, then one object of each is deleted.
//! `EBB_SEED` makes the same again.
//!
//! Left out is what requests in parallel decide, under kube-controller-manager too: in the foreground, references that do
//! not block, and finalizers of others on what has two owners or hangs on it; under a finalizer `orphan`, dependents with
//! two owners; in cycles, finalizers of others.
use crate::Alone;
use crate::kinds::Kind;
use crate::random::{Play, all, seed};
use crate::sequence::{OBJECTS, Operation, Reference, Sequence, name};
use crate::session::Session;
use crate::world::KEEP;
use anyhow::{Context, Result, ensure};
use ebb_cluster_tests::api::Policy;
use ebb_cluster_tests::collector::{Collector, program};
use ebb_cluster_tests::plane::User;
use fastrand::Rng;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

pub(crate) const TEST: Alone =
    ("on_random_graphs_a_cascade_removes_exactly_what_was_foretold", foretold);

const GRAPHS: usize = 100;

/// A graph, and what is deleted of it.
struct Graph {
    sequence: Sequence,
    root: usize,
    policy: Policy,
}

/// What a delete removes, or the command says that it would.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    deleted: BTreeSet<String>,
    /// Of what stays and is not terminating: there, requests in parallel decide which reference was removed before.
    loses_references: BTreeSet<String>,
}

fn foretold(session: &Session) -> Result<()> {
    let seed = seed()?;
    eprintln!("{GRAPHS} random graphs: EBB_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let graphs: Vec<Graph> = (0..GRAPHS).map(|_| graph(&mut random)).collect();
    let sequences: Vec<Sequence> = graphs.iter().map(|graph| graph.sequence.clone()).collect();
    let mut play = Play::new(session, Collector::Ebb, &sequences)?;
    let before = by_uid(&play.prepare()?);
    let kubeconfig = session.with_plane(|plane| plane.kubeconfig(User::Reader))?;
    let mut said: Vec<(usize, Value)> = (0..GRAPHS).map(|at| (at, Value::Null)).collect();
    all(&mut said, |(at, said)| {
        *said = ask(&kubeconfig, &play.actors()[*at].namespace, &graphs[*at])?;
        Ok(())
    })?;
    let after = by_uid(&play.then(|at| {
        let Graph { root, policy, .. } = graphs[at];
        Operation::Delete { at: root, policy }
    })?);
    let mut deleted = 0;
    for (at, said) in said {
        let uids: BTreeSet<&String> = play.actors()[at].uids.iter().flatten().collect();
        let is_terminating = |uid: &String| {
            after.get(uid).is_some_and(|now| !now["metadata"]["deletionTimestamp"].is_null())
        };
        let done = outcome(&uids, &before, &after);
        let mut foretold = Outcome {
            deleted: named(&said["cascade"]["deleted"])?,
            loses_references: named(&said["cascade"]["losesReferences"])?,
        };
        foretold.loses_references.retain(|uid| !is_terminating(uid));
        let context = || format!("EBB_SEED={seed}, graph {at}:\n{}", drawn(&graphs[at]));
        ensure!(
            foretold == done,
            "{}foretold was {foretold:?}\ndone was {done:?}\n{said}",
            context()
        );
        let held = said["cascade"]["held"].as_array().context("no held objects")?;
        let stays = |held: &Value| {
            held["object"]["uid"].as_str().is_some_and(|uid| after.contains_key(uid))
        };
        ensure!(held.iter().all(stays), "{}what was held up has gone\n{said}", context());
        deleted += done.deleted.len();
    }
    ensure!(deleted > GRAPHS, "of all graphs, {deleted} objects went");
    play.clear()
}

/// What the command says, as a user who may only read.
fn ask(kubeconfig: &Path, namespace: &str, graph: &Graph) -> Result<Value> {
    let policy = format!("{:?}", graph.policy).to_lowercase();
    let mut command = Command::new(program()?);
    command.arg("graph").arg(format!("{}/{}", OBJECTS[graph.root].name(), name(graph.root)));
    command.args(["-n", namespace, "--cascade", &policy, "--output", "json", "--kubeconfig"]);
    let answer = command.arg(kubeconfig).output().context("cannot start ebb")?;
    let errors = String::from_utf8_lossy(&answer.stderr);
    ensure!(answer.status.success(), "{command:?}: {}: {errors}", answer.status);
    serde_json::from_slice(&answer.stdout).with_context(|| format!("{command:?}: no JSON"))
}

fn outcome(
    uids: &BTreeSet<&String>,
    before: &BTreeMap<String, Value>,
    after: &BTreeMap<String, Value>,
) -> Outcome {
    let owners =
        |object: &Value| object["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
    let (mut deleted, mut loses_references) = (BTreeSet::new(), BTreeSet::new());
    for &uid in uids {
        match (before.get(uid), after.get(uid)) {
            (Some(_), None) => _ = deleted.insert(uid.clone()),
            (Some(then), Some(now)) => {
                let is_terminating = !now["metadata"]["deletionTimestamp"].is_null();
                if owners(now) < owners(then) && !is_terminating {
                    loses_references.insert(uid.clone());
                }
            }
            (None, _) => {}
        }
    }
    Outcome { deleted, loses_references }
}

fn by_uid(objects: &[(Kind, Value)]) -> BTreeMap<String, Value> {
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    objects.iter().map(|(_, object)| (uid(object), object.clone())).collect()
}

fn named(objects: &Value) -> Result<BTreeSet<String>> {
    let objects = objects.as_array().context("no list of objects")?;
    let uids = objects.iter().map(|object| object["uid"].as_str().map(str::to_owned));
    uids.collect::<Option<_>>().context("an object without uid")
}

fn graph(random: &mut Rng) -> Graph {
    let policies = [Policy::Background, Policy::Foreground, Policy::Orphan];
    let policy = policies[random.usize(..policies.len())];
    let is_cyclic = random.u8(..100) < 20;
    let is_tree = random.bool();
    let mut sequence = Vec::new();
    // By object: whether it has two owners, or hangs on one that has.
    let mut has_two_above: Vec<bool> = Vec::new();
    let reference = |random: &mut Rng, to| {
        let blocks = policy == Policy::Foreground || random.bool();
        Reference { to, blocks }
    };
    for at in 0..OBJECTS.len() {
        let most = if at == 0 { 0 } else { 1 + usize::from(at > 1 && !is_tree) };
        // Here and there something stands alone.
        let count = if random.u8(..100) < 12 { 0 } else { random.usize(most.min(1)..=most) };
        let mut before: Vec<usize> = (0..at).collect();
        random.shuffle(&mut before);
        before.truncate(count);
        let has_two = count > 1 || before.iter().any(|&owner| has_two_above[owner]);
        has_two_above.push(has_two);
        let owners = before.into_iter().map(|to| reference(random, to)).collect();
        let mut finalizers = Vec::new();
        let is_held_up_by_chance = policy == Policy::Foreground && has_two;
        if !is_cyclic && !is_held_up_by_chance && random.u8(..100) < 10 {
            finalizers.push(KEEP);
        }
        if is_tree && !is_cyclic && random.u8(..100) < 10 {
            finalizers.push("orphan");
        }
        sequence.push(Operation::Create { at, owners, finalizers });
    }
    if is_cyclic {
        let (first, last) = (random.usize(..3), random.usize(4..OBJECTS.len()));
        let owners = vec![reference(random, last)];
        sequence.push(Operation::SetOwners { at: first, owners });
    }
    // Mostly something with much below it.
    let root = random.usize(..OBJECTS.len()).min(random.usize(..OBJECTS.len()));
    Graph { sequence, root, policy }
}

fn drawn(graph: &Graph) -> String {
    let lines = graph.sequence.iter().map(|operation| format!("  {operation}\n"));
    lines.collect::<String>() + &format!("  delete {} {:?}\n", name(graph.root), graph.policy)
}
