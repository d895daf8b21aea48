//! Which kinds are watched: discovery's findings become watches, and what watches report goes into the graph.

use super::Collector;
use crate::name;
use crate::record::resource as record;
use ebb_kube::{ApiResource, Change, Content, Discovered, Event, Failure, watch};
use ebb_policy_cluster::{Gone, Resource, Scope, State};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

/// What a group that could not be asked counts as: some kind of it that nobody can watch.
const ANY_KIND: &str = "*";

impl Collector {
    /// A discovery's findings: new kinds are watched, those that are gone are forgotten.
    pub(crate) fn discovered(&mut self, found: Result<Discovered, Failure>) {
        let found = match found {
            Ok(found) => found,
            Err(failure) => {
                self.complain(&format!("discovery failed, what is known stays: {failure}"));
                return;
            }
        };
        let difference = self.catalogue.update(found, Instant::now());
        for resource in difference.removed {
            self.watches.stop(&resource);
            self.set(&resource, None);
            let uids: Vec<_> = self.graph.uids_of_resource(&resource).cloned().collect();
            for uid in uids {
                self.forget(&uid, Gone::Missing);
            }
            self.status.lock().resources.remove(&resource);
            if self.watches.is_discovered {
                self.recorder.say(record(&resource, "removed", None));
            }
        }
        let added: Vec<(ApiResource, bool)> =
            difference.added.into_iter().map(|of| (of.clone(), self.is_wanted(&of))).collect();
        // All are syncing before the first list is in: nobody is judged by half a view.
        for (of, is_wanted) in &added {
            let state = if *is_wanted { State::Syncing } else { State::Unwatched };
            self.set(&of.resource(), Some((of.scope, state)));
            if self.watches.is_discovered {
                self.recorder.say(record(&of.resource(), "added", None));
            }
        }
        self.groups();
        for (of, is_wanted) in added {
            if is_wanted {
                self.follow(of);
            }
        }
        self.watches.is_discovered = true;
    }

    /// Groups that cannot be asked may have dependents that nobody sees.
    fn groups(&mut self) {
        let failed = self.catalogue.failed().clone();
        let any = |group: &str| Resource { group: group.to_owned(), kind: ANY_KIND.to_owned() };
        let old: Vec<String> = self.watches.failed.keys().cloned().collect();
        for group in old.iter().filter(|group| !failed.contains_key(*group)) {
            self.set(&any(group), None);
            self.status.lock().resources.remove(&any(group));
            self.recorder.say(record(&any(group), "synced", None));
        }
        for (group, why) in failed.iter().filter(|(group, _)| !old.contains(group)) {
            let broken = State::Broken { since: crate::leader::wall(), why: why.clone() };
            self.set(&any(group), Some((Scope::Cluster, broken)));
            self.recorder.say(record(&any(group), "broken", Some(why.clone())));
        }
        self.watches.failed = failed;
    }

    fn is_wanted(&self, of: &ApiResource) -> bool {
        let for_pods = self.config.collectors.pods && is_for_pods(of);
        of.is_watched && (self.config.collectors.owner_references || for_pods)
    }

    fn follow(&mut self, of: ApiResource) {
        let content = if self.config.collectors.pods && is_for_pods(&of) {
            Content::Whole
        } else {
            Content::Metadata
        };
        self.watches.next += 1;
        let id = self.watches.next;
        let resource = of.resource();
        let (lists, to) = (Arc::clone(&self.watches.lists), self.watches.to.clone());
        let task = tokio::spawn(watch(self.api.clone(), of, content, lists, id, to));
        self.watches.running.insert(id, (resource, task));
    }

    /// What a watch reports.
    pub(crate) fn watched(&mut self, id: u64, event: Event) {
        // One that was stopped meanwhile.
        let Some((resource, _)) = self.watches.running.get(&id) else { return };
        let resource = resource.clone();
        let Some((scope, state)) = self.graph.resource(&resource).cloned() else { return };
        if let Some((_, heard)) = self.status.lock().resources.get_mut(&resource) {
            *heard = Instant::now();
        }
        match event {
            Event::Listing => self.set(&resource, Some((scope, State::Syncing))),
            Event::Changes(changes) => {
                let changes_what_is_served =
                    ["CustomResourceDefinition", "APIService"].contains(&&*resource.kind);
                if changes_what_is_served && state == State::Synced {
                    self.must_discover = true;
                }
                changes.into_iter().for_each(|change| self.changed(change));
            }
            Event::Listed(None) => self.synced(&resource, scope, &state),
            Event::Listed(Some(uids)) => {
                self.pods.listed(&resource, &uids);
                let gone: Vec<_> = self
                    .graph
                    .uids_of_resource(&resource)
                    .filter(|uid| !uids.contains(uid))
                    .cloned()
                    .collect();
                for uid in gone {
                    self.forget(&uid, Gone::Missing);
                }
                self.synced(&resource, scope, &state);
            }
            Event::Resumed => self.synced(&resource, scope, &state),
            Event::Broken { since, why } => {
                // What is not served any more is discovery's to say.
                if why.starts_with("404") {
                    self.must_discover = true;
                }
                self.recorder.say(record(&resource, "broken", Some(why.clone())));
                self.set(&resource, Some((scope, State::Broken { since, why })));
            }
        }
    }

    fn synced(&mut self, resource: &Resource, scope: Scope, before: &State) {
        if matches!(before, State::Broken { .. }) {
            self.recorder.say(record(resource, "synced", None));
        }
        self.set(resource, Some((scope, State::Synced)));
    }

    fn changed(&mut self, change: Change) {
        match change {
            Change::Applied(seen) => {
                self.pods.applied(&seen);
                if self.config.collectors.owner_references {
                    let changed = self.graph.observe(seen.object);
                    self.mark(changed);
                }
            }
            Change::Deleted(seen) => {
                self.pods.gone(&seen.object.uid);
                if seen.node.is_some() {
                    self.pods.node_gone(&seen.object.name);
                }
                self.forget(&seen.object.uid, Gone::Deleted);
            }
        }
    }

    pub(crate) fn set(&mut self, resource: &Resource, to: Option<(Scope, State)>) {
        if let Some((_, state)) = &to
            && *state != State::Unwatched
        {
            let mut status = self.status.lock();
            status.resources.insert(resource.clone(), (state.clone(), Instant::now()));
        }
        let changed = self.graph.set_resource(resource.clone(), to);
        self.mark(changed);
        self.pods.is_due = true;
    }

    /// Whether every watch is synced or known to be broken.
    pub(crate) fn is_synced(&self) -> bool {
        self.watches.is_discovered
            && self.graph.resources().all(|(_, (_, state))| *state != State::Syncing)
    }

    /// Kinds that are watched, and those that cannot be.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |is: fn(&State) -> bool| {
            self.graph.resources().filter(|(_, (_, state))| is(state)).count()
        };
        (count(|s| *s == State::Synced), count(|s| matches!(s, State::Broken { .. })))
    }

    pub(crate) fn complain(&self, what: &str) {
        // Not by `eprintln`, which panics where nobody reads.
        let _ = writeln!(std::io::stderr(), "ebb: controller: {}", name::line(what));
    }
}

fn is_for_pods(of: &ApiResource) -> bool {
    of.kind.group.is_empty() && ["Pod", "Node"].contains(&name::resource(&of.resource()).as_str())
}
