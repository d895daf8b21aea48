//! All that is known, in one place: the graph, the pods, what is due. Changes go in, verdicts follow, due things are queued.

mod act;
mod resources;
mod rounds;

use crate::config::{Config, Mode};
use crate::job::Job;
use crate::leader::Leadership;
use crate::pods::Pods;
use crate::record::{Act, Named, Outcome, Record};
use crate::recorder::Recorder;
use crate::requests::Requests;
use crate::status::Status;
use crate::watches::Watches;
use crate::why::why;
use ebb_kube::{Api, Catalogue};
use ebb_policy_cluster::{Gone, Graph, OwnerKey, Uid, Verdict};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Verdicts at once: between them answers and events are heard.
const AT_ONCE: usize = 2_000;
/// For how long an owner that no watch shows counts as there.
const BELIEVED: Duration = Duration::from_secs(30);

/// The one owner of all state.
pub(crate) struct Collector {
    pub(crate) config: Config,
    pub(crate) api: Api,
    pub(crate) graph: Graph,
    pub(crate) catalogue: Catalogue,
    pub(crate) watches: Watches,
    pub(crate) pods: Pods,
    pub(crate) requests: Requests,
    pub(crate) leadership: Leadership,
    pub(crate) recorder: Recorder,
    pub(crate) status: Arc<Status>,
    pub(crate) done: mpsc::UnboundedSender<crate::job::Done>,
    /// Objects whose verdict may have changed.
    dirty: BTreeSet<Uid>,
    /// Owners that are being looked up, or wait for it.
    pub(crate) lookups: BTreeSet<OwnerKey>,
    /// Owners that were found by a look-up, and until when that is believed.
    pub(crate) believed: VecDeque<(Instant, Uid)>,
    /// What was said last of an object, so that it is said once.
    said: BTreeMap<Uid, (Act, Outcome, String)>,
    /// Objects and owners in other namespaces, about which an Event was written.
    warned: BTreeSet<(Uid, Uid)>,
    /// Whether discovery is to look before its time.
    pub(crate) must_discover: bool,
}

impl Collector {
    pub(crate) fn new(
        config: Config,
        api: Api,
        watches: Watches,
        recorder: Recorder,
        status: Arc<Status>,
        done: mpsc::UnboundedSender<crate::job::Done>,
    ) -> Self {
        let now = Instant::now();
        Self {
            graph: Graph::new(config.exclusions.clone()),
            pods: Pods::new(config.pods.clone()),
            requests: Requests::new(config.max_qps, now),
            config,
            api,
            catalogue: Catalogue::default(),
            watches,
            leadership: Leadership::Standby { holder: None, error: None },
            recorder,
            status,
            done,
            dirty: BTreeSet::new(),
            lookups: BTreeSet::new(),
            believed: VecDeque::new(),
            said: BTreeMap::new(),
            warned: BTreeSet::new(),
            must_discover: false,
        }
    }

    /// Objects whose verdict may have changed.
    pub(crate) fn mark(&mut self, uids: Vec<Uid>) {
        self.dirty.extend(uids);
    }

    pub(crate) fn forget(&mut self, uid: &Uid, gone: Gone) {
        let changed = self.graph.forget(uid, gone);
        self.mark(changed);
        self.left(uid);
    }

    /// An object is gone: nothing is kept of it.
    pub(crate) fn left(&mut self, uid: &Uid) {
        self.requests.release(uid);
        self.requests.due_since.remove(uid);
        self.said.remove(uid);
        self.dirty.remove(uid);
        let of = self.warned.range((uid.clone(), Uid::new(""))..);
        let of: Vec<_> = of.take_while(|(object, _)| object == uid).cloned().collect();
        of.iter().for_each(|pair| _ = self.warned.remove(pair));
    }

    /// Whether this process may act now.
    pub(crate) fn may_act(&self, now: Instant) -> bool {
        self.leadership.may_act(now)
    }

    /// Whether this process may act from now on: then everything is judged anew.
    pub(crate) fn lead(&mut self, leadership: Leadership, now: Instant) {
        let (was, is) = (self.leadership.may_act(now), leadership.may_act(now));
        if leadership.is_news_after(&self.leadership, now) && leadership != Leadership::Alone {
            let (holder, error) = match &leadership {
                Leadership::Standby { holder, error } => (holder.clone(), error.clone()),
                _ => (None, None),
            };
            self.recorder.say(Record::Leader { acts: is, holder, error });
        }
        self.leadership = leadership;
        self.status.lock().is_leading = is;
        if is && !was {
            self.requests.clear();
            self.lookups.clear();
            self.pods.begin();
            let all = self.graph.uids().cloned().collect();
            self.mark(all);
        } else if was && !is {
            self.requests.clear();
            self.lookups.clear();
            self.pods.begin();
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Verdicts on what has changed; what is due is queued.
    pub(crate) fn judge(&mut self, now: Instant) {
        for uid in self.requests.again(now) {
            self.dirty.insert(uid);
            self.pods.is_due = true;
        }
        while let Some((until, _)) = self.believed.front()
            && *until <= now
            && let Some((_, uid)) = self.believed.pop_front()
        {
            let changed = self.graph.doubt_owner(&uid);
            self.mark(changed);
        }
        if !self.may_act(now) || !self.config.collectors.owner_references {
            // A standby judges everything when its turn comes.
            self.dirty.clear();
            return;
        }
        for _ in 0..AT_ONCE {
            let Some(uid) = self.dirty.pop_first() else { break };
            if !self.requests.busy.contains(&uid) && !self.requests.is_held(&uid, now) {
                self.judge_one(&uid, now);
            }
        }
    }

    fn judge_one(&mut self, uid: &Uid, now: Instant) {
        let verdict = self.graph.verdict(uid);
        self.status.lock().judged(&verdict);
        if !matches!(verdict, Verdict::Excluded(_)) {
            self.warn(uid);
        }
        match verdict {
            Verdict::Delete { .. }
            | Verdict::DropOwners { .. }
            | Verdict::RemoveFinalizer { .. }
            | Verdict::Unblock { .. } => {
                self.requests.due_since.entry(uid.clone()).or_insert(now);
                self.requests.queue.push(self.root(uid), Job::Object(uid.clone()));
            }
            Verdict::ConfirmOwner(key) => self.look_up(key),
            Verdict::Excluded(_) => self.say_excluded(uid, &verdict),
            Verdict::Nothing | Verdict::Wait(_) | Verdict::Unknown(_) => {
                self.requests.due_since.remove(uid);
            }
        }
    }

    /// Whose turn an object's is: its first owner's, or its own.
    fn root(&self, uid: &Uid) -> Uid {
        let first = self.graph.object(uid).and_then(|object| object.owners.into_iter().next());
        first.map_or_else(|| uid.clone(), |owner| owner.uid)
    }

    /// An owner's look-up, once for all its dependents.
    fn look_up(&mut self, key: OwnerKey) {
        if self.lookups.insert(key.clone()) {
            self.requests.queue.push(key.uid.clone(), Job::Owner(key));
        }
    }

    fn say_excluded(&mut self, uid: &Uid, verdict: &Verdict) {
        let Some(object) = self.graph.object(uid) else { return };
        let why = why(&self.graph, &object, verdict);
        self.say(uid, Act::Delete, Outcome::Excluded, Named::from(&object), why, None);
    }

    /// An Event for each owner that an object may not have, once; also of an object that goes for another reason.
    fn warn(&mut self, uid: &Uid) {
        for owner in self.graph.invalid_owners(uid) {
            let pair = (uid.clone(), owner);
            if self.warned.insert(pair.clone()) {
                self.requests.queue.push(pair.1.clone(), Job::Warning(pair.0, pair.1));
            }
        }
    }

    /// A record, unless it says the same of the object as the last one.
    pub(crate) fn say(
        &mut self,
        uid: &Uid,
        act: Act,
        outcome: Outcome,
        object: Named,
        why: String,
        error: Option<String>,
    ) {
        let now = (act, outcome, why.clone());
        if outcome != Outcome::Done {
            if self.said.get(uid) == Some(&now) {
                return;
            }
            self.said.insert(uid.clone(), now);
        }
        self.recorder.say(Record::Act { act, outcome, object, why, error });
    }

    /// An owner that no watch shows was found: that is believed for a while.
    pub(crate) fn believe(&mut self, uid: Uid, now: Instant) {
        self.believed.push_back((now + BELIEVED, uid));
    }

    pub(crate) fn is_observing(&self) -> bool {
        self.config.mode == Mode::Observe
    }
}
