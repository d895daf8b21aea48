//! `docs/options.md`: what ebb does beyond the kubelet, each option with its defaults. Generated from the types and from the configuration.
use anyhow::{Context as _, Result, ensure};
use ebb_agent::config::Config;
use ebb_policy::limits::Options;
use schemars::schema_for;
use serde_json::Value;
use std::fmt::Write as _;

const HEAD: &str = "\
# The policy's options

This file is generated from the types by `EBB_BLESS=1 cargo test -p ebb-tests --test generated`.
The options stand under `ebb:` in `ebb.yaml`; those of a group stand under its name, as in `ebb: { forecast: { enabled: true } }`.
With `mode: kubernetes` every default is the kubelet's behaviour, but for `minFreedOfThreshold`, `minFreedOfNeed`, `countTerminating`, `diskAttribution` and `maxEvictionsPerMinute`: nobody is evicted for nothing, twice, or for figures from before the crossing, and never everybody at once.
Hard thresholds that the file leaves out are the kubelet's defaults too; `ebb run --kubernetes` keeps them above those of the kubelet beside it ([kubernetes.md](kubernetes.md#above-the-kubelet)).

| option | meaning | `mode: kubernetes` | `mode: standalone` |
|---|---|---|---|
";

const CGROUPS_HEAD: &str = "
## Cgroups of pods

These stand under `ebb: { cgroups: … }`, whatever the mode; [operating.md](operating.md#cgroups-of-pods) says how they work together.

| option | meaning | default |
|---|---|---|
";

/// Every key of ebb's section on cgroups, with what it means.
const CGROUPS: [(&str, &str); 12] = [
    (
        "mode",
        "What `ebb run` does about cgroups of pods: `off`, `audit` (report what differs from the plan), `enforce` (write it). Without `--enforce`, `enforce` only says what it would do.",
    ),
    (
        "beside",
        "Who else writes. `kubelet`: classes and containers are only reported. `nobody`: everything in the plan is written.",
    ),
    ("create", "Make cgroups of pods that are missing."),
    (
        "orphanedPods",
        "Pod cgroups that belong to no pod. `report`: say so. `remove`: kill what runs in them and remove them; only with `podManifests`, since a runtime does not know pods that have not started.",
    ),
    (
        "dying",
        "Removed cgroups of pods that still hold memory. `report`: say so, by the nearest cgroup that is there. `reclaim`: have the kernel reclaim it from there.",
    ),
    (
        "podManifests",
        "A file or directory of Pod manifests; without it pods come from the container runtime (`--cri`) alone, as far as it knows them.",
    ),
    ("kubeletRoot", "The kubelet's directory, where mounted volumes are looked for."),
    ("period", "How often the whole tree is resynced; at least `100ms`."),
    ("writeDeadline", "How long a write may take before ebb goes on without it; at least `10ms`."),
    (
        "kubelet",
        "Whose defaults apply: `1.36` (MemoryQoS off, factor 0.9) or `1.37` (on, no factor).",
    ),
    (
        "podWeightCurve",
        "Which curve leads from CPU shares to `cpu.weight` for classes and pods: `old` or `new`.",
    ),
    ("containerWeightCurve", "The same for containers."),
];

const MEMORY_PRESSURE_HEAD: &str = "
## Memory pressure of cgroups

`ebb: { memoryPressure: [ … ] }` is a list, empty by default in every mode; [operating.md](operating.md#memory-pressure-of-cgroups) says what is done about it. Each entry has these keys.

| key | meaning | default |
|---|---|---|
";

/// Every key of an entry, with what it means.
const MEMORY_PRESSURE: [(&str, &str); 3] = [
    ("cgroup", "The path of one cgroup from the root of the hierarchy, such as `/user.slice`."),
    (
        "limit",
        "`full avg10` of its `memory.pressure` above which it counts as stalled: a percentage above 0% and below 100%.",
    ),
    ("duration", "For how long it must be above the limit without a break; at least `1s`."),
];

/// The text of the document.
///
/// # Errors
/// When the defaults cannot be printed or an option is not described.
pub fn render() -> Result<String> {
    let schema = serde_json::to_value(schema_for!(Options))?;
    let defaults = |mode: &str| -> Result<Value> {
        let config = Config::parse(&format!("ebb: {{mode: {mode}}}"))?;
        let printed: Value = serde_json::from_str(&config.to_json()?)?;
        Ok(printed["ebb"].clone())
    };
    let (kubernetes, standalone) = (defaults("kubernetes")?, defaults("standalone")?);
    let mut text = HEAD.to_owned();
    rows("", &schema, &schema, &kubernetes, &standalone, &mut text)?;
    text.push_str(CGROUPS_HEAD);
    let printed = kubernetes["cgroups"].as_object().context("no section on cgroups")?;
    for (name, meaning) in CGROUPS {
        let default = printed.get(name).with_context(|| format!("there is no cgroups.{name}"))?;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `cgroups.{name}` | {meaning} | {} |", shown(default));
    }
    let missing = printed.keys().find(|key| CGROUPS.iter().all(|(name, _)| name != key));
    ensure!(missing.is_none(), "cgroups.{} is not described", missing.map_or("", |key| key));
    memory_pressure(&mut text)?;
    Ok(text)
}

/// The keys of an entry of `memoryPressure`, with the defaults of one that only names its cgroup.
fn memory_pressure(text: &mut String) -> Result<()> {
    const CGROUP: &str = "/user.slice";
    let config = format!("ebb: {{memoryPressure: [{{cgroup: {CGROUP}}}]}}");
    let printed: Value = serde_json::from_str(&Config::parse(&config)?.to_json()?)?;
    let entry = printed["ebb"]["memoryPressure"][0].as_object().context("no entry is printed")?;
    text.push_str(MEMORY_PRESSURE_HEAD);
    for (name, meaning) in MEMORY_PRESSURE {
        let default = entry.get(name).with_context(|| format!("there is no {name}"))?;
        let default = if default == CGROUP { "must be given".to_owned() } else { shown(default) };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}` | {meaning} | {default} |");
    }
    ensure!(entry.len() == MEMORY_PRESSURE.len(), "a key of memoryPressure is not described");
    Ok(())
}

/// One row for each option, groups after their own members' path.
fn rows(
    path: &str,
    root: &Value,
    object: &Value,
    kubernetes: &Value,
    standalone: &Value,
    text: &mut String,
) -> Result<()> {
    let properties = object["properties"].as_object().context("an object without properties")?;
    for (name, property) in properties {
        let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let target = resolve(root, property);
        let (k, s) = (&kubernetes[name], &standalone[name]);
        if target.get("properties").is_some() {
            rows(&full, root, target, k, s, text)?;
            continue;
        }
        let meaning =
            property["description"].as_str().context(format!("{full} is not described"))?;
        let choices = choices(target);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{full}` | {meaning}{choices} | {} | {} |", shown(k), shown(s));
    }
    Ok(())
}

fn resolve<'v>(root: &'v Value, property: &'v Value) -> &'v Value {
    let name = property["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
    name.map_or(property, |name| &root["$defs"][name])
}

/// What each word of a choice means.
fn choices(target: &Value) -> String {
    let words = target["oneOf"].as_array().into_iter().flatten();
    let word = |choice: &Value| {
        let meaning = choice["description"].as_str().unwrap_or_default();
        Some(format!(" `{}`: {meaning}", choice["const"].as_str()?))
    };
    words.filter_map(word).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{text}`"),
        Value::Null => "none".to_owned(),
        Value::Object(entries) if entries.is_empty() => "none".to_owned(),
        other => format!("`{other}`"),
    }
}
