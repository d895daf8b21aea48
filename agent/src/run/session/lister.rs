//! What the session reads, and when: changes gathered into one listing, a listing now and then without any, disk usage (which `disk_usage` measures) when asked.

use super::beside::Beside;
use super::disk_usage::{Dir, Part};
use super::{News, Order, SessionSetup, disk_usage};
use crate::clock::Clock;
use crate::sense::logs::Logs;
use crate::sense::manifests::Manifests;
use crate::sense::pod_dirs::PodName;
use crate::sense::runtime::{Inventory, Reader};
use ebb_cri::{Change, Runtime, RuntimeEvent, What};
use ebb_policy::snapshot::ContainerState;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;
use tokio::time::Instant;

/// Changes that come within this long of each other are answered by one listing.
const GATHER: Duration = Duration::from_millis(20);

/// Without any event, everything is listed this often: an event may have been lost, or never sent.
const RECONCILE: Duration = Duration::from_secs(60);

/// A list that failed, or of which a status is still to be had, is made again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether what is known to have ended still counts as running is asked again after half the time that it has taken so far, at most after this; and for so long at most.
const MAX_BACKOFF: Duration = Duration::from_secs(2);
const AGAIN_FOR: Duration = Duration::from_secs(30);

/// Disk usage is measured this often at most, whoever asks.
const USAGE_EVERY: Duration = Duration::from_secs(2);

/// What is to be read, and when.
pub(super) struct Lister {
    reader: Reader,
    news: Sender<News>,
    setup: SessionSetup,
    /// Containers and sandboxes that are known to have ended, by others than the list, and since when.
    ended: BTreeMap<String, Instant>,
    /// When to ask whether they still count as running.
    ask_at: Option<Instant>,
    images_changed: bool,
    /// When to list; `None` while there is no runtime.
    list_at: Option<Instant>,
    inventory: Option<Inventory>,
    usage_asked: bool,
    usage_at: Option<Instant>,
    disk_usage: watch::Sender<Vec<Dir>>,
    manifests: Option<Manifests>,
    trouble: Option<String>,
    logs_read: Beside<Logs>,
    manifests_read: Beside<io::Result<Manifests>>,
}

/// Ids of the containers that have ended.
fn exited(inventory: &Inventory) -> impl Iterator<Item = &str> {
    let containers = inventory.containers.iter().map(|seen| &seen.container);
    containers.filter(|c| c.state == ContainerState::Exited).map(|c| c.id.as_str())
}

impl Lister {
    pub(super) fn new(
        setup: SessionSetup,
        runtime: Runtime,
        clock: Clock,
        news: Sender<News>,
    ) -> Self {
        Self {
            disk_usage: disk_usage::start(runtime.clone(), news.clone()),
            reader: Reader::new(runtime, clock),
            news,
            setup,
            ended: BTreeMap::new(),
            ask_at: None,
            images_changed: true,
            list_at: None,
            inventory: None,
            usage_asked: false,
            usage_at: None,
            manifests: None,
            trouble: None,
            logs_read: Beside::default(),
            manifests_read: Beside::default(),
        }
    }

    /// When there is something to do.
    pub(super) fn next_due(&self) -> Instant {
        let now = Instant::now();
        let usage = self.usage_asked.then(|| self.usage_at.map_or(now, |at| at + USAGE_EVERY));
        let soonest = [self.list_at, usage, self.ask_at].into_iter().flatten().min();
        soonest.unwrap_or(now + RECONCILE)
    }

    fn list_within(&mut self, wait: Duration) {
        let at = Instant::now() + wait;
        self.list_at = Some(self.list_at.map_or(at, |due| due.min(at)));
    }

    pub(super) fn take(&mut self, order: Order) {
        match order {
            Order::List { images } => {
                self.images_changed |= images;
                self.list_within(GATHER);
            }
            Order::Ended { cgroup } => self.note_end_of(&cgroup),
            Order::Usage => self.usage_asked = true,
        }
    }

    /// Takes in what the runtime told.
    pub(super) async fn hear(&mut self, event: RuntimeEvent) {
        tracing::debug!(?event, "heard from the runtime");
        let news = match event {
            RuntimeEvent::Up(identity) => {
                self.images_changed = true;
                self.list_within(Duration::ZERO);
                Some(News::Up(format!("{} {}", identity.runtime, identity.version)))
            }
            RuntimeEvent::Down(why) => {
                self.list_at = None;
                self.ask_at = None;
                Some(News::Down(why.to_string()))
            }
            RuntimeEvent::Missed => {
                self.images_changed = true;
                self.list_within(GATHER);
                None
            }
            RuntimeEvent::Change(Change { id, what, .. }) => {
                match what {
                    What::Stopped => self.note_end(id),
                    What::Cleared => self.note_clearing(id),
                    What::Created | What::Started | What::OutOfMemory | What::Deleted => {
                        self.list_within(GATHER);
                    }
                }
                None
            }
            RuntimeEvent::ImageAdded(_) | RuntimeEvent::ImageRemoved(_) => {
                self.images_changed = true;
                self.list_within(GATHER * 10);
                None
            }
        };
        if let Some(news) = news {
            self.tell(news).await;
        }
    }

    /// Does the one thing that is due, if any is.
    pub(super) async fn do_what_is_due(&mut self) {
        let now = Instant::now();
        if self.list_at.is_some_and(|at| at <= now) {
            self.list().await;
        } else if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_for_ends().await;
        } else if self.usage_asked && self.usage_at.is_none_or(|at| at + USAGE_EVERY <= now) {
            self.usage_asked = false;
            self.usage_at = Some(now);
            self.disk_usage.send_replace(self.dirs());
        }
    }

    async fn list(&mut self) {
        let begun = Instant::now();
        self.read_manifests().await;
        let images = std::mem::take(&mut self.images_changed);
        self.list_at = Some(Instant::now() + RECONCILE);
        match self.reader.inventory(images).await {
            Ok(mut inventory) => {
                self.trouble = None;
                if self.reader.has_unsettled(&inventory) {
                    self.list_within(AGAIN);
                }
                let (pods, containers) = (inventory.pods.len(), inventory.containers.len());
                let took = begun.elapsed();
                tracing::debug!(pods, containers, images, ?took, "listed");
                inventory.exited = self.exits(&inventory);
                let containers = inventory.containers.iter().map(|seen| &seen.container);
                let running = containers.filter(|c| c.state == ContainerState::Running);
                let sandboxes = inventory.pods.iter().map(|seen| &seen.sandbox);
                let ready = sandboxes.filter(|sandbox| sandbox.ready).map(|sandbox| &sandbox.id);
                self.await_ends(&running.map(|c| &c.id).chain(ready).collect());
                let logs = self.read_logs(&inventory).await;
                self.inventory =
                    Some(Inventory { images: None, exited: Vec::new(), ..inventory.clone() });
                if let Some(logs) = logs {
                    self.tell(News::Logs(logs)).await;
                }
                self.tell(News::Inventory(Box::new(inventory))).await;
            }
            Err(error) => {
                tracing::debug!(%error, took = ?begun.elapsed(), "not listed");
                self.images_changed = images;
                self.tell_trouble(format!("the runtime's list is as old as it was: {error}")).await;
                self.list_at = Some(Instant::now() + AGAIN);
            }
        }
    }

    /// Notes that a container or sandbox has ended, whatever the runtime lists.
    fn note_end(&mut self, id: String) {
        let now = Instant::now();
        self.ended.entry(id).or_insert(now);
        self.ask_at = Some(self.ask_at.map_or(now + GATHER, |at| at.min(now + GATHER)));
    }

    /// Notes that the runtime has cleared away what has ended, and will list its end any moment: from here on it is asked as if it had just ended.
    fn note_clearing(&mut self, id: String) {
        self.ended.remove(&id);
        self.note_end(id);
    }

    /// Notes that nothing runs any more in the cgroup of a container or sandbox.
    fn note_end_of(&mut self, cgroup: &Path) {
        let Some(inventory) = &self.inventory else { return };
        let is_own = |of: &Option<PathBuf>| of.as_deref() == Some(cgroup);
        let containers = inventory.containers.iter().filter(|seen| is_own(&seen.cgroup));
        let sandboxes = inventory.pods.iter().filter(|seen| is_own(&seen.cgroup));
        let ids = containers.map(|seen| seen.container.id.clone());
        let ids = ids.chain(sandboxes.map(|seen| seen.sandbox.id.clone()));
        ids.collect::<Vec<_>>().into_iter().for_each(|id| self.note_end(id));
    }

    /// Asks whether what has ended still counts as running, which costs far less than listing everything; as soon as something does not, everything is listed.
    async fn ask_for_ends(&mut self) {
        let only = match self.ended.keys().next() {
            Some(id) if self.ended.len() == 1 => Some(id.clone()),
            _ => None,
        };
        // Without an answer the next question tells.
        let Ok(running) = self.reader.running(only.as_deref()).await else {
            return self.ask_again();
        };
        if self.ended.keys().all(|id| running.contains(id)) {
            self.await_ends(&running.iter().collect());
        } else {
            self.ask_at = None;
            self.list_within(Duration::ZERO);
        }
    }

    /// Goes on waiting for what has ended and is among those that count as running: the runtime's events come from below, and the kernel is faster still.
    fn await_ends(&mut self, running: &BTreeSet<&String>) {
        self.ended.retain(|id, _| running.contains(id));
        self.ask_again();
    }

    fn ask_again(&mut self) {
        let now = Instant::now();
        self.ended.retain(|_, since| now - *since < AGAIN_FOR);
        let latest = self.ended.values().max();
        self.ask_at = latest.map(|at| now + ((now - *at) / 2).clamp(GATHER, MAX_BACKOFF));
    }

    /// What has ended since the last inventory: what did not, and is listed as ended now.
    fn exits(&self, inventory: &Inventory) -> Vec<String> {
        let Some(last) = &self.inventory else { return Vec::new() };
        let had_ended: BTreeSet<&str> = exited(last).collect();
        exited(inventory).filter(|id| !had_ended.contains(id)).map(str::to_owned).collect()
    }

    /// Reads the manifests anew, and tells when they have changed.
    pub(super) async fn read_manifests(&mut self) {
        let Some(dir) = self.setup.manifests.clone() else { return };
        let read_from = dir.clone();
        let Some(found) = self.manifests_read.read(move || Manifests::read_each(&read_from)).await
        else {
            if self.manifests_read.hangs_anew() {
                let what = format!(
                    "pod manifests in {} do not answer: what was read last counts",
                    dir.display()
                );
                self.tell(News::Trouble(ebb_journal::Part::PodDescriptions, what)).await;
            }
            return;
        };
        match found {
            Ok(found) => {
                if self.manifests.as_ref() != Some(&found) {
                    self.manifests = Some(found.clone());
                    self.tell(News::Manifests(found)).await;
                }
            }
            Err(error) => {
                let what = format!("pod manifests in {}: {error}", dir.display());
                self.tell_trouble(what).await;
            }
        }
    }

    /// Which logs there are; `None` when their filesystem does not answer.
    async fn read_logs(&mut self, inventory: &Inventory) -> Option<Logs> {
        let roots = self.setup.dirs.logs.clone();
        let containers = inventory.containers.iter();
        let states: Vec<(String, ContainerState)> =
            containers.map(|c| (c.container.id.clone(), c.container.state)).collect();
        let read = move || {
            let states = states.iter().map(|(id, state)| (id.as_str(), *state)).collect();
            Logs::read(&roots, &states)
        };
        let logs = self.logs_read.read(read).await;
        if logs.is_none() && self.logs_read.hangs_anew() {
            let what = "the directories of pods' logs do not answer: what was read last counts";
            self.tell(News::Trouble(ebb_journal::Part::Filesystems, what.to_owned())).await;
        }
        logs
    }

    /// Directories that count against a pod.
    fn dirs(&self) -> Vec<Dir> {
        let mut dirs = Vec::new();
        let Some(inventory) = &self.inventory else { return dirs };
        for pod in &inventory.pods {
            let uid = &pod.sandbox.pod_uid;
            let name = PodName { uid: uid.clone(), name: pod.name.clone() }.log_dir();
            if !is_one_name(uid) || !is_one_name(&name) {
                continue;
            }
            for seen in &inventory.containers {
                if &seen.container.pod_uid == uid && is_one_name(&seen.container.name) {
                    let container = seen.container.name.clone();
                    let path = self.setup.dirs.logs.pods.join(&name).join(&container);
                    dirs.push(Dir { uid: uid.clone(), part: Part::Logs(container), path });
                }
            }
            for (name, path) in self.setup.dirs.volumes(uid) {
                dirs.push(Dir { uid: uid.clone(), part: Part::Volume(name), path });
            }
        }
        dirs.sort();
        dirs.dedup();
        dirs
    }

    async fn tell(&self, news: News) {
        // It fails only when the loop has ended, which the next turn sees.
        let _ = self.news.send(news).await;
    }

    async fn tell_trouble(&mut self, what: String) {
        if self.trouble.as_ref() != Some(&what) {
            self.trouble = Some(what.clone());
            self.tell(News::Trouble(ebb_journal::Part::Runtime, what)).await;
        }
    }
}

/// Whether what a runtime calls something stays in the directory where it is looked for.
fn is_one_name(name: &str) -> bool {
    !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_not_looked_for() {
        for name in ["", ".", "..", "a/b", "../../etc", "a\0b"] {
            assert!(!is_one_name(name), "{name:?}");
        }
        assert!(is_one_name("shop_web-1_0a1b"));
    }
}
