//! CRI's own stream, `GetContainerEvents`.

use super::{Change, End, Feed, Outlet, RuntimeEvent, What};
use crate::time::moment;
use crate::wire::runtime as v1;
use crate::wire::runtime::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;

pub(super) async fn follow(outlet: &Outlet, channel: Channel) -> End {
    let mut client = RuntimeServiceClient::new(channel);
    let open = client.get_container_events(v1::GetEventsRequest {});
    let mut stream = match outlet.settle(Some(Feed::Cri), open).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return End::of(&status),
    };
    while let Ok(Some(event)) = stream.message().await {
        if let Some(change) = change(event) {
            outlet.send(RuntimeEvent::Change(change));
        }
    }
    End::Closed
}

/// `None` for a kind that CRI does not have yet.
pub(super) fn change(event: v1::ContainerEventResponse) -> Option<Change> {
    let what = match v1::ContainerEventType::try_from(event.container_event_type).ok()? {
        v1::ContainerEventType::ContainerCreatedEvent => What::Created,
        v1::ContainerEventType::ContainerStartedEvent => What::Started,
        v1::ContainerEventType::ContainerStoppedEvent => What::Stopped,
        v1::ContainerEventType::ContainerDeletedEvent => What::Deleted,
    };
    let sandbox = event.pod_sandbox_status.map(|status| status.id).filter(|id| !id.is_empty());
    Some(Change { id: event.container_id, sandbox, what, at: moment(event.created_at) })
}
