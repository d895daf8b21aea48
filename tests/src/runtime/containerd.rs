//! containerd's own services: names, content and snapshots of the world's images, and its event stream.

use super::Shared;
use super::cri::{Events, digest, stream};
use super::world::{FakeImage, FakeLayer, World};
use ebb_cri::wire::containerd::services::content::v1 as content;
use ebb_cri::wire::containerd::services::content::v1::content_server::Content;
use ebb_cri::wire::containerd::services::events::v1::SubscribeRequest;
use ebb_cri::wire::containerd::services::events::v1::events_server::Events as EventsService;
use ebb_cri::wire::containerd::services::images::v1 as images;
use ebb_cri::wire::containerd::services::images::v1::images_server::Images;
use ebb_cri::wire::containerd::services::snapshots::v1 as snapshots;
use ebb_cri::wire::containerd::services::snapshots::v1::snapshots_server::Snapshots;
use ebb_cri::wire::containerd::types::{Descriptor, Envelope};
use std::collections::BTreeMap;
use tonic::codegen::tokio_stream;
use tonic::{Request, Response, Status};

/// What a configuration or a manifest takes.
const SMALL: u64 = 1024;

#[tonic::async_trait]
impl Images for Shared {
    async fn list(
        &self,
        _: Request<images::ListImagesRequest>,
    ) -> Result<Response<images::ListImagesResponse>, Status> {
        let list = |world: &mut World| {
            let mut found = Vec::new();
            for image in world.images.values() {
                for name in image.tags.iter().chain(&image.digests).chain([&image.id]) {
                    let target = Descriptor { digest: manifest(image), ..Default::default() };
                    found.push(images::Image {
                        name: name.clone(),
                        target: Some(target),
                        ..Default::default()
                    });
                }
            }
            Ok(images::ListImagesResponse { images: found })
        };
        self.serve("images.List", "", list).await
    }
}

#[tonic::async_trait]
impl Content for Shared {
    type ListStream = Events<content::ListContentResponse>;

    async fn list(
        &self,
        _: Request<content::ListContentRequest>,
    ) -> Result<Response<Self::ListStream>, Status> {
        let list = |world: &mut World| {
            let mut found = BTreeMap::new();
            for image in world.images.values() {
                for info in blobs(image) {
                    found.insert(info.digest.clone(), info);
                }
            }
            let part = content::ListContentResponse { info: found.into_values().collect() };
            Ok(Box::pin(tokio_stream::once(Ok(part))) as Self::ListStream)
        };
        self.serve("content.List", "", list).await
    }
}

#[tonic::async_trait]
impl Snapshots for Shared {
    type ListStream = Events<snapshots::ListSnapshotsResponse>;

    async fn list(
        &self,
        request: Request<snapshots::ListSnapshotsRequest>,
    ) -> Result<Response<Self::ListStream>, Status> {
        let snapshotter = request.into_inner().snapshotter;
        let list = |world: &mut World| {
            let info = committed(world).into_values().map(|(info, _)| info);
            // What containers write to.
            let active = world.containers.values().filter_map(|container| {
                let image = world.images.get(&container.image)?;
                Some(snapshots::Info {
                    name: container.id.clone(),
                    parent: top(image)?,
                    kind: snapshots::Kind::Active.into(),
                    ..Default::default()
                })
            });
            let part = snapshots::ListSnapshotsResponse { info: info.chain(active).collect() };
            Ok(Box::pin(tokio_stream::once(Ok(part))) as Self::ListStream)
        };
        self.serve("snapshots.List", &snapshotter, list).await
    }

    async fn usage(
        &self,
        request: Request<snapshots::UsageRequest>,
    ) -> Result<Response<snapshots::UsageResponse>, Status> {
        let key = request.into_inner().key;
        let usage = |world: &mut World| {
            let found = committed(world).remove(&key);
            let (_, layer) = found.ok_or_else(|| Status::not_found("no snapshot"))?;
            let size = i64::try_from(layer.unpacked).unwrap_or(i64::MAX);
            Ok(snapshots::UsageResponse { size, inodes: 10 })
        };
        self.serve("snapshots.Usage", &key, usage).await
    }
}

#[tonic::async_trait]
impl EventsService for Shared {
    type SubscribeStream = Events<Envelope>;

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        use tonic::codegen::tokio_stream::StreamExt as _;
        let filters = request.into_inner().filters;
        let follow = |world: &mut World| {
            let all = stream(world.native.subscribe());
            let wanted = move |event: &Result<Envelope, Status>| match event {
                Ok(event) => {
                    let topic = format!("topic==\"{}\"", event.topic);
                    filters.is_empty() || filters.iter().any(|filter| filter.contains(&topic))
                }
                Err(_) => true,
            };
            Ok(Box::pin(all.filter(wanted)) as Self::SubscribeStream)
        };
        self.serve("events.Subscribe", "", follow).await
    }
}

impl World {
    pub(crate) fn announce_image(&self, topic: &str, name: &str) {
        // All three payloads have the name as their first field.
        self.announce_native(topic, &images::ImageDelete { name: name.to_owned() });
    }
}

fn manifest(image: &FakeImage) -> String {
    digest(&format!("manifest of {}", image.id))
}

/// Chain ids of an image's layers, lowest first: a layer's name and all names below it.
fn chain(image: &FakeImage) -> Vec<(String, &FakeLayer)> {
    let mut below = String::new();
    let id = |layer: &FakeLayer| {
        below.push('/');
        below.push_str(&layer.name);
        digest(&below)
    };
    image.layers.iter().map(id).zip(&image.layers).collect()
}

fn top(image: &FakeImage) -> Option<String> {
    chain(image).pop().map(|(id, _)| id)
}

fn blobs(image: &FakeImage) -> Vec<content::Info> {
    let blob = |digest: String, size: u64, labels: BTreeMap<String, String>| content::Info {
        digest,
        size: i64::try_from(size).unwrap_or(i64::MAX),
        labels,
    };
    let reference = "containerd.io/gc.ref.content";
    let layer_digest = |layer: &FakeLayer| digest(&format!("layer {}", layer.name));
    let mut refs = BTreeMap::from([(format!("{reference}.config"), image.id.clone())]);
    for (n, layer) in image.layers.iter().enumerate() {
        refs.insert(format!("{reference}.l.{n}"), layer_digest(layer));
    }
    let snapshot = "containerd.io/gc.ref.snapshot.overlayfs".to_owned();
    let unpacked = top(image).map(|top| (snapshot, top)).into_iter().collect();
    let mut all = vec![blob(manifest(image), SMALL, refs), blob(image.id.clone(), SMALL, unpacked)];
    let layers = image.layers.iter();
    all.extend(layers.map(|layer| blob(layer_digest(layer), layer.packed, BTreeMap::new())));
    all
}

/// Unpacked layers by chain id.
fn committed(world: &World) -> BTreeMap<String, (snapshots::Info, FakeLayer)> {
    let mut found = BTreeMap::new();
    for image in world.images.values() {
        let mut parent = String::new();
        for (id, layer) in chain(image) {
            let info = snapshots::Info {
                name: id.clone(),
                parent: std::mem::replace(&mut parent, id.clone()),
                kind: snapshots::Kind::Committed.into(),
                ..Default::default()
            };
            found.insert(id, (info, layer.clone()));
        }
    }
    found
}
