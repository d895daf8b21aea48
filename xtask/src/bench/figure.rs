//! What a section measured as numbers: kept beside the text that people read, and held against another tree's.
//!
//! Programs that print their tables themselves say their figures in lines of their own among them:
//! `figure lower ms 4.13 chains, orphan`, which is what is better, the unit, the value and the name. With `figure! …` it is one of the section's main ones.
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// What came of a section.
#[derive(Debug)]
pub(crate) struct Finding {
    /// Where it was measured, for the reader of the numbers.
    pub(crate) conditions: String,
    /// The section of `docs/benchmarks.md`.
    pub(crate) text: String,
    pub(crate) figures: Vec<Figure>,
}

/// One number and what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Its own in its section.
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) value: f64,
    pub(crate) better: Better,
    /// Whether the table of the last kept runs shows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_main: bool,
}

/// Which of two values of a figure one would rather have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Better {
    /// Times, bytes, losses.
    Lower,
    /// Rates.
    Higher,
}

impl Figure {
    pub(crate) fn lower(name: impl Into<String>, unit: &str, value: f64) -> Self {
        let (name, unit) = (name.into(), unit.to_owned());
        Self { name, unit, value, better: Better::Lower, is_main: false }
    }

    pub(crate) fn higher(name: impl Into<String>, unit: &str, value: f64) -> Self {
        Self { better: Better::Higher, ..Self::lower(name, unit, value) }
    }

    /// Microseconds, in milliseconds.
    pub(crate) fn ms(name: impl Into<String>, micros: u64) -> Self {
        Self::lower(name, "ms", micros as f64 / 1e3)
    }

    /// One of those that stand for their section, if `is_main`.
    pub(crate) fn main_if(self, is_main: bool) -> Self {
        Self { is_main, ..self }
    }

    /// Another value of it, for people.
    pub(crate) fn show(&self, value: f64) -> String {
        if self.unit == "ns" { time(value) } else { format!("{} {}", digits(value), self.unit) }
    }

    /// What a program says in a line of its own.
    fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let &[mark, better, unit, value, name] = words.as_slice() else {
            bail!("a program says of a figure {line:?}")
        };
        let value =
            value.parse().with_context(|| format!("the figure in {line:?} is no number"))?;
        let figure = match better {
            "lower" => Self::lower(name, unit, value),
            "higher" => Self::higher(name, unit, value),
            _ => bail!("neither lower nor higher is better in {line:?}"),
        };
        Ok(figure.main_if(mark.ends_with('!')))
    }
}

/// What a program printed, in text for people and figures.
pub(crate) fn apart(printed: &str) -> Result<(String, Vec<Figure>)> {
    let is_figure = |line: &&str| line.starts_with("figure ") || line.starts_with("figure! ");
    let (figures, text): (Vec<&str>, Vec<&str>) = printed.lines().partition(is_figure);
    let figures = figures.into_iter().map(Figure::parse).collect::<Result<_>>()?;
    Ok((text.join("\n").trim().to_owned(), figures))
}

/// Nanoseconds for people.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

/// Three digits, or all of a whole number.
fn digits(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_figures_are_taken_out_of_its_text() {
        let printed = "| a | b |\nfigure! lower ms 4.13 chains, orphan\nfigure higher /s 9 exits\n";
        let (text, figures) = apart(printed).unwrap();
        assert_eq!(text, "| a | b |");
        let chains = Figure::lower("chains, orphan", "ms", 4.13).main_if(true);
        assert_eq!(figures, [chains, Figure::higher("exits", "/s", 9.0)]);
        assert!(apart("figure lower ms much a\n").is_err());
        assert!(apart("figure other ms 1 a\n").is_err());
    }

    #[test]
    fn values_have_three_digits_and_a_unit() {
        let show = |unit, value| Figure::lower("a", unit, value).show(value);
        assert_eq!(show("ms", 4.126), "4.13 ms");
        assert_eq!(show("MiB", 17.46), "17.5 MiB");
        assert_eq!(show("runs", 0.0), "0 runs");
        assert_eq!(show("ns", 27_400.0), "27.4 µs");
    }
}
