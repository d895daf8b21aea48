//! The `ebb` command: see `cli` for what it can do, and the library for how.

use std::process::ExitCode;

fn main() -> ExitCode {
    ebb::cli::main()
}
