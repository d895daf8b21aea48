//! Guests that measure: one for each contender, one at a time, what they leave taken out for whoever renders it.
use super::lab::Lab;
use super::machine::{Job, Report, Verdict};
use super::payload::Test;
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
    /// In the order of the registry.
    pub(crate) contenders: Vec<Measurement>,
}

/// What one contender left.
#[derive(Debug)]
pub(crate) struct Measurement {
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
    let contender = |test: &Test| Some(test.name.strip_prefix(kind)?.strip_prefix('_')?.to_owned());
    let named =
        |test: &Test| contender(test).is_some_and(|name| names.is_empty() || names.contains(&name));
    let tests: Vec<Test> = lab.payload.benches()?.into_iter().filter(named).collect();
    ensure!(!tests.is_empty(), "nothing measures {kind} of {names:?}");
    let order: Vec<String> = tests.iter().filter_map(contender).collect();
    let (kernel, image) = lab.kernels.first().context("no kernel to measure on")?.clone();
    let mut jobs = Vec::new();
    // A guest for each contender: none starts on what another left behind.
    for (round, test) in tests.into_iter().enumerate() {
        jobs.extend(lab.jobs(&kernel, &image, &[test], round)?);
    }
    // One at a time: two guests on two cores would measure each other.
    let reports = lab.run(jobs, 1, super::summary::progress)?;
    let mut contenders = reports
        .iter()
        .map(|(job, report)| measurement(kind, job, report))
        .collect::<Result<Vec<_>>>()?;
    contenders.sort_by_key(|c| order.iter().position(|name| *name == c.name));
    let conditions = format!("{}, Linux {}", lab.conditions(), image.release);
    Ok(Measured { conditions, contenders })
}

fn measurement(kind: &str, job: &Job, report: &Report) -> Result<Measurement> {
    let (test, verdict) = report.verdicts.first().context("a guest without a test")?;
    if let Verdict::Fail(why) | Verdict::Skip(why) = verdict {
        bail!("{test} could not be measured: {why}");
    }
    let name = test.trim_start_matches(kind).trim_start_matches('_').to_owned();
    Ok(Measurement { name, dir: job.unpack_files()?.join(test) })
}
