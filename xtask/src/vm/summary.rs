//! What a person reads at the end: one row per kernel, every failure with its reason, one last line for machines.
use super::kernel::Image;
use super::machine::{Job, Report, Verdict};
use super::matrix::Kernel;
use super::payload::Test;
use anyhow::{Result, bail};
use std::time::Duration;

/// One guest is finished: say so at once.
pub(crate) fn progress(job: &Job, report: &Report) {
    let kernel = &job.kernel;
    for (name, text) in &report.notes {
        println!("vm: {kernel} {name}: {text}");
    }
    for (name, verdict) in &report.verdicts {
        match verdict {
            Verdict::Pass => println!("vm: {kernel} pass {name}"),
            Verdict::Skip(reason) => println!("vm: {kernel} skip {name}: {reason}"),
            Verdict::Fail(reason) => println!("vm: {kernel} FAIL {name}: {reason}"),
        }
    }
    if let Some(trouble) = &report.trouble {
        println!("vm: {kernel} TROUBLE {trouble}; see {}", job.dir.display());
    }
}

/// The table, the failures and the counts; `left_out` is how many the check leaves to `cargo xtask vm`.
///
/// # Errors
/// When anything failed, was skipped without leave, or was allowed to be skipped and was not.
pub(crate) fn print(
    kernels: &[(Kernel, Image)],
    reports: &[(Job, Report)],
    tests: impl Fn(&Kernel) -> Vec<Test>,
    left_out: usize,
    took: Duration,
) -> Result<()> {
    let mut failures = Vec::new();
    let (mut passed, mut skipped) = (0, 0);
    println!(
        "\n{:<10} {:<28} {:>6} {:>6} {:>7} {:>6}",
        "kernel", "release", "passed", "failed", "skipped", "time"
    );
    for (kernel, image) in kernels {
        let own = || {
            reports.iter().filter(|(job, _)| job.kernel == kernel.name).map(|(_, report)| report)
        };
        let tally = Tally::of(kernel, own(), &tests(kernel));
        let time: Duration = own().map(|report| report.took).sum();
        println!(
            "{:<10} {:<28} {:>6} {:>6} {:>7} {:>5}s",
            kernel.name,
            image.release,
            tally.passed,
            tally.failures.len(),
            tally.skipped,
            time.as_secs()
        );
        passed += tally.passed;
        skipped += tally.skipped;
        failures.extend(tally.failures.into_iter().map(|why| format!("{}: {why}", kernel.name)));
    }
    println!();
    for failure in &failures {
        println!("FAILED {failure}");
    }
    println!("vm: {} s in all", took.as_secs());
    if left_out > 0 {
        println!("vm: {left_out} more in `cargo xtask vm`, by `check` in vm-tests/matrix.toml");
    }
    println!("{passed} passed, {} failed, {skipped} skipped", failures.len());
    if !failures.is_empty() {
        bail!("{} of the matrix's tests failed", failures.len());
    }
    Ok(())
}

/// A kernel's verdicts held against what `matrix.toml` allows.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    skipped: usize,
    failures: Vec<String>,
}

impl Tally {
    fn of<'a>(kernel: &Kernel, reports: impl Iterator<Item = &'a Report>, tests: &[Test]) -> Self {
        let mut tally = Self::default();
        let mut seen_skipped = Vec::new();
        for report in reports {
            for (name, verdict) in &report.verdicts {
                match verdict {
                    Verdict::Pass => tally.passed += 1,
                    Verdict::Fail(reason) => tally.failures.push(format!("{name}: {reason}")),
                    Verdict::Skip(_) if kernel.may_skip.contains(name) => {
                        tally.skipped += 1;
                        seen_skipped.push(name);
                    }
                    Verdict::Skip(reason) => {
                        tally.failures.push(format!("{name}: skipped without leave: {reason}"));
                    }
                }
            }
            // Failed tests name the trouble already; a broken kernel under passing tests must not go unseen.
            let explained = report.verdicts.iter().any(|(_, v)| matches!(v, Verdict::Fail(_)));
            if let Some(trouble) = report.trouble.as_ref().filter(|_| !explained) {
                tally.failures.push(format!("the machine: {trouble}"));
            }
        }
        for name in &kernel.may_skip {
            let was_asked = tests.iter().any(|test| test.name == *name);
            if was_asked && !seen_skipped.contains(&name) {
                tally.failures.push(format!("{name}: may_skip allows it but it was not skipped"));
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    fn tally(may_skip: &[&str], verdict: Verdict, trouble: Option<&str>) -> Tally {
        let kernel = Kernel {
            containerd: "2".into(),
            name: "6.1".into(),
            suite: "bookworm".into(),
            package: "linux-image-6.1.*".into(),
            may_skip: may_skip.iter().map(|&name| name.to_owned()).collect(),
            programs: Vec::new(),
            arch: Arch::Amd64,
            machines: Vec::new(),
            only_vm: false,
        };
        let test = Test { name: "t".into(), machine: "small".into(), timeout: 1 };
        let report = Report {
            verdicts: vec![("t".into(), verdict)],
            notes: Vec::new(),
            trouble: trouble.map(str::to_owned),
            took: Duration::ZERO,
        };
        Tally::of(&kernel, [report].iter(), &[test])
    }

    #[test]
    fn a_skip_needs_leave() {
        assert_eq!(tally(&["t"], Verdict::Skip("no file".into()), None).skipped, 1);
        assert_eq!(tally(&[], Verdict::Skip("no file".into()), None).failures.len(), 1);
    }

    #[test]
    fn leave_that_is_not_needed_is_stale() {
        assert_eq!(tally(&["t"], Verdict::Pass, None).failures.len(), 1);
        assert!(tally(&["unknown"], Verdict::Pass, None).failures.is_empty());
    }

    #[test]
    fn a_broken_kernel_fails_though_its_tests_passed() {
        assert_eq!(tally(&[], Verdict::Pass, Some("soft lockup")).failures.len(), 1);
        assert_eq!(tally(&[], Verdict::Fail("x".into()), Some("oops")).failures.len(), 1);
    }
}
