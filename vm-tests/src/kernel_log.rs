//! The kernel's log of the guest.
use anyhow::{Context, Result};
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

/// Lines of it, from its beginning, that have `text` in them.
fn lines_with(text: &str) -> Result<Vec<String>> {
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut log = options.open("/dev/kmsg").context("cannot open the kernel's log")?;
    let mut found = Vec::new();
    let mut line = [0; 8192];
    loop {
        match log.read(&mut line) {
            Ok(length) => {
                let line = String::from_utf8_lossy(line.get(..length).unwrap_or_default());
                if line.contains(text) {
                    found.push(line.trim().to_owned());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(found),
            // What was overwritten meanwhile.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => return Err(error).context("cannot read the kernel's log"),
        }
    }
}

/// System calls that some ebb made although its filter does not list them, as the kernel tells them: those that it told after the line numbered `told`, which becomes the last of them.
pub(crate) fn unlisted_calls(told: &mut u64) -> Result<Vec<String>> {
    let number = |line: &String| line.split(',').nth(1)?.parse::<u64>().ok();
    let mut calls = lines_with("type=1326")?;
    calls.retain(|line| line.contains("/ebb\"") && number(line) > Some(*told));
    *told = calls.last().and_then(number).unwrap_or(*told);
    Ok(calls)
}
