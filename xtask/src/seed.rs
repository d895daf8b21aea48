//! What a check plays at random follows from the commit: the same commit is judged alike everywhere, and each commit plays something new.
use crate::sh;
use anyhow::{Context as _, Result};
use std::process::Command;

/// Plays what another run has played; each run says its seed.
pub(crate) const VARIABLE: &str = "EBB_SEED";

/// Six digits, so that people can copy it.
const BELOW: u64 = 1_000_000;

/// `$EBB_SEED`, else what follows from the commit that is checked out; an error outside a git checkout without `$EBB_SEED`.
pub(crate) fn of_commit() -> Result<u64> {
    if let Ok(text) = std::env::var(VARIABLE) {
        return text
            .parse()
            .with_context(|| format!("{VARIABLE}={text:?} is no seed: a whole number is"));
    }
    let mut git = Command::new("git");
    git.current_dir(sh::root()).args(["rev-parse", "HEAD"]);
    let commit = sh::read(&mut git)
        .with_context(|| format!("this is no git checkout: set {VARIABLE} to a number"))?;
    from(&commit)
}

fn from(commit: &str) -> Result<u64> {
    let digits = commit.get(..12).with_context(|| format!("{commit:?} is no commit"))?;
    let number =
        u64::from_str_radix(digits, 16).with_context(|| format!("{commit:?} is no commit"))?;
    Ok(number % BELOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_one_seed_and_the_next_one_another() -> Result<()> {
        let (one, next) = ("49f08be0aa11bb22cc33", "49f08be0aa12bb22cc33");
        assert_eq!(from(one)?, from(one)?);
        assert_ne!(from(one)?, from(next)?);
        assert!(from("49f0").is_err() && from("no commit at all").is_err());
        Ok(())
    }
}
