//! `ebb watch`: records of the running agent as they happen, also across its restarts.
//!
//! ```text
//!  connect ─► Watch after the last number ─► print ─► connection lost ─► wait ─► connect …
//! ```

use super::client::{ClientArgs, failure};
use super::notify::Desktop;
use super::{Failure, event_loop, warn};
use anyhow::Context as _;
use ebb_api::client::{Client, ClientError, Watching};
use ebb_api::wire::watch_response::Item;
use ebb_api::wire::{Gap, GapReason, Record, WatchRequest};
use ebb_journal::Output;
use ebb_journal::text::plain;
use std::io::{self, ErrorKind, Write as _};
use std::time::Duration;

/// Between two attempts to connect again.
const AGAIN: Duration = Duration::from_secs(1);

/// Arguments of `ebb watch`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    api: ClientArgs,
    /// Begin after the record with this number (`seq` of the JSON form); 0 begins with all that the agent keeps. Without it, only what happens from now on.
    #[arg(long, value_name = "SEQ")]
    since: Option<u64>,
    /// End after this many records.
    #[arg(short = 'n', long)]
    count: Option<u64>,
    /// Form of the records.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Print nothing; show on the desktop of this session whom ebb evicts and whom the kernel kills for want of memory. Takes a session bus and notify-send.
    #[arg(long, conflicts_with = "output")]
    notify: bool,
}

/// Where records go.
enum To {
    Output(Output),
    Desktop(Desktop),
}

/// Where this client stands.
#[derive(Debug)]
struct Place {
    run: Option<String>,
    after: Option<u64>,
    /// Records that are still to be printed.
    left: Option<u64>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut place = Place { run: None, after: args.since, left: args.count };
    let mut to = match args.notify {
        true => To::Desktop(Desktop::of_session()?),
        false => To::Output(args.output),
    };
    event_loop()?.block_on(async {
        // Whoever asks for an agent that is not there is told so; one that goes away is waited for.
        let mut watching = begin(args, &place).await.map_err(failure)?;
        loop {
            match hand_out(&mut watching, &mut to, &mut place).await? {
                End::Done => return Ok(()),
                End::Lost(why) => warn("note", &format!("{why}; connecting again")),
            }
            watching = loop {
                tokio::time::sleep(AGAIN).await;
                if let Ok(watching) = begin(args, &place).await {
                    break watching;
                }
            };
        }
    })
}

async fn begin(args: &Args, place: &Place) -> Result<Watching, ClientError> {
    let mut client = Client::connect(args.api.path()).await?;
    client.watch(WatchRequest { after: place.after, run: place.run.clone() }).await
}

/// How a Watch ended.
enum End {
    /// All that was wanted is printed, or nobody reads any more.
    Done,
    /// The agent or the connection has gone.
    Lost(String),
}

async fn hand_out(watching: &mut Watching, to: &mut To, place: &mut Place) -> Result<End, Failure> {
    while place.left != Some(0) {
        let item = match watching.next().await {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(End::Lost("the agent has ended the stream".to_owned())),
            Err(why) => return Ok(End::Lost(why.to_string())),
        };
        let printed = match item {
            Item::Begin(begin) => {
                // Those of a run are numbered from its beginning on.
                if place.after.is_none() || place.run.as_ref().is_some_and(|run| *run != begin.run)
                {
                    place.after = Some(place.after.map_or(begin.newest, |_| 0));
                }
                place.run = Some(begin.run);
                continue;
            }
            Item::Record(record) => {
                place.after = Some(record.seq);
                place.left = place.left.map(|left| left - 1);
                match to {
                    To::Output(output) => print_record(&record, *output),
                    To::Desktop(desktop) => {
                        desktop.take(&record);
                        Ok(())
                    }
                }
            }
            Item::Gap(gap) => {
                place.after = gap.last.or(place.after);
                match to {
                    To::Output(output) => print_gap(&gap, *output),
                    To::Desktop(_) => Ok(()),
                }
            }
        };
        match printed {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(End::Done),
            Err(error) => Err(error).context("cannot write a record")?,
        }
    }
    Ok(End::Done)
}

fn print_record(record: &Record, output: Output) -> io::Result<()> {
    let text = match output {
        // The record as it is, with its number.
        Output::Json => match record.json.strip_prefix('{') {
            Some(rest) => format!("{{\"seq\":{},{rest}\n", record.seq),
            None => format!("{{\"seq\":{}}}\n", record.seq),
        },
        Output::Text => record.text.lines().map(|line| format!("{}\n", plain(line))).collect(),
    };
    print(&text)
}

fn print_gap(gap: &Gap, output: Output) -> io::Result<()> {
    let reason = match gap.reason() {
        GapReason::Forgotten => "forgotten",
        GapReason::Dropped => "dropped",
        GapReason::AnotherRun => "anotherRun",
        GapReason::Unspecified => "unspecified",
    };
    match (output, gap.first, gap.last) {
        (Output::Json, Some(first), Some(last)) => print(&format!(
            "{{\"gap\":{{\"reason\":\"{reason}\",\"first\":{first},\"last\":{last}}}}}\n"
        )),
        (Output::Json, ..) => print(&format!("{{\"gap\":{{\"reason\":\"{reason}\"}}}}\n")),
        (Output::Text, ..) => print(&format!("              {}\n", missing(gap))),
    }
}

/// That records are missing, how many, and why.
pub(super) fn missing(gap: &Gap) -> String {
    let why = match gap.reason() {
        GapReason::Forgotten => "the agent does not keep them any more",
        GapReason::Dropped => "they came faster than they were taken over",
        GapReason::AnotherRun => "the agent was started anew, or the number is of another run",
        GapReason::Unspecified => "the agent gives a reason unknown here",
    };
    match gap.first.zip(gap.last) {
        Some((first, last)) => {
            let count = last.saturating_add(1).saturating_sub(first);
            format!("{count} records are missing: {why}")
        }
        None => format!("records may be missing: {why}"),
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
