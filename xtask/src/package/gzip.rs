//! gzip without a name and a time: the same content is the same bytes.
use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use std::io::Write as _;

/// Compressed as well as it goes.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(bytes).context("cannot compress")?;
    encoder.finish().context("cannot compress")
}
