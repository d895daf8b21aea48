//! The last kept runs of each section, as numbers: `docs/benchmarks.runs.jsonl` has a line for each, and `docs/benchmarks.md` their main figures side by side.
//!
//! They tell how figures went over time on the machines that happened to measure them. Whether a change moved one is told by `--compare`, which measures both on the same machine in turns.
use super::figure::{Figure, Finding};
use crate::sh;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Runs of a section that are kept.
const KEPT: usize = 5;

/// One kept run of one section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    section: String,
    /// The day on which it began, in UTC.
    date: String,
    commit: String,
    conditions: String,
    figures: Vec<Figure>,
}

/// When a measurement began, and of what tree.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    date: String,
    pub(super) commit: String,
}

impl Tree {
    /// This checkout, now.
    pub(super) fn now() -> Result<Self> {
        let commit = git(&["rev-parse", "--short", "HEAD"])?;
        // The documents are what kept runs change themselves.
        let changed = git(&["status", "--porcelain", "--", ".", ":(exclude)docs"])?;
        let dirty = if changed.is_empty() { "" } else { "-dirty" };
        let date = sh::read(Command::new("date").args(["-u", "+%F"]))?;
        Ok(Self { date, commit: format!("{commit}{dirty}") })
    }
}

impl Run {
    pub(super) fn new(section: &str, tree: &Tree, found: &Finding) -> Self {
        let rounded = |figure: &Figure| Figure { value: rounded(figure.value), ..figure.clone() };
        Self {
            section: section.to_owned(),
            date: tree.date.clone(),
            commit: tree.commit.clone(),
            conditions: found.conditions.clone(),
            figures: found.figures.iter().map(rounded).collect(),
        }
    }

    fn title(&self) -> String {
        format!("{} {}", self.date, self.commit)
    }
}

/// Adds a run to those kept, and returns what the document shows of all: `sections` is their order.
pub(super) fn keep(run: Run, sections: &[String]) -> Result<String> {
    let path = path();
    let old = match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        other => other.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let runs = with(parse(&old).with_context(|| format!("in {}", path.display()))?, run);
    fs::write(&path, lines(&runs)?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(table(&runs, sections))
}

fn path() -> PathBuf {
    sh::root().join("docs/benchmarks.runs.jsonl")
}

fn git(words: &[&str]) -> Result<String> {
    sh::read(Command::new("git").current_dir(sh::root()).args(words))
}

fn parse(text: &str) -> Result<Vec<Run>> {
    let run = |line| serde_json::from_str(line).context("not a kept run");
    text.lines().map(run).collect()
}

fn lines(runs: &[Run]) -> Result<String> {
    let mut text = String::new();
    for run in runs {
        text.push_str(&serde_json::to_string(run).context("cannot write a run as JSON")?);
        text.push('\n');
    }
    Ok(text)
}

/// The new run is the last; of its section the oldest ones go.
fn with(mut runs: Vec<Run>, new: Run) -> Vec<Run> {
    let before = runs.iter().filter(|run| run.section == new.section).count();
    let mut surplus = (before + 1).saturating_sub(KEPT);
    runs.retain(|run| {
        let goes = run.section == new.section && surplus > 0;
        surplus -= usize::from(goes);
        !goes
    });
    runs.push(new);
    runs
}

/// A table for each section that has runs: the last run's main figures, and what earlier ones had for them.
fn table(runs: &[Run], sections: &[String]) -> String {
    let mut text = String::from(
        "## The last kept runs\n\n\
         The main figures of each section, the newest run on the right. All figures are in [benchmarks.runs.jsonl](benchmarks.runs.jsonl).\n\
         Runs on different machines, or beside different neighbours, are not to be compared: `cargo xtask bench --compare` says what a change moved.\n",
    );
    for section in sections {
        let runs: Vec<&Run> = runs.iter().filter(|run| run.section == *section).collect();
        let Some(last) = runs.last() else { continue };
        let titles: Vec<String> = runs.iter().map(|run| run.title()).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n### {section}\n\n| | {} |", titles.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(runs.len()));
        for figure in last.figures.iter().filter(|figure| figure.is_main) {
            let value = |run: &&Run| {
                let same =
                    run.figures.iter().find(|f| (&f.name, &f.unit) == (&figure.name, &figure.unit));
                same.map_or_else(|| "–".to_owned(), |same| same.show(same.value))
            };
            let cells: Vec<String> = runs.iter().map(value).collect();
            let _ = writeln!(text, "| {} | {} |", figure.name, cells.join(" | "));
        }
        text.push('\n');
        for run in runs {
            let _ = writeln!(text, "- {}: {}.", run.title(), run.conditions);
        }
    }
    text
}

/// Four digits, which is more than is measured.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(section: &str, day: usize, value: f64) -> Run {
        let tree = Tree { date: format!("2026-11-{day:02}"), commit: format!("c{day}") };
        let figures = vec![
            Figure::lower("ebb, to SIGKILL p50", "ms", value).main_if(true),
            Figure::lower("nohang, to SIGKILL p50", "ms", 88.1),
        ];
        let found = Finding { conditions: "here".into(), text: String::new(), figures };
        Run::new(section, &tree, &found)
    }

    #[test]
    fn of_a_section_the_last_five_runs_stay_and_of_others_all() {
        let mut runs = vec![run("idle", 1, 1.0)];
        for day in 1..=8 {
            runs = with(runs, run("race", day, 2.0));
        }
        let days: Vec<&str> = runs.iter().map(|run| run.commit.as_str()).collect();
        assert_eq!(days, ["c1", "c4", "c5", "c6", "c7", "c8"]);
        assert_eq!(runs[0].section, "idle");
    }

    #[test]
    fn runs_come_back_from_the_file_as_they_were() {
        let runs = vec![run("race", 1, 9.6), run("idle", 2, 0.0)];
        let text = lines(&runs).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert_eq!(parse(&text).unwrap(), runs);
        assert!(parse("{}\n").is_err());
    }

    #[test]
    fn four_digits_are_kept() {
        let values = [313_851_234.5, 0.012_345_6, 0.0].map(rounded);
        assert_eq!(values, [313_900_000.0, 0.012_35, 0.0]);
    }

    #[test]
    fn the_table_shows_main_figures_side_by_side() {
        let mut older = run("race", 1, 9.6);
        older.figures[0].name = "ebb, by another name".into();
        let runs = [older, run("race", 2, 10.04), run("race", 3, 9.0), run("idle", 3, 1.0)];
        let order = ["idle", "race", "host"].map(str::to_owned);
        let text = table(&runs, &order);
        let race = "### race\n\n\
                    | | 2026-11-01 c1 | 2026-11-02 c2 | 2026-11-03 c3 |\n|---|---|---|---|\n\
                    | ebb, to SIGKILL p50 | – | 10.0 ms | 9 ms |\n\n\
                    - 2026-11-01 c1: here.\n";
        assert!(text.contains(race), "{text}");
        assert!(text.find("### idle") < text.find("### race"), "{text}");
        assert!(!text.contains("nohang") && !text.contains("### host"), "{text}");
    }
}
