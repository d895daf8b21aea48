//! Everything that guests are made of, prepared once: QEMU, kernel images, root disks, the payload.
use super::kernel::{self, Image};
use super::machine::{self, Job, Report};
use super::matrix::{Kernel, Matrix};
use super::payload::{Payload, Test};
use super::qemu::Qemu;
use super::userland;
use crate::alone::Lock;
use crate::arch::Arch;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Mutex;

/// MiB. Sparse: a test that fills it takes that much of the host's disk only while it runs.
const DISK: u32 = 4096;

/// For how long a soak goes on, and what makes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Soak {
    pub(crate) seconds: u64,
    /// The same seed plays the same.
    pub(crate) seed: u64,
}

impl Soak {
    /// So many seconds with this seed, or one that is different each time.
    pub(crate) fn new(seconds: u64, seed: Option<u64>) -> Self {
        // A hasher of the standard library is keyed at random.
        let random = || RandomState::new().build_hasher().finish() % 1_000_000;
        Self { seconds, seed: seed.unwrap_or_else(random) }
    }
}

/// What every guest is built from.
#[derive(Debug)]
pub(crate) struct Lab {
    matrix: Matrix,
    pub(crate) kernels: Vec<(Kernel, Image)>,
    /// Kernels that are left to `cargo xtask vm`.
    left: Vec<Kernel>,
    qemu: Qemu,
    /// Root disks by userland and architecture, each made when a test first needs it.
    disks: BTreeMap<(String, Arch), PathBuf>,
    /// Of amd64, as this machine is: its runner is asked which tests there are.
    pub(crate) payload: Payload,
    /// What guests of other architectures take, made when a test first needs it.
    others: BTreeMap<Arch, (Qemu, Payload)>,
    /// How guests soak.
    pub(crate) soak: Soak,
    /// Guests of one checkout share directories for what they are given and what they say.
    _lock: Lock,
}

impl Lab {
    /// Fetch and build what the named kernels (all when none is named) need.
    pub(crate) fn open(names: &[String]) -> Result<Self> {
        let matrix = Matrix::load()?;
        let kernels = matrix.select(names)?;
        Self::with(matrix, kernels, Vec::new())
    }

    /// What `cargo xtask test` has time for: not all kernels, and machines with some of them only.
    pub(crate) fn for_check() -> Result<Self> {
        let mut matrix = Matrix::load()?;
        matrix.is_check = true;
        let (left, tried) = matrix.select(&[])?.into_iter().partition(|kernel| kernel.only_vm);
        Self::with(matrix, tried, left)
    }

    fn with(matrix: Matrix, kernels: Vec<Kernel>, left: Vec<Kernel>) -> Result<Self> {
        let lock = Lock::take(&sh::target().join("vm/lock"), "the guests of this checkout")?;
        let kernels: Vec<(Kernel, Image)> = kernels
            .into_iter()
            .map(|kernel| kernel::fetch(&kernel).map(|image| (kernel, image)))
            .collect::<Result<_>>()?;
        let own = kernels.iter().rev().find(|(kernel, _)| kernel.arch == Arch::Amd64);
        let qemu = Qemu::prepare(own.map(|(_, newest)| newest))?;
        let payload = Payload::build(Arch::Amd64)?;
        let soak = Soak::new(180, None);
        let (disks, others) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { matrix, kernels, left, qemu, disks, payload, others, soak, _lock: lock })
    }

    /// How guests are run, for whoever reports a measurement.
    pub(crate) fn conditions(&self) -> String {
        format!("QEMU {}, {:?}", self.qemu.version, self.qemu.accel)
    }

    /// Guests that run `tests` on one kernel: one for each machine that the tests ask for.
    pub(crate) fn jobs(
        &mut self,
        kernel: &Kernel,
        image: &Image,
        tests: &[Test],
        round: usize,
    ) -> Result<Vec<Job>> {
        let mut machines: BTreeMap<&str, Vec<Test>> = BTreeMap::new();
        for test in tests.iter().filter(|test| self.matrix.tries(&test.machine, kernel)) {
            machines.entry(&test.machine).or_default().push(test.clone());
        }
        let mut jobs = Vec::new();
        for (name, tests) in machines {
            let machine = self.matrix.machine(name)?.clone();
            let dir = log_dir(kernel, name, round)?;
            let initrd = dir.join("initrd");
            let containerd = machine.containerd_on(kernel);
            let mut files = orders(kernel, containerd, self.soak, &tests);
            if machine.deploys {
                files.extend(self.payload.deployment()?);
            }
            if machine.installs {
                files.extend(self.payload.packages()?);
            }
            let arch = kernel.arch;
            self.payload_of(arch)?.write_initrd(&initrd, &files, &image.modules)?;
            let disk = self.disk(&machine.userland_on(kernel), arch)?;
            let (kernel, image) = (kernel.name.clone(), image.clone());
            jobs.push(Job { kernel, arch, image, machine, initrd, disk, tests, dir, live: false });
        }
        Ok(jobs)
    }

    /// Those of the tests whose machine is tried with this kernel.
    pub(crate) fn on<'a>(
        &'a self,
        kernel: &'a Kernel,
        tests: &'a [Test],
    ) -> impl Iterator<Item = &'a Test> {
        tests.iter().filter(|test| self.matrix.tries(&test.machine, kernel))
    }

    /// How many of the tests, with each kernel, are left to `cargo xtask vm`.
    pub(crate) fn left_out(&self, tests: &[Test]) -> usize {
        let kernels = self.kernels.iter().map(|(kernel, _)| kernel).chain(&self.left);
        let left = |kernel| {
            tests.iter().filter(|test| self.matrix.leaves_out(&test.machine, kernel)).count()
        };
        kernels.map(left).sum()
    }

    /// Run guests, `workers` at a time, the longest first; `watch` sees each report as it comes.
    pub(crate) fn run(
        &self,
        mut jobs: Vec<Job>,
        workers: usize,
        watch: impl Fn(&Job, &Report) + Sync,
    ) -> Result<Vec<(Job, Report)>> {
        // So that the last guest does not run alone for long.
        jobs.sort_by_key(|job| job.tests.iter().map(|test| test.timeout).sum::<u64>());
        let queue = Mutex::new(jobs);
        let reports = Mutex::new(Vec::new());
        let work = || -> Result<()> {
            loop {
                let next = queue.lock().ok().and_then(|mut queue| queue.pop());
                let Some(job) = next else { return Ok(()) };
                let other = self.others.get(&job.arch).map(|(qemu, _)| qemu);
                let report = machine::run(other.unwrap_or(&self.qemu), &job)?;
                fs::remove_file(&job.initrd).context("cannot remove a guest's initramfs")?;
                watch(&job, &report);
                if let Ok(mut reports) = reports.lock() {
                    reports.push((job, report));
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

    /// What guests of an architecture run.
    fn payload_of(&mut self, arch: Arch) -> Result<&Payload> {
        if arch == Arch::Amd64 {
            return Ok(&self.payload);
        }
        let (_, payload) = match self.others.entry(arch) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(empty) => empty.insert((Qemu::emulating(arch)?, Payload::build(arch)?)),
        };
        Ok(payload)
    }

    fn disk(&mut self, name: &str, arch: Arch) -> Result<PathBuf> {
        let key = (name.to_owned(), arch);
        if let Some(disk) = self.disks.get(&key) {
            return Ok(disk.clone());
        }
        let tree = userland::root(name, self.matrix.userland(name)?, arch)?;
        let disk = userland::image(&tree, self.qemu.tools(), DISK)?;
        self.disks.insert(key, disk.clone());
        Ok(disk)
    }
}

/// The files that tell a guest what to do.
fn orders(
    kernel: &Kernel,
    containerd: Option<String>,
    soak: Soak,
    tests: &[Test],
) -> Vec<(String, Vec<u8>)> {
    let lines = |items: Vec<&str>| items.iter().map(|item| format!("{item}\n")).collect();
    let orders: [(&str, String); 5] = [
        ("tests", lines(tests.iter().map(|test| test.name.as_str()).collect())),
        ("programs", lines(kernel.programs.iter().map(String::as_str).collect())),
        ("containerd", containerd.unwrap_or_default()),
        ("evictions", evictions()),
        ("soak", format!("{} {}", soak.seconds, soak.seed)),
    ];
    orders.map(|(name, text)| (name.to_owned(), text.into_bytes())).into()
}

/// How many evictions the guests try in a row: `$EBB_VM_EVICTIONS`, or as many as a run of the matrix has time for.
fn evictions() -> String {
    std::env::var("EBB_VM_EVICTIONS").unwrap_or_else(|_| "25".to_owned())
}

fn log_dir(kernel: &Kernel, machine: &str, round: usize) -> Result<PathBuf> {
    let mut dir = sh::target().join("vm").join(&kernel.name);
    if round > 0 {
        dir.push(format!("round{round}"));
    }
    dir.push(machine);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}
