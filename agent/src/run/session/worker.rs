//! What the session changes: removals one after the other, ends of pods beside them.
//!
//! A removal may take as long as its deadline; a pod that has to go must not wait for that, so each end is a task of its own.

use super::News;
use crate::act::runtime::{RuntimeHand, Work};
use ebb_cri::Runtime;
use ebb_journal::Part;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Lists of removals that may wait; the loop gives one at a time.
const WAITING_LISTS: usize = 4;

/// What is to be changed.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Do these in turn.
    Do(Vec<Work>),
    /// Ask containers to end within the grace period, all at the same time.
    Stop {
        /// Their ids.
        containers: Vec<String>,
        /// How long each gets.
        grace: Duration,
    },
    /// Stop sandboxes whose containers have ended.
    StopSandboxes(Vec<String>),
}

/// Takes tasks until nobody can give any.
pub(super) async fn run(
    hand: RuntimeHand,
    runtime: Runtime,
    mut tasks: Receiver<Task>,
    news: Sender<News>,
) {
    let enforces = matches!(hand, RuntimeHand::Enforce(_));
    let (removals, inbox) = mpsc::channel(WAITING_LISTS);
    tokio::spawn(remove(hand, inbox, news.clone()));
    while let Some(task) = tasks.recv().await {
        match task {
            Task::Do(list) => {
                if removals.try_send(list).is_err() {
                    tell(&news, News::AllDone).await;
                }
            }
            Task::Stop { .. } | Task::StopSandboxes(_) if !enforces => {}
            Task::Stop { containers, grace } => {
                for id in containers {
                    let (runtime, news) = (runtime.clone(), news.clone());
                    tokio::spawn(async move {
                        if let Err(error) = runtime.stop_container(&id, grace).await {
                            tell(&news, News::Trouble(Part::Runtime, error.to_string())).await;
                        }
                    });
                }
            }
            Task::StopSandboxes(sandboxes) => {
                for id in sandboxes {
                    let (runtime, news) = (runtime.clone(), news.clone());
                    tokio::spawn(async move {
                        if let Err(error) = runtime.stop_sandbox(&id).await {
                            tell(&news, News::Trouble(Part::Runtime, error.to_string())).await;
                        }
                    });
                }
            }
        }
    }
}

async fn remove(hand: RuntimeHand, mut lists: Receiver<Vec<Work>>, news: Sender<News>) {
    while let Some(list) = lists.recv().await {
        for work in list {
            let outcome = hand.perform(work).await;
            tell(&news, News::Done(outcome)).await;
        }
        tell(&news, News::AllDone).await;
    }
}

async fn tell(news: &Sender<News>, what: News) {
    // It fails only when the loop has ended, and with it whoever would want to know.
    let _ = news.send(what).await;
}
