//! The handle that callers hold: what may be asked of a runtime, in ebb's words.

use crate::call::{Call, Caller, Deadlines, Kind, request};
use crate::container::{Container, ContainerStatus};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::events::{Feed, Outlet, RuntimeEvents};
use crate::image::Image;
use crate::layers::{self, Cache, Layers};
use crate::pod::{Sandbox, SandboxStatus};
use crate::supervisor::{Line, Link, Supervisor};
use crate::usage::{ContainerUsage, ImageFs, PodUsage};
use crate::wire::runtime as v1;
use crate::wire::runtime::image_service_client::ImageServiceClient;
use crate::wire::runtime::runtime_service_client::RuntimeServiceClient;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tonic::transport::Channel;

/// Which of the two ways to name cgroups the runtime follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CgroupDriver {
    /// Directories.
    Cgroupfs,
    /// systemd's slices and scopes.
    Systemd,
}

/// A runtime at an endpoint, whether or not it is there now. Cheap to clone; when the last clone goes, so does the connection.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) caller: Caller,
    pub(crate) deadlines: Deadlines,
    feed: watch::Receiver<Feed>,
    sizes: Cache,
}

/// As much as the kubelet accepts in one answer.
const MESSAGE: usize = 16 << 20;
/// Suspicions beyond this say nothing new.
const SUSPICIONS: usize = 4;

impl Runtime {
    /// Begin to keep a connection to `endpoint`; returns at once. Must be called inside a tokio runtime, which carries
    /// the tasks behind it.
    #[must_use]
    pub fn start(endpoint: Endpoint, deadlines: Deadlines) -> (Self, RuntimeEvents) {
        let (outlet, events) = Outlet::new();
        let connecting = Link::Connecting { since: Instant::now(), endpoint: endpoint.clone() };
        let line = watch::Sender::new(Line { link: connecting, channel: None, generation: 0 });
        let (suspect, suspicions) = mpsc::channel(SUSPICIONS);
        let caller = Caller::new(line.subscribe(), suspect);
        let feed = outlet.feed();
        let supervisor =
            Supervisor { endpoint, limit: deadlines.connect, line, suspicions, outlet };
        tokio::spawn(supervisor.run());
        (
            Self { inner: Arc::new(Inner { caller, deadlines, feed, sizes: Cache::default() }) },
            events,
        )
    }

    /// Whether there is a runtime now, and which.
    #[must_use]
    pub fn link(&self) -> Link {
        self.inner.caller.link()
    }

    /// Where events of containers come from now.
    #[must_use]
    pub fn feed(&self) -> Feed {
        *self.inner.feed.borrow()
    }

    /// All sandboxes, ready or not.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn sandboxes(&self) -> Result<Vec<Sandbox>, Error> {
        Ok(self.list_sandboxes(None).await?.into_iter().map(Sandbox::new).collect())
    }

    /// One sandbox, with process and cgroup where the runtime tells.
    ///
    /// # Errors
    /// [`Error`]; [`Error::NotFound`] when it is gone.
    pub async fn sandbox(&self, id: &str) -> Result<SandboxStatus, Error> {
        let call = self.read("PodSandboxStatus", id);
        let ask = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let status = self
            .ask(call, |mut c| async move { c.pod_sandbox_status(request(ask, call.limit)).await });
        SandboxStatus::new(status.await?)
            .ok_or(Error::Malformed { call: call.name, lacks: "status" })
    }

    /// All containers, dead ones too.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn containers(&self) -> Result<Vec<Container>, Error> {
        Ok(self.list_containers(None).await?.into_iter().map(Container::new).collect())
    }

    /// One container, with process and cgroup where the runtime tells.
    ///
    /// # Errors
    /// [`Error`]; [`Error::NotFound`] when it is gone.
    pub async fn container(&self, id: &str) -> Result<ContainerStatus, Error> {
        let call = self.read("ContainerStatus", id);
        let ask = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let status = self
            .ask(call, |mut c| async move { c.container_status(request(ask, call.limit)).await });
        ContainerStatus::new(status.await?)
            .ok_or(Error::Malformed { call: call.name, lacks: "status" })
    }

    /// Ids of what runs, containers and sandboxes; `only` asks for no more than whether that one does.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn running(&self, only: Option<&str>) -> Result<BTreeSet<String>, Error> {
        let id = only.unwrap_or_default().to_owned();
        let state = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
        let filter =
            v1::ContainerFilter { id: id.clone(), state: Some(state), ..Default::default() };
        let containers = self.list_containers(Some(filter)).await?;
        let state = v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() };
        let filter = v1::PodSandboxFilter { id, state: Some(state), ..Default::default() };
        let sandboxes = self.list_sandboxes(Some(filter)).await?;
        let ids = containers.into_iter().map(|container| container.id);
        Ok(ids.chain(sandboxes.into_iter().map(|sandbox| sandbox.id)).collect())
    }

    async fn list_containers(
        &self,
        filter: Option<v1::ContainerFilter>,
    ) -> Result<Vec<v1::Container>, Error> {
        let call = self.read("ListContainers", "");
        let ask = v1::ListContainersRequest { filter };
        let list = self
            .ask(call, |mut c| async move { c.list_containers(request(ask, call.limit)).await });
        Ok(list.await?.containers)
    }

    async fn list_sandboxes(
        &self,
        filter: Option<v1::PodSandboxFilter>,
    ) -> Result<Vec<v1::PodSandbox>, Error> {
        let call = self.read("ListPodSandbox", "");
        let ask = v1::ListPodSandboxRequest { filter };
        let list = self
            .ask(call, |mut c| async move { c.list_pod_sandbox(request(ask, call.limit)).await });
        Ok(list.await?.items)
    }

    /// All images.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn images(&self) -> Result<Vec<Image>, Error> {
        let call = self.read("ListImages", "");
        let ask = v1::ListImagesRequest::default();
        let list = self.images_service(call, |mut c| async move {
            c.list_images(request(ask, call.limit)).await
        });
        Ok(list.await?.images.into_iter().map(Image::new).collect())
    }

    /// One image by any of its names; `None` when there is none of that name.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn image(&self, name: &str) -> Result<Option<Image>, Error> {
        let call = self.read("ImageStatus", name);
        let ask = v1::ImageStatusRequest { image: Some(spec(name)), verbose: false };
        let status = self.images_service(call, |mut c| async move {
            c.image_status(request(ask, call.limit)).await
        });
        match status.await {
            Ok(answer) => Ok(answer.image.map(Image::new)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What images and writable layers take, as the runtime last measured it.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn image_fs(&self) -> Result<ImageFs, Error> {
        let call = self.read("ImageFsInfo", "");
        let ask = v1::ImageFsInfoRequest {};
        let info = self.images_service(call, |mut c| async move {
            c.image_fs_info(request(ask, call.limit)).await
        });
        Ok(ImageFs::new(info.await?))
    }

    /// What images are made of, where the runtime tells: containerd does.
    ///
    /// # Errors
    /// [`Error::Unsupported`] from other runtimes; otherwise [`Error`].
    pub async fn layers(&self) -> Result<Layers, Error> {
        // Several lists and, the first time, a question for each layer.
        let limit = self.inner.deadlines.change;
        let call = Call { name: "listing layers", on: "", kind: Kind::Read, limit };
        if self.link().identity().is_some_and(|identity| !identity.is_containerd()) {
            return Err(Error::Unsupported { call: call.name });
        }
        self.inner.caller.run(call, |channel| layers::read(channel, &self.inner.sizes)).await
    }

    /// Use by every container.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn container_usage(&self) -> Result<Vec<ContainerUsage>, Error> {
        let call = self.read("ListContainerStats", "");
        let ask = v1::ListContainerStatsRequest::default();
        let list = self.ask(call, |mut c| async move {
            c.list_container_stats(request(ask, call.limit)).await
        });
        Ok(list.await?.stats.into_iter().map(ContainerUsage::new).collect())
    }

    /// Use by every pod.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Unsupported`] from old runtimes.
    pub async fn pod_usage(&self) -> Result<Vec<PodUsage>, Error> {
        let call = self.read("ListPodSandboxStats", "");
        let ask = v1::ListPodSandboxStatsRequest::default();
        let list = self.ask(call, |mut c| async move {
            c.list_pod_sandbox_stats(request(ask, call.limit)).await
        });
        Ok(list.await?.stats.into_iter().map(PodUsage::new).collect())
    }

    /// How the runtime names cgroups.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Unsupported`] before containerd 2.
    pub async fn cgroup_driver(&self) -> Result<CgroupDriver, Error> {
        let call = self.read("RuntimeConfig", "");
        let ask = v1::RuntimeConfigRequest {};
        let config =
            self.ask(call, |mut c| async move { c.runtime_config(request(ask, call.limit)).await });
        let lacks = Error::Malformed { call: call.name, lacks: "cgroup driver" };
        let linux = config.await?.linux.ok_or(lacks.clone())?;
        match v1::CgroupDriver::try_from(linux.cgroup_driver) {
            Ok(v1::CgroupDriver::Systemd) => Ok(CgroupDriver::Systemd),
            Ok(v1::CgroupDriver::Cgroupfs) => Ok(CgroupDriver::Cgroupfs),
            Err(_) => Err(lacks),
        }
    }

    /// Ask a container to end, and have it killed after `grace` (whole seconds; a part counts as one). Returns when it
    /// has ended; one that is not there has.
    ///
    /// # Errors
    /// [`Error`]; the deadline is the grace and the time for a change.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        let limit = grace + self.inner.deadlines.change;
        let call = Call { limit, ..self.change("StopContainer", id) };
        let seconds = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
        let timeout = i64::try_from(seconds).unwrap_or(i64::MAX);
        let ask = v1::StopContainerRequest { container_id: id.to_owned(), timeout };
        done(
            self.ask(call, |mut c| async move { c.stop_container(request(ask, limit)).await })
                .await,
        )
    }

    /// Remove a container with its writable layer and log. One that runs is killed first; one that is gone is removed.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove_container(&self, id: &str) -> Result<(), Error> {
        let call = self.change("RemoveContainer", id);
        let ask = v1::RemoveContainerRequest { container_id: id.to_owned() };
        done(
            self.ask(
                call,
                |mut c| async move { c.remove_container(request(ask, call.limit)).await },
            )
            .await,
        )
    }

    /// Kill what runs in a sandbox and take down its network. One that is gone is stopped.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        let call = self.change("StopPodSandbox", id);
        let ask = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        done(
            self.ask(
                call,
                |mut c| async move { c.stop_pod_sandbox(request(ask, call.limit)).await },
            )
            .await,
        )
    }

    /// Remove a sandbox and whatever containers are in it. One that is gone is removed.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        let call = self.change("RemovePodSandbox", id);
        let ask = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        done(
            self.ask(
                call,
                |mut c| async move { c.remove_pod_sandbox(request(ask, call.limit)).await },
            )
            .await,
        )
    }

    /// Remove an image by its id, and so all its names (by another name, containerd removes all of them too, CRI-O only
    /// that one). **Nothing is protected**: containerd removes images that are pinned or in use. One that is gone is removed.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove_image(&self, name: &str) -> Result<(), Error> {
        let call = self.change("RemoveImage", name);
        let ask = v1::RemoveImageRequest { image: Some(spec(name)) };
        done(
            self.images_service(call, |mut c| async move {
                c.remove_image(request(ask, call.limit)).await
            })
            .await,
        )
    }

    pub(crate) fn read<'a>(&self, name: &'static str, on: &'a str) -> Call<'a> {
        Call { name, on, kind: Kind::Read, limit: self.inner.deadlines.read }
    }

    pub(crate) fn change<'a>(&self, name: &'static str, on: &'a str) -> Call<'a> {
        Call { name, on, kind: Kind::Change, limit: self.inner.deadlines.change }
    }

    pub(crate) async fn ask<T, F>(
        &self,
        call: Call<'_>,
        ask: impl FnOnce(RuntimeServiceClient<Channel>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let client =
            |channel| RuntimeServiceClient::new(channel).max_decoding_message_size(MESSAGE);
        self.inner.caller.call(call, |channel| ask(client(channel))).await
    }

    async fn images_service<T, F>(
        &self,
        call: Call<'_>,
        ask: impl FnOnce(ImageServiceClient<Channel>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let client = |channel| ImageServiceClient::new(channel).max_decoding_message_size(MESSAGE);
        self.inner.caller.call(call, |channel| ask(client(channel))).await
    }
}

fn spec(image: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: image.to_owned(), ..Default::default() }
}

/// What is not there need not be stopped or removed.
fn done<T>(result: Result<T, Error>) -> Result<(), Error> {
    match result {
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
