//! One resource, followed: a list in pages, then a watch from there on, again and again.
//!
//! ```text
//!  list ──► watch ──(ended: from the last version on)──► watch …
//!   ▲         │ 410: the history is gone
//!   └─────────┘
//!  what fails: Broken with the reason, backoff with jitter, from where it was
//! ```
//! A watch that cannot be resumed for some seconds is broken too: what it knows is old by then.

use crate::call::{Api, Call, DEADLINE};
use crate::catalogue::ApiResource;
use crate::failure::{Failure, chain};
use crate::time;
use crate::wire::{Item, List, Seen, seen};
use ebb_policy_cluster::{Kind, Time, Uid};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};

/// Objects in a page of a list.
const PAGE: usize = 500;
/// How long a watch lasts, at random from here to twice that: they are not all to end at once.
const WATCH_SECONDS: u64 = 240;
/// The API server sends bookmarks about once a minute where it sends any: a watch that is silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(150);
/// For how long a cut watch may be resumed before what it showed is called old.
const RESUME: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// An API server that is back is heard within seconds, however long it was away; one with a Retry-After is asked no sooner.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
pub(crate) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// How much of each object is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Its metadata.
    Metadata,
    /// All of it, for pods and nodes.
    Whole,
}

/// One change of one object.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// New or changed.
    Applied(Seen),
    /// Gone, with its last state.
    Deleted(Seen),
}

/// What a watch reports.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A list begins: until it is complete, nothing is known of what is not there.
    Listing,
    /// Changes, in their order.
    Changes(Vec<Change>),
    /// The list is complete: nothing but these is there; `None` where nothing was reported before it.
    Listed(Option<BTreeSet<Uid>>),
    /// A broken watch goes on without a gap.
    Resumed,
    /// It cannot be listed or watched.
    Broken {
        /// Since when.
        since: Time,
        /// What was said.
        why: String,
    },
}

/// Follows a resource until the receiver is gone, and reports under `id`. `lists` bounds how many list at the same time.
pub async fn watch(
    api: Api,
    of: ApiResource,
    content: Content,
    lists: std::sync::Arc<Semaphore>,
    id: u64,
    out: mpsc::Sender<(u64, Event)>,
) {
    let mut watch =
        Watch { api, of, content, id, out, version: None, broken: None, pauses: 0, is_first: true };
    while watch.step(&lists).await.is_ok() {}
}

/// Nobody listens any more.
struct Closed;

struct Watch {
    api: Api,
    of: ApiResource,
    content: Content,
    id: u64,
    out: mpsc::Sender<(u64, Event)>,
    /// From which version on to watch; `None`: list first.
    version: Option<String>,
    /// Since when it fails, and whether that was reported.
    broken: Option<(Instant, Time, bool)>,
    pauses: u32,
    /// Whether no list was begun yet.
    is_first: bool,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(rename = "type")]
    of: &'a str,
    #[serde(borrow)]
    object: &'a serde_json::value::RawValue,
}

impl Watch {
    /// One list or one watch, and a pause where it failed.
    async fn step(&mut self, lists: &Semaphore) -> Result<(), Closed> {
        let done = match self.version.clone() {
            None => {
                let turn = lists.acquire().await;
                let done = self.list().await?;
                drop(turn);
                done
            }
            Some(version) => self.follow(&version).await?,
        };
        match done {
            Ok(()) => Ok(()),
            Err(failure) if failure.code() == Some(410) => {
                self.version = None;
                Ok(())
            }
            Err(failure) => self.pause(&failure).await,
        }
    }

    async fn pause(&mut self, failure: &Failure) -> Result<(), Closed> {
        let (since, at, is_told) = *self.broken.get_or_insert((Instant::now(), time::now(), false));
        if !is_told && (self.version.is_none() || since.elapsed() >= RESUME) {
            self.broken = Some((since, at, true));
            self.tell(Event::Broken { since: at, why: failure.to_string() }).await?;
        }
        let pause = backoff(self.pauses).max(failure.retry_after().unwrap_or_default());
        self.pauses = self.pauses.saturating_add(1);
        tokio::select! {
            () = self.out.closed() => Err(Closed),
            () = sleep(pause) => Ok(()),
        }
    }

    async fn tell(&self, event: Event) -> Result<(), Closed> {
        self.out.send((self.id, event)).await.map_err(|_| Closed)
    }

    async fn list(&mut self) -> Result<Result<(), Failure>, Closed> {
        // What is broken stays so until a list succeeds.
        if !matches!(self.broken, Some((_, _, true))) {
            self.tell(Event::Listing).await?;
        }
        let is_first = std::mem::take(&mut self.is_first);
        let mut uids = BTreeSet::new();
        let mut next = String::new();
        loop {
            let page = match self.page(&next).await {
                Ok(page) => page,
                Err(failure) => return Ok(Err(failure)),
            };
            let kind = &self.of.kind;
            let is_whole = self.content == Content::Whole;
            let seen: Vec<Seen> =
                page.items.into_iter().flatten().map(|item| seen(item, kind, is_whole)).collect();
            if !is_first {
                uids.extend(seen.iter().map(|seen| seen.object.uid.clone()));
            }
            if !seen.is_empty() {
                let changes = seen.into_iter().map(Change::Applied).collect();
                self.tell(Event::Changes(changes)).await?;
            }
            next = page.metadata.next;
            if next.is_empty() {
                self.version = Some(page.metadata.resource_version);
                break;
            }
        }
        (self.broken, self.pauses) = (None, 0);
        self.tell(Event::Listed((!is_first).then_some(uids))).await?;
        Ok(Ok(()))
    }

    async fn page(&self, next: &str) -> Result<List, Failure> {
        page(&self.api, &self.of, self.content, next).await
    }

    /// Watches from a version on until the watch ends, which is no failure by itself.
    async fn follow(&mut self, version: &str) -> Result<Result<(), Failure>, Closed> {
        let seconds = fastrand::u64(WATCH_SECONDS..WATCH_SECONDS * 2);
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}",
            self.of.path(None)
        );
        let mut call = Call::get("watch", path);
        if self.content == Content::Metadata {
            call.accept = METADATA;
        }
        let mut body = match self.api.open(call).await {
            Ok(response) => response.into_body(),
            Err(failure) => return Ok(Err(failure)),
        };
        if let Some((_, _, true)) = self.broken.take() {
            self.tell(Event::Resumed).await?;
        }
        let began = Instant::now();
        let mut has_bookmarks = false;
        let mut rest: Vec<u8> = Vec::new();
        loop {
            let patience =
                if has_bookmarks { SILENCE } else { Duration::from_secs(seconds) + DEADLINE };
            let frame = tokio::select! {
                () = self.out.closed() => return Err(Closed),
                frame = timeout(patience, body.frame()) => frame,
            };
            let data = match frame {
                Err(_) => return Ok(Err(Failure::Deadline(patience))),
                Ok(None) => break,
                Ok(Some(Err(e))) => return Ok(Err(Failure::Connection(chain(&e)))),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            };
            rest.extend_from_slice(&data);
            let Some(end) = rest.iter().rposition(|&b| b == b'\n') else { continue };
            let later = rest.split_off(end + 1);
            let lines = std::mem::replace(&mut rest, later);
            let mut changes = Vec::new();
            let read = self.read(&lines, &mut changes, &mut has_bookmarks);
            if !changes.is_empty() {
                self.tell(Event::Changes(changes)).await?;
            }
            if let Err(failure) = read {
                return Ok(Err(failure));
            }
            self.pauses = 0;
        }
        // A server that ends watches at once is not to be asked in a loop.
        if began.elapsed() < Duration::from_secs(1) {
            sleep(backoff(self.pauses)).await;
            self.pauses = self.pauses.saturating_add(1);
        }
        Ok(Ok(()))
    }

    /// Takes over whole lines of a watch.
    fn read(
        &mut self,
        lines: &[u8],
        changes: &mut Vec<Change>,
        has_bookmarks: &mut bool,
    ) -> Result<(), Failure> {
        let wrong = |e: serde_json::Error| Failure::Answer(e.to_string());
        for line in lines.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let frame: Frame<'_> = serde_json::from_slice(line).map_err(wrong)?;
            let text = frame.object.get();
            if frame.of == "ERROR" {
                return Err(Failure::of(200, text.as_bytes(), None));
            }
            let item: Item = serde_json::from_str(text).map_err(wrong)?;
            let version = item.metadata.resource_version.clone();
            let kind: &Kind = &self.of.kind;
            let seen = || seen(item, kind, self.content == Content::Whole);
            match frame.of {
                "ADDED" | "MODIFIED" => changes.push(Change::Applied(seen())),
                "DELETED" => changes.push(Change::Deleted(seen())),
                "BOOKMARK" => *has_bookmarks = true,
                _ => continue,
            }
            self.version = Some(version);
        }
        Ok(())
    }
}

/// One page of a list; `next` is empty for the first.
pub(crate) async fn page(
    api: &Api,
    of: &ApiResource,
    content: Content,
    next: &str,
) -> Result<List, Failure> {
    let mut path = format!("{}?limit={PAGE}", of.path(None));
    if !next.is_empty() {
        path = format!("{path}&continue={next}");
    }
    let mut call = Call::get("list", path);
    if content == Content::Metadata {
        call.accept = METADATA_LIST;
    }
    api.read(call).await
}

/// The pause after so many failures: doubled each time, and up to half of it left to chance.
fn backoff(failures: u32) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    whole.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        assert!(backoff(0) <= FIRST_PAUSE);
        assert!(backoff(100) <= LONGEST_PAUSE);
        assert!(backoff(100) >= LONGEST_PAUSE / 2);
    }
}
