//! Guests that measure, one at a time, what they leave taken out for whoever renders it: one for each contender on one kernel, or one on each kernel.
use super::kernel::Image;
use super::lab::Lab;
use super::machine::{Job, Report, Verdict};
use super::matrix::Kernel;
use super::payload::Test;
use crate::arch::Arch;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;

/// The kernel that is measured on: the one of Debian's stable release, which every peer's package is made for.
const KERNEL: &str = "6.12";

/// What was measured, and where.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The machine, for the reader of the numbers.
    pub(crate) conditions: String,
    /// In the order of the matrix, then of the registry.
    pub(crate) contenders: Vec<Measurement>,
}

/// What one measurement left.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// Name in the matrix.
    pub(crate) kernel: String,
    /// The contender, or the whole name of a measurement that is taken on each kernel.
    pub(crate) name: String,
    dir: PathBuf,
}

impl Measurement {
    /// A file that the guest left.
    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.dir.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

/// Take the measurements of the registry whose names begin with `kind` and an underscore, for the contenders named or all of them.
///
/// # Errors
/// When one could not be taken at all.
pub(crate) fn all(kind: &str, names: &[String]) -> Result<Measured> {
    let mut lab = Lab::open(&[KERNEL.to_owned()])?;
    let contender = |test: &str| Some(test.strip_prefix(kind)?.strip_prefix('_')?.to_owned());
    let named = |test: &Test| {
        contender(&test.name).is_some_and(|name| names.is_empty() || names.contains(&name))
    };
    let tests: Vec<Test> = lab.payload.benches()?.into_iter().filter(named).collect();
    ensure!(!tests.is_empty(), "nothing measures {kind} of {names:?}");
    let order: Vec<String> = tests.iter().filter_map(|test| contender(&test.name)).collect();
    let (kernel, image) = lab.kernels.first().context("no kernel to measure on")?.clone();
    let mut jobs = Vec::new();
    // A guest for each contender: none starts on what another left behind.
    for (round, test) in tests.into_iter().enumerate() {
        jobs.extend(lab.jobs(&kernel, &image, &[test], round)?);
    }
    // One at a time: two guests on two cores would measure each other.
    let reports = lab.run(jobs, 1, super::summary::progress)?;
    let mut contenders = Vec::new();
    for (job, report) in &reports {
        for found in measurements(job, report)? {
            let name = contender(&found.name).context("a guest has measured something else")?;
            contenders.push(Measurement { name, ..found });
        }
    }
    ensure!(
        contenders.len() == order.len(),
        "only {} of {order:?} could be measured",
        contenders.len()
    );
    contenders.sort_by_key(|c| order.iter().position(|name| *name == c.name));
    let conditions = format!("{}, Linux {}", lab.conditions(), image.release);
    Ok(Measured { conditions, contenders })
}

/// Take the measurements of these names on every kernel of the matrix that is for this architecture: another is emulated by other means, and its figures compare with nothing. One that a kernel has not got what it takes for is left out.
///
/// # Errors
/// When one could not be taken.
pub(crate) fn everywhere(names: &[&str]) -> Result<Measured> {
    let mut lab = Lab::open(&[])?;
    let mut tests = lab.payload.benches()?;
    tests.retain(|test| names.contains(&test.name.as_str()));
    ensure!(tests.len() == names.len(), "not all of {names:?} are in the registry");
    let of_this = |(kernel, _): &&(Kernel, Image)| kernel.arch == Arch::Amd64;
    let kernels: Vec<_> = lab.kernels.iter().filter(of_this).cloned().collect();
    let mut jobs = Vec::new();
    for (kernel, image) in &kernels {
        jobs.extend(lab.jobs(kernel, image, &tests, 0)?);
    }
    // One at a time, as above.
    let reports = lab.run(jobs, 1, super::summary::progress)?;
    let mut contenders = Vec::new();
    for (kernel, _) in &kernels {
        for (job, report) in reports.iter().filter(|(job, _)| job.kernel == kernel.name) {
            contenders.extend(measurements(job, report)?);
        }
    }
    ensure!(!contenders.is_empty(), "no kernel has what {names:?} take");
    Ok(Measured { conditions: lab.conditions(), contenders })
}

/// What one guest left, by the names of its tests. What was skipped has left nothing.
fn measurements(job: &Job, report: &Report) -> Result<Vec<Measurement>> {
    let mut found = Vec::new();
    for (test, verdict) in &report.verdicts {
        match verdict {
            Verdict::Pass => {}
            Verdict::Skip(_) => continue,
            Verdict::Fail(why) => bail!("{test} could not be measured on {}: {why}", job.kernel),
        }
        let (kernel, dir) = (job.kernel.clone(), job.unpack_files()?.join(test));
        found.push(Measurement { kernel, name: test.clone(), dir });
    }
    Ok(found)
}
