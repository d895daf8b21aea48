//! `ebb incident`: what was recorded of an episode of pressure, as a list, as text and as a page that needs nothing but itself.
//!
//! ```text
//!  records (files) ─► story (when, who, how it ended) · decision (figures, ranking, skipped) · again (another configuration)
//!                        ├─► list: a line each      ├─► text: for a terminal      └─► html ─► page_file: written whole or not at all
//! ```
//! Everything but `page_file` is pure, so the same record is the same page.
//! What a record says is never trusted: names reach people through [`text::plain`](ebb_journal::text::plain), and markup through a library that escapes.

mod again;
mod decision;
mod html;
mod list;
mod page_file;
mod story;
mod text;

use super::configured::ConfigArgs;
use super::plan::Output;
use super::records::{self, Place, Recorded};
use super::{Failure, json};
use again::Again;
use anyhow::Context as _;
use ebb_agent::config::Config;
use ebb_journal::incident::Incident;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use story::Story;

/// Arguments of `ebb incident`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List recorded incidents, the newest first: when, what was short, who was killed and how soon, how it ended.
    List(ListArgs),
    /// Show one incident: what happened when, the ranking with the key that decided, and who was skipped and why.
    Show(ShowArgs),
    /// Write one incident as an HTML page, a single file that opens offline and runs no script.
    Html(HtmlArgs),
}

/// Arguments of `ebb incident list`.
#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Where `ebb run` keeps its records. Else the directory that --config names, or /etc/ebb/ebb.yaml, or the service's: /var/lib/ebb/incidents.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The configuration of `ebb run`, which may name the directory.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Form of the answer; as JSON a list of objects.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Which incident, and by what it is decided again.
#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The record: a file, or the id that `ebb incident list` shows, or as much of its beginning as no other has; `latest` is the newest.
    #[arg(value_name = "FILE|ID")]
    incident: PathBuf,
    /// Where `ebb run` keeps its records, for an ID. Else the directory that --config names, or /etc/ebb/ebb.yaml, or the service's: /var/lib/ebb/incidents.
    #[arg(long, value_name = "DIR")]
    incidents: Option<PathBuf>,
    /// Decide each decision by this configuration as well, from what was known then, and show both.
    #[arg(short, long, value_name = "FILE", conflicts_with = "kubelet_config")]
    config: Option<PathBuf>,
    /// The same by a KubeletConfiguration.
    #[arg(long, value_name = "FILE")]
    kubelet_config: Option<PathBuf>,
}

/// Arguments of `ebb incident show`.
#[derive(Debug, clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    one: OneArgs,
}

/// Arguments of `ebb incident html`.
#[derive(Debug, clap::Args)]
struct HtmlArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The file to write, or `-` for standard output. Without it, ID.html in the working directory.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace a file that is there, also when it is not this incident's page.
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::List(args) => list(args),
        Command::Show(args) => {
            let (recorded, again) = args.one.read()?;
            print(&text::describe(&Story::of_file(&recorded), &again))
        }
        Command::Html(args) => html(args),
    }
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let place = Place::named(args.directory.as_deref(), args.config.as_deref())?;
    let (mut found, unreadable) = records::all(&place)?;
    unreadable.iter().for_each(|why| super::warn("note", why));
    found.sort_by(|a, b| {
        let key = |recorded: &Recorded| (recorded.incident.crossed_at, recorded.file.clone());
        key(b).cmp(&key(a))
    });
    let lines: Vec<list::Line> = found.iter().map(list::Line::of).collect();
    print(&match args.output {
        Output::Json => json::pretty(&lines)? + "\n",
        Output::Text => list::describe(&lines, place.directory()),
    })
}

fn html(args: &HtmlArgs) -> Result<(), Failure> {
    let (recorded, again) = args.one.read()?;
    let story = Story::of_file(&recorded);
    let page = html::page(&story, &again);
    let own = PathBuf::from(format!("{}.html", story.id));
    let out = args.output.as_ref().unwrap_or(&own);
    if out == Path::new("-") {
        return print(&page);
    }
    page_file::write(out, &page, &story.id, args.force)?;
    print(&format!("{}\n", ebb_journal::text::plain(&out.display().to_string())))
}

impl OneArgs {
    /// Reads the record, and decides it again.
    fn read(&self) -> Result<(Recorded, Again), Failure> {
        let config = ConfigArgs::of(self.config.clone(), self.kubelet_config.clone());
        let other = config.is_given().then(|| config.load()).transpose()?;
        let recorded = records::one(&self.incident, || {
            Place::known(self.incidents.as_deref(), other.as_ref())
        })?;
        let other = config.file().zip(other.as_ref());
        let again = Again::of(
            &recorded.incident,
            other.map(|(file, config): (_, &Config)| (file.display().to_string(), config)),
        );
        Ok((recorded, again))
    }
}

/// Whether nobody was touched in it.
pub(super) fn is_dry_run(incident: &Incident) -> bool {
    Story::of(incident).ask.is_some_and(story::Act::is_dry_run)
}

/// What `ebb explain eviction/ID` says: the incident from the crossing to the relief, or its record.
///
/// # Errors
/// There is no such record, or it is wrong.
pub(super) fn explain(
    named: &Path,
    place: impl FnOnce() -> Result<Place, Failure>,
    output: Output,
) -> Result<String, Failure> {
    let recorded = records::one(named, place)?;
    match output {
        Output::Json => Ok(json::pretty(&recorded.incident)? + "\n"),
        Output::Text => {
            let again = Again::of(&recorded.incident, None);
            Ok(text::describe(&Story::of_file(&recorded), &again))
        }
    }
}

/// Reads one record for another command: a file, or one of the service's by its id. Returns its id with it.
pub(super) fn recorded(named: &Path) -> Result<(String, Incident), Failure> {
    let recorded = records::one(named, || Place::known(None, None))?;
    let id = Story::of_file(&recorded).id;
    Ok((id, recorded.incident))
}

fn print(text: &str) -> Result<(), Failure> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the answer")?;
    Ok(())
}
