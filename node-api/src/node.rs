//! The Node: which of ebb's conditions and taints it has, and which it is to have.

use crate::tell::may_pass;
use crate::words::{self, TAINTS};
use ebb_kube::{About, Api, Failure, NodeTaints, Time};
use ebb_policy::plan::NodeCondition;
use ebb_policy::signal::NodeConditionType;
use serde_json::Value;
use tokio::sync::watch;

/// What of the Node's object is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeSeen {
    /// Name.
    pub(crate) name: String,
    /// UID.
    pub(crate) uid: String,
    /// Its taints.
    pub(crate) taints: NodeTaints,
    /// ebb's conditions, those that it has.
    pub(crate) conditions: States,
}

impl NodeSeen {
    /// What of a Node's object is kept.
    pub(crate) fn read(object: &Value) -> Self {
        let at = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        Self {
            name: at("/metadata/name").to_owned(),
            uid: at("/metadata/uid").to_owned(),
            taints: NodeTaints::read(object),
            conditions: conditions_of(object),
        }
    }
}

/// Which of ebb's conditions a Node has, and whether each holds.
fn conditions_of(object: &Value) -> States {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let status = |of: NodeConditionType| {
        let name = words::condition_type(of);
        let own = all?.iter().find(|one| one.get("type").is_some_and(|of| *of == *name))?;
        Some((of, own.get("status")? == "True"))
    };
    TAINTS.iter().filter_map(|(of, _)| status(*of)).collect()
}

/// Conditions, and whether each holds.
pub(crate) type States = Vec<(NodeConditionType, bool)>;

/// One change of what the Node says.
#[derive(Debug)]
pub(crate) struct Saying {
    wanted: Vec<NodeCondition>,
    /// When that was wanted first: however often it is tried, the change was then.
    since: Time,
    before: States,
    has_taints: bool,
}

/// What the Node is to say, and what it was made to say.
#[derive(Debug)]
pub(crate) struct NodeWord {
    wanted: Vec<NodeCondition>,
    since: Time,
    said: Option<States>,
    /// Without taints, where the operator does not want any.
    has_taints: bool,
}

impl NodeWord {
    pub(crate) fn new(has_taints: bool) -> Self {
        Self { wanted: Vec::new(), since: Time(0), said: None, has_taints }
    }

    pub(crate) fn want(&mut self, conditions: Vec<NodeCondition>, now: Time) {
        self.wanted = conditions;
        self.since = now;
    }

    /// Whether there is something to say.
    pub(crate) fn is_due(&self) -> bool {
        !self.wanted.is_empty() && self.said.as_ref() != Some(&states(&self.wanted))
    }

    /// The Node was replaced or never seen: what it was made to say is not known.
    pub(crate) fn forget(&mut self) {
        self.said = None;
    }

    /// What there is to say now of a Node; what an earlier run said of it is there to see.
    pub(crate) fn to_say(&self, node: &NodeSeen) -> Saying {
        let before = self.said.as_ref().unwrap_or(&node.conditions).clone();
        let Self { since, has_taints, .. } = *self;
        Saying { wanted: self.wanted.clone(), since, before, has_taints }
    }

    /// Notes that the Node says this.
    pub(crate) fn note_said(&mut self, states: States) {
        self.said = Some(states);
    }
}

impl Saying {
    /// Says it, and lets `tainted` know when the taints are there; gives what the Node says now, and why an Event about it was refused for good. A taint comes before everything else, because a scheduler is at work meanwhile; it goes last, when the condition says why.
    ///
    /// # Errors
    /// What of it the API server did not take; the rest was said all the same.
    pub(crate) async fn say(
        self,
        api: &Api,
        node: &NodeSeen,
        tainted: &watch::Sender<bool>,
    ) -> Result<(States, Option<Failure>), Failure> {
        let states = states(&self.wanted);
        // What stays as it was keeps the time of its last transition.
        let changed = |of: &&NodeCondition| !self.before.contains(&(of.condition_type, of.status));
        let changed: Vec<_> = self.wanted.iter().filter(changed).map(words::condition).collect();
        let set_conditions = async || {
            if changed.is_empty() {
                return Ok(());
            }
            api.set_node_conditions(&node.name, &changed, self.since).await
        };
        let wanted = if self.has_taints { states.as_slice() } else { &[] };
        if states.iter().any(|(_, holds)| *holds) {
            let given = set_taints(api, node, &node.taints, wanted).await;
            tainted.send_replace(true);
            set_conditions().await.and(given)?;
        } else {
            let said = set_conditions().await;
            // The conditions have just changed the Node: as it was seen it is no more.
            set_taints(api, node, &NodeTaints::default(), wanted).await.and(said)?;
        }
        let mut refused = None;
        for (condition, (of, holds)) in self.wanted.iter().zip(&states) {
            let held = self.before.iter().any(|(kind, held)| kind == of && *held);
            if held != *holds {
                let event = words::node_event(condition, &node.name, self.since);
                match api.write_event(About::Node(&node.name, &node.uid), &event).await {
                    Ok(()) => {}
                    Err(failure) if may_pass(&failure) => return Err(failure),
                    Err(failure) => refused = Some(failure),
                }
            }
        }
        Ok((states, refused))
    }
}

/// Takes all of ebb's taints away.
pub(crate) async fn clear_taints(api: &Api, node: &NodeSeen) -> Result<(), Failure> {
    set_taints(api, node, &node.taints, &[]).await
}

/// Gives the Node the taints of the conditions that hold, and takes the others of ebb's away.
async fn set_taints(
    api: &Api,
    node: &NodeSeen,
    seen: &NodeTaints,
    states: &[(NodeConditionType, bool)],
) -> Result<(), Failure> {
    let own: Vec<&str> = TAINTS.iter().map(|(_, key)| *key).collect();
    let holds = |of: &NodeConditionType| states.contains(&(*of, true));
    let wanted: Vec<&str> =
        TAINTS.iter().filter(|(of, _)| holds(of)).map(|(_, key)| *key).collect();
    api.set_node_taints(&node.name, seen, &own, &wanted).await
}

fn states(conditions: &[NodeCondition]) -> States {
    conditions.iter().map(|c| (c.condition_type, c.status)).collect()
}
