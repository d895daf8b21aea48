//! The kubelet's node tests that need no API server, on the real containerd: what is reclaimed before a pod has to go, who exceeds a limit, who goes first.
//!
//! Sizes are those of a store of 128 MiB; images and pods share one filesystem unless a test says otherwise.
use crate::agent::{Agent, is, name_of};
use crate::containerd::{GATE, SOON, Site, Store, Wanted, open_gate, until_gate, volume_of};
use crate::registry::{Context as TestContext, Outcome};
use crate::{node, runner, wait};
use anyhow::{Context, Result, ensure};
use ebb_vm_protocol::images::{FILES, FILES_COUNT, IMAGES};
use std::fs;
use std::time::Duration;

const NO_IMAGES: &str = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n";
const STAY: &str = "trap 'exit 0' TERM; while true; do sleep 1; done";
/// How long nothing may happen to those who must not be touched, after all that had to happen.
const CALM: Duration = Duration::from_secs(5);

/// Inodes run short because of a pod's writable layer; unused images are enough.
pub(crate) fn images_suffice(test: &TestContext) -> Result<Outcome> {
    let site = Site::new(false)?;
    let before = Store::inodes_free()?;
    let line = before - u64::from(FILES_COUNT) / 2;
    let fields = format!(
        "evictionHard:\n  nodefs.inodesFree: \"{line}\"\n  memory.available: 20Mi\nimageMinimumGCAge: 0s\n"
    );
    let mut agent = site.agent(test, &fields, "")?;
    let script = format!(
        "mkdir /f; n=0; while [ $n -lt 900 ]; do : > /f/$n; n=$((n+1)); done; : > {GATE}/full; {STAY}"
    );
    let (_, hog) = site.run(&Wanted { name: "hog", script: &script, ..Wanted::default() })?;
    let crossed = |record: &serde_json::Value| is(record, "thresholdCrossed");
    agent.wait_for(SOON, "the threshold is crossed", crossed)?;
    until_gate("full")?;
    agent.wait_for(SOON, "the pressure is over", |record| is(record, "pressureRelieved"))?;
    ensure!(site.containerd.image_id(FILES).is_err(), "the image with the inodes is still there");
    ensure!(Store::inodes_free()? >= line, "inodes are short");
    nobody_went(&site, agent, &[&hog])?;
    site.containerd.import_images()?;
    Ok(Outcome::Passed)
}

/// Inodes run short because of a dead container and a volume; removing the dead one is enough.
pub(crate) fn dead_containers_suffice(test: &TestContext) -> Result<Outcome> {
    const EACH: u64 = 600;
    let site = Site::new(false)?;
    remove_unused_images(&site)?;
    let before = Store::inodes_free()?;
    let write = |dir: &str| {
        format!("mkdir -p {dir}; n=0; while [ $n -lt {EACH} ]; do : > {dir}/$n; n=$((n+1)); done")
    };
    let ends = write("/f");
    let (over, dead) = site.run(&Wanted { name: "ends", script: &ends, ..Wanted::default() })?;
    site.until_ended(&dead)?;
    // What a kubelet does with a pod that has succeeded.
    site.containerd.wait(site.containerd.cri.stop_sandbox(&over.sandbox))?;
    let stays = format!("{}; : > {GATE}/full; {STAY}", write("/data"));
    let volumes = &[("data", "{}")];
    let (_, runs) =
        site.run(&Wanted { name: "runs", script: &stays, volumes, ..Wanted::default() })?;
    until_gate("full")?;
    let line = before - EACH - EACH / 2;
    ensure!(Store::inodes_free()? < line, "there is no pressure");
    let fields =
        format!("evictionHard:\n  nodefs.inodesFree: \"{line}\"\n  memory.available: 20Mi\n");
    let mut agent = site.agent(test, &fields, "  containerGCPeriod: 0s\n")?;
    site.until_removed(&dead, SOON)?;
    agent.wait_for(SOON, "the pressure is over", |record| is(record, "pressureRelieved"))?;
    nobody_went(&site, agent, &[&runs])?;
    site.containerd.import_images()?;
    Ok(Outcome::Passed)
}

/// Without any pressure: who is over a limit of its own goes, who is under it or writes to memory stays.
pub(crate) fn local_limits(test: &TestContext) -> Result<Outcome> {
    const LIMIT: &str = "{limits: {ephemeral-storage: 4Mi}}";
    let site = Site::new(false)?;
    let write = |to: &str, kib: u32, gate: &str| {
        format!("dd if=/dev/zero of={to} bs=1024 count={kib}; : > {GATE}/{gate}; {STAY}")
    };
    // Name, volume, resources, where to, KiB, whether it goes.
    let cases = [
        ("volume-over", Some("{sizeLimit: 4Mi}"), "", "/data/f", 5000, true),
        ("layer-over", None, LIMIT, "/f", 5000, true),
        ("container-over", Some("{}"), LIMIT, "/data/f", 5000, true),
        ("volume-under", Some("{sizeLimit: 4Mi}"), "", "/data/f", 3900, false),
        ("layer-under", None, LIMIT, "/f", 3900, false),
        ("layer-free", None, "", "/f", 5000, false),
    ];
    let mut ids = Vec::new();
    for (name, volume, resources, to, kib, _) in cases {
        let script = write(to, kib, name);
        let volumes: Vec<(&str, &str)> = volume.iter().map(|volume| ("data", *volume)).collect();
        let wanted = Wanted { name, resources, volumes: &volumes, script: &script, priority: 0 };
        ids.push(site.run(&wanted)?.1);
    }
    for (name, ..) in cases {
        until_gate(name)?;
    }
    let fields = format!("{NO_IMAGES}evictionHard:\n  memory.available: 20Mi\n");
    let mut agent = site.agent(test, &fields, "")?;
    let goes = |name: &str| cases.iter().any(|(case, .., goes)| *case == name && *goes);
    let all = cases.iter().filter(|(.., goes)| *goes).count();
    let mut victims = Vec::new();
    wait::until(SOON * 2, "all who are over a limit have gone", || {
        victims = departed(&mut agent);
        victims.len() >= all
    })?;
    runner::note(test, &format!("ended: {victims:?}"))?;
    ensure!(victims.iter().all(|name| goes(name)), "ended: {victims:?}");
    let under: Vec<&String> =
        ids.iter().zip(cases).filter(|(_, case)| !case.5).map(|(id, _)| id).collect();
    for id in &under {
        ensure!(site.runs(id)?, "one that is under its limit was ended");
    }
    agent.stop()?;
    Ok(Outcome::Passed)
}

/// What a file counts for by its project is its owner's word: nobody hides what it has in another project, and nobody is blamed for what another has put in its own.
pub(crate) fn project_quotas(test: &TestContext) -> Result<Outcome> {
    const LIMITED: (&str, &str) = ("data", "{sizeLimit: 4Mi}");
    let site = Site::new(false)?;
    let project = |pod: &str, project: u32| {
        let dir = volume_of(pod, "data");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Store::give_project(&dir, project)
    };
    project("hiding", 7)?;
    project("blamed", 8)?;
    project("blaming", 9)?;
    let write = |pod: &str| {
        format!("dd if=/dev/zero of=/data/f bs=1024 count=5000; : > {GATE}/{pod}; {STAY}")
    };
    let (hiding, blaming) = (write("hiding"), write("blaming"));
    let wanted = |name, volumes, script| Wanted { name, volumes, script, ..Wanted::default() };
    let mut ids = Vec::new();
    for pod in [
        wanted("hiding", &[LIMITED][..], hiding.as_str()),
        wanted("blamed", &[LIMITED], STAY),
        wanted("blaming", &[("data", "{}")], &blaming),
    ] {
        ids.push(site.run(&pod)?.1);
    }
    ["hiding", "blaming"].into_iter().try_for_each(until_gate)?;
    // As the owner of a file may, outside of user namespaces.
    Store::give_project(&volume_of("hiding", "data").join("f"), 0)?;
    Store::give_project(&volume_of("blaming", "data").join("f"), 8)?;
    let fields = format!("{NO_IMAGES}evictionHard:\n  memory.available: 20Mi\n");
    let mut agent = site.agent(test, &fields, "")?;
    agent.wait_for(SOON, "the one over its limit has gone", |r| is(r, "terminated"))?;
    ensure!(departed(&mut agent) == ["hiding"], "ended: {:?}", departed(&mut agent));
    let stay: Vec<&str> = ids.iter().skip(1).map(String::as_str).collect();
    nobody_went_but(&site, agent, &stay, 1)?;
    Ok(Outcome::Passed)
}

/// What a test of the order differs in.
struct Order {
    /// The signal, and what is left of it now.
    signal: &'static str,
    left: fn() -> Result<u64>,
    /// What the pod of low priority takes, what that of high priority takes, and how.
    low: u64,
    high: u64,
    script: fn(u64) -> String,
    /// What the one that may not go asked for.
    request: &'static str,
}

const MIB: u64 = 1 << 20;

/// Memory: the one of low priority goes although the other takes more; that is enough, so the other stays.
pub(crate) fn order_by_memory(test: &TestContext) -> Result<Outcome> {
    let order = Order {
        signal: "memory.available",
        left: || node::meminfo("MemAvailable"),
        low: 200 * MIB,
        high: 260 * MIB,
        // What it has read waits to be written to somebody who does not read.
        script: |bytes| format!("dd if=/dev/zero bs={bytes} count=1 | sleep 100000"),
        request: "{requests: {memory: 100Mi}, limits: {memory: 100Mi}}",
    };
    lowest_first(test, &order)
}

/// The same by what is written to a volume.
pub(crate) fn order_by_disk(test: &TestContext) -> Result<Outcome> {
    let order = Order {
        signal: "nodefs.available",
        left: Store::available,
        low: 12 * MIB,
        high: 16 * MIB,
        script: |bytes| {
            format!("dd if=/dev/zero of=/f bs=65536 count={}; sleep 100000", bytes >> 16)
        },
        request: "{requests: {ephemeral-storage: 8Mi}, limits: {ephemeral-storage: 8Mi}}",
    };
    lowest_first(test, &order)
}

/// The same by processes.
pub(crate) fn order_by_pids(test: &TestContext) -> Result<Outcome> {
    fs::write("/proc/sys/kernel/pid_max", "3000").context("cannot lower pid_max")?;
    let order = Order {
        signal: "pid.available",
        left: || {
            let load = fs::read_to_string("/proc/loadavg").context("cannot count tasks")?;
            let tasks = load.split(['/', ' ']).nth(4).and_then(|n| n.parse::<u64>().ok());
            Ok(3000 - tasks.context("/proc/loadavg has no tasks")?)
        },
        // Far more than what containerd and the kernel have more tasks for while a pod ends.
        low: 360,
        high: 420,
        script: |count| {
            format!(
                "n=0; while [ $n -lt {count} ]; do sleep 100000 & n=$((n+1)); done; sleep 100000"
            )
        },
        request: "{requests: {memory: 100Mi}, limits: {memory: 100Mi}}",
    };
    let result = lowest_first(test, &order);
    fs::write("/proc/sys/kernel/pid_max", "4194304").context("cannot raise pid_max")?;
    result
}

fn lowest_first(test: &TestContext, order: &Order) -> Result<Outcome> {
    let Order { signal, left, low, high, script, request } = order;
    let site = Site::new(false)?;
    remove_unused_images(&site)?;
    let modest = Wanted { name: "modest", resources: request, script: STAY, ..Wanted::default() };
    let (_, modest) = site.run(&modest)?;
    let hog = |name: &str, priority: i32, amount: u64| {
        let waiting = format!("until [ -e {GATE}/go ]; do sleep 0.2; done; {}", script(amount));
        let wanted = Wanted { name, priority, script: &waiting, ..Wanted::default() };
        site.run(&wanted).map(|(_, id)| id)
    };
    hog("low", 0, *low)?;
    let high_id = hog("high", 999_999_999, *high)?;
    let line = left()? - (low + high) + low / 2;
    let fields = format!("{NO_IMAGES}evictionHard:\n  {signal}: \"{line}\"\n");
    let mut agent = site.agent(test, &fields, "")?;
    open_gate("go")?;
    agent.wait_for(SOON, "somebody has gone", |record| is(record, "terminated"))?;
    agent.wait_for(SOON, "the pressure is over", |record| is(record, "pressureRelieved"))?;
    let victims = departed(&mut agent);
    runner::note(test, &format!("{signal} < {line}: ended {victims:?}"))?;
    ensure!(victims == ["low"], "ended: {victims:?}");
    nobody_went_but(&site, agent, &[&modest, &high_id], 1)?;
    site.containerd.import_images()?;
    Ok(Outcome::Passed)
}

/// Short names of the pods that ebb has seen go, in order.
fn departed(agent: &mut Agent) -> Vec<String> {
    let gone = agent.records().iter().filter(|record| is(record, "terminated"));
    gone.filter_map(name_of).map(|name| name.trim_start_matches("default/").to_owned()).collect()
}

fn nobody_went(site: &Site, agent: Agent, run: &[&str]) -> Result<()> {
    nobody_went_but(site, agent, run, 0)
}

/// For a while nothing more happens: these run, and no more than `gone` pods were ended.
fn nobody_went_but(site: &Site, mut agent: Agent, run: &[&str], gone: usize) -> Result<()> {
    let more = agent.wait_for(CALM, "", |record| is(record, "terminated") && gone == 0);
    ensure!(more.is_err(), "a pod was ended: {more:?}");
    let records = agent.stop()?;
    let ended = records.iter().filter(|record| is(record, "terminated")).count();
    ensure!(ended == gone, "{ended} pods were ended");
    for id in run {
        ensure!(site.runs(id)?, "{id} does not run any more");
    }
    Ok(())
}

/// What is left for a node to reclaim is its dead containers.
pub(crate) fn remove_unused_images(site: &Site) -> Result<()> {
    for image in IMAGES.iter().filter(|image| image.name.starts_with("ebb.test/gc-")) {
        remove(site, image.name)?;
    }
    remove(site, FILES)
}

fn remove(site: &Site, name: &str) -> Result<()> {
    let Ok(id) = site.containerd.image_id(name) else { return Ok(()) };
    let removed = site.containerd.wait(site.containerd.cri.remove_image(&id));
    removed.with_context(|| format!("cannot remove {name}"))
}
