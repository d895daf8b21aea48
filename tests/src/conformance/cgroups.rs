//! Scenarios of the cgroup tree: a configuration, a node and pods in, values by path out.
//!
//! `cgroups` maps the path of a cgroup (`namespace/pod container` for a container without one) to what its files are to say;
//! `null` is expected of a file that is left alone, and of a cgroup that is not in the plan. `oom_score_adj`, `unit` and `properties` stand beside the files.
use super::{check::check_errors, subset};
use anyhow::{Context as _, Error, Result, bail, ensure};
use ebb_agent::cgroups::node;
use ebb_agent::config::Config;
use ebb_agent::sense::manifests::Manifests;
use ebb_policy::cgroups::{Plan, plan};
use serde_json::{Map, Value, json};
use std::io::Write as _;

/// Plans, and holds the plan or what is said of the input against what is expected.
///
/// # Errors
/// What differs from what is expected, or what cannot be read.
pub(super) fn check(
    node: &Value,
    pods: &Value,
    expected: &Result<Value, Vec<String>>,
    config: &Config,
) -> Result<()> {
    let planned = make(node, pods, config);
    let expected = match expected {
        Ok(cgroups) => cgroups,
        Err(errors) => match planned {
            Ok(_) => bail!("the input is accepted"),
            Err(error) => return check_errors(errors, &format!("{error:#}")),
        },
    };
    let found = by_path(&planned?);
    let differences = subset::differences(expected, &found);
    ensure!(
        differences.is_empty(),
        "the plan is not as expected:\n  {}\nit is\n{found:#}",
        differences.join("\n  ")
    );
    Ok(())
}

/// The plan; the order of the pods must not change it.
fn make(node: &Value, pods: &Value, config: &Config) -> Result<Plan> {
    let input = |error: Error| Error::msg(format!("input: {error:#}"));
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(node.to_string().as_bytes())?;
    // Which file it is stands first, and is another every time.
    let node = node::from_file(file.path()).map_err(|error| {
        let parts: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
        input(Error::msg(parts.join(": ")))
    })?;
    let mut manifests = Manifests::default();
    manifests.add(&pods.to_string(), node.name.as_deref()).map_err(input)?;
    let mut pods = manifests.pods;
    let said = |errors: Vec<ebb_policy::limits::ConfigError>| {
        let lines: Vec<String> = errors.iter().map(|error| format!("input: {error}")).collect();
        Error::msg(lines.join("\n"))
    };
    let planned = plan(&config.cgroups.options, &node, &pods).map_err(said)?;
    pods.reverse();
    let reversed = plan(&config.cgroups.options, &node, &pods).map_err(said)?;
    ensure!(planned == reversed, "the order of the pods changes the plan");
    let text = serde_json::to_string(&planned)?;
    let read_back: Plan = serde_json::from_str(&text).context("the plan cannot be read back")?;
    ensure!(planned == read_back, "the plan is not what was written");
    Ok(planned)
}

fn by_path(plan: &Plan) -> Value {
    let mut paths = Map::new();
    for cgroup in &plan.cgroups {
        let key = cgroup.path.clone().unwrap_or_else(|| {
            let pod = cgroup.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name));
            let container = cgroup.container.clone().unwrap_or_default();
            format!("{} {container}", pod.unwrap_or_default())
        });
        let mut shown = Map::new();
        for (file, value) in &cgroup.values {
            shown.insert(file.clone(), value.value.clone().into());
            if let Some(at_once) = &value.at_once {
                shown.insert(format!("{file} at once"), at_once.clone().into());
            }
        }
        if let Some(score) = &cgroup.oom_score_adj {
            shown.insert("oom_score_adj".to_owned(), score.value.into());
        }
        if let Some(unit) = &cgroup.unit {
            shown.insert("unit".to_owned(), unit.clone().into());
            shown.insert("properties".to_owned(), json!(cgroup.properties));
        }
        paths.insert(key, Value::Object(shown));
    }
    Value::Object(paths)
}
