//! The whole agent with a container runtime in the test's own process: which images go, and which stay.

use crate::lab::{CONFIG, Lab, json};
use crate::{config, kinds};
use ebb_tests::fake_node::wait_for;
use ebb_tests::runtime::{Fault, Flavour, short_digest};
use std::path::Path;
use std::time::Duration;

/// How full the filesystem of a directory is, percent, as the policy rounds it.
fn full(dir: &Path) -> u64 {
    let fs = nix::sys::statvfs::statvfs(dir).unwrap();
    100 - fs.blocks_available() * 100 / fs.blocks()
}

/// A configuration under which images go from one percent below the present fullness on, down to two.
fn tight(lab: &Lab, extra: &str) -> tempfile::NamedTempFile {
    let full = full(&lab.dir("images")).max(3);
    let (high, low) = (full - 1, full - 2);
    config(&format!(
        "imageGCHighThresholdPercent: {high}\nimageGCLowThresholdPercent: {low}\n{CONFIG}{extra}"
    ))
}

#[test]
fn unused_images_go_and_those_in_use_pinned_or_of_dead_containers_stay() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let (used, dead, pinned, old) = {
        let mut world = lab.world();
        let used = world.add_image("used:1", &[("base", 1 << 20), ("u", 5)]);
        let dead = world.add_image("dead:1", &[("base", 1 << 20), ("d", 5)]);
        let pinned = world.add_image("pause:3", &[("p", 1)]);
        let old = world.add_image("old:1", &[("base", 1 << 20), ("o", 5)]);
        world.images.get_mut(&pinned).unwrap().pinned = true;
        (used, dead, pinned, old)
    };
    lab.pod("web", &used, 10);
    let ended = lab.pod("job", &dead, 10);
    lab.world().exit(&ended.container, 0);
    let config = tight(&lab, "");
    let mut agent = lab.start(config.path(), &["--enforce"]);
    let removed = agent.wait("removed");
    assert_eq!(removed["work"]["id"], old.as_str());
    // By layers: the base stays, so only what is its own can go.
    let expected = removed["work"]["expected"].as_u64().unwrap();
    let base_packed_and_unpacked = 3 << 20;
    assert!((1..base_packed_and_unpacked).contains(&expected), "{expected}");
    let collected = agent.wait("collected");
    assert!(collected["measured"].is_i64(), "{collected}");
    agent.stop();
    let world = lab.world();
    assert!(!world.images.contains_key(&old));
    for kept in [used, dead, pinned] {
        assert!(world.images.contains_key(&kept));
    }
}

#[test]
fn images_are_listed_again_before_any_is_removed() {
    let lab = Lab::new(Flavour::Containerd2);
    let old = lab.world().add_image("old:1", &[("base", 1 << 20), ("o", 5)]);
    let never = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n";
    let period = "  imageGCPeriod: 1s\n";
    let config = config(&format!("{never}{CONFIG}{period}"));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    {
        // One that has been unpacked meanwhile has the base as well, and no event said so.
        let mut world = lab.world();
        let mut other = world.images[&old].clone();
        other.id = format!("sha256:{}", short_digest("other"));
        other.tags = vec!["other:1".to_owned()];
        other.digests.clear();
        other.layers.truncate(1);
        other.pinned = true;
        world.images.insert(other.id.clone(), other);
    }
    let full = std::fs::read(tight(&lab, period).path()).unwrap();
    std::fs::write(config.path(), full).unwrap();
    let pid = nix::unistd::Pid::from_raw(agent.child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).unwrap();
    let removed = agent.wait("removed");
    assert_eq!(removed["work"]["id"], old.as_str());
    let expected = removed["work"]["expected"].as_u64().unwrap();
    assert!((1..1 << 20).contains(&expected), "{expected}: the base stays");
    agent.stop();
}

#[test]
fn when_an_image_was_last_in_use_outlives_the_agent() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let (first, second) = {
        let mut world = lab.world();
        (world.add_image("a:1", &[("a", 1)]), world.add_image("b:1", &[("b", 1)]))
    };
    let pod = lab.pod("web", &second, 10);
    // However full the disk of the machine is that runs this test.
    let never = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n";
    let quiet = config(&format!("maximumDeadContainersPerContainer: 0\n{never}{CONFIG}"));
    let mut agent = lab.start(quiet.path(), &["--enforce"]);
    agent.wait("runtime");
    // What follows a death shows that the images have been looked at.
    let other = lab.world().add_container(&pod.sandbox, "other", &second);
    lab.world().exit(&other, 0);
    agent.wait("collected");
    agent.stop();
    lab.world().containers.remove(&pod.container);
    // The one that was in use is the younger by that alone.
    let by = quiet.path().to_str().unwrap();
    let shown = json(&lab.run(&["images", "--output", "json", "--config", by]));
    let of = |id: &str| {
        shown.as_array().unwrap().iter().find(|image| image["id"] == id).unwrap().clone()
    };
    assert_eq!((&of(&first)["status"], &of(&first)["place"]), (&"unused".into(), &1.into()));
    assert_eq!((&of(&second)["status"], &of(&second)["place"]), (&"unused".into(), &2.into()));
    assert!(of(&second)["lastUsed"].is_u64() && of(&first)["lastUsed"].is_null());
}

/// While images are being removed only memory and task ids are decided on. That is no word about disk.
#[test]
fn a_disk_that_is_short_stays_so_while_images_are_being_removed() {
    let lab = Lab::new(Flavour::Containerd2);
    lab.world().add_image("a:1", &[("a", 1)]);
    lab.world().faults.insert("RemoveImage".into(), Fault::Late(Duration::from_secs(2)));
    let never = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n";
    let short = CONFIG.replace("evictionHard:\n", "evictionHard:\n  nodefs.available: \"99%\"\n");
    let config = config(&format!("{never}{short}"));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    assert_eq!(agent.wait("thresholdCrossed")["signal"], "nodefs.available");
    agent.wait("removed");
    let records = agent.stop();
    assert!(!kinds(&records).contains(&"pressureRelieved"), "{:?}", kinds(&records));
}

#[test]
fn what_changed_since_the_plan_is_left_alone() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let (first, second) = {
        let mut world = lab.world();
        (world.add_image("a:1", &[("a", 1)]), world.add_image("b:1", &[("b", 1)]))
    };
    lab.world().faults.insert("RemoveImage".into(), Fault::HeldAfter(0));
    let config = tight(&lab, "");
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("collecting");
    wait_for("the first removal to begin", || lab.world().count("RemoveImage") == 1);
    let (_, going) =
        lab.world().calls.iter().rev().find(|(c, _)| *c == "RemoveImage").cloned().unwrap();
    let other = if going == first { second } else { first };
    lab.pod("late", &other, 1);
    lab.world().faults.clear();
    let left = agent.wait("notRemoved");
    assert!(left["why"].as_str().unwrap().contains("a container uses it"), "{left}");
    agent.wait("collected");
    agent.stop();
    assert!(lab.world().images.contains_key(&other));
}

#[test]
fn cri_o_is_collected_by_the_same_rules() {
    for flavour in [Flavour::CriO, Flavour::CriOWithoutEvents] {
        let mut lab = Lab::new(flavour);
        let (used, old) = {
            let mut world = lab.world();
            (world.add_image("r/used:1", &[("u", 5)]), world.add_image("r/old:1", &[("o", 5)]))
        };
        let pod = lab.pod("web", &used, 10);
        let next = lab.world().add_container(&pod.sandbox, "main", &used);
        lab.world().exit(&pod.container, 1);
        lab.world().exit(&next, 1);
        let running = lab.world().add_container(&pod.sandbox, "main", &used);
        let config = tight(&lab, "  imageOrder: leastToPullAgain\n");
        let agent = lab.start(config.path(), &["--enforce"]);
        wait_for("the unused image to go", || !lab.world().images.contains_key(&old));
        wait_for("the older dead container to go", || lab.world().containers.len() == 2);
        agent.stop();
        assert!(lab.world().images.contains_key(&used));
        assert!(lab.world().containers.contains_key(&running));
    }
}
