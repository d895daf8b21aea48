//! The namespace of one case: makes objects, deletes them, and waits until what is left is what the case says.
use crate::kinds::Kind;
use crate::session::Session;
use crate::state;
use anyhow::{Context, Result, ensure};
use ebb_cluster_tests::api::{Api, Policy};
use ebb_cluster_tests::collector::Collector;
use ebb_cluster_tests::wait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Any finalizer that no collector knows.
pub(crate) const KEEP: &str = "example.com/keep";
/// kube-controller-manager has its pods' nodes in quarantine for 40 s, and looks every 20 s. As with the others, several times what a busy machine takes: what is slow shows in the benches.
const PATIENCE_WITH_PODS: Duration = Duration::from_secs(400);
/// It asks for kinds every 30 s.
const PATIENCE_WITH_DISCOVERY: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(180);
/// The label of objects that have no namespace.
const CASE: &str = "tests.ebb.dev/case";

/// An object that was made, as references name it.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) uid: String,
    path: String,
}

/// An owner reference.
pub(crate) fn to(owner: &Made) -> Value {
    json!({
        "apiVersion": owner.kind.api_version(), "kind": owner.kind.name(),
        "name": owner.name, "uid": owner.uid,
    })
}

/// An owner reference with `blockOwnerDeletion`.
pub(crate) fn blocking(owner: &Made) -> Value {
    with(to(owner), "blockOwnerDeletion", &json!(true))
}

/// A reference with one field changed.
pub(crate) fn with(mut reference: Value, field: &str, value: &Value) -> Value {
    reference[field] = value.clone();
    reference
}

pub(crate) struct World<'a> {
    pub(crate) session: &'a Session,
    pub(crate) api: Api,
    pub(crate) collector: Collector,
    pub(crate) namespace: String,
    kinds: Mutex<BTreeSet<Kind>>,
}

impl<'a> World<'a> {
    /// An empty namespace; which collector runs is the caller's affair.
    pub(crate) fn new(session: &'a Session, collector: Collector) -> Result<Self> {
        let api = session.api()?;
        let namespace = session.namespace(&api)?;
        Ok(Self { session, api, collector, namespace, kinds: Mutex::default() })
    }

    /// Plays a case while a collector is at work, and clears up after it.
    pub(crate) fn play(
        session: &'a Session,
        collector: Collector,
        case: fn(&World) -> Result<()>,
    ) -> Result<()> {
        session.run(collector)?;
        let world = World::new(session, collector)?;
        let result = case(&world)
            .with_context(|| format!("namespace {}; {}", world.namespace, session.last_words()));
        let cleared = world.clear().context("cannot clear up");
        result.and(cleared)
    }

    /// Whether the collector does what not every kube-controller-manager does; those that do have this in their program.
    pub(crate) fn does(&self, mark: &str) -> Result<bool> {
        Ok(self.collector == Collector::Ebb || self.session.kcm_has(mark)?)
    }

    /// Makes a config map.
    pub(crate) fn make(&self, name: &str, owners: &[Value]) -> Result<Made> {
        self.make_kind(Kind::ConfigMap, name, owners, &[])
    }

    pub(crate) fn make_kind(
        &self,
        kind: Kind,
        name: &str,
        owners: &[Value],
        finalizers: &[&str],
    ) -> Result<Made> {
        self.make_from(kind, name, kind.body(), owners, finalizers)
    }

    pub(crate) fn make_from(
        &self,
        kind: Kind,
        name: &str,
        mut object: Value,
        owners: &[Value],
        finalizers: &[&str],
    ) -> Result<Made> {
        self.kinds().insert(kind);
        // Without namespaces, names of other cases are beside it.
        let name = if kind.is_of_the_cluster() {
            format!("{}-{name}", self.namespace)
        } else {
            name.to_owned()
        };
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.name());
        object["metadata"] = json!({
            "name": name, "ownerReferences": owners, "finalizers": finalizers,
            "labels": {CASE: self.namespace},
        });
        let path = kind.path(&self.namespace);
        let made = self.api.create(&path, &object)?;
        let uid = made["metadata"]["uid"].as_str().context("an object without uid")?.to_owned();
        Ok(Made { kind, path: format!("{path}/{name}"), name, uid })
    }

    pub(crate) fn delete(&self, made: &Made, policy: Policy) -> Result<()> {
        self.api.delete(&made.path, &policy.options())
    }

    pub(crate) fn delete_with(&self, made: &Made, options: &Value) -> Result<()> {
        self.api.delete(&made.path, options)
    }

    pub(crate) fn set_owners(&self, made: &Made, owners: &[Value]) -> Result<()> {
        self.set(made, &json!({"metadata": {"ownerReferences": owners}}))
    }

    pub(crate) fn set_finalizers(&self, made: &Made, finalizers: &[&str]) -> Result<()> {
        self.set(made, &json!({"metadata": {"finalizers": finalizers}}))
    }

    pub(crate) fn set(&self, made: &Made, patch: &Value) -> Result<()> {
        self.api.merge(&made.path, patch).map(drop)
    }

    pub(crate) fn set_status(&self, made: &Made, status: &Value) -> Result<()> {
        let patch = json!({"status": status});
        self.api.merge(&format!("{}/status", made.path), &patch).map(drop)
    }

    /// The object as it is now.
    pub(crate) fn read(&self, made: &Made) -> Result<Value> {
        self.api.get(&made.path)
    }

    /// Waits until exactly these objects are left, each as a line of [`state`].
    pub(crate) fn becomes(&self, expected: &[&str]) -> Result<()> {
        self.becomes_in(self.patience(), expected)
    }

    /// Waits as [`Self::becomes`] does, and for a collector that looks for new kinds now and then.
    pub(crate) fn becomes_after_discovery(&self, expected: &[&str]) -> Result<()> {
        self.becomes_in(PATIENCE_WITH_DISCOVERY, expected)
    }

    /// Waits until an object is as a case says.
    pub(crate) fn until(
        &self,
        made: &Made,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        wait::until_some(
            self.patience(),
            || format!("{}: {what}", made.name),
            || Ok(is_so(&self.read(made)?).then_some(())),
        )
    }

    pub(crate) fn becomes_in(&self, patience: Duration, expected: &[&str]) -> Result<()> {
        let last = Mutex::new(vec![]);
        let said = || {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner);
            format!("left is {expected:?}; left was {last:?}")
        };
        wait::until_some(patience, said, || {
            let now = self.left()?;
            let is_reached = now == expected;
            *last.lock().unwrap_or_else(PoisonError::into_inner) = now;
            Ok(is_reached.then_some(()))
        })
    }

    /// Waits until exactly these objects are left, and sees that they stay as they are.
    pub(crate) fn stays(&self, expected: &[&str]) -> Result<()> {
        self.becomes(expected)?;
        // What the collector has on its list, it comes to before what is made now.
        for _ in 0..2 {
            self.collects_other_things()?;
            let now = self.left()?;
            ensure!(now == expected, "{expected:?} was left, and then {now:?}");
        }
        Ok(())
    }

    /// An event of the core API about an object of the case.
    pub(crate) fn is_warned(&self, made: &Made, reason: &str) -> Result<()> {
        let namespace =
            if made.kind.is_of_the_cluster() { "default" } else { self.namespace.as_str() };
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let about = |event: &Value| event["involvedObject"]["name"] == made.name.as_str();
        wait::until_some(
            PATIENCE,
            || format!("an event {reason} about {}", made.name),
            || {
                let events = self.api.get(&path)?;
                let found = items(&events).find(|event| about(event) && event["reason"] == reason);
                let Some(event) = found else { return Ok(None) };
                ensure!(event["type"] == "Warning", "{event}");
                let uid = &event["involvedObject"]["uid"];
                ensure!(*uid == made.uid.as_str(), "the event is about {uid}, not {}", made.uid);
                Ok(Some(()))
            },
        )
    }

    /// What is left of the case, by name.
    pub(crate) fn left(&self) -> Result<Vec<String>> {
        let objects = self.objects()?;
        let own = format!("{}-", self.namespace);
        let mut lines: Vec<String> =
            objects.iter().map(|(_, object)| state::line(object).replace(&own, "")).collect();
        lines.sort();
        Ok(lines)
    }

    fn objects(&self) -> Result<Vec<(Kind, Value)>> {
        let mut objects = Vec::new();
        for kind in self.kinds().iter().copied() {
            let path = kind.path(&self.namespace);
            let list = self.api.get(&format!("{path}?labelSelector={CASE}={}", self.namespace))?;
            objects.extend(items(&list).map(|object| (kind, object.clone())));
        }
        Ok(objects)
    }

    /// An object that is garbage when it is made has gone.
    pub(crate) fn collects_other_things(&self) -> Result<()> {
        let path = Kind::Secret.path(&self.namespace);
        let garbage = self.api.create_garbage(&self.namespace, &path, json!({}))?;
        wait::until_some(
            PATIENCE,
            || "garbage is collected".into(),
            || Ok(self.api.is_gone(&garbage)?.then_some(())),
        )
    }

    /// Nothing of a case is left for those that come later to stumble over.
    pub(crate) fn clear(&self) -> Result<()> {
        for (kind, object) in self.objects()? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{}/{name}", kind.path(&self.namespace));
            // What has gone meanwhile is gone.
            let bare = json!({"metadata": {"finalizers": null, "ownerReferences": null}});
            self.api.ask("PATCH", &path, Some(&bare))?;
            self.api.ask("DELETE", &path, Some(&json!({"gracePeriodSeconds": 0})))?;
        }
        self.becomes_in(PATIENCE, &[])
    }

    fn patience(&self) -> Duration {
        if self.kinds().contains(&Kind::Pod) { PATIENCE_WITH_PODS } else { PATIENCE }
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeSet<Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The objects of a list.
pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}
