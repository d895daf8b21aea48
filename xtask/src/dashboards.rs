//! `cargo xtask dashboards`: Grafana's dashboards of the agents and of the cluster collector, made from a list of panels.
//!
//! They load as they are: the data source and the nodes are chosen on the dashboard. promtool reads every expression.

mod controller;
mod node;

use crate::sh;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Columns of Grafana's grid.
const COLUMNS: u32 = 24;

/// Its schema, of Grafana 10.4. Grafana brings older ones up to its own.
const SCHEMA: u32 = 39;

/// Options of `cargo xtask dashboards`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// A dashboard.
struct Dashboard {
    /// The file, and its UID in Grafana.
    uid: &'static str,
    title: &'static str,
    /// What can be chosen beside the data source.
    variables: &'static [Variable],
    rows: &'static [Row],
}

/// Something to choose on the dashboard.
struct Variable {
    name: &'static str,
    label: &'static str,
    /// Whose values there are.
    query: &'static str,
}

/// Panels that belong together.
struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

/// A panel.
struct Panel {
    title: &'static str,
    /// What it means, for whoever opens it for the first time.
    about: &'static str,
    kind: Kind,
    /// As Grafana calls it.
    unit: &'static str,
    /// Columns.
    width: u32,
    /// Expressions, each with the legend of its series.
    queries: &'static [(&'static str, &'static str)],
}

/// How a panel shows its series.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The last value of each, as a number; more than zero is bad.
    BadNumber,
    /// The last value of each, as a number.
    Number,
    /// Lines over time.
    Lines,
    /// What happened in each interval of a minute or more, stacked.
    Bars,
}

const ALL: [&Dashboard; 2] = [&node::DASHBOARD, &controller::DASHBOARD];

pub(crate) fn run(_: &Args) -> Result<()> {
    for dashboard in ALL {
        let file = dashboard.file();
        fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))
            .with_context(|| format!("cannot create the directory of {}", file.display()))?;
        fs::write(&file, dashboard.text()?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Whether what is committed is what would be made now, and promtool reads every expression; in a directory for its files.
pub(crate) fn check_in(dir: &Path, promtool: &Path) -> Result<()> {
    for dashboard in ALL {
        let file = dashboard.file();
        println!("{}", file.display());
        let committed =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        ensure!(
            committed == dashboard.text()?,
            "{} is out of date: cargo xtask dashboards",
            file.display()
        );
        fs::write(dir.join("expressions.yaml"), dashboard.as_rules())
            .context("cannot write expressions.yaml")?;
        let mut check = Command::new(promtool);
        sh::run(check.current_dir(dir).args(["check", "rules", "expressions.yaml"]))?;
    }
    Ok(())
}

impl Dashboard {
    fn file(&self) -> std::path::PathBuf {
        sh::root().join("deploy/grafana").join(format!("{}.json", self.uid))
    }

    fn panels(&self) -> impl Iterator<Item = &'static Panel> {
        self.rows.iter().flat_map(|row| row.panels)
    }

    /// Every expression as a rule, with what Grafana would put in place of its variables.
    fn as_rules(&self) -> String {
        let mut text = "groups:\n- name: panels\n  rules:\n".to_owned();
        let expressions = self.panels().flat_map(|panel| panel.queries);
        for (number, (expression, _)) in expressions.enumerate() {
            let mut plain = expression
                .replace("$__rate_interval", "5m")
                .replace("$__interval", "1m")
                .replace("$__range", "1h");
            for Variable { name, .. } in self.variables {
                plain = plain.replace(&format!("${name}"), ".*");
            }
            text += &format!("  - record: panel:expression:{number}\n    expr: {plain:?}\n");
        }
        text
    }

    fn text(&self) -> Result<String> {
        let mut panels = Vec::new();
        let (mut top, mut id) = (0, 0);
        let mut next_id = || {
            id += 1;
            id
        };
        for row in self.rows {
            let place = json!({ "x": 0, "y": top, "w": COLUMNS, "h": 1 });
            panels.push(json!({
                "id": next_id(), "type": "row", "title": row.title, "collapsed": false, "gridPos": place, "panels": [],
            }));
            top += 1;
            let (mut left, mut tallest) = (0, 0);
            for panel in row.panels {
                if left + panel.width > COLUMNS {
                    top += tallest;
                    (left, tallest) = (0, 0);
                }
                let height = panel.height();
                let place = json!({ "x": left, "y": top, "w": panel.width, "h": height });
                panels.push(panel.json(next_id(), &place));
                left += panel.width;
                tallest = tallest.max(height);
            }
            top += tallest;
        }
        let mut variables = vec![json!({
            "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
            "hide": 0, "refresh": 1, "regex": "", "multi": false, "includeAll": false, "current": {}, "options": [],
        })];
        variables.extend(self.variables.iter().map(Variable::json));
        let dashboard = json!({
            "uid": self.uid, "title": self.title, "tags": ["ebb"], "schemaVersion": SCHEMA, "version": 1,
            "editable": true, "graphTooltip": 1, "refresh": "30s", "timezone": "browser", "fiscalYearStartMonth": 0,
            "liveNow": false, "links": [], "annotations": { "list": [] },
            "time": { "from": "now-6h", "to": "now" }, "timepicker": {},
            "templating": { "list": variables }, "panels": panels,
        });
        let text = serde_json::to_string_pretty(&dashboard).context("cannot write a dashboard")?;
        Ok(text + "\n")
    }
}

/// The data source that is chosen on the dashboard.
fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

impl Variable {
    fn json(&self) -> Value {
        json!({
            "name": self.name, "label": self.label, "type": "query", "datasource": datasource(),
            "query": { "query": self.query, "refId": self.name }, "definition": self.query,
            "hide": 0, "refresh": 2, "regex": "", "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
            "current": { "selected": true, "text": ["All"], "value": ["$__all"] }, "options": [],
        })
    }
}

impl Panel {
    fn height(&self) -> u32 {
        match self.kind {
            Kind::Number | Kind::BadNumber => 4,
            Kind::Lines | Kind::Bars => 8,
        }
    }

    fn json(&self, id: u32, place: &Value) -> Value {
        let letters = 'A'..='Z';
        let is_number = matches!(self.kind, Kind::Number | Kind::BadNumber);
        let targets: Vec<Value> = self
            .queries
            .iter()
            .zip(letters)
            .map(|((expression, legend), letter)| {
                json!({
                    "refId": letter.to_string(), "datasource": datasource(), "editorMode": "code",
                    "expr": expression, "legendFormat": legend, "range": !is_number, "instant": is_number,
                })
            })
            .collect();
        let green = json!({ "color": "green", "value": null });
        let steps = match self.kind {
            Kind::BadNumber => json!([green, { "color": "red", "value": 1 }]),
            _ => json!([green]),
        };
        let (panel_type, options, custom) = match self.kind {
            Kind::Number | Kind::BadNumber => (
                "stat",
                json!({
                    "colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto",
                    "textMode": "auto", "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
                }),
                json!({}),
            ),
            Kind::Lines => (
                "timeseries",
                lines_options(),
                json!({ "drawStyle": "line", "lineWidth": 1, "fillOpacity": 0, "showPoints": "auto", "spanNulls": false }),
            ),
            Kind::Bars => (
                "timeseries",
                lines_options(),
                json!({ "drawStyle": "bars", "lineWidth": 0, "fillOpacity": 80, "stacking": { "mode": "normal", "group": "A" } }),
            ),
        };
        json!({
            "id": id, "type": panel_type, "title": self.title, "description": self.about, "gridPos": place,
            "datasource": datasource(), "targets": targets, "options": options,
            // A bar is one interval, and an interval has two scrapes at least.
            "interval": if self.kind == Kind::Bars { json!("1m") } else { json!(null) },
            "fieldConfig": {
                "defaults": {
                    "unit": self.unit, "min": 0, "custom": custom, "mappings": [],
                    "decimals": if matches!(self.unit, "none") { json!(0) } else { json!(null) },
                    "color": { "mode": if is_number { "thresholds" } else { "palette-classic" } },
                    "thresholds": { "mode": "absolute", "steps": steps },
                },
                "overrides": [],
            },
        })
    }
}

fn lines_options() -> Value {
    json!({
        "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": [] },
        "tooltip": { "mode": "multi", "sort": "desc" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashboards_are_committed_as_they_would_be_made() {
        for dashboard in ALL {
            let committed = fs::read_to_string(dashboard.file()).unwrap();
            assert_eq!(committed, dashboard.text().unwrap(), "cargo xtask dashboards");
        }
    }

    #[test]
    fn panels_lie_beside_each_other_and_each_says_what_it_means() {
        for dashboard in ALL {
            let made: Value = serde_json::from_str(&dashboard.text().unwrap()).unwrap();
            let mut taken = std::collections::BTreeSet::new();
            let mut ids = std::collections::BTreeSet::new();
            for panel in made["panels"].as_array().unwrap() {
                assert!(ids.insert(panel["id"].as_u64().unwrap()));
                let of = |key: &str| panel["gridPos"][key].as_u64().unwrap();
                assert!(of("x") + of("w") <= u64::from(COLUMNS), "{}", panel["title"]);
                for x in of("x")..of("x") + of("w") {
                    for y in of("y")..of("y") + of("h") {
                        assert!(taken.insert((x, y)), "{} lies over another", panel["title"]);
                    }
                }
            }
            for panel in dashboard.panels() {
                assert!(panel.about.ends_with('.'), "{}", panel.title);
                assert!(!panel.queries.is_empty() && panel.queries.len() <= 26, "{}", panel.title);
            }
        }
    }
}
