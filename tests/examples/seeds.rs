//! Writes the configurations and snapshots of all scenarios to files, as seeds for fuzzing: `DIR/config/…` and `DIR/snapshot/…`.
//!
//! `cargo run -p ebb-tests --example seeds -- DIR`; `cargo xtask fuzz` does.
use anyhow::{Context as _, Result};
use ebb_tests::conformance::{Case, Configuration, files};
use std::{env, fs, path::PathBuf};

fn main() -> Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).context("which directory? seeds DIR")?);
    let mut seeds: [(&str, Vec<String>); 2] = [("config", Vec::new()), ("snapshot", Vec::new())];
    for file in files()? {
        for scenario in file.read()?.scenarios {
            if let Configuration::Ebb(text) = scenario.configuration {
                seeds[0].1.push(text);
            }
            if let Case::Passes(passes) = scenario.case {
                for pass in passes {
                    seeds[1].1.push(serde_json::to_string_pretty(&pass.snapshot)?);
                }
            }
        }
    }
    for (target, texts) in seeds {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        for (number, text) in texts.iter().enumerate() {
            let file = folder.join(number.to_string());
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}
