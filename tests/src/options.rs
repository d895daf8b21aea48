//! `docs/options.md`: what ebb does beyond the kubelet, each option with its defaults. Generated from the types and from the configuration.
use anyhow::{Context as _, Result};
use ebb::config::Config;
use ebb_policy::limits::Options;
use schemars::schema_for;
use serde_json::Value;
use std::fmt::Write as _;

const HEAD: &str = "\
# The policy's options

This file is generated from the types by `EBB_BLESS=1 cargo test -p ebb-tests --test generated`.
The options stand under `ebb:` in `ebb.yaml`; those of a group stand under its name, as in `ebb: { forecast: { enabled: true } }`.
With `mode: kubernetes` every default is the kubelet's behaviour.

| option | meaning | `mode: kubernetes` | `mode: standalone` |
|---|---|---|---|
";

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
    Ok(text)
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
        Value::Object(entries) if entries.is_empty() => "none".to_owned(),
        other => format!("`{other}`"),
    }
}
