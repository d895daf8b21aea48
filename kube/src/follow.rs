//! A few objects, followed whole: what the agent of a node needs of its pods, its Node and the budgets around them.
//!
//! ```text
//!  list (from the API server's cache) ─► All ──► watch ─► All after each batch of changes ──► …
//!                                         ▲                                                   │
//!                                         └────────────── 410, or nothing to resume from ─────┘
//!  what fails: Broken with the reason, backoff with jitter; what was told last stays told
//! ```
//! Each object is reduced to a value of the caller's as it comes in, so that no more of it is kept than is needed.
//! A list is not taken as a stream (`sendInitialEvents`): a node's objects are few, and an API server that does not know the option does not say so.

use crate::call::{Api, Call};
use crate::failure::Failure;
use crate::lines::{Closed, Lines, watch_seconds};
use crate::list::streamed;
use crate::watch::{Frame, backoff, pause_after};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

/// For how long a cut watch may be resumed before that is told.
const RESUME: Duration = Duration::from_secs(5);

/// The longest pause between two attempts: nobody decides by these objects within seconds, and 5,000 nodes may be asking.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long a whole list may take. Each part of it has [`DEADLINE`](crate::call::DEADLINE).
const LONGEST_LIST: Duration = Duration::from_secs(120);

/// Objects of a list that are read together.
const AT_ONCE: usize = 8;

/// What following tells.
#[derive(Debug, Clone)]
pub enum Update<T> {
    /// These are all, by UID.
    All(BTreeMap<String, Arc<T>>),
    /// They cannot be listed or watched, and why; what was told last is as old as it is.
    Broken(String),
}

/// Follows the objects at the first of these paths (with a query, if any) that the API server serves, until the receiver is gone. `read` makes of each what is kept.
pub async fn follow<T, U>(
    api: Api,
    paths: &[&str],
    read: impl Fn(&Value) -> T,
    wrap: impl Fn(Update<T>) -> U,
    out: mpsc::Sender<U>,
) {
    let mut follow = Follow {
        api,
        paths,
        place: 0,
        read,
        wrap,
        out,
        known: BTreeMap::new(),
        version: None,
        broken: None,
        failures: 0,
        too_old: 0,
    };
    while follow.step().await.is_ok() {}
}

struct Follow<'a, T, U, R, W> {
    api: Api,
    paths: &'a [&'a str],
    /// Which of them.
    place: usize,
    read: R,
    wrap: W,
    out: mpsc::Sender<U>,
    known: BTreeMap<String, Arc<T>>,
    /// From which version on to watch; `None`: list first.
    version: Option<String>,
    /// Since when it fails, and whether that was told.
    broken: Option<(Instant, bool)>,
    failures: u32,
    /// How often in a row a version was too old that had just been listed, or nearly.
    too_old: u32,
}

impl<T, U, R: Fn(&Value) -> T, W: Fn(Update<T>) -> U> Follow<'_, T, U, R, W> {
    async fn step(&mut self) -> Result<(), Closed> {
        let done = match self.version.clone() {
            None => self.list().await?,
            Some(version) => self.watch(&version).await?,
        };
        match done {
            Ok(()) => Ok(()),
            Err(failure) if failure.code() == Some(410) => {
                self.version = None;
                // Nor is a server asked in a loop that calls every version old: lists succeed in between.
                let pause = backoff(self.too_old, LONGEST_PAUSE);
                self.too_old = self.too_old.saturating_add(1);
                self.wait(pause).await
            }
            Err(failure) if failure.code() == Some(404) && self.place + 1 < self.paths.len() => {
                (self.place, self.version) = (self.place + 1, None);
                Ok(())
            }
            Err(failure) => self.pause(&failure).await,
        }
    }

    async fn pause(&mut self, failure: &Failure) -> Result<(), Closed> {
        // The API server may have been replaced by one that serves more.
        self.place = 0;
        let (since, is_told) = *self.broken.get_or_insert((Instant::now(), false));
        if !is_told && (self.version.is_none() || since.elapsed() >= RESUME) {
            self.broken = Some((since, true));
            self.tell(Update::Broken(failure.to_string())).await?;
        }
        self.wait(pause_after(failure, self.failures, LONGEST_PAUSE)).await
    }

    async fn wait(&mut self, pause: Duration) -> Result<(), Closed> {
        self.failures = self.failures.saturating_add(1);
        tokio::select! {
            () = self.out.closed() => Err(Closed),
            () = sleep(pause) => Ok(()),
        }
    }

    async fn tell(&self, update: Update<T>) -> Result<(), Closed> {
        self.out.send((self.wrap)(update)).await.map_err(|_| Closed)
    }

    async fn tell_all(&mut self) -> Result<(), Closed> {
        (self.broken, self.failures) = (None, 0);
        self.tell(Update::All(self.known.clone())).await
    }

    async fn list(&mut self) -> Result<Result<(), Failure>, Closed> {
        // From the API server's cache: a whole cluster of agents that start together reads nothing from its store.
        let call = Call::get("list", self.with("resourceVersion=0"));
        let (some, mut objects) = mpsc::channel(1);
        let api = self.api.clone();
        let listing = async { streamed::<Box<RawValue>>(&api, call, AT_ONCE, some).await };
        // Only what is kept of the objects is in memory together: of the budgets of a cluster there may be thousands.
        let read = &self.read;
        // Whoever stops taking drops the receiver, and with it ends the list: nobody waits for room in it then.
        let keeping = async move {
            let mut known = BTreeMap::new();
            while let Some(some) = objects.recv().await {
                for text in some {
                    let object = value(&text)?;
                    if let Some(uid) = uid(&object) {
                        known.insert(uid.to_owned(), read(&object).into());
                    }
                }
            }
            Ok::<_, serde_json::Error>(known)
        };
        let both = async { tokio::join!(listing, keeping) };
        let both = tokio::select! {
            () = self.out.closed() => return Err(Closed),
            both = timeout(LONGEST_LIST, both) => both,
        };
        let (version, known) = match both {
            Ok((Ok(version), Ok(known))) => (version, known),
            // The list ends because one of its objects cannot be read: that says more.
            Ok((_, Err(wrong))) => return Ok(Err(Failure::Answer(wrong.to_string()))),
            Ok((Err(failure), _)) => return Ok(Err(failure)),
            Err(_) => return Ok(Err(Failure::Deadline(LONGEST_LIST))),
        };
        (self.known, self.version) = (known, Some(version));
        self.tell_all().await?;
        Ok(Ok(()))
    }

    fn with(&self, query: &str) -> String {
        let path = self.paths.get(self.place).copied().unwrap_or_default();
        let joint = if path.contains('?') { '&' } else { '?' };
        format!("{path}{joint}{query}")
    }

    /// Watches from a version on until the watch ends, which is no failure by itself.
    async fn watch(&mut self, version: &str) -> Result<Result<(), Failure>, Closed> {
        let seconds = watch_seconds();
        let query = format!(
            "watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}"
        );
        let body = match self.api.open(Call::get("watch", self.with(&query))).await {
            Ok(response) => response.into_body(),
            Err(failure) => return Ok(Err(failure)),
        };
        if let Some((_, true)) = self.broken {
            self.tell_all().await?;
        }
        self.broken = None;
        let began = Instant::now();
        let mut stream = Lines::of(body, seconds);
        while let Some(lines) = stream.next(&self.out).await? {
            match lines.and_then(|lines| self.take(&lines, &mut stream.has_bookmarks)) {
                Ok(has_changed) => {
                    self.too_old = 0;
                    if has_changed {
                        self.tell_all().await?;
                    }
                }
                Err(failure) => return Ok(Err(failure)),
            }
        }
        // A server that ends watches at once is not to be asked in a loop.
        if began.elapsed() < Duration::from_secs(1) {
            self.wait(backoff(self.failures, LONGEST_PAUSE)).await?;
        }
        Ok(Ok(()))
    }

    /// Takes over whole lines of a watch; returns whether anything has changed by them.
    fn take(&mut self, lines: &[u8], has_bookmarks: &mut bool) -> Result<bool, Failure> {
        let wrong = |e: serde_json::Error| Failure::Answer(e.to_string());
        let mut has_changed = false;
        for line in lines.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let frame: Frame<'_> = serde_json::from_slice(line).map_err(wrong)?;
            let text = frame.object.get();
            if frame.of == "ERROR" {
                return Err(Failure::of(200, text.as_bytes(), None));
            }
            let object = value(frame.object).map_err(wrong)?;
            let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            match (frame.of, uid(&object)) {
                ("ADDED" | "MODIFIED", Some(uid)) => {
                    self.known.insert(uid.to_owned(), (self.read)(&object).into());
                    has_changed = true;
                }
                ("DELETED", Some(uid)) => has_changed |= self.known.remove(uid).is_some(),
                ("BOOKMARK", _) => *has_bookmarks = true,
                _ => continue,
            }
            if let Some(version) = version {
                self.version = Some(version.to_owned());
            }
        }
        Ok(has_changed)
    }
}

/// An object, without `metadata.managedFields`: nothing of that is needed, and it is the one part that whoever may write an object can nest deeper than JSON is read.
fn value(text: &RawValue) -> serde_json::Result<Value> {
    let mut json = serde_json::Deserializer::from_str(text.get());
    let object = Without(&["metadata", "managedFields"]).deserialize(&mut json)?;
    json.end()?;
    Ok(object)
}

/// Reads a value but for what is at a path in it.
struct Without<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Without<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Without<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = serde_json::Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = match self.0 {
                [last] if key == *last => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                [first, rest @ ..] if key == *first => map.next_value_seed(Without(rest))?,
                _ => map.next_value()?,
            };
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

fn uid(object: &Value) -> Option<&str> {
    object.pointer("/metadata/uid")?.as_str()
}
