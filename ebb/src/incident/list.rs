//! Incidents as lines: when, what was short, who went and how soon, and how it ended.

use super::story::{Outcome, Story, moment, ms};
use crate::records::Recorded;
use crate::runtime::table;
use ebb_journal::Mode;
use ebb_journal::incident::mode_of;
use ebb_journal::text::plain;
use serde::Serialize;
use std::path::Path;

const HEAD: [&str; 6] = ["WHEN", "SHORT OF", "KILLED AFTER", "WHOM", "OUTCOME", "ID"];

/// An incident in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    id: String,
    file: String,
    /// Milliseconds since the Unix epoch.
    crossed_at: u64,
    /// The signal that was short, or the cgroup whose memory pressure was above its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_pressure: Option<String>,
    /// The first kill, and the first SIGTERM: milliseconds after the crossing; absent where the record does not say.
    killed_after_ms: Option<f64>,
    terminating_after_ms: Option<f64>,
    /// When ebb would have evicted, had it not been a dry run.
    dry_run_after_ms: Option<f64>,
    victims: Vec<String>,
    oom_kills: u64,
    outcome: Outcome,
    /// Nothing of it was done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    #[serde(skip)]
    short_of: String,
    #[serde(skip)]
    whom: String,
}

impl Line {
    pub(super) fn of(recorded: &Recorded) -> Self {
        let story = Story::of_file(recorded);
        let incident = &recorded.incident;
        let by_name = recorded.file.file_stem().map(|name| name.to_string_lossy().into_owned());
        let ask = |is_dry_run| {
            story.ask.filter(|act| act.is_dry_run() == is_dry_run).map(|act| act.after_ms)
        };
        Self {
            // The name of the file is what finds it again.
            id: by_name.unwrap_or_else(|| story.id.clone()),
            file: recorded.file.display().to_string(),
            crossed_at: incident.crossed_at,
            signal: incident.signal.map(|signal| signal.name().to_owned()),
            memory_pressure: incident.memory_pressure.clone(),
            killed_after_ms: story.kill.map(|act| act.after_ms),
            terminating_after_ms: ask(false),
            dry_run_after_ms: ask(true),
            victims: story.victims.iter().map(|name| (*name).to_owned()).collect(),
            oom_kills: story.oom_kills,
            outcome: story.outcome,
            dry_run: ask(true).is_some() || mode_of(&story.id) == Some(Mode::DryRun),
            short_of: story.short_of(),
            whom: story.whom(),
        }
    }

    fn cells(&self) -> Vec<String> {
        let killed = match (self.killed_after_ms, self.terminating_after_ms, self.dry_run_after_ms)
        {
            (Some(after), _, _) => ms(after),
            (None, Some(after), _) => format!("{} (SIGTERM)", ms(after)),
            (None, None, Some(after)) => format!("{} (dry run)", ms(after)),
            (None, None, None) if self.dry_run => "- (dry run)".to_owned(),
            (None, None, None) if self.victims.is_empty() => "-".to_owned(),
            (None, None, None) => "?".to_owned(),
        };
        let oom = match self.oom_kills {
            0 => String::new(),
            n => format!("; {n} OOM kills"),
        };
        vec![
            moment(self.crossed_at),
            self.short_of.clone(),
            killed,
            self.whom.clone(),
            format!("{}{oom}", self.outcome.words()),
            self.id.clone(),
        ]
    }
}

/// The list for people.
pub(super) fn describe(lines: &[Line], directory: &Path) -> String {
    if lines.is_empty() {
        let at = directory.display().to_string();
        return format!("no incidents are recorded in {}\n", plain(&at));
    }
    let rows: Vec<Vec<String>> = lines.iter().map(Line::cells).collect();
    table(&HEAD, &rows)
}
