//! `cargo xtask bench --compare`: what a change moved, told from pairs of runs on the same machine.
//!
//! ```text
//! BASE ─► worktree target/compare/base ┐                          ┌► figures ┐
//!                                      ├► xtask bench …, in turns ┤          ├► ratio of each pair ─► verdict
//! this tree ───────────────────────────┘                          └► figures ┘
//! ```
//! Both trees are measured by this xtask: `$EBB_ROOT` says which one it works on. So BASE need not know the command, only have what is measured.
//! A machine with neighbours is slower now and faster then. The two runs of a pair stand next to each other, and who goes first changes from pair to pair.
use super::figure::{Better, Figure};
use crate::sh;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A ratio between this and its inverse has not moved.
const LIMIT: f64 = 1.1;

/// What is measured in one run: a section or a part of it, and more words for `cargo xtask bench`.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) name: String,
    pub(super) words: Vec<String>,
}

/// One of the two trees.
#[derive(Debug)]
struct Side {
    /// For people.
    title: String,
    root: PathBuf,
    target: PathBuf,
}

/// This program, both trees, and where it puts what it needs on the way.
#[derive(Debug)]
struct Bench {
    xtask: PathBuf,
    dir: PathBuf,
    base: Side,
    present: Side,
}

/// Measure every unit in so many pairs and print what moved since the revision `base`.
///
/// # Errors
/// When one cannot be measured, when the tree was edited meanwhile, and when something became worse.
pub(super) fn run(base: &str, pairs: usize, units: &[Unit]) -> Result<()> {
    let bench = Bench::open(base)?;
    let tree = fingerprint()?;
    for unit in units {
        // So that no build stands between the two runs of a pair.
        for side in [&bench.base, &bench.present] {
            println!("compare: building what {} takes of {}", unit.name, side.title);
            bench.xtask(side, unit, &["--no-run"])?;
        }
    }
    let mut text = format!(
        "{pairs} pairs; {}.\n\n| | {} | {} | ratio | of the pairs | |\n|---|---|---|---|---|---|\n",
        super::host::conditions()?,
        bench.base.title,
        bench.present.title,
    );
    let (mut worse, mut better, mut single) = (Vec::new(), Vec::new(), Vec::new());
    let (mut blurred, mut all) = (0, 0);
    for unit in units {
        let mut found = Vec::new();
        for number in 0..pairs {
            println!("compare: {}, pair {} of {pairs}", unit.name, number + 1);
            found.push(bench.pair(unit, number % 2 == 0)?);
        }
        let (changes, alone) = changes(&found);
        for change in changes {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", change.row());
            all += 1;
            blurred += usize::from(change.noise() > LIMIT.ln());
            match change.verdict() {
                Verdict::Worse => worse.push(change.figure.name),
                Verdict::Better => better.push(change.figure.name),
                Verdict::Same => {}
            }
        }
        single.extend(alone);
    }
    ensure!(fingerprint()? == tree, "the tree was edited while it was measured: measure again");
    println!("\n{text}");
    if !single.is_empty() {
        println!("Not in every run of both: {}.", single.join("; "));
    }
    for (what, names) in [("better", &better), ("worse", &worse)] {
        if !names.is_empty() {
            println!("By more than 10 % {what}: {}.", names.join("; "));
        }
    }
    if worse.is_empty() && better.is_empty() {
        println!("Nothing moved by more than 10 % and by more than its pairs differ.");
    }
    if blurred > 0 {
        println!(
            "The pairs of {blurred} of the {all} figures differ by more than 10 %: there a shift of 10 % is not seen."
        );
    }
    ensure!(worse.is_empty(), "{} of the figures became worse", worse.len());
    Ok(())
}

/// What this tree is held against when nobody says: where its branch left main; on main what was committed before, or last where something is yet to be committed.
pub(super) fn default_base() -> Result<String> {
    let head = git(sh::root(), &["rev-parse", "HEAD"])?;
    // A clone may have no branch of that name.
    if let Ok(fork) = git(sh::root(), &["merge-base", "HEAD", "main"])
        && fork != head
    {
        return Ok(fork);
    }
    let is_clean = git(sh::root(), &["status", "--porcelain"])?.is_empty();
    Ok(if is_clean { "HEAD~1" } else { "HEAD" }.to_owned())
}

impl Bench {
    fn open(base: &str) -> Result<Self> {
        let dir = sh::target().join("compare");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        // A build of xtask in another terminal would replace the program that runs.
        let xtask = dir.join("xtask");
        let own = std::env::current_exe().context("cannot tell which program this is")?;
        fs::copy(own, &xtask).with_context(|| format!("cannot write {}", xtask.display()))?;
        let revision = format!("{base}^{{commit}}");
        let commit = git(sh::root(), &["rev-parse", "--verify", &revision])
            .with_context(|| format!("{base} is no revision"))?;
        let root = dir.join("base");
        check_out(&root, &commit)?;
        let short = git(sh::root(), &["rev-parse", "--short", &commit])?;
        let target = root.join("target");
        let base = Side { title: format!("base {short}"), root, target };
        let title = super::runs::Tree::now()?.commit;
        let (root, target) = (sh::root().to_owned(), sh::target());
        Ok(Self { xtask, dir, base, present: Side { title, root, target } })
    }

    /// The figures of base and of the present, in this order whoever goes first.
    fn pair(&self, unit: &Unit, is_base_first: bool) -> Result<[Vec<Figure>; 2]> {
        Ok(if is_base_first {
            let base = self.measure(&self.base, unit)?;
            [base, self.measure(&self.present, unit)?]
        } else {
            let present = self.measure(&self.present, unit)?;
            [self.measure(&self.base, unit)?, present]
        })
    }

    fn measure(&self, side: &Side, unit: &Unit) -> Result<Vec<Figure>> {
        let to = self.dir.join("figures.json");
        let path = to.display().to_string();
        self.xtask(side, unit, &["--short", "--figures", &path])?;
        let text = fs::read_to_string(&to).with_context(|| format!("cannot read {path}"))?;
        serde_json::from_str(&text).with_context(|| format!("in {path}"))
    }

    /// `cargo xtask bench` on one of the trees. What it says goes to a file.
    fn xtask(&self, side: &Side, unit: &Unit, words: &[&str]) -> Result<()> {
        let log = self.dir.join("log");
        let file =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut xtask = Command::new(&self.xtask);
        xtask.current_dir(&side.root).env(sh::ROOT, &side.root);
        // Each tree has its own BPF objects.
        xtask.env("CARGO_TARGET_DIR", &side.target).env_remove("EBB_BPF_DIR");
        xtask.arg("bench").args(&unit.words).args(words);
        xtask.stderr(file.try_clone().context("cannot share a file")?).stdout(file);
        sh::run(&mut xtask)
            .with_context(|| format!("{} of {} (see {})", unit.name, side.title, log.display()))
    }
}

/// Puts a commit into a worktree of its own. What was built there before stays, so that only what differs is built anew.
fn check_out(root: &Path, commit: &str) -> Result<()> {
    if root.join(".git").exists() {
        return git(root, &["checkout", "--quiet", "--force", "--detach", commit]).map(drop);
    }
    // Somebody may have removed the directory, as `cargo clean` does.
    git(sh::root(), &["worktree", "prune"])?;
    let path = root.display().to_string();
    git(sh::root(), &["worktree", "add", "--quiet", "--force", "--detach", &path, commit]).map(drop)
}

fn git(dir: &Path, words: &[&str]) -> Result<String> {
    sh::read(Command::new("git").current_dir(dir).args(words))
}

/// The tree as it is on disk.
fn fingerprint() -> Result<String> {
    let state = ["rev-parse HEAD", "status --porcelain", "diff HEAD"];
    let read = |words: &str| git(sh::root(), &words.split(' ').collect::<Vec<_>>());
    let state = state.into_iter().map(read).collect::<Result<Vec<_>>>()?;
    sh::sha256(state.concat().as_bytes())
}

/// How one figure moved.
#[derive(Debug)]
struct Change {
    figure: Figure,
    /// Medians of the runs.
    base: f64,
    present: f64,
    /// The present by base, of each pair, sorted.
    ratios: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Worse,
    Better,
    Same,
}

/// What became of each figure that every run has, and the names of all others.
fn changes(pairs: &[[Vec<Figure>; 2]]) -> (Vec<Change>, Vec<String>) {
    let (mut changes, mut alone): (Vec<Change>, Vec<String>) = (Vec::new(), Vec::new());
    for figure in pairs.iter().flatten().flatten() {
        let is_known = changes.iter().any(|change| change.figure.name == figure.name);
        if is_known || alone.contains(&figure.name) {
            continue;
        }
        let value = |figures: &[Figure]| {
            let same = figures.iter().find(|f| f.name == figure.name && f.unit == figure.unit);
            same.map(|same| same.value)
        };
        let values: Option<Vec<(f64, f64)>> =
            pairs.iter().map(|[base, present]| Some((value(base)?, value(present)?))).collect();
        match values {
            Some(values) => changes.push(Change::of(figure, &values)),
            None => alone.push(figure.name.clone()),
        }
    }
    (changes, alone)
}

impl Change {
    fn of(figure: &Figure, pairs: &[(f64, f64)]) -> Self {
        Self {
            figure: figure.clone(),
            base: median(&sorted(pairs.iter().map(|(base, _)| *base))),
            present: median(&sorted(pairs.iter().map(|(_, present)| *present))),
            ratios: sorted(pairs.iter().map(|pair| ratio(*pair))),
        }
    }

    fn ratio(&self) -> f64 {
        median(&self.ratios)
    }

    /// The lowest and the highest ratio.
    fn spread(&self) -> (f64, f64) {
        let of = |ratio: Option<&f64>| ratio.copied().unwrap_or(1.0);
        (of(self.ratios.first()), of(self.ratios.last()))
    }

    /// From the lowest ratio to the highest, as a logarithm. A shift that is smaller is not seen.
    fn noise(&self) -> f64 {
        let (low, high) = self.spread();
        high.ln() - low.ln()
    }

    /// It has moved when the median of the ratios is off by more than the limit, and by more than the pairs differ among themselves. Then none of them says the opposite.
    fn verdict(&self) -> Verdict {
        // As logarithms: twice as slow is as far as twice as fast.
        let shift = self.ratio().ln().abs();
        if shift <= LIMIT.ln() || shift <= self.noise() {
            return Verdict::Same;
        }
        let is_less = self.ratio() < 1.0;
        if is_less == (self.figure.better == Better::Lower) {
            Verdict::Better
        } else {
            Verdict::Worse
        }
    }

    fn row(&self) -> String {
        let (low, high) = self.spread();
        let is_time = ["ns", "ms", "s", "/s"].contains(&self.figure.unit.as_str());
        let verdict = match (self.verdict(), is_time) {
            (Verdict::Same, _) => "the same within noise",
            (Verdict::Worse, true) => "**slower**",
            (Verdict::Worse, false) => "**worse**",
            (Verdict::Better, true) => "faster",
            (Verdict::Better, false) => "better",
        };
        format!(
            "| {} | {} | {} | {:.2} | {low:.2} to {high:.2} | {verdict} |",
            self.figure.name,
            self.figure.show(self.base),
            self.figure.show(self.present),
            self.ratio(),
        )
    }
}

/// Nothing beside nothing is the same.
fn ratio((base, present): (f64, f64)) -> f64 {
    if base == present { 1.0 } else { present / base }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Of sorted values; the mean of the two in the middle where there are two.
fn median(sorted: &[f64]) -> f64 {
    let middle = |at: usize| sorted.get(at).copied().unwrap_or(f64::NAN);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        middle(half)
    } else {
        f64::midpoint(middle(half.wrapping_sub(1)), middle(half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(base: [f64; 5], present: [f64; 5]) -> Verdict {
        let pairs: Vec<_> = base.into_iter().zip(present).collect();
        Change::of(&Figure::lower("a decision", "ns", 0.0), &pairs).verdict()
    }

    #[test]
    fn a_shift_beyond_the_pairs_is_told_in_both_directions() {
        let base = [100.0, 103.0, 98.0, 101.0, 99.0];
        let slower = [121.0, 119.0, 124.0, 118.0, 122.0];
        assert_eq!(verdict(base, slower), Verdict::Worse);
        assert_eq!(verdict(slower, base), Verdict::Better);
        assert_eq!(verdict(base, base), Verdict::Same);
    }

    #[test]
    fn a_machine_that_becomes_slower_for_both_hides_nothing() {
        let base = [100.0, 140.0, 200.0, 260.0, 300.0];
        assert_eq!(verdict(base, base.map(|value| value * 1.2)), Verdict::Worse);
        assert_eq!(verdict(base, base.map(|value| value * 1.05)), Verdict::Same);
    }

    #[test]
    fn noise_is_not_told_however_large_it_is() {
        let base = [100.0, 130.0, 95.0, 180.0, 99.0];
        let noisy = [140.0, 120.0, 160.0, 150.0, 135.0];
        assert_eq!(verdict(base, noisy), Verdict::Same, "a pair says the opposite");
        let wide = [115.0, 150.0, 118.0, 400.0, 112.0];
        assert_eq!(verdict(base, wide), Verdict::Same, "the pairs differ by more than they moved");
        // As it was seen of one tree on a machine with fourteen others at work.
        let seen = [0.14, 0.91, 0.21, 0.16, 0.30].map(|ratio| 430.0 * ratio);
        assert_eq!(verdict([430.0; 5], seen), Verdict::Same, "all are faster by chance");
    }

    #[test]
    fn less_than_a_tenth_is_not_told_however_sure_it_is() {
        let base = [100.0; 5];
        assert_eq!(verdict(base, [109.0; 5]), Verdict::Same);
        assert_eq!(verdict(base, [112.0; 5]), Verdict::Worse);
    }

    #[test]
    fn of_a_rate_more_is_better() {
        let pairs = [(100.0, 150.0), (110.0, 150.0), (90.0, 140.0)];
        let change = Change::of(&Figure::higher("judged", "/s", 0.0), &pairs);
        assert_eq!(change.verdict(), Verdict::Better);
        assert_eq!(change.row(), "| judged | 100 /s | 150 /s | 1.50 | 1.36 to 1.56 | faster |");
    }

    #[test]
    fn losses_that_were_none_and_are_some_are_worse() {
        assert_eq!(verdict([0.0; 5], [0.0; 5]), Verdict::Same);
        assert_eq!(verdict([0.0; 5], [2.0, 1.0, 3.0, 1.0, 1.0]), Verdict::Worse);
        assert_eq!(verdict([0.0; 5], [2.0, 0.0, 0.0, 1.0, 1.0]), Verdict::Same);
    }

    #[test]
    fn a_figure_that_not_every_run_has_is_named_and_not_judged() {
        let [old, new, both] = ["old", "new", "both"].map(|name| Figure::lower(name, "s", 1.0));
        let pairs = [[vec![old.clone(), both.clone()], vec![both.clone(), new.clone()]]];
        let (changes, alone) = changes(&pairs);
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].figure, both);
        assert_eq!(alone, ["old", "new"]);
    }

    #[test]
    fn of_an_even_number_the_median_lies_between() {
        assert_eq!(median(&[1.0, 2.0, 4.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}
