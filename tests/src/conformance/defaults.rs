//! What a scenario leaves out, filled in: a scenario names only what matters to its rule.
//!
//! `tests/conformance/README.md` lists the defaults for who writes scenarios.
//! Nothing here knows a rule; what comes out is the JSON form of the policy's own types, which refuse an unknown field.
use super::Pass;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value, json};

/// When a scenario begins, `T`: milliseconds since 1970.
const START: u64 = 1_800_000_000_000;

/// Fields in which sizes may be written as `200Mi`: bytes in the JSON form.
const BYTES: [&str; 41] = [
    "activeFile",
    "added",
    "anon",
    "available",
    "bytes",
    "bytesPerSecond",
    "capacity",
    "ephemeralStorage",
    "expected",
    "expectedFree",
    "file",
    "freed",
    "frees",
    "grown",
    "high",
    "inactiveFile",
    "least",
    "limit",
    "max",
    "memoryRequest",
    "memoryTotal",
    "need",
    "perSecond",
    "reclaimable",
    "request",
    "sharedMemory",
    "size",
    "stored",
    "swap",
    "swapFree",
    "swapTotal",
    "terminating",
    "thresholdValue",
    "total",
    "usage",
    "used",
    "usedBytes",
    "wanted",
    "workingSet",
    "written",
    "memoryKernelAvailable",
];

/// The text of a configuration: one that is written as YAML is for Kubernetes unless it says otherwise, one that is written as text stays as it is.
pub(super) fn config(written: Option<Value>) -> Result<String> {
    let mut config = match written {
        Some(Value::String(text)) => return Ok(text),
        Some(Value::Object(config)) => config,
        None => Map::new(),
        Some(_) => bail!("config: a mapping or a text belongs here"),
    };
    if let Value::Object(ebb) = config.entry("ebb").or_insert_with(|| json!({})) {
        ebb.entry("mode").or_insert_with(|| json!("kubernetes"));
    }
    serde_saphyr::to_string(&config).context("config")
}

/// The node on which cgroups are planned.
pub(super) fn node() -> Value {
    json!({ "capacity": { "cpu": 4, "memory": "8Gi", "pid": 32768 } })
}

/// Manifests: of kind Pod, with a UID after their name.
pub(super) fn pods(mut pods: Vec<Value>) -> Result<Value> {
    for pod in &mut pods {
        let Value::Object(fields) = pod else { bail!("pods: each is a mapping") };
        fields.entry("kind").or_insert_with(|| json!("Pod"));
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata")
            && let Some(name) = metadata.get("name").and_then(Value::as_str)
        {
            let uid = format!("uid-{name}");
            metadata.entry("uid").or_insert(Value::String(uid));
        }
    }
    Ok(Value::Array(pods))
}

/// Snapshots and plans in their JSON form. What the snapshot of a later pass leaves out is as in the pass before, but for the time.
pub(super) fn passes(
    written: impl IntoIterator<Item = (Map<String, Value>, Value)>,
) -> Result<Vec<Pass>> {
    let mut before = Map::new();
    let mut passes = Vec::new();
    for (given, plan) in written {
        before.remove("takenAt");
        before.extend(given);
        let place = || format!("pass {}", passes.len() + 1);
        let snapshot = snapshot(before.clone()).with_context(place)?;
        passes.push(Pass { snapshot, plan: expected(plan).with_context(place)? });
    }
    Ok(passes)
}

/// A snapshot; `null` takes away a default or what the pass before has.
fn snapshot(mut fields: Map<String, Value>) -> Result<Value> {
    fields.entry("schemaVersion").or_insert(json!(1));
    fields.entry("takenAt").or_insert(json!(START));
    fields.entry("tasks").or_insert(json!(["eviction"]));
    fields.retain(|_, value| !value.is_null());
    let mut snapshot = Value::Object(fields);
    literals(&mut snapshot)?;
    keys(&mut snapshot, &["key", "workload"]);
    let taken_at = snapshot["takenAt"].clone();
    if let Some(Value::Object(signals)) = snapshot.get_mut("signals") {
        for observation in signals.values_mut().filter_map(Value::as_object_mut) {
            observation.entry("observedAt").or_insert_with(|| taken_at.clone());
        }
    }
    if let Some(Value::Array(workloads)) = snapshot.get_mut("workloads") {
        for workload in workloads.iter_mut().filter_map(Value::as_object_mut) {
            self::workload(workload)?;
        }
    }
    Ok(snapshot)
}

/// A workload is what its key says, and a pod has one container unless it lists them.
fn workload(workload: &mut Map<String, Value>) -> Result<()> {
    let has = |field: &str| !workload["key"][field].is_null();
    let kind = match () {
        () if has("uid") => "pod",
        () if has("process") => "process",
        () if has("cgroup") => "cgroup",
        () => "pod",
    };
    let is_pod = workload.entry("kind").or_insert(json!(kind)) == "pod";
    let mut main = Map::from_iter([("name".to_owned(), json!("main"))]);
    for field in ["requests", "limits"] {
        main.extend(workload.remove(field).map(|amounts| (field.to_owned(), amounts)));
    }
    let name = workload["key"]["name"].clone();
    ensure!(
        main.len() == 1 || is_pod && !workload.contains_key("containers"),
        "{name}: `requests` and `limits` are those of the one container of a pod"
    );
    if is_pod {
        workload.entry("containers").or_insert_with(|| json!([main]));
    }
    let only = match workload.get("containers").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) if is_pod => only.get("name").cloned(),
        _ => None,
    };
    if let Some(Value::Object(stats)) = workload.get_mut("stats") {
        measured(stats, only);
    }
    Ok(())
}

/// What is measured of a pod with one container is measured of that, unless containers are listed.
fn measured(stats: &mut Map<String, Value>, only: Option<Value>) {
    amounts(stats);
    if let Some(Value::Array(containers)) = stats.get_mut("containers") {
        containers.iter_mut().filter_map(Value::as_object_mut).for_each(amounts);
    } else if let Some(name) = only {
        let mut container = Map::from_iter([("name".to_owned(), name)]);
        let memory = stats.get("memory").cloned().map(|memory| ("memory".to_owned(), memory));
        container.extend(memory);
        for field in ["rootfs", "logs"] {
            container.extend(stats.remove(field).map(|usage| (field.to_owned(), usage)));
        }
        if container.len() > 1 {
            stats.insert("containers".to_owned(), json!([container]));
        }
    }
}

/// A number alone is the working set, or the bytes used.
fn amounts(stats: &mut Map<String, Value>) {
    for (field, amount) in
        [("memory", "workingSet"), ("rootfs", "usedBytes"), ("logs", "usedBytes")]
    {
        if let Some(value) = stats.get_mut(field)
            && let Some(number) = value.as_u64().or_else(|| value.as_str().and_then(size))
        {
            *value = json!({ amount: number });
        }
    }
}

/// What is expected of a plan, in its JSON form.
fn expected(mut plan: Value) -> Result<Value> {
    ensure!(plan.is_object(), "plan: a mapping belongs here");
    literals(&mut plan)?;
    keys(&mut plan, &["workload"]);
    if let Some(Value::Array(ranking)) = plan.get_mut("ranking") {
        for (place, ranked) in (1..).zip(ranking) {
            if let Some(name) = ranked.as_str() {
                *ranked = json!({ "place": place, "workload": key(name) });
            }
        }
    }
    Ok(plan)
}

/// Times and sizes as numbers, at any depth.
fn literals(value: &mut Value) -> Result<()> {
    match value {
        Value::String(text) => {
            if let Some(time) = time(text) {
                *value = json!(time);
            }
        }
        Value::Array(items) => items.iter_mut().try_for_each(literals)?,
        Value::Object(fields) => {
            for (name, field) in fields {
                if BYTES.contains(&name.as_str())
                    && let Value::String(text) = &*field
                {
                    let bytes = size(text);
                    *field = json!(bytes.with_context(|| format!("{name}: {text:?}: not a size"))?);
                }
                literals(field)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// A time such as `T+2s` or `T-9ms`, in milliseconds.
fn time(text: &str) -> Option<u64> {
    let after = text.strip_prefix('T')?;
    let is_before = after.starts_with('-');
    let after = after.strip_prefix(['+', '-'])?;
    let unit = after.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = after.split_at(unit);
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let distance = number.parse::<u64>().ok()?.checked_mul(unit)?;
    if is_before { START.checked_sub(distance) } else { START.checked_add(distance) }
}

/// A size such as `200Mi`, in bytes.
fn size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(2)?)?;
    let unit = match unit {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Keys of workloads that are written as a name, in the given fields, at any depth.
fn keys(value: &mut Value, fields: &[&str]) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| keys(item, fields)),
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::String(pod) if fields.contains(&name.as_str()) => *value = key(pod),
                    _ => keys(value, fields),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The key of a pod in the namespace `default`.
fn key(pod: &str) -> Value {
    json!({ "name": format!("default/{pod}"), "uid": format!("uid-{pod}") })
}

#[cfg(test)]
mod tests {
    use super::{START, expected, passes, size, time};
    use serde_json::{Map, Value, json};

    fn object(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    fn snapshot(written: Value) -> Value {
        super::snapshot(object(written)).unwrap()
    }

    #[test]
    fn times_and_sizes_are_numbers() {
        let seconds = [time("T+2s"), time("T-9ms"), time("T+0s"), time("T-2h")];
        let expected = [2_000, -9, 0, -7_200_000].map(|ms| START.checked_add_signed(ms));
        assert_eq!(seconds, expected);
        assert_eq!(["T", "T+2", "T2s", "T+2d", "Total"].map(time), [None; 5]);
        assert_eq!(
            [size("3Ki"), size("200Mi"), size("0"), size("Mi")],
            [Some(3072), Some(200 << 20), None, None]
        );
    }

    #[test]
    fn a_word_where_a_size_belongs_is_named() {
        let written = object(json!({ "signals": { "memory.available": { "available": "1G" } } }));
        let said = super::snapshot(written).unwrap_err().to_string();
        assert_eq!(said, r#"available: "1G": not a size"#);
    }

    #[test]
    fn a_pod_has_one_container_of_which_everything_is_said() {
        let pod = json!({ "key": "a", "requests": { "memory": "1Gi" }, "stats": { "memory": "1Mi", "rootfs": 7 } });
        let expected = json!({
            "key": { "name": "default/a", "uid": "uid-a" },
            "kind": "pod",
            "containers": [{ "name": "main", "requests": { "memory": "1Gi" } }],
            "stats": {
                "memory": { "workingSet": 1 << 20 },
                "containers": [{ "name": "main", "memory": { "workingSet": 1 << 20 }, "rootfs": { "usedBytes": 7 } }],
            },
        });
        assert_eq!(snapshot(json!({ "workloads": [pod] }))["workloads"], json!([expected]));
    }

    #[test]
    fn a_cgroup_has_no_containers() {
        let cgroup = json!({ "key": { "name": "/a", "cgroup": 7 }, "stats": { "memory": 1 } });
        let expected = json!({ "key": { "name": "/a", "cgroup": 7 }, "kind": "cgroup", "stats": { "memory": { "workingSet": 1 } } });
        assert_eq!(snapshot(json!({ "workloads": [cgroup] }))["workloads"], json!([expected]));
    }

    #[test]
    fn a_later_pass_says_what_is_different() {
        let first = json!({ "takenAt": "T+1s", "sourcesReady": true, "tasks": ["imageGc"], "signals": { "pid.available": { "available": 1 } } });
        let second = json!({ "takenAt": "T+2s", "sourcesReady": null, "tasks": null });
        let both = [first, second].map(|written| (object(written), json!({})));
        let passes = passes(both).unwrap();
        let at = |ms: u64| json!({ "pid.available": { "available": 1, "observedAt": START + ms } });
        let expected = [
            json!({ "schemaVersion": 1, "takenAt": START + 1_000, "sourcesReady": true, "tasks": ["imageGc"], "signals": at(1_000) }),
            json!({ "schemaVersion": 1, "takenAt": START + 2_000, "signals": at(2_000) }),
        ];
        assert_eq!([&passes[0].snapshot, &passes[1].snapshot], [&expected[0], &expected[1]]);
    }

    #[test]
    fn a_ranking_is_names_in_their_places() {
        let key =
            |pod: &str| json!({ "name": format!("default/{pod}"), "uid": format!("uid-{pod}") });
        let ranking =
            json!([{ "place": 1, "workload": key("a") }, { "place": 2, "workload": key("b") }]);
        assert_eq!(expected(json!({ "ranking": ["a", "b"] })).unwrap()["ranking"], ranking);
    }
}
