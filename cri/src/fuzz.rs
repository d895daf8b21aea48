//! Doors for fuzz targets: bytes as a runtime may send them, through the same conversions as on a connection.

use crate::container::{Container, ContainerStatus};
use crate::events::{RuntimeEvent, event_of_containerd, event_of_cri};
use crate::image::Image;
use crate::pod::{Sandbox, SandboxStatus};
use crate::usage::{ContainerUsage, ImageFs, PodUsage};
use crate::wire::runtime as v1;
use prost::Message;

/// An answer of a runtime.
#[derive(Clone, Debug)]
pub enum Answer {
    /// `ListContainers`.
    Containers(Vec<Container>),
    /// `ListPodSandbox`.
    Sandboxes(Vec<Sandbox>),
    /// `ContainerStatus`.
    Container(Option<Box<ContainerStatus>>),
    /// `PodSandboxStatus`.
    Sandbox(Option<Box<SandboxStatus>>),
    /// `ListImages`.
    Images(Vec<Image>),
    /// `ImageFsInfo`.
    ImageFs(ImageFs),
    /// `ListContainerStats`.
    ContainerUsage(Vec<ContainerUsage>),
    /// `ListPodSandboxStats`.
    PodUsage(Vec<PodUsage>),
    /// One event of either stream; `None` for what does not matter.
    Event(Option<RuntimeEvent>),
}

/// Reads `bytes` as the answer of this `kind`, any number; `None` when they are none.
#[must_use]
pub fn answer(kind: u8, bytes: &[u8]) -> Option<Answer> {
    fn all<A, B>(list: Vec<A>, new: impl Fn(A) -> B) -> Vec<B> {
        list.into_iter().map(new).collect()
    }
    Some(match kind % 10 {
        0 => Answer::Containers(all(
            v1::ListContainersResponse::decode(bytes).ok()?.containers,
            Container::new,
        )),
        1 => Answer::Sandboxes(all(
            v1::ListPodSandboxResponse::decode(bytes).ok()?.items,
            Sandbox::new,
        )),
        2 => {
            let status = v1::ContainerStatusResponse::decode(bytes).ok()?;
            Answer::Container(ContainerStatus::new(status).map(Box::new))
        }
        3 => {
            let status = v1::PodSandboxStatusResponse::decode(bytes).ok()?;
            Answer::Sandbox(SandboxStatus::new(status).map(Box::new))
        }
        4 => Answer::Images(all(v1::ListImagesResponse::decode(bytes).ok()?.images, Image::new)),
        5 => Answer::ImageFs(ImageFs::new(v1::ImageFsInfoResponse::decode(bytes).ok()?)),
        6 => Answer::ContainerUsage(all(
            v1::ListContainerStatsResponse::decode(bytes).ok()?.stats,
            ContainerUsage::new,
        )),
        7 => Answer::PodUsage(all(
            v1::ListPodSandboxStatsResponse::decode(bytes).ok()?.stats,
            PodUsage::new,
        )),
        8 => Answer::Event(event_of_cri(bytes)),
        _ => Answer::Event(event_of_containerd(bytes)),
    })
}
