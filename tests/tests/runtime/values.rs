//! Answers in ebb's words, whichever runtime they come from.

use super::{client, start};
use ebb_cri::{CgroupDriver, ContainerState, Error, PodName};
use ebb_tests::runtime::Flavour;
use std::time::Duration;

#[tokio::test]
async fn a_container_is_known_with_its_pod_image_process_and_cgroup() {
    for flavour in [Flavour::Containerd16, Flavour::Containerd2, Flavour::CriO] {
        let fake = start(flavour);
        let (runtime, _events) = client(&fake);
        let id = fake.world().add_image("r/a:1", &[("a", 10)]);
        let sandbox = fake.world().add_pod("shop", "cart", "uid-1");
        let first = fake.world().add_container(&sandbox, "app", &id);
        fake.world().exit(&first, 7);
        let second = fake.world().add_container(&sandbox, "app", &id);
        let list = runtime.containers().await.unwrap();
        let images = runtime.images().await.unwrap();
        let find = |id: &str| list.iter().find(|container| container.id == id).unwrap();
        let pod = PodName { uid: "uid-1".into(), namespace: "shop".into(), name: "cart".into() };
        assert_eq!(find(&first).state, ContainerState::Exited);
        assert_eq!(find(&second).state, ContainerState::Running);
        assert_eq!(find(&second).attempt, 1);
        assert_eq!(find(&second).pod, Some(pod.clone()));
        assert!(find(&second).image.is(&images[0]), "{flavour:?}: {:?}", find(&second).image);
        let status = runtime.container(&second).await.unwrap();
        assert_eq!(status.cgroup, Some(format!("/kubepods/burstable/poduid-1/{second}")));
        assert!(status.pid.is_some());
        let status = runtime.container(&first).await.unwrap();
        assert_eq!((status.exit_code, status.pid), (Some(7), None));
        assert!(status.finished.is_some());
        assert_eq!(runtime.sandbox(&sandbox).await.unwrap().sandbox.pod, pod);
    }
}

#[tokio::test]
async fn a_container_without_labels_has_no_pod_and_an_image_without_names_has_an_id() {
    let fake = start(Flavour::Containerd2);
    let (runtime, _events) = client(&fake);
    let image = fake.world().add_image("r/a:1", &[("a", 10)]);
    let sandbox = fake.world().add_pod("n", "p", "u");
    let container = fake.world().add_container(&sandbox, "c", &image);
    {
        let mut world = fake.world();
        world.containers.get_mut(&container).unwrap().labelled = false;
        let stored = world.images.get_mut(&image).unwrap();
        stored.tags.clear();
        stored.digests.clear();
    }
    assert_eq!(runtime.containers().await.unwrap()[0].pod, None);
    let images = runtime.images().await.unwrap();
    assert!(images[0].tags.is_empty());
    assert!(runtime.containers().await.unwrap()[0].image.is(&images[0]));
}

#[tokio::test]
async fn what_is_gone_is_stopped_and_removed_already() {
    for flavour in [Flavour::Containerd2, Flavour::CriO] {
        let fake = start(flavour);
        let (runtime, _events) = client(&fake);
        runtime.stop_container("gone", Duration::from_secs(1)).await.unwrap();
        runtime.remove_container("gone").await.unwrap();
        runtime.stop_sandbox("gone").await.unwrap();
        runtime.remove_sandbox("gone").await.unwrap();
        runtime.remove_image("gone").await.unwrap();
        assert!(matches!(runtime.container("gone").await, Err(Error::NotFound { .. })));
        assert!(matches!(runtime.sandbox("gone").await, Err(Error::NotFound { .. })));
        assert_eq!(runtime.image("gone").await.unwrap(), None);
    }
}

#[tokio::test]
async fn the_cgroup_driver_is_told_by_those_who_know_the_question() {
    let expected = [
        (Flavour::Containerd16, None),
        (Flavour::Containerd17, None),
        (Flavour::Containerd2, Some(CgroupDriver::Cgroupfs)),
        (Flavour::CriO, Some(CgroupDriver::Systemd)),
    ];
    for (flavour, driver) in expected {
        let fake = start(flavour);
        let (runtime, _events) = client(&fake);
        match (runtime.cgroup_driver().await, driver) {
            (Ok(found), Some(driver)) => assert_eq!(found, driver, "{flavour:?}"),
            (Err(Error::Unsupported { .. }), None) => {}
            (other, _) => panic!("{flavour:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn layers_say_what_images_share_and_follow_what_changes() {
    let fake = start(Flavour::Containerd16);
    let (runtime, _events) = client(&fake);
    let a = fake.world().add_image("r/a:1", &[("base", 1000), ("a", 100)]);
    let b = fake.world().add_image("r/b:1", &[("base", 1000), ("b", 200)]);
    let layers = runtime.layers().await.unwrap();
    // A manifest and a configuration are 1 KiB each; unpacked is twice what is pulled.
    assert_eq!(layers.freed_by([a.as_str()]).0, 2048 + 100 + 200);
    assert_eq!(layers.freed_by([a.as_str(), b.as_str()]).0, 2 * 2048 + 3000 + 300 + 600);
    let asked = fake.world().count("snapshots.Usage");
    assert_eq!(asked, 3);
    runtime.remove_image(&b).await.unwrap();
    let c = fake.world().add_image("r/c:1", &[("base", 1000), ("c", 7)]);
    let layers = runtime.layers().await.unwrap();
    assert_eq!(layers.freed_by([a.as_str(), c.as_str()]).0, 2 * 2048 + 3000 + 300 + 21);
    assert_eq!(layers.total(&b), None);
    // A layer that is known is not measured again.
    assert_eq!(fake.world().count("snapshots.Usage"), asked + 1);
}

#[tokio::test]
async fn layers_are_unknown_where_nobody_tells() {
    let fake = start(Flavour::CriO);
    let (runtime, _events) = client(&fake);
    runtime.images().await.unwrap();
    assert!(matches!(runtime.layers().await, Err(Error::Unsupported { .. })));
}

#[tokio::test]
async fn usage_is_what_the_runtime_says_and_unknown_where_it_does_not() {
    let fake = start(Flavour::CriO);
    let (runtime, _events) = client(&fake);
    let image = fake.world().add_image("r/a:1", &[("a", 10)]);
    let sandbox = fake.world().add_pod("n", "p", "u");
    let container = fake.world().add_container(&sandbox, "c", &image);
    fake.world().containers.get_mut(&container).unwrap().written = (4096, 3);
    let usage = runtime.container_usage().await.unwrap();
    let layer = usage[0].writable_layer.clone().unwrap();
    assert_eq!((layer.bytes, layer.inodes, usage[0].working_set), (Some(4096), Some(3), None));
    let pods = runtime.pod_usage().await.unwrap();
    assert_eq!((pods[0].pod.uid.as_str(), pods[0].processes), ("u", None));
    assert_eq!(pods[0].containers[0].id, container);
    let fs = runtime.image_fs().await.unwrap();
    assert_eq!((fs.images[0].bytes, fs.containers[0].bytes), (Some(20), Some(4096)));
}
