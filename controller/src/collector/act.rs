//! From the queue to the API server and back: what is to be done is decided again when its turn has come.

use super::Collector;
use crate::job::{Answered, Done, Finished, Job};
use crate::record::{Act, Named, Outcome};
use crate::why::why;
use crate::window::Load;
use ebb_kube::{Api, Failure, Reply, Target};
use ebb_policy_cluster::{
    Answer, Gone, Object, OwnerAnswer, OwnerKey, OwnerReference, Preconditions, Resource, Uid,
    Verdict, pods,
};
use std::future::Future;
use std::time::{Duration, Instant};

/// How long nothing at all is sent when the API server says 429 without saying for how long; and at most.
const TOO_MANY: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);
/// How long an act that is forbidden waits: rights do not change by themselves.
const FORBIDDEN: Duration = Duration::from_secs(30);
/// How long a node's or owner's look-up waits that had no answer.
const NO_ANSWER: Duration = Duration::from_secs(5);

impl Collector {
    /// Sends what may be sent now.
    pub(crate) fn dispatch(&mut self, now: Instant) {
        while self.may_act(now) && self.requests.may_send(now) {
            let Some(job) = self.requests.queue.pop() else { return };
            match job {
                Job::Object(uid) => self.object(&uid, now),
                Job::Owner(key) => self.owner(key, now),
                Job::Node(name) => self.node(name, now),
                Job::Pod(deletion) => self.pod(deletion, false, now),
                Job::Marked(deletion) => self.pod(deletion, true, now),
                Job::Warning(uid, owner) => self.warning(&uid, &owner, now),
            }
        }
    }

    fn target(
        &self,
        resource: &Resource,
        namespace: Option<String>,
        name: String,
    ) -> Option<Target> {
        let of = self.catalogue.get(resource)?.clone();
        Some(Target { of, namespace, name })
    }

    /// Sends a request; what it comes to returns as an input.
    fn send(&mut self, now: Instant, request: impl Future<Output = Finished> + Send + 'static) {
        self.requests.sent(now);
        let done = self.done.clone();
        tokio::spawn(async move {
            let sent = Instant::now();
            let of = request.await;
            // The collector ended: nobody waits for it.
            _ = done.send(Done { of, took: sent.elapsed() });
        });
    }

    fn object(&mut self, uid: &Uid, now: Instant) {
        if self.requests.busy.contains(uid) {
            return;
        }
        let Some(object) = self.graph.object(uid) else { return };
        let verdict = self.graph.verdict(uid);
        let (act, on) = match &verdict {
            Verdict::Delete { preconditions, .. } => (Act::Delete, preconditions.clone()),
            Verdict::DropOwners { preconditions, .. } => (Act::DropOwners, preconditions.clone()),
            Verdict::RemoveFinalizer { preconditions, .. } => {
                (Act::RemoveFinalizer, preconditions.clone())
            }
            Verdict::Unblock { preconditions } => (Act::Unblock, preconditions.clone()),
            // It has changed since it was queued.
            _ => {
                self.mark(vec![uid.clone()]);
                return;
            }
        };
        let why = why(&self.graph, &object, &verdict);
        let named = Named::from(&object);
        if self.is_observing() {
            self.say(uid, act, Outcome::Would, named, why, None);
            return;
        }
        let resource = Resource::from(&object.kind);
        let target = self.target(&resource, object.namespace.clone(), object.name.clone());
        let Some(target) = target else { return };
        self.requests.busy.insert(uid.clone());
        let since = self.requests.due_since.remove(uid);
        let (api, uid) = (self.api.clone(), uid.clone());
        self.send(now, async move {
            let version = on.resource_version.clone();
            let reply = carry_out(&api, &target, &object, verdict, &on).await;
            Finished::Object(Box::new(Answered { act, named, why, uid, version, since, reply }))
        });
    }

    fn owner(&mut self, key: OwnerKey, now: Instant) {
        let resource = Resource::from(&key.kind);
        let Some(at) = self.target(&resource, key.namespace.clone(), key.name.clone()) else {
            self.lookups.remove(&key);
            return;
        };
        let api = self.api.clone();
        self.send(now, async move {
            let answer = api.owner(&at).await;
            Finished::Owner(key, answer)
        });
    }

    fn node(&mut self, name: String, now: Instant) {
        let resource = Resource { group: String::new(), kind: "Node".to_owned() };
        let Some(at) = self.target(&resource, None, name.clone()) else { return };
        let api = self.api.clone();
        self.send(now, async move {
            let is_there = api.owner(&at).await.map(|found| found != OwnerAnswer::NotFound);
            Finished::Node(name, is_there)
        });
    }

    /// Marks a pod, or deletes it: one request in one turn, so that between the two it is asked again whether this process may act. What it has marked goes, whatever has changed since.
    fn pod(&mut self, deletion: pods::Deletion, is_marked: bool, now: Instant) {
        let uid = deletion.preconditions.uid.clone();
        self.pods.taken(&uid);
        if self.requests.busy.contains(&uid) {
            return;
        }
        let is_known = is_marked || self.knows_pods();
        if !is_known || !self.pods.still_goes(&deletion, is_marked) {
            self.pods.is_due = true;
            return;
        }
        let Some((named, why)) = self.pods.describe(&deletion) else { return };
        if self.is_observing() {
            self.pods.sent(&deletion.preconditions);
            self.say(&uid, Act::Delete, Outcome::Would, named, why, None);
            return;
        }
        let resource = Resource { group: String::new(), kind: "Pod".to_owned() };
        let namespace = Some(deletion.namespace.clone());
        let Some(at) = self.target(&resource, namespace, deletion.name.clone()) else { return };
        self.requests.busy.insert(uid.clone());
        let api = self.api.clone();
        self.send(now, async move {
            let on = &deletion.preconditions;
            let reply = match deletion.mark.filter(|_| !is_marked) {
                Some(mark) => {
                    let reply = api.mark_failed(&at, mark.disruption_target, on).await;
                    // What could not be marked is not deleted: Jobs read the mark.
                    if reply.answer == Answer::Done {
                        return Finished::Marked(deletion);
                    }
                    reply
                }
                None => api.delete_now(&at, on).await,
            };
            let (act, version) = (Act::Delete, on.resource_version.clone());
            let since = None;
            Finished::Object(Box::new(Answered { act, named, why, uid, version, since, reply }))
        });
    }

    fn warning(&mut self, uid: &Uid, owner: &Uid, now: Instant) {
        let Some(object) = self.graph.object(uid) else { return };
        let Some(owner) = object.owners.iter().find(|o| o.uid == *owner).cloned() else { return };
        let named = Named::from(&object);
        let why = format!("owner {} {} is in another namespace", owner.kind.kind, owner.name);
        if self.is_observing() {
            self.say(uid, Act::WarnInvalidNamespace, Outcome::Would, named, why, None);
            return;
        }
        let api = self.api.clone();
        self.send(now, async move {
            let result = api.warn_invalid_namespace(&object, &owner).await;
            Finished::Warning { named, why, result }
        });
    }

    /// An answer, or that there is none.
    pub(crate) fn finished(&mut self, Done { of, took }: Done, now: Instant) {
        let in_flight = self.requests.in_flight;
        self.requests.in_flight = in_flight.saturating_sub(1);
        let load = self.load(&of, now);
        self.requests.window.answered(took, load, in_flight, now);
        match of {
            Finished::Object(answered) => self.answered(*answered, now),
            Finished::Marked(deletion) => self.marked(deletion),
            Finished::Owner(key, Ok(answer)) => {
                self.lookups.remove(&key);
                let is_there = matches!(&answer, OwnerAnswer::Found { uid, .. } if *uid == key.uid);
                if is_there {
                    self.believe(key.uid.clone(), now);
                }
                let changed = self.graph.answer_owner(key, &answer);
                self.mark(changed);
            }
            Finished::Owner(key, Err(failure)) => {
                self.complain(&format!(
                    "owner {} {} could not be looked up: {failure}",
                    key.kind, key.name
                ));
                self.lookups.remove(&key);
                // Its dependents ask again by then.
                self.believed.push_front((now + NO_ANSWER, key.uid));
                self.believed.make_contiguous().sort_by_key(|(until, _)| *until);
            }
            Finished::Node(name, Ok(is_there)) => self.pods.answered(&name, is_there),
            Finished::Node(name, Err(failure)) => {
                self.complain(&format!("node {name} could not be looked up: {failure}"));
                self.pods.unanswered(&name, now + NO_ANSWER);
            }
            Finished::Warning { named, why, result } => {
                let (outcome, error) = match result {
                    Ok(()) => (Outcome::Done, None),
                    Err(failure) => (Outcome::Failed, Some(failure.to_string())),
                };
                let act = Act::WarnInvalidNamespace;
                self.recorder.say(crate::record::Record::Act {
                    act,
                    outcome,
                    object: named,
                    why,
                    error,
                });
            }
        }
    }

    /// How an answer speaks of the API server's load; a 429 closes the window for as long as it says, and so does an API server that cannot be reached.
    fn load(&mut self, of: &Finished, now: Instant) -> Load {
        let failure: Option<&Failure> = match of {
            Finished::Object(answered) => answered.reply.failure.as_ref(),
            Finished::Marked(_) => None,
            Finished::Owner(_, result) => result.as_ref().err(),
            Finished::Node(_, result) => result.as_ref().err(),
            Finished::Warning { result, .. } => result.as_ref().err(),
        };
        match failure {
            Some(Failure::Connection(_)) => self.requests.unreached(now),
            // Whether it is there remains open.
            Some(Failure::Deadline(_)) => {}
            Some(Failure::Status { .. } | Failure::Answer(_)) | None => {
                let again = self.requests.reached();
                self.pods.is_due |= !again.is_empty();
                self.mark(again);
            }
        }
        let Some(failure) = failure else { return Load::Fine };
        match failure.code() {
            Some(429) => {
                let pause = failure.retry_after().unwrap_or(TOO_MANY).min(LONGEST);
                self.requests.window.close(pause, now);
                Load::TooMuch
            }
            Some(code) if code < 500 => Load::Fine,
            _ => Load::TooMuch,
        }
    }

    /// A pod was marked: its delete is the next request, if this process may still act.
    fn marked(&mut self, deletion: pods::Deletion) {
        let uid = deletion.preconditions.uid.clone();
        self.requests.busy.remove(&uid);
        self.pods.is_due = true;
        if self.pods.queued.insert(uid.clone()) {
            self.requests.queue.push_first(uid, Job::Marked(deletion));
        }
    }

    fn answered(&mut self, answered: Answered, now: Instant) {
        let Answered { act, named, why, uid, version, since, reply } = answered;
        let on = Preconditions { uid: uid.clone(), resource_version: version };
        let uid = &uid;
        self.requests.busy.remove(uid);
        self.pods.is_due = true;
        let changed = self.graph.answer(uid, &on.resource_version, &reply.answer);
        self.mark(changed);
        match reply.answer {
            Answer::Done => {
                self.requests.release(uid);
                self.pods.sent(&on);
                if let Some(since) = since {
                    self.status.lock().acted(now.duration_since(since));
                }
                self.say(uid, act, Outcome::Done, named, why, None);
            }
            // Somebody else was faster.
            Answer::NotFound => {
                self.pods.gone(uid);
                self.forget(uid, Gone::Deleted);
            }
            // Its watch will show why.
            Answer::Conflict => {
                self.pods.sent(&on);
            }
            Answer::Invalid => {
                self.pods.sent(&on);
                let error = reply.failure.map(|f| f.to_string());
                self.say(uid, act, Outcome::Failed, named, why, error);
            }
            Answer::Retry => {
                let is_forbidden = reply.failure.as_ref().and_then(Failure::code) == Some(403);
                let least = if is_forbidden { FORBIDDEN } else { Duration::ZERO };
                let least = reply.retry_after().unwrap_or(least);
                if matches!(reply.failure, Some(Failure::Connection(_))) {
                    self.requests.hold_until_heard(uid, now);
                } else {
                    self.requests.hold(uid, least, now);
                }
                if !reply.is_too_many() {
                    let error = reply.failure.map(|f| f.to_string());
                    self.say(uid, act, Outcome::Failed, named, why, error);
                }
            }
        }
    }
}

async fn carry_out(
    api: &Api,
    at: &Target,
    object: &Object,
    verdict: Verdict,
    on: &Preconditions,
) -> Reply {
    match verdict {
        Verdict::Delete { policy, .. } => api.delete(at, policy, on).await,
        Verdict::DropOwners { owners, .. } => {
            let rest: Vec<OwnerReference> =
                object.owners.iter().filter(|o| !owners.contains(&o.uid)).cloned().collect();
            api.set_owners(at, &rest, on).await
        }
        Verdict::RemoveFinalizer { finalizer, .. } => {
            api.remove_finalizer(at, object, finalizer, on).await
        }
        Verdict::Unblock { .. } => {
            let open =
                |o: &OwnerReference| OwnerReference { block_owner_deletion: false, ..o.clone() };
            let owners: Vec<OwnerReference> = object.owners.iter().map(open).collect();
            api.set_owners(at, &owners, on).await
        }
        // Nothing to carry out: the callers leave these out.
        _ => Reply { answer: Answer::Conflict, failure: None },
    }
}
