//! The sweep over the cgroup tree on this kernel: what it says is what the files say, and never half of it.
use crate::actors::Actor;
use crate::cgroup::{Cgroup, ROOT};
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::wait;
use anyhow::{Context, Result, anyhow, bail, ensure};
use ebb_probes::{HostSupport, Source, Sweep, Swept, Told, read_files, survey};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Counters that lag behind on purpose are brought up to date by the kernel every two seconds.
const SETTLING: Duration = Duration::from_secs(60);
/// Of the sweeps; more where the churn has not begun by then.
const ROUNDS: usize = 300;
const SOON: Duration = Duration::from_secs(60);

/// Every value that is swept, by name.
fn values(cgroup: &Swept) -> [(&'static str, Option<Told>); 20] {
    let Swept {
        id: _,
        parent: _,
        depth: _,
        usage,
        min,
        low,
        high,
        max,
        swap,
        low_events,
        high_events,
        max_events,
        oom_events,
        oom_kills,
        pids,
        anon,
        file,
        active_file,
        inactive_file,
        shmem,
        kernel,
        refaults,
        scans,
    } = *cgroup;
    [
        ("memory.current", usage),
        ("memory.min", min),
        ("memory.low", low),
        ("memory.high", high),
        ("memory.max", max),
        ("memory.swap.current", swap),
        ("low", low_events),
        ("high", high_events),
        ("max", max_events),
        ("oom", oom_events),
        ("oom_kill", oom_kills),
        ("pids.current", pids),
        ("anon", anon),
        ("file", file),
        ("active_file", active_file),
        ("inactive_file", inactive_file),
        ("shmem", shmem),
        ("kernel", kernel),
        ("workingset_refault_file", refaults),
        ("pgscan", scans),
    ]
}

/// The sweep of a subtree, or why this kernel has none.
fn open(root: &Path) -> Result<std::result::Result<Sweep, String>> {
    let host = survey();
    match Sweep::open(root, &host) {
        Ok(sweep) => {
            let best = best_way(&host);
            ensure!(sweep.program() == best, "{} sweeps, not {best}", sweep.program());
            Ok(Ok(sweep))
        }
        Err(refused) if host.functions.contains("bpf_iter_cgroup") => {
            bail!("this kernel iterates over cgroups and refuses to sweep: {:?}", refused.reasons)
        }
        Err(refused) => Ok(Err(format!("files are read: {refused}"))),
    }
}

/// What must sweep here, by what the kernel has.
fn best_way(host: &HostSupport) -> &'static str {
    if host.functions.contains("bpf_get_mem_cgroup") {
        "sweep_kfuncs"
    } else if host.functions.contains("cgroup_rstat_flush") {
        "sweep_rstat"
    } else {
        "sweep_counters"
    }
}

/// A tree with limits, kills, page cache and shared memory in it: between two readings of the files, the sweep says the same.
pub(crate) fn agrees(test: &TestContext) -> Result<Outcome> {
    let top = Cgroup::create("work.slice/sweep")?;
    let leaf = Cgroup::create("work.slice/sweep/middle/leaf")?;
    let tight = Cgroup::create("work.slice/sweep/tight")?;
    leaf.write("memory.min", "1048576")?;
    leaf.write("memory.low", "2097152")?;
    leaf.write("memory.high", "1073741824")?;
    top.write("memory.max", "400M")?;
    tight.write("memory.max", "16M")?;
    let mut sweep = match open(top.path())? {
        Ok(sweep) => sweep,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let _idle = Actor::start(&leaf, &["idle", "20"])?;
    let _cache = Actor::start(&Cgroup::create("work.slice/sweep/cache")?, &["cached", "12"])?;
    let _shared = Actor::start(&Cgroup::create("work.slice/sweep/shared")?, &["shared", "8"])?;
    Actor::start(&tight, &["hog", "0"])?.wait()?;
    let mut last = String::new();
    let held = wait::until(SETTLING, "sweep and files agree", || {
        match bracket(&mut sweep, top.path()) {
            Ok(difference) => last = difference.unwrap_or_default(),
            Err(error) => last = format!("{error:#}"),
        }
        last.is_empty()
    });
    held.map_err(|error| anyhow!("{error}: {last}"))?;
    let mut swept = Vec::new();
    sweep.read(&mut swept)?;
    let killed = find(&swept, &tight)?;
    ensure!(killed.oom_kills.is_some_and(|kills| kills.value > 0), "the kill is not counted");
    let from = |source| {
        let of = |(name, told): &(&'static str, Option<Told>)| {
            told.is_some_and(|told| told.from == source).then_some(*name)
        };
        values(killed).iter().filter_map(of).collect::<Vec<_>>().join(" ")
    };
    runner::note(
        test,
        &format!(
            "{}: by function {}; by counter {}; by statistics {}",
            sweep.program(),
            from(Source::Kfunc),
            from(Source::Counter),
            from(Source::Rstat)
        ),
    )?;
    Ok(Outcome::Passed)
}

/// Where the kernel lets programs at its statistics, a sweep needs no file at all.
pub(crate) fn tells_statistics(_: &TestContext) -> Result<Outcome> {
    let sweep = match open(Path::new(ROOT))? {
        Ok(sweep) => sweep,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let host = survey();
    match sweep.stat() {
        Some(_) => Ok(Outcome::Passed),
        None if host.functions.contains("bpf_get_mem_cgroup") => {
            bail!("{} tells no statistics", sweep.program())
        }
        None => Ok(Outcome::Skipped("memory.stat is read: statistics have no known place".into())),
    }
}

/// What differs, if anything: the cgroups or a value that is outside of what the files said before and after.
fn bracket(sweep: &mut Sweep, root: &Path) -> Result<Option<String>> {
    let (mut before, mut swept, mut after) = (Vec::new(), Vec::new(), Vec::new());
    read_files(root, &mut before)?;
    sweep.read(&mut swept)?;
    read_files(root, &mut after)?;
    let place = |cgroup: &Swept| (cgroup.id, (cgroup.parent, cgroup.depth));
    let places = |all: &[Swept]| all.iter().map(place).collect::<HashMap<_, _>>();
    if places(&before) != places(&swept) {
        return Ok(Some("other cgroups".to_owned()));
    }
    let by_id = |all: Vec<Swept>| all.into_iter().map(|c| (c.id, c)).collect::<HashMap<_, _>>();
    let (before, after) = (by_id(before), by_id(after));
    for cgroup in &swept {
        let (Some(before), Some(after)) = (before.get(&cgroup.id), after.get(&cgroup.id)) else {
            return Ok(Some("other cgroups".to_owned()));
        };
        let files = values(before).into_iter().zip(values(after));
        for ((name, told), ((_, before), (_, after))) in values(cgroup).into_iter().zip(files) {
            let Some(Told { value, .. }) = told else { continue };
            let (Some(before), Some(after)) = (before, after) else {
                return Ok(Some(format!("{name} is {value}, but no file says so")));
            };
            let (low, high) = (before.value.min(after.value), before.value.max(after.value));
            if !(low..=high).contains(&value) {
                let id = cgroup.id;
                return Ok(Some(format!("{name} of {id} is {value}, files say {low} to {high}")));
            }
        }
    }
    Ok(None)
}

fn find<'a>(swept: &'a [Swept], cgroup: &Cgroup) -> Result<&'a Swept> {
    let id = cgroup.id()?;
    swept.iter().find(|c| c.id == id).with_context(|| format!("{} is not swept", cgroup.name()))
}

/// From the root of the hierarchy, which has no limits of its own and no usage to read.
pub(crate) fn from_the_root(_: &TestContext) -> Result<Outcome> {
    let mut sweep = match open(Path::new(ROOT))? {
        Ok(sweep) => sweep,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let nested = Cgroup::create("work.slice/a/b/c/d")?;
    let (mut swept, mut files) = (Vec::new(), Vec::new());
    sweep.read(&mut swept)?;
    read_files(Path::new(ROOT), &mut files)?;
    let [root, ..] = swept.as_slice() else { bail!("nothing was swept") };
    let [root_files, ..] = files.as_slice() else { bail!("no files were read") };
    ensure!(
        (root.id, root.parent, root.depth) == (root_files.id, None, 0),
        "not the root: {root:?}"
    );
    for ((name, told), (_, file)) in values(root).into_iter().zip(values(root_files)) {
        ensure!(told.is_none() || file.is_some(), "the root has a {name} that no file has");
    }
    ensure!(root.usage.is_none() && root.pids.is_none(), "the root has a usage: {root:?}");
    ensure!(find(&swept, &nested)?.depth == 5, "a nested cgroup is at the wrong depth");
    ensure!(swept.len() == files.len(), "{} swept, {} by files", swept.len(), files.len());
    Ok(Outcome::Passed)
}

/// While cgroups come and go by the hundred, every sweep shows a tree that could have been.
pub(crate) fn among_removals(test: &TestContext) -> Result<Outcome> {
    let top = Cgroup::create("work.slice/churn")?;
    let stays = Cgroup::create("work.slice/churn/stays/below")?;
    let mut sweep = match open(top.path())? {
        Ok(sweep) => sweep,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let stop = AtomicBool::new(false);
    let (mut sizes, mut swept) = ((usize::MAX, 0), Vec::new());
    let mut rounds = 0;
    std::thread::scope(|scope| -> Result<()> {
        let churn = scope.spawn(|| churn(top.path(), &stop));
        let watched = (|| -> Result<()> {
            let deadline = Instant::now() + SOON;
            // A busy guest may let the churn begin only after all of these.
            while rounds < ROUNDS || sizes.0 == sizes.1 && Instant::now() < deadline {
                rounds += 1;
                sweep.read(&mut swept)?;
                could_have_been(&swept)?;
                ensure!(find(&swept, &stays)?.usage.is_some(), "a cgroup lost its usage");
                sizes = (sizes.0.min(swept.len()), sizes.1.max(swept.len()));
                std::thread::yield_now();
            }
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        churn.join().map_err(|_| anyhow!("the churn panicked"))??;
        watched
    })?;
    ensure!(sizes.0 < sizes.1, "the tree never changed under the sweep");
    runner::note(test, &format!("{} to {} cgroups in {rounds} sweeps", sizes.0, sizes.1))?;
    Ok(Outcome::Passed)
}

/// Make and remove small trees until told to stop.
fn churn(top: &Path, stop: &AtomicBool) -> Result<()> {
    let dirs: Vec<PathBuf> = (0..20).map(|n| top.join(format!("gone-{n}"))).collect();
    while !stop.load(Ordering::Relaxed) {
        for dir in &dirs {
            fs::create_dir_all(dir.join("inner")).context("cannot make a cgroup")?;
        }
        for dir in &dirs {
            fs::remove_dir(dir.join("inner")).context("cannot remove a cgroup")?;
            fs::remove_dir(dir).context("cannot remove a cgroup")?;
        }
    }
    Ok(())
}

/// Whether every cgroup is there once, whole, and below one that came before it.
fn could_have_been(swept: &[Swept]) -> Result<()> {
    let mut seen = HashMap::new();
    for cgroup in swept {
        ensure!(cgroup.id != 0, "a record without a cgroup");
        match cgroup.parent {
            None => ensure!(seen.is_empty(), "a second root"),
            Some(parent) => {
                let above = seen.get(&parent);
                ensure!(above == Some(&(cgroup.depth - 1)), "{cgroup:?} hangs in the air");
            }
        }
        ensure!(seen.insert(cgroup.id, cgroup.depth).is_none(), "{} is there twice", cgroup.id);
    }
    Ok(())
}

/// Many more than there is room for at first.
pub(crate) fn five_thousand(test: &TestContext) -> Result<Outcome> {
    const COUNT: usize = 5000;
    let top = Cgroup::create("work.slice/many")?;
    let mut sweep = match open(top.path())? {
        Ok(sweep) => sweep,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    crowd(&top, COUNT)?;
    let mut swept = Vec::new();
    sweep.read(&mut swept)?;
    could_have_been(&swept)?;
    // The one on top and those that hold the rest are cgroups too.
    let all = COUNT + COUNT.div_ceil(CROWD) + 1;
    ensure!(swept.len() == all, "{} of {all} cgroups were swept", swept.len());
    let known = swept.iter().filter(|cgroup| cgroup.usage.is_some()).count();
    ensure!(known == all, "{known} of {all} have a usage");
    runner::note(test, &format!("{all} cgroups"))?;
    Ok(Outcome::Passed)
}

/// Cgroups under one parent.
const CROWD: usize = 100;

/// Make `count` cgroups two levels below `top`; returns them.
pub(crate) fn crowd(top: &Cgroup, count: usize) -> Result<Vec<PathBuf>> {
    let mut made = Vec::with_capacity(count);
    for nth in 0..count {
        let (group, member) = (nth / CROWD, nth % CROWD);
        let holder = top.path().join(format!("group-{group}"));
        if member == 0 {
            Cgroup::create(&format!("{}/group-{group}/0", top.name().trim_start_matches('/')))?;
        } else {
            let dir = holder.join(member.to_string());
            fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        made.push(holder.join(member.to_string()));
    }
    Ok(made)
}
