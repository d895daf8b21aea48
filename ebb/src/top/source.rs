//! A running agent as a source: asked how it stands at an interval, its records followed, connected to again when it is gone.

use super::model::Update;
use super::picture::Picture;
use crate::watch::missing;
use ebb_api::client::{Client, ClientError, Watching};
use ebb_api::wire::watch_response::Item;
use ebb_api::wire::{GapReason, Record, WatchRequest};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// Between two attempts to connect again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long records of before are waited for, where one screen is all that is wanted.
const RECORDS: Duration = Duration::from_secs(2);

/// An agent.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) socket: PathBuf,
    pub(super) every: Duration,
}

/// Where the records that were told end: the run, and the last number.
#[derive(Debug, Default)]
struct Place {
    run: Option<String>,
    after: u64,
    /// Some of this run were told already.
    has_begun: bool,
}

/// Asks how it stands.
pub(super) async fn ask(client: &mut Client) -> Result<Picture, ClientError> {
    let node = client.node().await?;
    let workloads = match client.workloads(0).await {
        Ok(workloads) => Some(workloads),
        Err(error) if error.is_unknown_call() => None,
        Err(error) => return Err(error),
    };
    Ok(Picture::of(node, workloads))
}

/// The records that the agent keeps, up to now.
pub(super) async fn records(client: &mut Client) -> Result<Vec<String>, ClientError> {
    let mut watching = client.watch(WatchRequest { after: Some(0), run: None }).await?;
    let (mut records, mut newest) = (Vec::new(), None);
    let until = Instant::now() + RECORDS;
    // What does not come in time is not waited for: it is one screen.
    while let Ok(next) =
        timeout(until.saturating_duration_since(Instant::now()), watching.next()).await
    {
        let seen = match next? {
            None => break,
            Some(Item::Begin(begin)) => {
                newest = Some(begin.newest);
                begin.oldest.map_or(begin.newest, |oldest| oldest - 1)
            }
            Some(Item::Record(record)) => {
                records.push(line(&record));
                record.seq
            }
            Some(Item::Gap(gap)) => gap.last.unwrap_or(0),
        };
        if newest.is_some_and(|newest| seen >= newest) {
            break;
        }
    }
    Ok(records)
}

/// Tells what the agent says until nobody takes it any more.
pub(super) async fn follow(agent: Agent, tell: impl Fn(Update) -> bool) {
    let mut place = Place::default();
    loop {
        let Err(why) = session(&agent, &mut place, &tell).await else { return };
        if !tell(Update::Lost(now(), why.to_string())) {
            return;
        }
        sleep(AGAIN).await;
    }
}

/// One connection; `Ok` when nobody takes what is told.
async fn session(
    agent: &Agent,
    place: &mut Place,
    tell: &impl Fn(Update) -> bool,
) -> Result<(), ClientError> {
    let mut client = Client::connect(&agent.socket).await?;
    let request = WatchRequest { after: Some(place.after), run: place.run.clone() };
    let mut watching = client.watch(request).await?;
    let mut due = interval(agent.every);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let update = tokio::select! {
            _ = due.tick() => Some(Update::Picture(Box::new(ask(&mut client).await?))),
            told = next(&mut watching, place) => told?.map(Update::Record),
        };
        if let Some(update) = update
            && !tell(update)
        {
            return Ok(());
        }
    }
}

/// The next record, as a line; `None` for what is none.
async fn next(watching: &mut Watching, place: &mut Place) -> Result<Option<String>, ClientError> {
    let Some(item) = watching.next().await? else {
        // The server has ended the stream, and the connection with it: the next question finds that out.
        return std::future::pending().await;
    };
    Ok(match item {
        Item::Begin(begin) => {
            place.has_begun &= place.run.as_ref() == Some(&begin.run);
            let is_another = place.run.as_ref().is_some_and(|run| *run != begin.run);
            if is_another {
                place.after = 0;
            }
            place.run = Some(begin.run);
            is_another.then(|| "-- another run of ebb --".to_owned())
        }
        Item::Record(record) => {
            (place.after, place.has_begun) = (record.seq, true);
            Some(line(&record))
        }
        Item::Gap(gap) => {
            place.after = gap.last.unwrap_or(place.after);
            // That another run has begun is said, and what was told before anybody looked is not missed.
            let is_missed = place.has_begun && gap.reason() != GapReason::AnotherRun;
            is_missed.then(|| format!("-- {} --", missing(&gap)))
        }
    })
}

/// A record as one line: what else it says, `ebb watch` shows.
fn line(record: &Record) -> String {
    record.text.lines().next().unwrap_or_default().to_owned()
}

/// Milliseconds since the Unix epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
