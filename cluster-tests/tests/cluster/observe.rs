//! Observe mode: what would go is said, nothing goes, and nothing was even tried.
use crate::Alone;
use crate::kinds::Kind;
use crate::session::Session;
use crate::world::items;
use anyhow::{Result, ensure};
use ebb_cluster_tests::api::never;
use ebb_cluster_tests::collector::Running;
use ebb_cluster_tests::wait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

pub(crate) const TESTS: [Alone; 1] =
    [("without_enforce_ebb_says_what_would_go_and_sends_no_write", sends_no_write)];

const PATIENCE: Duration = Duration::from_secs(180);
const GARBAGE: [&str; 2] = ["observed-dependent", "observed-pod"];

fn sends_no_write(session: &Session) -> Result<()> {
    session.stop()?;
    let api = session.api()?;
    let namespace = session.namespace(&api)?;
    let owners = [never(&namespace)];
    let dependent = json!({"metadata": {"name": GARBAGE[0], "ownerReferences": owners}});
    api.create(&Kind::ConfigMap.path(&namespace), &dependent)?;
    let mut pod = Kind::Pod.body();
    pod["metadata"] = json!({"name": GARBAGE[1]});
    pod["spec"]["nodeName"] = json!(format!("{namespace}-gone"));
    api.create(&Kind::Pod.path(&namespace), &pod)?;
    let mut observer = session.with_plane(Running::observe)?;
    let last = Mutex::new(String::new());
    let what = || {
        format!(
            "would delete {GARBAGE:?}; said was {}",
            last.lock().map_or_else(|_| String::new(), |said| said.clone())
        )
    };
    wait::until_some(PATIENCE, what, || {
        let output = observer.output()?;
        let is_said = GARBAGE.iter().all(|name| output.contains(name));
        if let Ok(mut last) = last.lock() {
            *last = format!("{output}; {}", observer.last_words());
        }
        Ok(is_said.then_some(()))
    })?;
    observer.end()?;
    for (kind, name) in [(Kind::ConfigMap, GARBAGE[0]), (Kind::Pod, GARBAGE[1])] {
        let list = api.get(&kind.path(&namespace))?;
        let found = items(&list).find(|object| object["metadata"]["name"] == name);
        let is_untouched = found.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null());
        ensure!(is_untouched, "{name} was touched: {found:?}");
    }
    let requests = session.with_plane(|plane| plane.audit())?;
    ensure!(requests.iter().any(|request| request["verb"] == "watch"), "no watch was logged");
    let wrong: Vec<&Value> = requests.iter().filter(|request| !only_reads(request)).collect();
    ensure!(wrong.is_empty(), "it wrote, or tried to: {wrong:?}");
    let agents: BTreeSet<&str> =
        requests.iter().map(|request| request["userAgent"].as_str().unwrap_or_default()).collect();
    let product = format!("ebb/{}", env!("CARGO_PKG_VERSION"));
    ensure!(agents == BTreeSet::from([product.as_str()]), "who asked is told as {agents:?}");
    for (kind, name) in [(Kind::ConfigMap, GARBAGE[0]), (Kind::Pod, GARBAGE[1])] {
        let path = format!("{}/{name}", kind.path(&namespace));
        api.delete(&path, &json!({"gracePeriodSeconds": 0}))?;
    }
    Ok(())
}

/// A read that was allowed; to ask what one may do is a read too.
fn only_reads(request: &Value) -> bool {
    let verb = request["verb"].as_str().unwrap_or_default();
    let asks_for_rights = request["objectRef"]["apiGroup"] == "authorization.k8s.io";
    let is_refused = request["responseStatus"]["code"] == 403;
    (["get", "list", "watch"].contains(&verb) || asks_for_rights) && !is_refused
}
