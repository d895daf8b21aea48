//! Watches on which nothing comes any more, as behind a connection that is half open: given up after minutes, which pass on the test's clock, and resumed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod script;

use ebb_kube::{ApiResource, Change, Content, Event, Update, follow, watch};
use ebb_policy_cluster::{Kind, Scope};
use script::{Server, answer, open};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

/// How long a watch may be silent that has had a bookmark.
const SILENCE: u64 = 150;

/// How much longer than it was to last a watch without bookmarks may be there.
const OVER: u64 = 30;

const LIST: &str = r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#;

fn line(of: &str, version: u64) -> String {
    let metadata = format!(r#"{{"name":"a","uid":"u{version}","resourceVersion":"{version}"}}"#);
    format!("{{\"type\":\"{of}\",\"object\":{{\"metadata\":{metadata}}}}}\n")
}

/// A list, a watch on which `first` comes and then nothing, and one on which something comes.
async fn server(first: &str) -> Server {
    Server::start(vec![answer("200 OK", LIST), open(first), open(&line("ADDED", 9))]).await
}

/// What reads the watch.
#[derive(Clone, Copy, Debug)]
enum By {
    Follow,
    Watch,
}

/// The UIDs of all objects that it has shown so far.
type Shown = Arc<Mutex<BTreeSet<String>>>;

async fn shown(server: &Server, by: By) -> Shown {
    let api = server.api().await;
    let shown = Shown::default();
    let into = Arc::clone(&shown);
    match by {
        By::Follow => {
            let (to, mut from) = mpsc::channel(8);
            tokio::spawn(async move {
                let read = |_: &serde_json::Value| ();
                follow(api, &["/api/v1/pods"], read, |update| update, to).await;
            });
            tokio::spawn(async move {
                while let Some(update) = from.recv().await {
                    let Update::All(all) = update else { continue };
                    into.lock().unwrap().extend(all.into_keys());
                }
            });
        }
        By::Watch => {
            let of = ApiResource {
                kind: Kind::new("v1", "Pod"),
                plural: "pods".into(),
                scope: Scope::Namespaced,
                is_watched: true,
            };
            let (to, mut from) = mpsc::channel(8);
            tokio::spawn(watch(api, of, Content::Metadata, Arc::new(Semaphore::new(1)), 1, to));
            tokio::spawn(async move {
                while let Some((_, event)) = from.recv().await {
                    let Event::Changes(changes) = event else { continue };
                    for change in changes {
                        let (Change::Applied(seen) | Change::Deleted(seen)) = change;
                        into.lock().unwrap().insert(seen.object.uid.to_string());
                    }
                }
            });
        }
    }
    shown
}

/// The paths of the watches so far.
fn watches(server: &Server) -> Vec<String> {
    let asked = server.asked.lock().unwrap();
    asked.iter().filter(|path| path.contains("watch=1")).cloned().collect()
}

/// What a path asks for under this name.
fn asked_for(path: &str, name: &str) -> u64 {
    let value = path.split(&format!("{name}=")).nth(1).unwrap();
    value.split('&').next().unwrap().parse().unwrap()
}

/// Waits until that holds, on the real clock.
async fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < until, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Lets that time pass in which nothing comes.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_watch_on_which_nothing_comes_any_more_is_given_up_and_resumed_so_that_later_changes_are_seen()
 {
    for by in [By::Follow, By::Watch] {
        for has_bookmarks in [true, false] {
            let bookmark = if has_bookmarks { line("BOOKMARK", 7) } else { String::new() };
            let server = server(&format!("{bookmark}{}", line("ADDED", 8))).await;
            let shown = shown(&server, by).await;
            let shows = |uid: &str| shown.lock().unwrap().contains(uid);
            wait_for("what comes at first", || shows("u8")).await;
            let first = watches(&server).remove(0);
            assert_eq!(asked_for(&first, "resourceVersion"), 5);
            let patience =
                if has_bookmarks { SILENCE } else { asked_for(&first, "timeoutSeconds") + OVER };
            pass(patience).await;
            wait_for("what comes later", || shows("u9")).await;
            let again = watches(&server).remove(1);
            assert_eq!(asked_for(&again, "resourceVersion"), 8, "{by:?}: {again}");
        }
    }
}
