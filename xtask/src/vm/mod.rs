//! `cargo xtask vm`: the guest tests on every kernel of the matrix.
//!
//! ```text
//! matrix.toml ─► kernel images (Debian, today's)          ┐
//! trixie      ─► QEMU, root disk (cached by their inputs) ├─► machines, two at a time ─► verdicts ─► table
//! this tree   ─► agent + runner (static) ─► initramfs     ┘
//! ```
//! Tests say which machine they need; each kernel boots one guest per machine. Logs are in `target/vm/KERNEL/MACHINE/`.
use anyhow::{Context, Result, bail};
use matrix::{Kernel, Matrix};
use payload::{Payload, Test};
use qemu::Qemu;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

mod kernel;
mod machine;
mod matrix;
mod payload;
mod qemu;
mod summary;
mod userland;

/// The guest's programs besides ours.
const GUEST_PACKAGES: [&str; 1] = ["busybox-static"];
/// MiB. Sparse: a test that fills it takes that much of the host's disk only while it runs.
const DISK: u32 = 4096;

/// Options of `cargo xtask vm`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernels of vm-tests/matrix.toml, by name; all when none is named.
    kernels: Vec<String>,
    /// Only tests whose name contains one of these.
    #[arg(last = true)]
    filter: Vec<String>,
    /// Guests at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Run every chosen test this many times, to find one that fails now and then.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let matrix = Matrix::load()?;
    let kernels = matrix.select(&args.kernels)?;
    let images: Vec<kernel::Image> = kernels.iter().map(kernel::fetch).collect::<Result<_>>()?;
    let first = images.first().context("the matrix has no kernel")?;
    let qemu = Qemu::prepare(first)?;
    let disk = userland::image(&userland::tree("guest", &GUEST_PACKAGES)?, qemu.tools(), DISK)?;
    let payload = Payload::build()?;
    let wanted = |test: &Test| {
        args.filter.is_empty() || args.filter.iter().any(|part| test.name.contains(part))
    };
    let tests: Vec<Test> = payload.tests()?.into_iter().filter(wanted).collect();
    if tests.is_empty() {
        bail!("no test matches {:?}", args.filter);
    }

    let mut jobs = Vec::new();
    for round in 0..args.repeat {
        for (kernel, image) in kernels.iter().zip(&images) {
            for (name, tests) in by_machine(&tests) {
                let dir = log_dir(kernel, &name, round)?;
                let shape = matrix.machines.get(&name);
                let machine =
                    shape.with_context(|| format!("matrix.toml has no machine {name}"))?;
                let initrd = dir.join("initrd");
                payload.write_initrd(&initrd, &orders(kernel, &tests))?;
                let disk = disk.as_path();
                jobs.push((kernel, machine::Job { image, machine, initrd, disk, tests, dir }));
            }
        }
    }
    // The longest first, so that the last guest does not run alone for long.
    jobs.sort_by_key(|(_, job)| job.tests.iter().map(|test| test.timeout).sum::<u64>());
    let began = Instant::now();
    let reports = run_all(&qemu, jobs, args.jobs)?;
    summary::print(&kernels, &images, &reports, &tests, began.elapsed())
}

/// A finished guest: its kernel's name and what came of it.
type Finished = (String, machine::Report);

/// Run jobs from the end of the list, `workers` at a time.
fn run_all(
    qemu: &Qemu,
    jobs: Vec<(&Kernel, machine::Job<'_>)>,
    workers: usize,
) -> Result<Vec<Finished>> {
    let queue = Mutex::new(jobs);
    let reports = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = queue.lock().ok().and_then(|mut queue| queue.pop());
            let Some((kernel, job)) = next else { return Ok(()) };
            let report = machine::run(qemu, &job)?;
            summary::progress(&kernel.name, &job.dir, &report);
            fs::remove_file(&job.initrd).context("cannot remove a guest's initramfs")?;
            if let Ok(mut reports) = reports.lock() {
                reports.push((kernel.name.clone(), report));
            }
        }
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
        handles.into_iter().try_for_each(|handle| match handle.join() {
            Ok(result) => result,
            Err(_) => bail!("a guest's thread panicked"),
        })
    })?;
    reports.into_inner().ok().context("a guest's thread panicked")
}

fn by_machine(tests: &[Test]) -> BTreeMap<String, Vec<Test>> {
    let mut machines: BTreeMap<String, Vec<Test>> = BTreeMap::new();
    for test in tests {
        machines.entry(test.machine.clone()).or_default().push(test.clone());
    }
    machines
}

/// The files that tell a guest what to do.
fn orders(kernel: &Kernel, tests: &[Test]) -> Vec<(&'static str, String)> {
    let lines = |items: Vec<&str>| items.iter().map(|item| format!("{item}\n")).collect();
    vec![
        ("tests", lines(tests.iter().map(|test| test.name.as_str()).collect())),
        ("programs", lines(kernel.programs.iter().map(String::as_str).collect())),
    ]
}

fn log_dir(kernel: &Kernel, machine: &str, round: usize) -> Result<PathBuf> {
    let mut dir: PathBuf = Path::new(&crate::sh::target()).join("vm").join(&kernel.name);
    if round > 0 {
        dir.push(format!("round{round}"));
    }
    dir.push(machine);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}
