//! `runtime.v1.RuntimeService`, and the events that changes of the world cause.

use super::answers::{
    container_item, container_stats, container_status, sandbox_item, sandbox_metadata,
    sandbox_status, verbose,
};
use super::world::{FakeContainer, FakeSandbox, Fault, Flavour, World, now, refusal};
use super::{Shared, short_digest};
use ebb_cri::wire::containerd::events as native;
use ebb_cri::wire::containerd::types::Envelope;
use ebb_cri::wire::runtime as v1;
use ebb_cri::wire::runtime::runtime_service_server::RuntimeService;
use prost::Message;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};

pub(crate) type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A stream of everything that is sent from now on.
pub(crate) fn stream<T: Clone + Send + 'static>(mut receiver: Receiver<T>) -> Events<T> {
    let (sender, stream) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            match receiver.recv().await {
                Ok(event) => {
                    if sender.send(Ok(event)).await.is_err() {
                        return;
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    });
    Box::pin(tonic::codegen::tokio_stream::wrappers::ReceiverStream::new(stream))
}

impl Shared {
    /// Write the call down, suffer its fault, and let `act` do it.
    pub(crate) async fn serve<T>(
        &self,
        call: &'static str,
        on: &str,
        act: impl FnOnce(&mut World) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let fault = self.world().enter(call, on);
        match fault {
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::HeldAfter(answered)) => {
                let nth = self.world().count(call);
                while nth > answered
                    && matches!(self.world().faults.get(call), Some(Fault::HeldAfter(_)))
                {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            Some(Fault::Late(by)) => tokio::time::sleep(by).await,
            Some(Fault::Refuse(code, words)) => return Err(refusal(code, &words)),
            Some(Fault::DoneAndSilent) => {
                let _ = act(&mut self.world());
                return std::future::pending().await;
            }
            None => {}
        }
        act(&mut self.world()).map(Response::new)
    }
}

#[tonic::async_trait]
impl RuntimeService for Shared {
    type GetContainerEventsStream = Events<v1::ContainerEventResponse>;

    async fn version(
        &self,
        _: Request<v1::VersionRequest>,
    ) -> Result<Response<v1::VersionResponse>, Status> {
        let version = |world: &mut World| {
            let (name, version) = world.flavour.name_and_version();
            Ok(v1::VersionResponse {
                version: "0.1.0".to_owned(),
                runtime_name: name.to_owned(),
                runtime_version: version.to_owned(),
                runtime_api_version: "v1".to_owned(),
            })
        };
        self.serve("Version", "", version).await
    }

    async fn status(
        &self,
        _: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        let ready = v1::RuntimeCondition {
            r#type: "RuntimeReady".to_owned(),
            status: true,
            ..Default::default()
        };
        let status = v1::RuntimeStatus { conditions: vec![ready] };
        let answer = v1::StatusResponse { status: Some(status), ..Default::default() };
        self.serve("Status", "", |_| Ok(answer)).await
    }

    async fn runtime_config(
        &self,
        _: Request<v1::RuntimeConfigRequest>,
    ) -> Result<Response<v1::RuntimeConfigResponse>, Status> {
        let config = |world: &mut World| {
            let driver = match world.flavour {
                Flavour::Containerd2 => v1::CgroupDriver::Cgroupfs,
                Flavour::CriO | Flavour::CriOWithoutEvents => v1::CgroupDriver::Systemd,
                _ => return Err(Status::unimplemented("unknown method RuntimeConfig")),
            };
            let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: driver.into() };
            Ok(v1::RuntimeConfigResponse { linux: Some(linux) })
        };
        self.serve("RuntimeConfig", "", config).await
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> Result<Response<v1::RunPodSandboxResponse>, Status> {
        let pod = request.into_inner().config.and_then(|config| config.metadata);
        let pod = pod.ok_or_else(|| Status::invalid_argument("no metadata"))?;
        let run = |world: &mut World| {
            Ok(v1::RunPodSandboxResponse {
                pod_sandbox_id: world.add_pod(&pod.namespace, &pod.name, &pod.uid),
            })
        };
        self.serve("RunPodSandbox", "", run).await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Result<Response<v1::StopPodSandboxResponse>, Status> {
        let id = request.into_inner().pod_sandbox_id;
        let stop = |world: &mut World| {
            world.stop_sandbox(&id);
            Ok(v1::StopPodSandboxResponse {})
        };
        self.serve("StopPodSandbox", &id, stop).await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Result<Response<v1::RemovePodSandboxResponse>, Status> {
        let id = request.into_inner().pod_sandbox_id;
        let remove = |world: &mut World| {
            world.remove_sandbox(&id);
            Ok(v1::RemovePodSandboxResponse {})
        };
        self.serve("RemovePodSandbox", &id, remove).await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Result<Response<v1::PodSandboxStatusResponse>, Status> {
        let id = request.into_inner().pod_sandbox_id;
        let status = |world: &mut World| {
            let sandbox =
                world.sandboxes.get(&id).ok_or_else(|| Status::not_found("no sandbox"))?;
            let cgroup = format!("/kubepods/burstable/pod{}/{}", sandbox.uid, sandbox.id);
            Ok(v1::PodSandboxStatusResponse {
                status: Some(sandbox_status(sandbox)),
                info: verbose(4_200_000, &cgroup),
            })
        };
        self.serve("PodSandboxStatus", &id, status).await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Result<Response<v1::ListPodSandboxResponse>, Status> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let list = |world: &mut World| {
            let mut items: Vec<_> = world.sandboxes.values().map(sandbox_item).collect();
            items.retain(|item| filter.id.is_empty() || item.id == filter.id);
            items.retain(|item| filter.state.is_none_or(|wanted| item.state == wanted.state));
            Ok(v1::ListPodSandboxResponse { items })
        };
        self.serve("ListPodSandbox", "", list).await
    }

    async fn list_pod_sandbox_stats(
        &self,
        _: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Result<Response<v1::ListPodSandboxStatsResponse>, Status> {
        let list = |world: &mut World| {
            let stats = |sandbox: &FakeSandbox| {
                let inside = world.containers.values().filter(|c| c.sandbox == sandbox.id);
                v1::PodSandboxStats {
                    attributes: Some(v1::PodSandboxAttributes {
                        id: sandbox.id.clone(),
                        metadata: Some(sandbox_metadata(sandbox)),
                        ..Default::default()
                    }),
                    linux: Some(v1::LinuxPodSandboxStats {
                        containers: inside.map(|c| container_stats(c, &world.image_fs)).collect(),
                        ..Default::default()
                    }),
                }
            };
            Ok(v1::ListPodSandboxStatsResponse {
                stats: world.sandboxes.values().filter(|s| s.ready).map(stats).collect(),
            })
        };
        self.serve("ListPodSandboxStats", "", list).await
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Result<Response<v1::CreateContainerResponse>, Status> {
        let v1::CreateContainerRequest { pod_sandbox_id, config, .. } = request.into_inner();
        let config = config.ok_or_else(|| Status::invalid_argument("no configuration"))?;
        let create = |world: &mut World| {
            let wanted = config.image.map(|spec| spec.image).unwrap_or_default();
            let image = world.images.values().find(|image| image.is_called(&wanted));
            let image = image.ok_or_else(|| Status::not_found(format!("no image {wanted}")))?;
            let (image, name) = (image.id.clone(), config.metadata.unwrap_or_default().name);
            let id = world.add_container(&pod_sandbox_id, &name, &image);
            if let Some(container) = world.containers.get_mut(&id) {
                container.state = v1::ContainerState::ContainerCreated;
            }
            Ok(v1::CreateContainerResponse { container_id: id })
        };
        self.serve("CreateContainer", "", create).await
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Result<Response<v1::StartContainerResponse>, Status> {
        let id = request.into_inner().container_id;
        let start = |world: &mut World| {
            let found = world.containers.get_mut(&id);
            let container = found.ok_or_else(|| Status::not_found("no container"))?;
            container.state = v1::ContainerState::ContainerRunning;
            world.announce(&id, v1::ContainerEventType::ContainerStartedEvent);
            Ok(v1::StartContainerResponse {})
        };
        self.serve("StartContainer", &id, start).await
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> Result<Response<v1::StopContainerResponse>, Status> {
        let v1::StopContainerRequest { container_id: id, timeout } = request.into_inner();
        let stop = |world: &mut World| {
            world.exit(&id, if timeout == 0 { 137 } else { 143 });
            Ok(v1::StopContainerResponse {})
        };
        self.serve("StopContainer", &id, stop).await
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Result<Response<v1::RemoveContainerResponse>, Status> {
        let id = request.into_inner().container_id;
        let remove = |world: &mut World| {
            world.remove_container(&id);
            Ok(v1::RemoveContainerResponse {})
        };
        self.serve("RemoveContainer", &id, remove).await
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Result<Response<v1::ListContainersResponse>, Status> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let list = |world: &mut World| {
            let mut containers: Vec<_> =
                world.containers.values().map(|c| container_item(world, c)).collect();
            containers.retain(|item| filter.id.is_empty() || item.id == filter.id);
            containers.retain(|item| filter.state.is_none_or(|wanted| item.state == wanted.state));
            Ok(v1::ListContainersResponse { containers })
        };
        self.serve("ListContainers", "", list).await
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Result<Response<v1::ContainerStatusResponse>, Status> {
        let id = request.into_inner().container_id;
        let status = |world: &mut World| {
            let found = world.containers.get(&id);
            let container = found.ok_or_else(|| Status::not_found("no container"))?;
            let pid = container.state == v1::ContainerState::ContainerRunning;
            Ok(v1::ContainerStatusResponse {
                status: Some(container_status(world, container)),
                info: verbose(if pid { 4_200_001 } else { 0 }, &container.cgroup),
            })
        };
        self.serve("ContainerStatus", &id, status).await
    }

    async fn list_container_stats(
        &self,
        _: Request<v1::ListContainerStatsRequest>,
    ) -> Result<Response<v1::ListContainerStatsResponse>, Status> {
        let list = |world: &mut World| {
            let running = |c: &&FakeContainer| c.state == v1::ContainerState::ContainerRunning;
            let running = world.containers.values().filter(running);
            Ok(v1::ListContainerStatsResponse {
                stats: running.map(|c| container_stats(c, &world.image_fs)).collect(),
            })
        };
        self.serve("ListContainerStats", "", list).await
    }

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> Result<Response<Self::GetContainerEventsStream>, Status> {
        let follow = |world: &mut World| match world.flavour {
            Flavour::Containerd16 => {
                Err(Status::unimplemented("method GetContainerEvents not implemented"))
            }
            _ => Ok(stream(world.changes.subscribe())),
        };
        self.serve("GetContainerEvents", "", follow).await
    }
}

impl World {
    /// Tell those who follow, in CRI's words and in containerd's.
    pub(crate) fn announce(&mut self, id: &str, what: v1::ContainerEventType) {
        let sandbox = self.containers.get(id).map_or(id, |container| &container.sandbox);
        let status = self.sandboxes.get(sandbox).map(sandbox_status);
        let event = v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: what.into(),
            created_at: now(),
            pod_sandbox_status: status,
            containers_statuses: Vec::new(),
        };
        if self.flavour != Flavour::CriOWithoutEvents {
            // An error only says that nobody follows.
            let _ = self.changes.send(event);
        }
        let id = id.to_owned();
        match what {
            v1::ContainerEventType::ContainerCreatedEvent => {
                let created = native::ContainerCreate { id, ..Default::default() };
                self.announce_native("/containers/create", &created);
            }
            v1::ContainerEventType::ContainerStartedEvent => {
                let started = native::TaskStart { container_id: id, pid: 0 };
                self.announce_native("/tasks/start", &started);
            }
            v1::ContainerEventType::ContainerStoppedEvent => {
                let container_id = id.clone();
                let ended = native::TaskExit { container_id, id: id.clone(), ..Default::default() };
                self.announce_native("/tasks/exit", &ended);
                let cleared = native::TaskDelete { container_id: id, ..Default::default() };
                self.announce_native("/tasks/delete", &cleared);
            }
            v1::ContainerEventType::ContainerDeletedEvent => {
                self.announce_native("/containers/delete", &native::ContainerDelete { id });
            }
        }
    }

    pub(crate) fn announce_native(&self, topic: &str, payload: &impl Message) {
        let event = prost_types::Any { type_url: String::new(), value: payload.encode_to_vec() };
        let envelope = Envelope {
            timestamp: Some(std::time::SystemTime::now().into()),
            namespace: "k8s.io".to_owned(),
            topic: topic.to_owned(),
            event: Some(event),
        };
        // An error only says that nobody follows.
        let _ = self.native.send(envelope);
    }
}

/// The digest under which containerd's content store has a thing of this name.
pub(crate) fn digest(name: &str) -> String {
    format!("sha256:{}", short_digest(name))
}
