//! containerd's event service: tasks, and images, of which CRI tells nothing.

use super::{Change, End, Feed, Outlet, RuntimeEvent, What};
use crate::layers::NAMESPACE;
use crate::time::stamp;
use crate::wire::containerd::events as payload;
use crate::wire::containerd::services::events::v1::SubscribeRequest;
use crate::wire::containerd::services::events::v1::events_client::EventsClient;
use crate::wire::containerd::services::images::v1 as images;
use crate::wire::containerd::types::Envelope;
use prost::Message as _;
use tonic::transport::Channel;

const TASKS: [&str; 6] = [
    "/containers/create",
    "/containers/delete",
    "/tasks/delete",
    "/tasks/exit",
    "/tasks/oom",
    "/tasks/start",
];
const IMAGES: [&str; 3] = ["/images/create", "/images/delete", "/images/update"];

pub(super) async fn follow_tasks(outlet: &Outlet, channel: Channel) -> End {
    follow(outlet, channel, Some(Feed::Containerd), &TASKS).await
}

pub(super) async fn follow_images(outlet: &Outlet, channel: Channel) -> End {
    follow(outlet, channel, None, &IMAGES).await
}

async fn follow(outlet: &Outlet, channel: Channel, feed: Option<Feed>, topics: &[&str]) -> End {
    let filter = |topic: &&str| format!("namespace==\"{NAMESPACE}\",topic==\"{topic}\"");
    let filters = topics.iter().map(filter).collect();
    let mut client = EventsClient::new(channel);
    let open = client.subscribe(SubscribeRequest { filters });
    let mut stream = match outlet.settle(feed, open).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return End::of(&status),
    };
    while let Ok(Some(envelope)) = stream.message().await {
        if let Some(event) = event(&envelope) {
            outlet.send(event);
        }
    }
    End::Closed
}

/// `None` for what cannot be read or does not matter.
pub(super) fn event(envelope: &Envelope) -> Option<RuntimeEvent> {
    let payload = envelope.event.as_ref()?.value.as_slice();
    let at = stamp(envelope.timestamp.as_ref());
    let change = |id, what, at| Some(RuntimeEvent::Change(Change { id, sandbox: None, what, at }));
    match envelope.topic.as_str() {
        "/containers/create" => {
            change(payload::ContainerCreate::decode(payload).ok()?.id, What::Created, at)
        }
        "/containers/delete" => {
            change(payload::ContainerDelete::decode(payload).ok()?.id, What::Deleted, at)
        }
        "/tasks/start" => {
            change(payload::TaskStart::decode(payload).ok()?.container_id, What::Started, at)
        }
        "/tasks/oom" => {
            change(payload::TaskOom::decode(payload).ok()?.container_id, What::OutOfMemory, at)
        }
        "/tasks/exit" => {
            let exit = payload::TaskExit::decode(payload).ok()?;
            let at = stamp(exit.exited_at.as_ref()).or(at);
            let is_first = is_first(&exit.container_id, &exit.id);
            if is_first { change(exit.container_id, What::Stopped, at) } else { None }
        }
        "/tasks/delete" => {
            let delete = payload::TaskDelete::decode(payload).ok()?;
            let is_first = is_first(&delete.container_id, &delete.id);
            if is_first { change(delete.container_id, What::Cleared, at) } else { None }
        }
        "/images/create" => {
            Some(RuntimeEvent::ImageAdded(images::ImageCreate::decode(payload).ok()?.name))
        }
        "/images/update" => {
            Some(RuntimeEvent::ImageAdded(images::ImageUpdate::decode(payload).ok()?.name))
        }
        "/images/delete" => {
            Some(RuntimeEvent::ImageRemoved(images::ImageDelete::decode(payload).ok()?.name))
        }
        _ => None,
    }
}

/// Whether a process is a container's first; another id is one that was started inside, such as a probe.
fn is_first(container: &str, process: &str) -> bool {
    process == container || process.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(topic: &str, payload: &impl prost::Message) -> Envelope {
        let event = prost_types::Any { type_url: String::new(), value: payload.encode_to_vec() };
        Envelope { topic: topic.into(), event: Some(event), ..Default::default() }
    }

    #[test]
    fn the_end_of_a_probe_is_not_the_end_of_its_container() {
        let exit = |id: &str| {
            let exit =
                payload::TaskExit { container_id: "c".into(), id: id.into(), ..Default::default() };
            event(&envelope("/tasks/exit", &exit))
        };
        assert!(exit("probe").is_none());
        let Some(RuntimeEvent::Change(change)) = exit("c") else { panic!("no change") };
        assert_eq!((change.id.as_str(), change.what), ("c", What::Stopped));
        let delete = |id: &str| {
            let (container_id, id) = ("c".into(), id.into());
            let delete = payload::TaskDelete { container_id, id, ..Default::default() };
            event(&envelope("/tasks/delete", &delete))
        };
        assert!(delete("probe").is_none());
        let Some(RuntimeEvent::Change(change)) = delete("") else { panic!("no change") };
        assert_eq!((change.id.as_str(), change.what), ("c", What::Cleared));
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let broken = prost_types::Any { type_url: String::new(), value: vec![0xff, 0xff] };
        let broken =
            Envelope { topic: "/tasks/exit".into(), event: Some(broken), ..Default::default() };
        assert!(event(&broken).is_none());
        assert!(event(&Envelope { topic: "/tasks/exit".into(), ..Default::default() }).is_none());
        assert!(event(&envelope("/tasks/paused", &payload::TaskOom::default())).is_none());
    }
}
