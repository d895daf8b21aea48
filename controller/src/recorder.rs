//! Records on their way out: text or JSON lines, by a thread of its own.

use crate::leader::wall;
use crate::name;
use crate::record::{Format, Record};
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Takes records; a thread of its own writes them, so a slow reader holds nobody up.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    to: SyncSender<(u64, Record)>,
    lost: Arc<AtomicU64>,
}

/// Records that may wait for the reader.
const WAITING: usize = 10_000;

impl Recorder {
    /// A recorder, and the thread that writes until all recorders are gone.
    pub(crate) fn start(
        format: Format,
        out: impl Write + Send + 'static,
    ) -> (Self, std::thread::JoinHandle<()>) {
        let (to, from) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let thread = std::thread::spawn(move || write_all(format, out, &from, &counted));
        (Self { to, lost }, thread)
    }

    pub(crate) fn say(&self, record: Record) {
        if self.to.try_send((wall().0, record)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_all(
    format: Format,
    mut out: impl Write,
    from: &Receiver<(u64, Record)>,
    lost: &AtomicU64,
) {
    while let Ok((time, record)) = from.recv() {
        let is_written = write_one(format, &mut out, time, &record).is_ok();
        let records = lost.swap(0, Ordering::Relaxed);
        if records > 0 {
            _ = write_one(format, &mut out, time, &Record::Lost { records });
        }
        if !is_written {
            // Nobody reads any more; what is to be done is done all the same.
            from.iter().for_each(drop);
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: u64,
    #[serde(flatten)]
    record: &'a Record,
    message: String,
}

fn write_one(
    format: Format,
    out: &mut impl Write,
    time: u64,
    record: &Record,
) -> std::io::Result<()> {
    let message = record.to_string();
    match format {
        Format::Text => writeln!(out, "{}", name::line(&message))?,
        Format::Json => {
            serde_json::to_writer(&mut *out, &Line { time, record, message })?;
            writeln!(out)?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Outcome, tests::deleted};

    #[test]
    fn json_has_one_object_on_a_line_with_the_same_message() {
        let mut out = Vec::new();
        write_one(Format::Json, &mut out, 7, &deleted(None, Outcome::Would)).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["record"], "act");
        assert_eq!(value["act"], "delete");
        assert_eq!(value["outcome"], "would");
        assert_eq!(value["object"]["namespace"], "shop");
        assert_eq!(value["time"], 7);
        assert!(value["message"].as_str().is_some_and(|m| m.starts_with("would delete")));
    }
}
