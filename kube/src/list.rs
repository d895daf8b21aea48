//! A list of a resource: read from the API server's cache as it comes in, or from its store in pages.
//!
//! ```text
//!  cached:  one answer ─► frames ─►│ a thread that reads the JSON ─► some items, some more, … ─► version
//!  paged:   answer ─► 500 items · continue ─► answer ─► …
//! ```
//! From its cache an API server answers without its store, as it does to every informer; it knows no pages then, so the answer is as long as the list, and is never whole in memory here.

use crate::call::{Api, Call, DEADLINE};
use crate::catalogue::ApiResource;
use crate::failure::{Failure, chain};
use crate::wire::{Content, Item, List, ListMetadata};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use std::fmt;
use std::io::{self, Read};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Objects in a page of a list.
const PAGE: usize = 500;
/// Objects of a cached list that are given away at once: few, for many such may wait for whoever takes them.
const SOME: usize = 100;
/// Frames that may be in before they are read.
const FRAMES: usize = 16;
pub(crate) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// One page from the store; `next` is empty for the first.
pub(crate) async fn page(
    api: &Api,
    of: &ApiResource,
    content: Content,
    next: &str,
) -> Result<List, Failure> {
    let mut query = format!("limit={PAGE}");
    if !next.is_empty() {
        query = format!("{query}&continue={next}");
    }
    api.read(call(of, content, &query)).await
}

fn call(of: &ApiResource, content: Content, query: &str) -> Call {
    let mut call = Call::get("list", format!("{}?{query}", of.path(None)));
    if content == Content::Metadata {
        call.accept = METADATA_LIST;
    }
    call
}

/// The whole list from the API server's cache: its items go to `out`, which is followed by the list's version.
///
/// It may be older than what was written last, as any watch may be.
///
/// # Errors
/// The API server refuses it, sends something else, or nothing for 30 s.
pub(crate) async fn cached(
    api: &Api,
    of: &ApiResource,
    content: Content,
    out: mpsc::Sender<Vec<Item>>,
) -> Result<String, Failure> {
    streamed(api, call(of, content, "resourceVersion=0"), SOME, out).await
}

/// The whole list that a call answers with; its items go to `out`, `at_once` at a time, and are followed by the list's version.
///
/// # Errors
/// As [`cached`], and where no thread can be made to read it.
pub(crate) async fn streamed<T: DeserializeOwned + Send + 'static>(
    api: &Api,
    call: Call,
    at_once: usize,
    out: mpsc::Sender<Vec<T>>,
) -> Result<String, Failure> {
    let body = api.open(call).await?.into_body();
    let (frames, of_body) = mpsc::channel(FRAMES);
    let taker = Taker { at_once, out };
    let (done, reading) = oneshot::channel();
    // Not from the executor's pool, which panics where task ids have run out: that may be what is to be told.
    let thread = std::thread::Builder::new().name("ebb-list".into());
    let read = move || drop(done.send(read(Frames::of(of_body), &taker)));
    thread.spawn(read).map_err(|e| Failure::Answer(format!("no thread to read it: {e}")))?;
    let sent = pass_on(body, frames).await;
    let read = reading.await.map_err(|e| Failure::Answer(e.to_string()))?;
    // What was cut off cannot be read either: that it was cut off says more.
    sent?;
    let metadata = read.map_err(|e| Failure::Answer(e.to_string()))?;
    Ok(metadata.resource_version)
}

/// Passes on a body's frames until it ends, or nobody reads them any more.
async fn pass_on(mut body: Body, frames: mpsc::Sender<Frame>) -> Result<(), Failure> {
    loop {
        let failure = match timeout(DEADLINE, body.frame()).await {
            Err(_) => Failure::Deadline(DEADLINE),
            Ok(None) => return Ok(()),
            Ok(Some(Err(e))) => Failure::Connection(chain(&e)),
            Ok(Some(Ok(frame))) => {
                let data = Vec::from(frame.into_data().unwrap_or_default());
                if frames.send(Ok(data)).await.is_err() {
                    return Ok(());
                }
                continue;
            }
        };
        // Its reader is told that this was not the end.
        _ = frames.send(Err(failure.to_string())).await;
        return Err(failure);
    }
}

type Frame = Result<Vec<u8>, String>;

/// The frames of a body, to be read on a thread that may block.
struct Frames {
    frames: mpsc::Receiver<Frame>,
    data: io::Cursor<Vec<u8>>,
}

impl Frames {
    fn of(frames: mpsc::Receiver<Frame>) -> Self {
        Self { frames, data: io::Cursor::default() }
    }
}

impl Read for Frames {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.data.read(into)?;
            if read > 0 {
                return Ok(read);
            }
            match self.frames.blocking_recv() {
                None => return Ok(0),
                Some(Err(why)) => {
                    // The reader of JSON looks for the ends of what it is in even so.
                    self.frames.close();
                    return Err(io::Error::other(why));
                }
                Some(Ok(data)) => self.data = io::Cursor::new(data),
            }
        }
    }
}

/// Reads a list and gives its items away as they come.
fn read<T: DeserializeOwned>(
    text: impl Read,
    taker: &Taker<T>,
) -> serde_json::Result<ListMetadata> {
    let mut json = serde_json::Deserializer::from_reader(io::BufReader::new(text));
    let metadata = Whole(taker).deserialize(&mut json)?;
    json.end()?;
    Ok(metadata)
}

/// Whom the items of a list are given to.
struct Taker<T> {
    at_once: usize,
    out: mpsc::Sender<Vec<T>>,
}

/// A list.
struct Whole<'a, T>(&'a Taker<T>);

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Whole<'_, T> {
    type Value = ListMetadata;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<ListMetadata, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Whole<'_, T> {
    type Value = ListMetadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ListMetadata, A::Error> {
        let (mut metadata, mut has_items) = (None, false);
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "metadata" => metadata = Some(map.next_value()?),
                "items" => {
                    map.next_value_seed(Items(self.0))?;
                    has_items = true;
                }
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        // Go leaves out what is empty, but never the items of a list.
        if !has_items {
            return Err(A::Error::missing_field("items"));
        }
        metadata.ok_or_else(|| A::Error::missing_field("metadata"))
    }
}

/// The items of a list.
struct Items<'a, T>(&'a Taker<T>);

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Items<'_, T> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        // Some servers write `null` for none.
        json.deserialize_any(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Items<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects, or null")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut some = Vec::new();
        while let Some(item) = items.next_element()? {
            some.push(item);
            if some.len() == self.0.at_once {
                self.give(&mut some)?;
            }
        }
        self.give(&mut some)
    }
}

impl<T> Items<'_, T> {
    fn give<E: serde::de::Error>(&self, some: &mut Vec<T>) -> Result<(), E> {
        if some.is_empty() {
            return Ok(());
        }
        self.0
            .out
            .blocking_send(std::mem::take(some))
            .map_err(|_| E::custom("nobody listens any more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many items came at once, and what was read.
    fn all(text: &str) -> (Vec<usize>, serde_json::Result<String>) {
        let (out, mut items) = mpsc::channel(1_000);
        let read = read::<Item>(text.as_bytes(), &Taker { at_once: SOME, out });
        let came = std::iter::from_fn(|| items.blocking_recv()).map(|some| some.len()).collect();
        (came, read.map(|metadata| metadata.resource_version))
    }

    fn list(count: usize) -> String {
        let item = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"3"},"data":{"k":"v"}}"#;
        let items = vec![item; count].join(",");
        format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#)
    }

    #[test]
    fn items_come_before_the_list_is_whole() {
        let (came, version) = all(&list(240));
        assert_eq!((came, version.unwrap()), (vec![100, 100, 40], "7".into()));
        let cut = list(240);
        let (came, version) = all(&cut[..cut.len() - 40]);
        assert_eq!(came, [100, 100]);
        assert!(version.unwrap_err().is_eof());
    }

    #[test]
    fn a_list_of_nothing_may_be_null() {
        let (came, version) = all(r#"{"items":null,"metadata":{"resourceVersion":"7"}}"#);
        assert_eq!((came, version.unwrap()), (vec![], "7".into()));
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for text in ["[]", "{}", r#"{"metadata":{"resourceVersion":"7"}}"#, r#"{"items":[]}"#, "7"]
        {
            assert!(all(text).1.is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_no_shorter_list() {
        let (frames, of_body) = mpsc::channel(4);
        let (out, _items) = mpsc::channel(4);
        let taker = Taker::<Item> { at_once: SOME, out };
        let reading = tokio::task::spawn_blocking(move || read(Frames::of(of_body), &taker));
        frames
            .send(Ok(br#"{"metadata":{"resourceVersion":"7"},"items":["#.to_vec()))
            .await
            .unwrap();
        frames.send(Err("reset".into())).await.unwrap();
        let error = reading.await.unwrap().map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("reset"), "{error}");
    }
}
