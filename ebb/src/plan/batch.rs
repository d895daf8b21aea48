//! Many passes in one process: JSON lines in, JSON lines out.
//!
//! ```text
//!  line ─► snapshot ─► decide, with what the pass before remembered ─► {"line", "plan", "history"}
//!    └─ wrong: {"line", "error", "continues"}; what was remembered stays that of the last good line
//! ```
//! A line is a snapshot, or `{"snapshot": …, "history": …}`, which begins anew from that history (`{}` for a first pass).
//! An answer is written and flushed before the next line is read, so that a program at the other end of two pipes can go step by step.

use super::{Failure, check, json, within_reach};
use anyhow::{Context as _, anyhow};
use ebb_agent::config::Config;
use ebb_policy::{History, Plan, Snapshot, decide};
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

/// The answer to one line.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    Decided {
        line: u64,
        plan: &'a Plan,
        history: &'a History,
    },
    Wrong {
        line: u64,
        error: String,
        /// Whether the lines after this one are answered.
        continues: bool,
    },
}

/// Answers every line; returns what is remembered at the end, and a failure when a line was wrong.
pub(super) fn run(
    path: &Path,
    config: &Config,
    history: History,
) -> (History, Result<(), Failure>) {
    let mut history = history;
    let result = open(path).and_then(|mut input| {
        let mut output = io::BufWriter::new(io::stdout().lock());
        answer(&mut input, &mut output, config, &mut history)
    });
    (history, result)
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path)
        .map_err(|error| Failure::Input(anyhow!("{}: cannot be read: {error}", path.display())))?;
    Ok(Box::new(BufReader::new(file)))
}

fn answer(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    config: &Config,
    history: &mut History,
) -> Result<(), Failure> {
    let (mut line, mut wrong) = (0, 0u64);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        line += 1;
        match input.read_until(b'\n', &mut bytes) {
            Ok(0) => break,
            Ok(_) if bytes.trim_ascii().is_empty() => continue,
            Ok(_) => {}
            Err(error) => {
                let error = format!("cannot be read: {error}");
                say(output, &Answer::Wrong { line, error: error.clone(), continues: false })?;
                return Err(Failure::Failed(anyhow!("line {line} {error}")));
            }
        }
        match pass(&bytes, config, history) {
            Ok((plan, next)) => {
                *history = next;
                say(output, &Answer::Decided { line, plan: &plan, history })?;
            }
            Err(error) => {
                wrong += 1;
                let error = format!("{error:#}");
                say(output, &Answer::Wrong { line, error, continues: true })?;
            }
        }
    }
    match wrong {
        0 => Ok(()),
        1 => Err(Failure::Failed(anyhow!("1 line was wrong; its answer says why"))),
        _ => Err(Failure::Failed(anyhow!("{wrong} lines were wrong; their answers say why"))),
    }
}

fn pass(bytes: &[u8], config: &Config, history: &History) -> anyhow::Result<(Plan, History)> {
    let text = std::str::from_utf8(bytes).context("not UTF-8")?;
    let (snapshot, own) = match json::tree(text)? {
        Value::Object(mut both) if both.contains_key("snapshot") => {
            let snapshot = both.remove("snapshot").unwrap_or_default();
            let own = both.remove("history").map(json::history).transpose().context("history")?;
            if let Some(key) = both.keys().next() {
                return Err(anyhow!(
                    "unknown field `{key}`; beside `snapshot` there is `history` alone"
                ));
            }
            (snapshot, own)
        }
        other => (other, None),
    };
    let snapshot: Snapshot = json::typed(snapshot)?;
    check(&snapshot)?;
    within_reach(config, &snapshot).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow!(errors.join("; "))
    })?;
    Ok(decide(&snapshot, &config.limits, own.as_ref().unwrap_or(history)))
}

fn say(output: &mut dyn Write, answer: &Answer<'_>) -> Result<(), Failure> {
    let text = json::line(answer)?;
    writeln!(output, "{text}").and_then(|()| output.flush()).context("cannot write an answer")?;
    Ok(())
}
