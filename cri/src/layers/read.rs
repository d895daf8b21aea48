//! Reading containerd's stores: three lists, and the size of each snapshot once.

use super::{Blob, Layers, Snapshot, Stores};
use crate::wire::containerd::services::content::v1::ListContentRequest;
use crate::wire::containerd::services::content::v1::content_client::ContentClient;
use crate::wire::containerd::services::images::v1::ListImagesRequest;
use crate::wire::containerd::services::images::v1::images_client::ImagesClient;
use crate::wire::containerd::services::snapshots::v1::snapshots_client::SnapshotsClient;
use crate::wire::containerd::services::snapshots::v1::{Kind, ListSnapshotsRequest, UsageRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use tokio::task::JoinSet;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// containerd's namespace for everything of CRI.
pub(crate) const NAMESPACE: &str = "k8s.io";
/// Sizes asked for at the same time.
const AT_ONCE: usize = 8;
/// containerd's limit on a message, and more than CRI's.
const MESSAGE: usize = 16 << 20;
/// Labels of containerd's garbage collector.
const REFERS_TO_CONTENT: &str = "containerd.io/gc.ref.content";
const REFERS_TO_SNAPSHOT: &str = "containerd.io/gc.ref.snapshot.";
const ROOT: &str = "containerd.io/gc.root";

/// Sizes of committed snapshots, which never change: bytes and inodes by snapshotter and key.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    sizes: Mutex<BTreeMap<(String, String), (u64, u64)>>,
}

/// The layers of all images.
///
/// # Errors
/// What containerd answers; `Unimplemented` from anything that is not containerd.
pub(crate) async fn read(channel: Channel, cache: &Cache) -> Result<Layers, Status> {
    let mut stores = Stores { names: names(&channel).await?, ..Stores::default() };
    stores.content = content(&channel).await?;
    let snapshotters: BTreeSet<String> =
        stores.content.values().flat_map(|blob| &blob.snapshots).map(|(n, _)| n.clone()).collect();
    for snapshotter in &snapshotters {
        stores.snapshots.extend(snapshots(&channel, snapshotter).await?);
    }
    measure(&channel, cache, &mut stores.snapshots).await?;
    Ok(stores.put_together())
}

fn ask<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    request
}

async fn names(channel: &Channel) -> Result<BTreeMap<String, String>, Status> {
    let mut client = ImagesClient::new(channel.clone()).max_decoding_message_size(MESSAGE);
    let answer = client.list(ask(ListImagesRequest::default())).await?.into_inner();
    let pair = |image: crate::wire::containerd::services::images::v1::Image| {
        Some((image.name, image.target?.digest))
    };
    Ok(answer.images.into_iter().filter_map(pair).collect())
}

async fn content(channel: &Channel) -> Result<BTreeMap<String, Blob>, Status> {
    let mut client = ContentClient::new(channel.clone()).max_decoding_message_size(MESSAGE);
    let mut stream = client.list(ask(ListContentRequest::default())).await?.into_inner();
    let mut found = BTreeMap::new();
    while let Some(part) = stream.message().await? {
        for info in part.info {
            let mut blob = Blob {
                bytes: u64::try_from(info.size).unwrap_or(0),
                is_root: info.labels.contains_key(ROOT),
                ..Blob::default()
            };
            for (label, value) in info.labels {
                if let Some(snapshotter) = label.strip_prefix(REFERS_TO_SNAPSHOT) {
                    // "overlayfs", or "overlayfs/…" where one blob has several.
                    let name = snapshotter.split('/').next().unwrap_or(snapshotter);
                    blob.snapshots.push((name.to_owned(), value));
                } else if let Some(rest) = label.strip_prefix(REFERS_TO_CONTENT)
                    && (rest.is_empty() || rest.starts_with(['.', '/']))
                {
                    blob.content.push(value);
                }
            }
            found.insert(info.digest, blob);
        }
    }
    Ok(found)
}

async fn snapshots(
    channel: &Channel,
    snapshotter: &str,
) -> Result<BTreeMap<(String, String), Snapshot>, Status> {
    let mut client = SnapshotsClient::new(channel.clone()).max_decoding_message_size(MESSAGE);
    let request = ListSnapshotsRequest { snapshotter: snapshotter.to_owned(), filters: Vec::new() };
    let mut stream = client.list(ask(request)).await?.into_inner();
    let mut found = BTreeMap::new();
    while let Some(part) = stream.message().await? {
        for info in part.info {
            let snapshot = Snapshot {
                parent: Some(info.parent).filter(|parent| !parent.is_empty()),
                is_committed: info.kind == i32::from(Kind::Committed),
                is_root: info.labels.contains_key(ROOT),
                ..Snapshot::default()
            };
            found.insert((snapshotter.to_owned(), info.name), snapshot);
        }
    }
    Ok(found)
}

/// Fill in the sizes of committed snapshots, asking only for those that are new.
async fn measure(
    channel: &Channel,
    cache: &Cache,
    snapshots: &mut BTreeMap<(String, String), Snapshot>,
) -> Result<(), Status> {
    let known = cache.sizes.lock().map(|sizes| sizes.clone()).unwrap_or_default();
    let is_new = |key: &&(String, String)| !known.contains_key(*key);
    let committed = snapshots.iter().filter(|(_, snapshot)| snapshot.is_committed);
    let new: Vec<_> = committed.map(|(key, _)| key).filter(is_new).cloned().collect();
    let mut sizes = known;
    for batch in new.chunks(AT_ONCE) {
        let mut asked = JoinSet::new();
        for key in batch.iter().cloned() {
            asked.spawn(size(channel.clone(), key));
        }
        while let Some(answer) = asked.join_next().await {
            let answer = answer.map_err(|_| Status::internal("a question was given up"))?;
            sizes.extend(answer?);
        }
    }
    // What is gone is forgotten.
    sizes.retain(|key, _| snapshots.contains_key(key));
    for (key, snapshot) in snapshots {
        if let Some(&(bytes, inodes)) = sizes.get(key) {
            (snapshot.bytes, snapshot.inodes) = (bytes, inodes);
        }
    }
    if let Ok(mut kept) = cache.sizes.lock() {
        *kept = sizes;
    }
    Ok(())
}

type Size = ((String, String), (u64, u64));

/// Nothing when it has gone since it was listed.
async fn size(channel: Channel, key: (String, String)) -> Result<Option<Size>, Status> {
    let request = UsageRequest { snapshotter: key.0.clone(), key: key.1.clone() };
    match SnapshotsClient::new(channel).usage(ask(request)).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            let count = |n: i64| u64::try_from(n).unwrap_or(0);
            Ok(Some((key, (count(answer.size), count(answer.inodes)))))
        }
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
