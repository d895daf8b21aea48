//! ebb's client on the real containerd: who it is, what it says, what it does when the runtime dies or hangs.
use crate::containerd::{Containerd, Daemon, Leftovers, SOCKET, version};
use crate::registry::{Context as TestContext, Outcome};
use crate::{runner, wait};
use anyhow::{Context, Result, bail, ensure};
use ebb_cri::{
    CgroupDriver, Change, ContainerState, Deadlines, DialError, Error, Feed, Link, RuntimeEvent,
    What,
};
use ebb_vm_protocol::images::{APP, IMAGES, PAUSE};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For what must happen, on a loaded host under TCG.
const SOON: Duration = Duration::from_secs(60);

/// Name and version, what each version implements, the images and what they are made of.
pub(crate) fn is_known(test: &TestContext) -> Result<Outcome> {
    let containerd = Containerd::ensure()?;
    let version = version()?;
    let link = containerd.cri.link();
    let identity = link.identity().context("no connection after an answer")?;
    ensure!(identity.is_containerd(), "it calls itself {}", identity.runtime);
    ensure!(identity.version.starts_with(&version), "{} is not {version}", identity.version);

    let driver = containerd.wait(containerd.cri.cgroup_driver());
    match (&driver, version.as_str()) {
        (Ok(CgroupDriver::Cgroupfs), "2") => {}
        (Err(Error::Unsupported { .. }), "1.6" | "1.7") => {}
        _ => bail!("{version} says of its cgroup driver: {driver:?}"),
    }
    wait::until(SOON, "the feed settles", || containerd.cri.feed() != Feed::Unsettled)?;
    let feed = containerd.cri.feed();
    ensure!(feed == Feed::Containerd, "{version} has {feed:?}");

    let images = containerd.wait(containerd.cri.images())?;
    let pause = images.iter().find(|image| image.is_called(PAUSE)).context("no pause image")?;
    ensure!(pause.pinned == (version != "1.6"), "the pause image is pinned: {}", pause.pinned);
    runner::note(
        test,
        &format!("{} {}, {} images, {feed:?}", identity.runtime, identity.version, images.len()),
    )?;
    Ok(Outcome::Passed)
}

/// What the layers say would be free is what the disk has more of when the image is gone.
pub(crate) fn layers_predict_the_disk(test: &TestContext) -> Result<Outcome> {
    let containerd = Containerd::ensure()?;
    let layers = containerd.wait(containerd.cri.layers())?;
    ensure!(layers.images.len() >= IMAGES.len(), "{} images have layers", layers.images.len());
    for names in [&["ebb.test/gc-3:1"][..], &["ebb.test/gc-5:1", "ebb.test/gc-6:1"]] {
        let ids = names.iter().map(|name| containerd.image_id(name)).collect::<Result<Vec<_>>>()?;
        let (predicted, _) = layers.freed_by(ids.iter().map(String::as_str));
        ensure!(predicted > 4 << 20, "only {predicted} bytes are predicted for {names:?}");
        let before = taken()?;
        for id in &ids {
            containerd.wait(containerd.cri.remove_image(id))?;
        }
        // The runtime's collector runs after the answer.
        let near = |freed: u64| freed.abs_diff(predicted) * 20 <= predicted;
        let measured = wait::until_some(SOON, "the bytes are free", || {
            let freed = before.saturating_sub(taken().ok()?);
            near(freed).then_some(freed)
        });
        let measured = measured.with_context(|| {
            let freed = before.saturating_sub(taken().unwrap_or(before));
            format!("{names:?}: {predicted} bytes predicted, {freed} freed")
        })?;
        runner::note(test, &format!("{names:?}: {predicted} bytes predicted, {measured} freed"))?;
    }
    containerd.import_images()?;
    Ok(Outcome::Passed)
}

/// A pod runs where it should, its container's end is told, and nothing is left of it.
pub(crate) fn a_life(test: &TestContext) -> Result<Outcome> {
    let mut containerd = Containerd::ensure()?;
    wait::until(SOON, "the feed settles", || containerd.cri.feed() != Feed::Unsettled)?;
    // A pod before the first count: what the runtime makes once, for the first that needs it, such as the snapshot of
    // an image that was not unpacked yet, is nothing that a pod leaves.
    let first = containerd.pod("burstable", "first")?;
    containerd.busybox(&first, APP, "app", &["sleep", "100000"])?;
    containerd.remove_all_pods()?;
    let before = Leftovers::count()?;
    let began = Instant::now();
    let pod = containerd.pod("burstable", "life")?;
    let words = ["sh", "-c", "trap 'exit 3' TERM; while true; do sleep 1; done"];
    let id = containerd.busybox(&pod, APP, "app", &words)?;
    let ran_after = began.elapsed();

    let list = containerd.wait(containerd.cri.containers())?;
    let listed = list.iter().find(|container| container.id == id).context("it is not listed")?;
    ensure!(listed.pod.as_ref() == Some(&pod.spec.pod), "its pod is {:?}", listed.pod);
    let images = containerd.wait(containerd.cri.images())?;
    let own: Vec<_> = images.iter().filter(|image| listed.image.is(image)).collect();
    ensure!(own.len() == 1 && own[0].is_called(APP), "{:?} is {own:?}", listed.image);
    let status = containerd.wait(containerd.cri.container(&id))?;
    ensure!(status.state == ContainerState::Running, "it is {:?}", status.state);
    let (pid, cgroup) = (status.pid.context("no pid")?, status.cgroup.context("no cgroup")?);
    let inside = fs::read_to_string(format!("/proc/{pid}/cgroup")).context("no process")?;
    ensure!(inside.trim() == format!("0::{cgroup}"), "{pid} is in {inside}, not in {cgroup}");
    ensure!(pod.cgroup().join(&id).exists(), "{} lacks {id}", pod.cgroup().display());

    let ended = Instant::now();
    containerd.wait(containerd.cri.stop_container(&id, Duration::from_secs(20)))?;
    change(&mut containerd, &id, What::Stopped)?;
    let told_after = ended.elapsed();
    let status = containerd.wait(containerd.cri.container(&id))?;
    ensure!(status.state == ContainerState::Exited, "it is {:?}", status.state);
    ensure!(status.exit_code == Some(3), "it ended with {:?}", status.exit_code);

    // One that ends by itself, told by nobody but the runtime.
    let id = containerd.busybox(&pod, APP, "brief", &["false"])?;
    change(&mut containerd, &id, What::Stopped)?;
    // 1.6 tells of the end a moment before it can be asked to remove; whoever collects asks again.
    wait::until(SOON, "the ended container is removed", || {
        containerd.wait(containerd.cri.remove_container(&id)).is_ok()
    })?;
    change(&mut containerd, &id, What::Deleted)?;
    containerd.remove_all_pods()?;
    Leftovers::until_back(before, SOON)?;
    let text = format!("ran after {ran_after:.1?}, stopped and told after {told_after:.1?}");
    runner::note(test, &text)?;
    Ok(Outcome::Passed)
}

/// SIGKILL: known at once. Started again: found, with the pod still running.
pub(crate) fn survives_a_restart(test: &TestContext) -> Result<Outcome> {
    let mut containerd = Containerd::ensure()?;
    let pod = containerd.pod("burstable", "restart")?;
    let id = containerd.busybox(&pod, APP, "app", &["sleep", "100000"])?;
    let daemon = Daemon::running().context("no containerd")?;
    // What is in the queue by now was about the start.
    containerd.event(SOON, "the connection", |e| matches!(e, RuntimeEvent::Up(_)).then_some(()))?;
    let killed = Instant::now();
    daemon.kill()?;
    containerd.event(SOON, "its end", |e| matches!(e, RuntimeEvent::Down(_)).then_some(()))?;
    let noticed = killed.elapsed();
    let call = containerd.wait(containerd.cri.containers());
    ensure!(matches!(call, Err(Error::Unreachable { .. })), "asked the dead: {call:?}");
    let started = Instant::now();
    Daemon::start()?;
    containerd.event(SOON, "its return", |e| matches!(e, RuntimeEvent::Up(_)).then_some(()))?;
    let found = started.elapsed();
    let status = containerd.wait(containerd.cri.container(&id))?;
    ensure!(status.state == ContainerState::Running, "it is {:?}", status.state);
    containerd.remove_all_pods()?;
    let text = format!("gone noticed after {noticed:.1?}, found {found:.1?} after the start began");
    runner::note(test, &text)?;
    Ok(Outcome::Passed)
}

/// SIGSTOP: one deadline, then no waiting at all; SIGCONT: back.
pub(crate) fn survives_a_hang(test: &TestContext) -> Result<Outcome> {
    Containerd::ensure()?;
    let second = Duration::from_secs(1);
    let deadlines = Deadlines { connect: 3 * second, read: 2 * second, change: 20 * second };
    let mut containerd = Containerd::connect(deadlines)?;
    containerd.wait(containerd.cri.containers())?;
    // What is in the queue by now was about the start.
    containerd.event(SOON, "the connection", |e| matches!(e, RuntimeEvent::Up(_)).then_some(()))?;
    let daemon = Daemon::running().context("no containerd")?;
    daemon.freeze()?;
    let result = hang(&mut containerd, deadlines);
    daemon.thaw()?;
    let (asked, refused) = result?;
    containerd.event(SOON, "its return", |e| matches!(e, RuntimeEvent::Up(_)).then_some(()))?;
    containerd.wait(containerd.cri.containers())?;
    runner::note(test, &format!("asked for {asked:.1?}, then refused after {refused:.1?}"))?;
    Ok(Outcome::Passed)
}

/// How often a runtime that is known to hang is asked: a guest that is held up makes one refusal late, and not all of them.
const ASKED_AGAIN: usize = 5;

/// How long the first question took, and the soonest of those after it.
fn hang(containerd: &mut Containerd, deadlines: Deadlines) -> Result<(Duration, Duration)> {
    let began = Instant::now();
    let call = containerd.wait(containerd.cri.containers());
    let asked = began.elapsed();
    let is_late =
        |error: &Error| matches!(error, Error::Deadline { after, .. } if *after == deadlines.read);
    ensure!(call.as_ref().is_err_and(is_late), "the frozen answered: {call:?}");
    // The deadline of changes is the next longer one.
    ensure!(asked < deadlines.change, "it took {asked:?}");
    let why = containerd.event(SOON, "its silence", |event| match event {
        RuntimeEvent::Down(why) => Some(Arc::clone(why)),
        _ => None,
    })?;
    ensure!(matches!(*why, DialError::Silent { .. }), "it is down for another reason: {why}");
    let mut refused = Duration::MAX;
    for _ in 0..ASKED_AGAIN {
        let began = Instant::now();
        let call = containerd.wait(containerd.cri.containers());
        refused = refused.min(began.elapsed());
        ensure!(matches!(call, Err(Error::Unreachable { .. })), "still asked: {call:?}");
    }
    ensure!(refused < asked / 2, "refused after {refused:?} at the soonest, and {asked:?} before");
    Ok((asked, refused))
}

/// A runtime from before CRI v1 is named, with what to do about it.
pub(crate) fn old_is_named(test: &TestContext) -> Result<Outcome> {
    Daemon::ensure()?;
    let containerd = Containerd::connect(Deadlines::default())?;
    wait::until(SOON, "it is known", || matches!(containerd.cri.link(), Link::Down { .. }))?;
    let Link::Down { why, .. } = containerd.cri.link() else { bail!("it came up") };
    let DialError::OldCri { runtime, version, .. } = &*why else { bail!("{why}") };
    ensure!(runtime == "containerd" && version.starts_with("1.4"), "{runtime} {version}");
    ensure!(why.to_string().contains("upgrade"), "{why}");
    ensure!(Path::new(SOCKET).exists(), "the wrong socket");
    runner::note(test, &why.to_string())?;
    Ok(Outcome::Passed)
}

fn change(containerd: &mut Containerd, id: &str, what: What) -> Result<Change> {
    containerd.event(SOON, &format!("{what:?} of {id}"), |event| match event {
        RuntimeEvent::Change(change) if change.id == id && change.what == what => {
            Some(change.clone())
        }
        _ => None,
    })
}

/// Bytes that are taken on the filesystem of containerd's root.
fn taken() -> Result<u64> {
    let stat =
        nix::sys::statvfs::statvfs("/var/lib/containerd").context("cannot measure the disk")?;
    Ok((stat.blocks() - stat.blocks_free()) * stat.fragment_size())
}
