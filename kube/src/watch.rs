//! One resource, followed: a list, then a watch from there on, again and again.
//!
//! ```text
//!  list ──► watch ──(ended: from the last version on)──► watch …
//!   ▲         │ 410: the history is gone
//!   └─────────┘
//!  what fails: Broken with the reason, backoff with jitter, from where it was
//! ```
//! A watch that cannot be resumed for some seconds is broken too: what it knows is old by then.

use crate::call::{Api, Call, METADATA};
use crate::catalogue::ApiResource;
use crate::failure::Failure;
use crate::lines::{Closed, Lines, watch_seconds};
use crate::list::{cached, page};
use crate::time;
use crate::wire::{Content, Item, Seen, seen};
use ebb_policy_cluster::{Kind, Time, Uid};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep};

/// For how long a cut watch may be resumed before what it showed is called old.
const RESUME: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// An API server that is back is heard within seconds, however long it was away; one with a Retry-After is asked no sooner.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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
    /// Whether nothing was listed yet.
    is_first: bool,
}

#[derive(Deserialize)]
pub(crate) struct Frame<'a> {
    #[serde(rename = "type")]
    pub(crate) of: &'a str,
    #[serde(borrow)]
    pub(crate) object: &'a serde_json::value::RawValue,
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
        let pause = pause_after(failure, self.pauses, LONGEST_PAUSE);
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
        // Nothing was seen yet that the cache could not have; what was seen since may be newer than another server's.
        let listed =
            if self.is_first { self.list_cached().await? } else { self.list_pages().await? };
        let uids = match listed {
            Ok(uids) => uids,
            Err(failure) => return Ok(Err(failure)),
        };
        (self.broken, self.pauses) = (None, 0);
        self.tell(Event::Listed(uids)).await?;
        Ok(Ok(()))
    }

    /// The first list, from the API server's cache, told as it comes in.
    async fn list_cached(&mut self) -> Result<Result<Option<BTreeSet<Uid>>, Failure>, Closed> {
        let (some, items) = mpsc::channel(1);
        let (api, of, content) = (self.api.clone(), self.of.clone(), self.content);
        let listing = async { cached(&api, &of, content, some).await };
        let telling = async {
            // Gone as soon as nobody listens: then the list ends too.
            let mut items = items;
            while let Some(some) = items.recv().await {
                // A list that fails half-way is not the first any more.
                self.is_first = false;
                self.tell_seen(some).await?;
            }
            Ok::<_, Closed>(())
        };
        let (listed, told) = tokio::join!(listing, telling);
        told?;
        let version = match listed {
            Ok(version) => version,
            Err(failure) => return Ok(Err(failure)),
        };
        self.is_first = false;
        self.version = Some(version);
        Ok(Ok(None))
    }

    /// A later list, from the API server's store in pages, with all that are there.
    async fn list_pages(&mut self) -> Result<Result<Option<BTreeSet<Uid>>, Failure>, Closed> {
        let mut uids = BTreeSet::new();
        let mut next = String::new();
        loop {
            let page = match page(&self.api, &self.of, self.content, &next).await {
                Ok(page) => page,
                Err(failure) => return Ok(Err(failure)),
            };
            let told = self.tell_seen(page.items.unwrap_or_default()).await?;
            uids.extend(told);
            next = page.metadata.next;
            if next.is_empty() {
                self.version = Some(page.metadata.resource_version);
                return Ok(Ok(Some(uids)));
            }
        }
    }

    /// Tells of objects of a list; their UIDs.
    async fn tell_seen(&self, items: Vec<Item>) -> Result<Vec<Uid>, Closed> {
        let is_whole = self.content == Content::Whole;
        let seen = items.into_iter().map(|item| seen(item, &self.of.kind, is_whole));
        let changes: Vec<Seen> = seen.collect();
        let uids = changes.iter().map(|seen| seen.object.uid.clone()).collect();
        if !changes.is_empty() {
            let changes = changes.into_iter().map(Change::Applied).collect();
            self.tell(Event::Changes(changes)).await?;
        }
        Ok(uids)
    }

    /// Watches from a version on until the watch ends, which is no failure by itself.
    async fn follow(&mut self, version: &str) -> Result<Result<(), Failure>, Closed> {
        let seconds = watch_seconds();
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}",
            self.of.path(None)
        );
        let mut call = Call::get("watch", path);
        if self.content == Content::Metadata {
            call.accept = METADATA;
        }
        let body = match self.api.open(call).await {
            Ok(response) => response.into_body(),
            Err(failure) => return Ok(Err(failure)),
        };
        if let Some((_, _, true)) = self.broken.take() {
            self.tell(Event::Resumed).await?;
        }
        let began = Instant::now();
        let mut stream = Lines::of(body, seconds);
        while let Some(lines) = stream.next(&self.out).await? {
            let lines = match lines {
                Ok(lines) => lines,
                Err(failure) => return Ok(Err(failure)),
            };
            let mut changes = Vec::new();
            let read = self.read(&lines, &mut changes, &mut stream.has_bookmarks);
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
            sleep(backoff(self.pauses, LONGEST_PAUSE)).await;
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

/// The pause after so many failures: doubled each time up to the longest, and up to half of it left to chance.
#[must_use]
pub fn backoff(failures: u32, longest: Duration) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(longest);
    whole.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// The pause after a failure that is the `failures`th in a row, counted from 0: [`backoff`], or what the API server asks for and up to half of that more. It asks everybody for the same, and they would come together again.
#[must_use]
pub fn pause_after(failure: &Failure, failures: u32, longest: Duration) -> Duration {
    pause_of(failure.retry_after().unwrap_or_default(), failures, longest)
}

/// The same where so much of what the API server asks for is granted.
#[must_use]
pub fn pause_of(asked: Duration, failures: u32, longest: Duration) -> Duration {
    backoff(failures, longest).max(asked.mul_f64(1.0 + fastrand::f64() / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked_to_wait_the_same_time_comes_again_at_different_times_and_never_before() {
        let asked = Duration::from_secs(4);
        let failure = Failure::of(429, b"", Some(asked.as_secs()));
        let pauses: Vec<_> = (0..100).map(|_| pause_after(&failure, 0, LONGEST_PAUSE)).collect();
        assert!(pauses.iter().all(|pause| (asked..asked * 3 / 2).contains(pause)), "{pauses:?}");
        let early = pauses.iter().filter(|pause| **pause < asked * 5 / 4).count();
        assert!((10..90).contains(&early), "{early} of 100 in the first half");
        let unasked = Failure::of(429, b"", None);
        assert!(pause_after(&unasked, 0, LONGEST_PAUSE) <= FIRST_PAUSE);
    }

    #[test]
    fn pauses_grow_and_are_bounded() {
        assert!(backoff(0, LONGEST_PAUSE) <= FIRST_PAUSE);
        assert!(backoff(100, LONGEST_PAUSE) <= LONGEST_PAUSE);
        assert!(backoff(100, LONGEST_PAUSE) >= LONGEST_PAUSE / 2);
    }
}
