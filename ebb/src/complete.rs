//! `ebb complete`: completion scripts and the manual, from the same definitions as the commands.

use super::{Cli, Failure};
use anyhow::{Context as _, anyhow};
use clap::CommandFactory as _;
use std::io;
use std::path::PathBuf;

/// Arguments of `ebb complete`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to print.
    #[arg(value_enum)]
    what: What,
    /// Write the manual into this directory, a page for each command (ebb.1, ebb-run.1, …), rather than print its first page.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Completions for bash.
    Bash,
    /// Completions for zsh.
    Zsh,
    /// Completions for fish.
    Fish,
    /// The manual, in roff.
    Man,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut command = Cli::command();
    let shell = match (args.what, &args.dir) {
        (What::Man, Some(dir)) => {
            // The command that prints help has no page: every page has its own.
            let command = command.disable_help_subcommand(true);
            std::fs::create_dir_all(dir)
                .and_then(|()| clap_mangen::generate_to(command, dir))
                .with_context(|| format!("{}: the manual cannot be written", dir.display()))?;
            return Ok(());
        }
        (What::Man, None) => {
            let page = clap_mangen::Man::new(command);
            return Ok(page.render(&mut io::stdout()).context("cannot write the manual page")?);
        }
        (_, Some(_)) => {
            return Err(Failure::Input(anyhow!(
                "--dir is for the manual: ebb complete man --dir DIR"
            )));
        }
        (What::Bash, None) => clap_complete::Shell::Bash,
        (What::Zsh, None) => clap_complete::Shell::Zsh,
        (What::Fish, None) => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "ebb", &mut io::stdout());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
