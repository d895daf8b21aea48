//! `ebb complete`: completion scripts and the manual page, from the same definitions as the commands.

use super::{Cli, Failure};
use anyhow::Context as _;
use clap::CommandFactory as _;
use std::io;

/// Arguments of `ebb complete`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to print.
    #[arg(value_enum)]
    what: What,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// Completions for bash.
    Bash,
    /// Completions for zsh.
    Zsh,
    /// Completions for fish.
    Fish,
    /// The manual page, in roff.
    Man,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut command = Cli::command();
    let shell = match args.what {
        What::Bash => clap_complete::Shell::Bash,
        What::Zsh => clap_complete::Shell::Zsh,
        What::Fish => clap_complete::Shell::Fish,
        What::Man => {
            let page = clap_mangen::Man::new(command);
            return Ok(page.render(&mut io::stdout()).context("cannot write the manual page")?);
        }
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
