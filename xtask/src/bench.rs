//! `cargo xtask bench`: measurements whose results are kept in `docs/benchmarks.md`.
//!
//! Each section of that file stands between two marker lines and is replaced as a whole by the one command that
//! measures it; the text around the sections is written by people.
use crate::{sh, vm};
use anyhow::{Context, Result};
use std::fs;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these contenders of the race (ebb, earlyoom, …); then nothing is kept.
    contenders: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let race = vm::race::run(&args.contenders)?;
    println!("\n{race}");
    if args.contenders.is_empty() {
        keep("race", &race)?;
    }
    Ok(())
}

/// Replace the section `name` of the document.
fn keep(name: &str, section: &str) -> Result<()> {
    let path = sh::root().join("docs/benchmarks.md");
    let old =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let new = replaced(&old, name, section)
        .with_context(|| format!("{} has no section {name}", path.display()))?;
    fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))
}

fn replaced(document: &str, name: &str, section: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{}\n{end}{after}", section.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_nothing_else() {
        let old = "# T\n<!-- a: begin -->\nold\n<!-- a: end -->\nafter\n";
        let new = "# T\n<!-- a: begin -->\nnew\n<!-- a: end -->\nafter\n";
        assert_eq!(replaced(old, "a", "new\n").as_deref(), Some(new));
        assert_eq!(replaced(old, "b", "new"), None);
    }
}
