//! What pods take up on disk, measured beside the lister: a walk and the runtime's statistics may take seconds each, and no listing waits for them.

use super::News;
use crate::sense::pod_dirs::PodSizes;
use crate::sense::runtime::{DiskUsage, writable_layers};
use crate::sense::usage::Survey;
use crate::threads;
use ebb_cri::Runtime;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;

/// Directory entries looked at before the thread that walks is free for others again.
const WALKED_AT_ONCE: u64 = 20_000;

/// A directory that counts against a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Dir {
    /// UID of the pod.
    pub(super) uid: String,
    pub(super) part: Part,
    pub(super) path: PathBuf,
}

/// What a directory of a pod holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The logs of the container of this name.
    Logs(String),
    /// The volume of this name.
    Volume(String),
}

/// Starts it. Of the lists of directories that find it at work it measures the last.
pub(super) fn start(runtime: Runtime, news: Sender<News>) -> watch::Sender<Vec<Dir>> {
    let (orders, inbox) = watch::channel(Vec::new());
    tokio::spawn(run(runtime, inbox, news));
    orders
}

async fn run(runtime: Runtime, mut orders: watch::Receiver<Vec<Dir>>, news: Sender<News>) {
    let mut survey = Survey::default();
    let mut trouble = None;
    while orders.changed().await.is_ok() {
        let dirs = orders.borrow_and_update().clone();
        survey.set_dirs(dirs.iter().map(|dir| dir.path.clone()).collect());
        survey = walk(survey).await;
        let layers = match writable_layers(&runtime).await {
            Ok(layers) => {
                trouble = None;
                layers
            }
            Err(error) => {
                let what = format!("writable layers are not known: {error}");
                if trouble.as_ref() != Some(&what) {
                    tell(&news, News::Trouble(ebb_journal::Part::Runtime, what.clone())).await;
                    trouble = Some(what);
                }
                BTreeMap::new()
            }
        };
        let pods = by_pod(dirs, &survey);
        tell(&news, News::Usage(DiskUsage { layers, pods })).await;
    }
}

/// Walks until every directory has been counted; all are unknown where no thread can be made for it.
async fn walk(mut survey: Survey) -> Survey {
    loop {
        let step = threads::beside("ebb-walk", move || {
            let is_done = survey.step(WALKED_AT_ONCE);
            (survey, is_done)
        });
        let Ok(step) = step else { return Survey::default() };
        match step.await {
            Ok((walked, true)) => return walked,
            Ok((walked, false)) => survey = walked,
            Err(_) => return Survey::default(),
        }
    }
}

fn by_pod(dirs: Vec<Dir>, survey: &Survey) -> BTreeMap<String, PodSizes> {
    let mut pods: BTreeMap<String, PodSizes> = BTreeMap::new();
    for Dir { uid, part, path } in dirs {
        let used = survey.usage(&path);
        let pod = pods.entry(uid).or_default();
        match part {
            Part::Logs(container) => pod.logs.extend(used.map(|used| (container, used))),
            Part::Volume(name) => {
                pod.volumes.extend(used.map(|used| (name.clone(), used)));
                pod.volume_names.push(name);
            }
        }
    }
    pods
}

async fn tell(news: &Sender<News>, what: News) {
    // It fails only when the loop has ended, and with it whoever would want to know.
    let _ = news.send(what).await;
}
