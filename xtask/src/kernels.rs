//! `cargo xtask kernels`: docs/kernels.md, from what `ebb check` answers on each kernel of the matrix.
use crate::sh;
use crate::vm::lab::Lab;
use crate::vm::machine::Verdict;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fmt::Write as _;
use std::fs;

/// The guest test that leaves the answer.
const TEST: &str = "ebb_check_finds_everything_live";

/// The answer of `ebb check --output json`, as far as the document shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Answer {
    findings: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Finding {
    what: String,
    status: String,
    source: String,
    #[serde(default)]
    advice: Option<String>,
}

pub(crate) fn run() -> Result<()> {
    let mut lab = Lab::open(&[])?;
    let tests: Vec<_> = lab.payload.tests()?.into_iter().filter(|t| t.name == TEST).collect();
    let mut jobs = Vec::new();
    for (kernel, image) in lab.kernels.clone() {
        jobs.extend(lab.jobs(&kernel, &image, &tests, 0)?);
    }
    let reports = lab.run(jobs, 2, |_, _| {})?;
    let mut answers = Vec::new();
    for (kernel, image) in &lab.kernels {
        let report = reports.iter().find(|(job, _)| job.kernel == kernel.name);
        let (job, report) = report.with_context(|| format!("{} was not asked", kernel.name))?;
        match report.verdicts.first() {
            Some((_, Verdict::Pass)) => {}
            other => bail!("{} did not answer: {other:?}", kernel.name),
        }
        let path = job.unpack_files()?.join(TEST).join("check.json");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let answer: Answer = serde_json::from_str(&text)
            .with_context(|| format!("cannot understand {}", path.display()))?;
        answers.push((kernel.name.clone(), image.release.clone(), answer));
    }
    let path = sh::root().join("docs/kernels.md");
    fs::write(&path, render(&answers))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("kernels: wrote {}", path.display());
    Ok(())
}

fn render(answers: &[(String, String, Answer)]) -> String {
    let mut text = "# Kernels\n\n\
        Written by `cargo xtask kernels` from what `ebb check` answers, as root, on each kernel of the matrix; not edited by hand.\n\
        Distributions add to their kernels and take from them: on a host of your own, `ebb check` is right and this table is not.\n\n"
        .to_owned();
    for (kernel, release, _) in answers {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "- {kernel}: `{release}`");
    }
    text += "\n| what ebb does | by | kernels |\n|---|---|---|\n";
    for what in rows(answers) {
        for (way, kernels) in ways(answers, &what) {
            let _ = writeln!(text, "| {what} | {way} | {} |", kernels.join(", "));
        }
    }
    text
}

/// Everything that ebb does, in the order of the first answer.
fn rows(answers: &[(String, String, Answer)]) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for finding in answers.iter().flat_map(|(_, _, answer)| &answer.findings) {
        if !rows.contains(&finding.what) {
            rows.push(finding.what.clone());
        }
    }
    rows
}

/// The ways in which one thing is done, each with the kernels that do it so.
fn ways<'a>(answers: &'a [(String, String, Answer)], what: &str) -> Vec<(String, Vec<&'a str>)> {
    let mut ways: Vec<(String, Vec<&str>)> = Vec::new();
    for (kernel, _, answer) in answers {
        let Some(finding) = answer.findings.iter().find(|finding| finding.what == what) else {
            continue;
        };
        let mut way = finding.source.replace('|', "\\|");
        if finding.status != "live" {
            let why = finding.advice.as_deref().unwrap_or("no reason is given");
            let _ = write!(way, " ({}: {})", finding.status, why.replace('|', "\\|"));
        }
        match ways.iter_mut().find(|(other, _)| *other == way) {
            Some((_, kernels)) => kernels.push(kernel),
            None => ways.push((way, vec![kernel])),
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kernel: &str, by: &str, status: &str) -> (String, String, Answer) {
        let finding = Finding {
            what: "kill a workload".into(),
            status: status.into(),
            source: by.into(),
            advice: Some("a reason".into()),
        };
        (kernel.into(), format!("{kernel}.0"), Answer { findings: vec![finding] })
    }

    #[test]
    fn kernels_that_do_it_alike_share_a_row_and_a_lesser_way_says_why() {
        let answers = [
            answer("5.10", "signals", "degraded"),
            answer("6.1", "cgroup.kill", "live"),
            answer("7", "cgroup.kill", "live"),
        ];
        let text = render(&answers);
        assert!(text.contains("| kill a workload | signals (degraded: a reason) | 5.10 |\n"));
        assert!(text.contains("| kill a workload | cgroup.kill | 6.1, 7 |\n"));
    }
}
