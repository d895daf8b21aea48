//! The container runtime in the loop: what its news changes, and what is asked of it.
//!
//! ```text
//!                 ┌───────────────────────── idle ◄────────────────────────────┐
//!  plan removes ──┘                                                            │ listed again, and disk read again
//!        └──► working: one list of removals is with the session ─ all done ─► settling
//! ```
//! A plan that removes images is made on a fresh list of them (see `fresh`).
//! While removals are under way disk is not judged: what they free is not there yet, and a pod that is ended for want of it would be ended for nothing.
//! Only a filesystem that is full before they could have helped is judged all the same.
//! Memory and task ids are judged all the time.

use super::Agent;
use super::image_resync::ImageResync;
use super::session::{News, Order, Session, Task};
use super::watch::Watch;
use crate::act::runtime::{Outcome, Undone, Work};
use crate::act::{self, Mode, Refusal, Target};
use crate::clock::Boot;
use crate::pods::Described;
use crate::state::Extent;
use ebb_journal::{Part, Record, ms};
use ebb_policy::plan::{Note, SkipReason, Subject};
use ebb_policy::snapshot::Task as Loop;
use ebb_policy::{Plan, Signal, Snapshot};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Between two measurements of what pods take up on disk, while disk is near or below a threshold.
const USAGE_EVERY: Duration = Duration::from_secs(10);

/// The same while an eviction is deferred for it.
const USAGE_AWAITED: Duration = Duration::from_secs(2);

/// The same while it is not, for pods with limits of their own.
const USAGE_AT_REST: Duration = Duration::from_secs(60);

/// Disk and the runtime are decided on this often while memory is short.
const WHOLE_EVERY: Duration = Duration::from_secs(1);

/// What the runtime refused to remove is asked for again after this long, and after twice as long each further time.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The longest wait between two such attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// A sandbox that is still there this long after the runtime was asked to stop it is asked for again.
const STOPS_WITHIN: Duration = Duration::from_secs(20);

/// What removed containers have written is gone from disk within this. A runtime forgets a container at once, and deletes its files when it next tidies up.
const TIDIED_WITHIN: Duration = Duration::from_secs(5);

/// The loop's side of the session.
#[derive(Debug)]
pub(super) struct RuntimeWatch {
    pub(super) session: Session,
    pub(super) is_up: bool,
    /// The next list is the first since the runtime is there: what died before that is collected too.
    is_new: bool,
    collecting: Option<Collecting>,
    /// When there may be something to collect although nothing has ended since: what was too young is old enough, what stood in the way is gone, what was refused may be granted.
    gc_due: Option<Boot>,
    /// Dead containers that the runtime did not remove when asked to.
    refused: Vec<String>,
    again_after: Duration,
    /// When the runtime was asked to stop the sandboxes of a pod, by UID.
    stopping: BTreeMap<String, Boot>,
    usage_asked: Option<Boot>,
    pub(super) images: ImageResync,
    /// The manifests say something else than at the last list.
    manifests_changed: bool,
}

/// Removals under way.
#[derive(Debug)]
struct Collecting {
    begun: Boot,
    /// Bytes that were available on the images' filesystem before.
    available: Option<u64>,
    /// Bytes that the images should free.
    expected: u64,
    images: u64,
    removed: u64,
    /// Of those, what a sandbox may have been kept for.
    containers_removed: u64,
    skipped: u64,
    /// Of those, what the runtime refused.
    refused: u64,
    /// When the last was over; then the node is looked at again.
    done: Option<Boot>,
    listed: bool,
    read: bool,
}

impl RuntimeWatch {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session,
            is_up: false,
            is_new: true,
            collecting: None,
            gc_due: None,
            refused: Vec::new(),
            again_after: AGAIN_AFTER,
            stopping: BTreeMap::new(),
            usage_asked: None,
            images: ImageResync::default(),
            manifests_changed: false,
        }
    }

    /// When the loop has something to do here.
    pub(super) fn due(&self) -> Option<Boot> {
        self.images.due().or_else(|| self.gc_due.filter(|_| !self.is_busy()))
    }

    fn is_gc_due(&self, at: Boot) -> bool {
        self.gc_due.is_some_and(|due| due <= at)
    }

    /// Whether disk is not to be judged: removals are under way, or images are listed for them.
    fn is_busy(&self) -> bool {
        self.collecting.is_some() || self.images.are_awaited()
    }

    /// Has another collection follow where the last one may have made it worth while.
    fn follow_up(&mut self, last: &Collecting, now: Boot) {
        let again = if last.refused > 0 {
            let wait = self.again_after;
            self.again_after = (wait * 2).min(MAX_BACKOFF);
            Some(now.plus(wait))
        } else {
            self.again_after = AGAIN_AFTER;
            // A sandbox is kept as long as it owns a container.
            (last.containers_removed > 0).then_some(now)
        };
        self.gc_due = [self.gc_due, again].into_iter().flatten().min();
    }

    /// Asks for a listing.
    pub(super) fn list(&self) {
        self.session.ask(Order::List { images: false });
    }

    /// Tells the session that nothing runs any more in this cgroup: everything is listed as soon as the runtime has noticed.
    pub(super) fn has_ended(&self, cgroup: PathBuf) {
        self.session.ask(Order::Ended { cgroup });
    }
}

impl Agent {
    /// Takes in what the session tells, and decides when that can change the answer.
    pub(super) fn on_runtime(&mut self, news: News) {
        match news {
            News::Up(what) => {
                self.set_up(true);
                self.reporter.tell(Record::Runtime { up: true, what });
            }
            News::Down(what) => {
                self.set_up(false);
                self.reconciling.running.iter().for_each(|reconciler| reconciler.listed(None));
                self.reporter.tell(Record::Runtime { up: false, what });
                // No list is to come: what is known has to do, or disk would not be judged for as long as the runtime is away.
                self.settle(|collecting| collecting.listed |= collecting.done.is_some());
            }
            News::Inventory(inventory) => {
                if let Some(images) = &inventory.images
                    && let Some(path) = &images.filesystem
                {
                    let layers = images.layer_filesystem.clone();
                    let changed = self.state.disk_mut().set_image_store(path.clone(), layers);
                    if changed {
                        self.disk_has_changed();
                    }
                }
                let at = inventory.at;
                let listed = inventory.images.as_ref().map(|images| images.at);
                let (sandboxes, containers) = (inventory.pods.len(), inventory.containers.len());
                self.state.observe_inventory(*inventory);
                if let Some(reconciler) = &self.reconciling.running {
                    reconciler.listed(self.state.pods().inventory().cloned());
                }
                self.stop_left_sandboxes(at);
                self.kill_what_was_restarted();
                self.settle(|collecting| {
                    collecting.listed |= collecting.done.is_some_and(|done| at >= done);
                });
                let has_exited = self.state.pods().has_exited();
                let Some(runtime) = &mut self.runtime else { return };
                let now = Boot::now();
                let are_fresh = listed.is_some_and(|begun| runtime.images.observe(begun, now));
                let is_new = std::mem::take(&mut runtime.is_new);
                let is_changed = std::mem::take(&mut runtime.manifests_changed);
                if is_new || is_changed {
                    runtime.gc_due = Some(now);
                }
                if is_new {
                    self.reporter.tell(Record::Inventory { sandboxes, containers });
                }
                if is_new || is_changed || are_fresh || has_exited {
                    self.look(true);
                }
            }
            News::Usage(usage) => {
                self.state.storage_mut().observe_usage(usage);
                self.look(true);
            }
            News::Logs(logs) => self.state.storage_mut().observe_logs(logs),
            News::Manifests(found) => {
                self.state.pods_mut().observe_described(Described::from(&found));
                for what in found.problems {
                    self.reporter.tell_degraded(Part::PodDescriptions, what);
                }
                // What is left of a deleted pod may go; that is decided on the list that follows these news.
                if let Some(runtime) = &mut self.runtime {
                    runtime.manifests_changed = true;
                }
            }
            News::Done(outcome) => self.on_done(&outcome),
            News::AllDone => {
                let now = Boot::now();
                if let Some(runtime) = &mut self.runtime {
                    let mut images = false;
                    if let Some(collecting) = &mut runtime.collecting {
                        collecting.done = Some(now);
                        collecting.listed = !runtime.is_up;
                        images = collecting.images > 0;
                    }
                    runtime.session.ask(Order::List { images });
                }
                self.disk_has_changed();
                if self.state.disk().places().is_none() {
                    self.settle(|collecting| collecting.read = true);
                }
            }
            News::Trouble(part, what) => self.reporter.tell_degraded(part, what),
        }
    }

    /// Notes that the filesystems were read at `at`.
    pub(super) fn disk_was_read(&mut self, at: Boot) {
        self.settle(|collecting| {
            collecting.read |= collecting.done.is_some_and(|done| at >= done);
        });
    }

    fn set_up(&mut self, is_up: bool) {
        if let Some(runtime) = &mut self.runtime {
            runtime.is_up = is_up;
            runtime.is_new |= is_up;
            // What it was asked for before it went may not have been heard.
            runtime.stopping.clear();
            if !is_up {
                runtime.images.make_do(Boot::now());
            }
        }
    }

    fn collecting_mut(&mut self) -> Option<&mut Collecting> {
        self.runtime.as_mut()?.collecting.as_mut()
    }

    /// Takes in one more fact about removals under way; when all are in, tells what came of it and decides again.
    fn settle(&mut self, note: impl FnOnce(&mut Collecting)) {
        let is_short = self.watches.on_disk().any(Watch::is_below);
        let Some(collecting) = self.collecting_mut() else { return };
        note(collecting);
        if !(collecting.listed && collecting.read) {
            return;
        }
        let now = Boot::now();
        let is_recent = collecting.done.is_some_and(|done| now.since(done) < TIDIED_WITHIN);
        if is_short && is_recent && collecting.containers_removed > 0 {
            // The next reading tells.
            collecting.read = false;
            return;
        }
        let Some(runtime) = &mut self.runtime else { return };
        let Some(collecting) = runtime.collecting.take() else { return };
        runtime.follow_up(&collecting, now);
        let left = self.state.disk().available(Signal::ImageFsAvailable);
        let freed = collecting.available.zip(left).filter(|_| collecting.images > 0);
        self.reporter.tell(Record::Collected {
            removed: collecting.removed,
            skipped: collecting.skipped,
            expected: (collecting.images > 0).then_some(collecting.expected),
            measured: freed.map(|(before, left)| {
                i64::try_from(left).unwrap_or(i64::MAX) - i64::try_from(before).unwrap_or(i64::MAX)
            }),
            took_ms: ms(now.since(collecting.begun)),
        });
        self.look(true);
    }

    fn on_done(&mut self, outcome: &Outcome) {
        let took_ms = ms(outcome.ended.since(outcome.begun));
        let record = match &outcome.result {
            Ok(()) => Record::Removed { work: outcome.work.clone(), took_ms },
            Err(why) => Record::NotRemoved { work: outcome.work.clone(), why: why.to_string() },
        };
        self.reporter.tell_at(outcome.ended, record);
        let Some(runtime) = &mut self.runtime else { return };
        let Some(collecting) = &mut runtime.collecting else { return };
        match (&outcome.result, &outcome.work) {
            (Ok(()), work) => {
                collecting.removed += 1;
                let of_container = matches!(work, Work::RemoveContainer { .. });
                collecting.containers_removed += u64::from(of_container);
            }
            (Err(why), work) => {
                collecting.skipped += 1;
                collecting.refused += u64::from(matches!(why, Undone::Runtime(_)));
                if let (Work::RemoveContainer { id, .. }, Undone::Runtime(_)) = (work, why) {
                    runtime.refused.push(id.clone());
                }
                if let (Work::RemoveImage { expected, .. }, Undone::Changed(_)) = (work, why) {
                    collecting.expected = collecting.expected.saturating_sub(*expected);
                }
            }
        }
    }

    /// How much the next decision is about.
    ///
    /// While removals are under way it leaves disk and the runtime out. While memory is short it does so too, but for one look in a second: they cost more to put together than memory has time for.
    pub(super) fn extent(&self, at: Boot) -> Extent {
        let is_busy = self.runtime.as_ref().is_some_and(RuntimeWatch::is_busy);
        let is_recent = self.decisions.whole.is_some_and(|last| at.since(last) < WHOLE_EVERY);
        if self.is_disk_full_soon() {
            return Extent::Everything;
        }
        if is_busy || is_recent && self.watches.quick().any(Watch::is_close) {
            Extent::Quick
        } else {
            Extent::Everything
        }
    }

    /// Whether the turn of the regular collection of images has come at `at`.
    pub(super) fn is_image_collection_due(&self, at: Boot) -> bool {
        let every = self.policy.limits.options().image_gc_period;
        let last = self.decisions.history.last_image_gc;
        let now = self.state.clock().time(at);
        self.runtime.is_some() && every.0 > 0 && last.is_none_or(|last| now.since(last) >= every)
    }

    /// Has what ended since the last decision collected by this one.
    pub(super) fn prepare(&self, snapshot: &mut Snapshot, extent: Extent, at: Boot) {
        if extent == Extent::Quick {
            snapshot.tasks = Some(vec![Loop::Eviction]);
            return;
        }
        let has_exited = self.state.pods().has_exited();
        let Some(runtime) = &self.runtime else { return };
        let is_due = runtime.is_gc_due(at);
        if is_due {
            snapshot.exited.extend(runtime.refused.iter().cloned());
        }
        let options = self.policy.limits.options();
        let every = options.container_gc_period;
        let last = self.decisions.history.last_container_gc;
        let passed = last.is_none_or(|last| snapshot.taken_at.since(last) >= every);
        let containers = every.0 > 0 && (is_due || has_exited || passed);
        // Before it is known how full their filesystem is, a collection of images would only use up its turn.
        let disk = self.state.disk();
        let is_known =
            disk.places().is_none() || disk.available(Signal::ImageFsAvailable).is_some();
        let images = is_known && self.is_image_collection_due(at) && !self.is_disk_full_soon();
        let tasks =
            [(Loop::Eviction, true), (Loop::ContainerGc, containers), (Loop::ImageGc, images)];
        snapshot.tasks =
            Some(tasks.into_iter().filter(|(_, is)| *is).map(|(task, _)| task).collect());
    }

    /// Notes what a decision that is carried out was about.
    pub(super) fn has_decided(&mut self, extent: Extent, at: Boot) {
        if extent == Extent::Quick {
            return;
        }
        self.decisions.whole = Some(at);
        if let Some(runtime) = self.runtime.as_mut().filter(|runtime| runtime.is_gc_due(at)) {
            runtime.gc_due = None;
            runtime.refused.clear();
        }
    }

    /// Has the runtime stop the containers of a pod; false when it cannot be asked, or nothing is to be done.
    pub(super) fn stop_by_runtime(&mut self, uid: &str, grace: Duration) -> bool {
        let (containers, _) = self.state.pods().parts(uid);
        let Some(runtime) = &self.runtime else { return false };
        // The runtime stops whole containers and asks nobody: whoever is protected must not be in one of them.
        let payloads = self.state.payloads(uid);
        let target = Target::Pod { uid: uid.to_owned(), payloads };
        let refused = || act::members(&target, &self.roots, 0).err();
        let is_refused = || !matches!(refused(), None | Some(Refusal::Gone | Refusal::Exiting));
        let is_open = || !self.state.spares_some_of(uid) && !is_refused();
        let may_ask =
            self.mode == Mode::Enforce && runtime.is_up && !containers.is_empty() && is_open();
        may_ask && runtime.session.give(Task::Stop { containers, grace })
    }

    /// Has the runtime stop the sandboxes of a pod whose containers have ended. Killing them instead would leave their shims behind.
    ///
    /// Where its kubelet is at work, that is left to it: it reads there how the containers ended, and may start them again in it.
    /// A container that is protected lives on, and with it the sandbox that it needs.
    pub(super) fn stop_sandboxes(&mut self, uid: &str) {
        if self.state.pods().is_anothers(uid) || self.state.spares_some_of(uid) {
            return;
        }
        let (_, sandboxes) = self.state.pods().parts(uid);
        let Some(runtime) = &mut self.runtime else { return };
        runtime.stopping.insert(uid.to_owned(), Boot::now());
        if !sandboxes.is_empty() && !runtime.session.give(Task::StopSandboxes(sandboxes)) {
            let what =
                format!("the sandbox of pod {uid} is not stopped yet: the runtime has not kept up");
            self.reporter.tell_degraded(Part::Runtime, what);
        }
    }

    /// Asks again for what an eviction left: the runtime was away, or refused.
    fn stop_left_sandboxes(&mut self, now: Boot) {
        let left = self.state.pods().only_sandboxes_left();
        let Some(runtime) = &mut self.runtime else { return };
        let is_recent = |asked: Boot| now.since(asked) < STOPS_WITHIN;
        runtime.stopping.retain(|uid, asked| left.contains(uid) || is_recent(*asked));
        let is_due = |uid: &String| !runtime.stopping.get(uid).is_some_and(|at| is_recent(*at));
        let due: Vec<String> = left.into_iter().filter(is_due).collect();
        for uid in due {
            self.stop_sandboxes(&uid);
        }
    }

    /// Gives the session what a plan about everything removes; one list at a time.
    pub(super) fn collect(&mut self, plan: &Plan, at: Boot) {
        let available = self.state.disk().available(Signal::ImageFsAvailable);
        let Some(runtime) = &mut self.runtime else { return };
        self.state.pods_mut().forget_exited();
        let young = plan.skipped.iter().filter_map(|kept| match (&kept.subject, &kept.reason) {
            (Subject::Container { .. }, SkipReason::TooYoung { wait }) => Some(*wait),
            _ => None,
        });
        let old_enough = young.min().map(|wait| at.plus(Duration::from_secs(wait.0)));
        runtime.gc_due = [runtime.gc_due, old_enough].into_iter().flatten().min();
        let list: Vec<Work> = plan.actions.iter().filter_map(Work::of).collect();
        // What is under way is decided about again when it is over.
        if list.is_empty() || !runtime.is_up || runtime.collecting.is_some() {
            return;
        }
        let of = |kind: fn(&Work) -> bool| list.iter().filter(|work| kind(work)).count() as u64;
        let expected = list.iter().map(|work| match work {
            Work::RemoveImage { expected, .. } => *expected,
            _ => 0,
        });
        let expected = expected.fold(0, u64::saturating_add);
        let images = of(|work| matches!(work, Work::RemoveImage { .. }));
        let record = Record::Collecting {
            containers: of(|work| matches!(work, Work::RemoveContainer { .. })),
            sandboxes: of(|work| matches!(work, Work::RemoveSandbox { .. })),
            images,
            logs: of(|work| matches!(work, Work::RemoveLogDir { .. } | Work::RemoveLogLink { .. })),
            expected: (images > 0).then_some(expected),
        };
        if !runtime.session.give(Task::Do(list)) {
            let what = "the runtime has not kept up; nothing is removed until it does".to_owned();
            self.reporter.tell_degraded(Part::Runtime, what);
            return;
        }
        runtime.collecting = Some(Collecting {
            begun: Boot::now(),
            available,
            expected,
            images,
            removed: 0,
            containers_removed: 0,
            skipped: 0,
            refused: 0,
            done: None,
            listed: false,
            read: false,
        });
        self.reporter.tell(record);
    }

    /// Asks how much pods take up on disk: often while that may decide who goes, else for pods with limits of their own.
    pub(super) fn ask_for_usage(&mut self, snapshot: &Snapshot, plan: &Plan, at: Boot) {
        let disk_matters = self.watches.on_disk().any(Watch::is_close);
        let is_awaited = plan.notes.iter().any(|note| matches!(note, Note::UsageAwaited { .. }));
        let limited = || {
            snapshot.workloads.iter().any(|pod| {
                pod.volumes.iter().any(|volume| volume.size_limit.is_some())
                    || pod.containers.iter().any(|c| c.limits.ephemeral_storage.is_some())
            })
        };
        let Some(runtime) = &mut self.runtime else { return };
        let every = if is_awaited {
            USAGE_AWAITED
        } else if disk_matters {
            USAGE_EVERY
        } else if self.policy.limits.local_storage_isolation() && limited() {
            USAGE_AT_REST
        } else {
            return;
        };
        if runtime.usage_asked.is_none_or(|asked| at.since(asked) >= every) {
            runtime.usage_asked = Some(at);
            runtime.session.ask(Order::Usage);
        }
    }
}
