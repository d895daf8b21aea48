//! `ebb-cri` on a runtime in this process: who is there, deadlines, breaks, events, layers.

mod endpoints;
mod events;
mod trouble;
mod values;

use ebb_cri::{Deadlines, Endpoint, Link, Runtime, RuntimeEvent, RuntimeEvents};
use ebb_tests::runtime::{FakeRuntime, Flavour};
use std::path::Path;
use std::time::Duration;

/// For what must happen, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nobody runs into one of these for being slow.
const DEADLINES: Deadlines = Deadlines { connect: PATIENCE, read: PATIENCE, change: PATIENCE };
/// The deadline of what is never answered, so that who asks runs into it soon.
const SHORT: Duration = Duration::from_secs(1);

fn endpoint(path: &Path) -> Endpoint {
    path.to_str().expect("a readable path").parse().expect("an absolute path")
}

fn client(fake: &FakeRuntime) -> (Runtime, RuntimeEvents) {
    client_with(fake, DEADLINES)
}

fn client_with(fake: &FakeRuntime, deadlines: Deadlines) -> (Runtime, RuntimeEvents) {
    Runtime::start(endpoint(&fake.socket()), deadlines)
}

fn start(flavour: Flavour) -> FakeRuntime {
    FakeRuntime::start(flavour).expect("a fake runtime")
}

/// What a call says that waits for nothing at all: it is over when it is first asked.
async fn at_once<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::ZERO, call).await.expect("it waited")
}

/// Wait until the link is as wanted.
async fn until(runtime: &Runtime, wanted: impl Fn(&Link) -> bool) -> Link {
    let look = async {
        loop {
            let link = runtime.link();
            if wanted(&link) {
                return link;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("the link never became so")
}

/// The next event that is of interest.
async fn next<T>(events: &mut RuntimeEvents, pick: impl Fn(&RuntimeEvent) -> Option<T>) -> T {
    let look = async {
        loop {
            let event = events.next().await.expect("the events ended");
            if let Some(found) = pick(&event) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("the event never came")
}
