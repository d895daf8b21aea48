//! Free pages that the kernel sets aside for a moment, to tell the host of them: close to a threshold nobody is killed for that, and a leak is.
use super::leaks::goes_alone;
use crate::agent::{Agent, is};
use crate::containerd::load;
use crate::registry::{Context as TestContext, Outcome};
use crate::scene::{Scene, Workload};
use crate::{node, runner};
use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// MiB that are touched and given back: the host is told of them bit by bit, every two seconds.
const GIVEN_BACK: &str = "500";
/// What is left above the threshold meanwhile. The kernel sets 64 MiB aside, or 128.
const LEFT: u64 = 40 * MIB;
const WATCHED: Duration = Duration::from_secs(25);
const BETWEEN_READINGS: Duration = Duration::from_micros(500);
const SOON: Duration = Duration::from_secs(60);

/// Nobody dies for what is away for a moment.
pub(crate) fn reported(test: &TestContext) -> Result<Outcome> {
    load("virtio_balloon")?;
    let mut scene = Scene::with_innocents(3, 40)?;
    let mut agent = Agent::enforce(test, "evictionHard:\n  memory.available: 1Mi\n")?;
    let mut done = Workload::start("work.slice/done.service", &["idle", GIVEN_BACK])?;
    kill(done.actor.pid()?, Signal::SIGKILL).context("cannot end the workload")?;
    done.actor.wait()?;
    let threshold = node::meminfo("MemAvailable")? - LEFT;
    agent.reconfigure(&format!("evictionHard:\n  memory.available: \"{threshold}\"\n"), "")?;
    agent.wait_for(SOON, "the threshold is near", |record| is(record, "reloaded"))?;
    let (mut below, mut times) = (false, 0);
    let begun = Instant::now();
    while begun.elapsed() < WATCHED {
        let is_below = node::meminfo("MemAvailable")? < threshold;
        times += usize::from(is_below && !below);
        below = is_below;
        std::thread::sleep(BETWEEN_READINGS);
    }
    runner::note(test, &format!("below the threshold {times} times"))?;
    scene.assert_innocents_live()?;
    ensure!(times > 0, "nothing was set aside: this proves nothing");
    ensure!(agent.count("thresholdCrossed") == 0, "it counts as gone; {}", agent.last_words());
    scene.assert_peace()?;
    let _leak = Workload::start("work.slice/leak.service", &["hog", "50"])?;
    goes_alone(agent, &mut scene, "/work.slice/leak.service")
}
