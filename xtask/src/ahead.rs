//! What later steps of the check need is built ahead, at the lowest priority: while others wait, the processors have time.
//!
//! Nothing depends on it. A step builds what is missing, waits for cargo's lock where it is being built, and tells why it cannot be.
use crate::sh;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::process::Command;

/// Begins to build the fuzz targets and, `with_guests`, what runs in virtual machines. What that says goes to `ahead.log` beside what is built.
///
/// # Errors
/// When there is no program `nice`, no file for the log or no thread.
pub(crate) fn begin(with_guests: bool) -> Result<()> {
    let path = sh::target().join("ahead.log");
    let log = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let commands = [Some("fuzz"), with_guests.then_some("vm")].into_iter().flatten();
    let commands: Vec<Command> =
        commands.map(|name| behind(&log, &[name, "--no-run"])).collect::<Result<_>>()?;
    let build = || {
        for mut command in commands {
            // The step that needs it tells.
            let _ = command.status();
        }
    };
    std::thread::Builder::new().spawn(build).context("cannot make a thread")?;
    Ok(())
}

/// A command of xtask that has a processor when nobody else wants it; what it says goes to `log`.
///
/// # Errors
/// When there is no program `nice`.
pub(crate) fn behind(log: &File, words: &[&str]) -> Result<Command> {
    ensure!(sh::find_program("nice").is_some(), "there is no program nice (package coreutils)");
    let myself = std::env::current_exe().context("cannot tell which program this is")?;
    let share = || log.try_clone().context("cannot share a file");
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(myself).args(words);
    command.stdout(share()?).stderr(share()?);
    Ok(command)
}
