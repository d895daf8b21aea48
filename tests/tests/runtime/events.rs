//! What happens in a runtime reaches the client, by whichever way it has.

use super::{client, next, start};
use ebb_cri::{Change, Feed, Runtime, RuntimeEvent, RuntimeEvents, What};
use ebb_tests::runtime::{FakeRuntime, Flavour};
use std::time::Duration;

/// Where changes come from, once the runtime tells of all that happens: by the client's clock a stream has begun when it was not refused for a while, and a slow runtime may not have taken it up by then.
async fn settled(runtime: &Runtime, fake: &FakeRuntime) -> Feed {
    let is_followed = |feed| match feed {
        Feed::Unsettled => false,
        Feed::Cri => fake.world().followers().0 >= 1,
        // Its tasks, and its images.
        Feed::Containerd => fake.world().followers().1 >= 2,
        Feed::None => true,
    };
    let look = async {
        while !is_followed(runtime.feed()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::PATIENCE, look).await.expect("the feed never settled");
    runtime.feed()
}

async fn change(events: &mut RuntimeEvents, wanted: What) -> Change {
    next(events, |event| match event {
        RuntimeEvent::Change(change) if change.what == wanted => Some(change.clone()),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn the_end_of_a_container_is_told_by_every_runtime_that_can() {
    let flavours = [
        (Flavour::Containerd16, Feed::Containerd),
        (Flavour::Containerd17, Feed::Containerd),
        (Flavour::Containerd2, Feed::Containerd),
        (Flavour::CriO, Feed::Cri),
    ];
    for (flavour, feed) in flavours {
        let fake = start(flavour);
        let (runtime, mut events) = client(&fake);
        let image = fake.world().add_image("r/a:1", &[("a", 10)]);
        let sandbox = fake.world().add_pod("n", "p", "u");
        let container = fake.world().add_container(&sandbox, "c", &image);
        assert_eq!(settled(&runtime, &fake).await, feed, "{flavour:?}");
        fake.world().exit(&container, 3);
        let stopped = change(&mut events, What::Stopped).await;
        assert_eq!(stopped.id, container, "{flavour:?}");
        assert!(stopped.sandbox.is_none_or(|id| id == sandbox), "{flavour:?}");
        runtime.remove_container(&container).await.unwrap();
        assert_eq!(change(&mut events, What::Deleted).await.id, container, "{flavour:?}");
    }
}

#[tokio::test]
async fn a_stream_that_never_speaks_still_leaves_the_list() {
    let fake = start(Flavour::CriOWithoutEvents);
    let (runtime, mut events) = client(&fake);
    assert_eq!(settled(&runtime, &fake).await, Feed::Cri);
    let sandbox = fake.world().add_pod("n", "p", "u");
    assert_eq!(runtime.sandboxes().await.unwrap()[0].id, sandbox);
    // Up, and Missed once the stream has begun; nothing about the pod.
    for _ in 0..2 {
        let event = events.next().await.unwrap();
        assert!(matches!(event, RuntimeEvent::Up(_) | RuntimeEvent::Missed), "{event:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_does_not_keep_up_is_told_that_it_missed_something() {
    let fake = start(Flavour::CriO);
    let (runtime, mut events) = client(&fake);
    settled(&runtime, &fake).await;
    next(&mut events, |event| matches!(event, RuntimeEvent::Missed).then_some(())).await;
    let image = fake.world().add_image("r/a:1", &[("a", 10)]);
    let sandbox = fake.world().add_pod("n", "p", "u");
    for _ in 0..4000 {
        fake.world().add_container(&sandbox, "c", &image);
    }
    let all_sent = async {
        while fake.world().pending_events() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::PATIENCE, all_sent).await.expect("the stream stands still");
    // What the transport may still hold is far less than what is over the queue's end. With room again, the news comes
    // before the next event.
    let news = async {
        loop {
            match tokio::time::timeout(Duration::from_millis(50), events.next()).await {
                Ok(Some(RuntimeEvent::Missed)) => return,
                Ok(event) => assert!(event.is_some()),
                Err(_) => drop(fake.world().add_container(&sandbox, "c", &image)),
            }
        }
    };
    tokio::time::timeout(super::PATIENCE, news).await.expect("what was lost was never told");
}

#[tokio::test]
async fn containerd_tells_of_images_and_others_do_not() {
    let fake = start(Flavour::Containerd2);
    let (runtime, mut events) = client(&fake);
    settled(&runtime, &fake).await;
    // The stream of images has begun once it says that something may have been missed.
    for _ in 0..2 {
        next(&mut events, |event| matches!(event, RuntimeEvent::Missed).then_some(())).await;
    }
    let id = fake.world().add_image("r/a:1", &[("a", 10)]);
    let added = next(&mut events, |event| match event {
        RuntimeEvent::ImageAdded(name) => Some(name.clone()),
        _ => None,
    });
    assert_eq!(added.await, "r/a:1");
    runtime.remove_image(&id).await.unwrap();
    let removed = next(&mut events, |event| match event {
        RuntimeEvent::ImageRemoved(name) => Some(name.clone()),
        _ => None,
    });
    assert_eq!(removed.await, "r/a:1");
}
