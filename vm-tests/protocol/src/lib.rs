//! What a guest tells its host, one line at a time, on a serial port of its own.
//!
//! ```text
//! @@ hello RELEASE          the runner is alive on this kernel
//! @@ start NAME             a test begins (every started test gets exactly one verdict, unless the guest dies)
//! @@ note NAME TEXT         a measurement worth showing, any number of times
//! @@ pass NAME MS
//! @@ fail NAME MS REASON
//! @@ skip NAME REASON       the kernel lacks what the test needs; the host knows which skips it accepts
//! @@ done                   nothing more will come
//! ```
//! Lines, not frames: a guest that crashes leaves every verdict it had reached, and a person can read the log.
//! Text that does not start with `@@` is not part of the protocol and is ignored.
pub mod figures;
pub mod images;

use std::fmt;

/// Where guests find the programs of a Kubernetes, on machines that have one.
pub const KUBERNETES: &str = "/opt/kubernetes";

/// One line of the protocol. `NAME` has no spaces; texts are one line (line breaks become ` / `).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The runner is alive on this kernel release.
    Hello(String),
    /// A test begins.
    Start(String),
    /// A measurement of a running test: name, text.
    Note(String, String),
    /// The test passed: name, milliseconds.
    Pass(String, u64),
    /// The test failed: name, milliseconds, reason.
    Fail(String, u64, String),
    /// The kernel lacks what the test needs: name, reason.
    Skip(String, String),
    /// Nothing more will come.
    Done,
}

impl Line {
    /// Read one line; `None` for anything that is not a whole line of the protocol.
    pub fn parse(line: &str) -> Option<Self> {
        let rest = line.trim_end().strip_prefix("@@ ")?;
        let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let name = Some(name).filter(|name| !name.is_empty()).map(str::to_owned);
        match word {
            "hello" => Some(Self::Hello(rest.to_owned())),
            "start" => Some(Self::Start(name?)),
            "note" => Some(Self::Note(name?, text.to_owned())),
            "pass" => Some(Self::Pass(name?, text.parse().ok()?)),
            "fail" => {
                let (ms, reason) = text.split_once(' ')?;
                Some(Self::Fail(name?, ms.parse().ok()?, reason.to_owned()))
            }
            "skip" => Some(Self::Skip(name?, text.to_owned())),
            "done" => Some(Self::Done),
            _ => None,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(release) => write!(f, "@@ hello {}", one_line(release)),
            Self::Start(name) => write!(f, "@@ start {name}"),
            Self::Note(name, text) => write!(f, "@@ note {name} {}", one_line(text)),
            Self::Pass(name, ms) => write!(f, "@@ pass {name} {ms}"),
            Self::Fail(name, ms, reason) => write!(f, "@@ fail {name} {ms} {}", one_line(reason)),
            Self::Skip(name, reason) => write!(f, "@@ skip {name} {}", one_line(reason)),
            Self::Done => f.write_str("@@ done"),
        }
    }
}

/// Line breaks become ` / `; the first line keeps its indentation, which a note may need to line up.
fn one_line(text: &str) -> String {
    let (first, rest) = text.trim_end().split_once('\n').unwrap_or((text, ""));
    let rest = rest.lines().map(str::trim).filter(|line| !line.is_empty());
    std::iter::once(first.trim_end()).chain(rest).collect::<Vec<_>>().join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_survives_the_wire() {
        let lines = [
            Line::Hello("6.12.1".into()),
            Line::Start("a_test".into()),
            Line::Note("a_test".into(), "  p99 = 3 ms".into()),
            Line::Pass("a_test".into(), 12),
            Line::Fail("a_test".into(), 7, "left: 1 right: 2".into()),
            Line::Skip("a_test".into(), "no cgroup.kill".into()),
            Line::Done,
        ];
        for line in lines {
            assert_eq!(Line::parse(&format!("{line}\r\n")), Some(line));
        }
    }

    #[test]
    fn a_reason_of_many_lines_stays_one() {
        let line = Line::Fail("t".into(), 1, "first\n\n  second\n".into());
        assert_eq!(line.to_string(), "@@ fail t 1 first / second");
    }

    #[test]
    fn a_line_cut_short_by_a_crash_is_no_verdict() {
        for cut in ["@@ pass", "@@ pass t", "@@ pass t x", "@@ fail t 3", "@ done", "", "@@ dom"] {
            assert_eq!(Line::parse(cut), None, "{cut}");
        }
    }
}
