//! What an agent may take while nothing happens, as the project has promised it: a benchmark that finds more fails.

/// What a quiet minute takes of one whole agent.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Percent of one core.
    pub core: f64,
    /// Bytes, at its end.
    pub resident: u64,
    /// To the API server, beyond watches.
    pub requests: u64,
}

/// Most that a whole agent may have resident beside a full node's pods, in MiB.
pub const RESIDENT: f64 = 30.0;
/// Most that it may have resident more with an API server than without, in MiB.
pub const FOR_THE_API_SERVER: f64 = 10.0;
/// Most that it may take of one core while nothing happens, in percent.
pub const CORE: f64 = 0.1;
/// Most that it may ask of the API server beyond watches while nothing happens, in requests a minute.
pub const REQUESTS: f64 = 1.0;

/// One line for each figure that is above its limit, with both; `each` is how many requests an agent of many has made in a quiet minute.
#[must_use]
pub fn exceeded(alone: &Cost, connected: &Cost, each: f64) -> Vec<String> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let more = mib(connected.resident) - mib(alone.resident);
    let mut figures = vec![
        ("of many agents each".to_owned(), each, REQUESTS, "requests in a quiet minute"),
        (
            "with an API server more than without".to_owned(),
            more,
            FOR_THE_API_SERVER,
            "MiB resident",
        ),
    ];
    for (name, cost) in [("without an API server", alone), ("with an API server", connected)] {
        let requests = cost.requests as f64;
        figures.extend([
            (format!("a whole agent {name}"), mib(cost.resident), RESIDENT, "MiB resident"),
            (format!("a whole agent {name}"), cost.core, CORE, "% of a core in a quiet minute"),
            (format!("a whole agent {name}"), requests, REQUESTS, "requests in a quiet minute"),
        ]);
    }
    let above = figures.into_iter().filter(|(_, is, most, _)| is.is_nan() || is > most);
    above
        .map(|(what, is, most, unit)| format!("{what}: {is:.3} {unit}, at most {most} are allowed"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Cost = Cost { core: 0.1, resident: 20 << 20, requests: 0 };
    const CONNECTED: Cost = Cost { core: 0.1, resident: 30 << 20, requests: 1 };

    #[test]
    fn what_is_just_at_its_limit_is_allowed() {
        assert_eq!(exceeded(&ALONE, &CONNECTED, 1.0), [""; 0]);
    }

    #[test]
    fn each_figure_above_its_limit_is_told_with_the_limit() {
        let page = 4096;
        let cases = [
            (
                (ALONE, Cost { resident: (30 << 20) + page, ..CONNECTED }, 0.0),
                &["10.004 MiB resident, at most 10", "30.004 MiB resident, at most 30"][..],
            ),
            ((Cost { resident: (20 << 20) - page, ..ALONE }, CONNECTED, 0.0), &["at most 10 are"]),
            (
                (Cost { resident: 31 << 20, ..ALONE }, CONNECTED, 0.0),
                &["31.000 MiB resident, at most 30"],
            ),
            (
                (Cost { core: 0.11, ..ALONE }, CONNECTED, 0.0),
                &["0.110 % of a core in a quiet minute, at most 0.1"],
            ),
            ((ALONE, Cost { core: f64::NAN, ..CONNECTED }, 0.0), &["NaN % of a core"]),
            (
                (ALONE, Cost { requests: 2, ..CONNECTED }, 0.0),
                &["2.000 requests in a quiet minute, at most 1"],
            ),
            (
                (ALONE, CONNECTED, 1.01),
                &["of many agents each: 1.010 requests in a quiet minute, at most 1"],
            ),
        ];
        for ((alone, connected, each), wanted) in cases {
            let told = exceeded(&alone, &connected, each);
            let is_wanted = told.iter().zip(wanted).all(|(line, words)| line.contains(words));
            assert!(told.len() == wanted.len() && is_wanted, "{told:#?} for {wanted:#?}");
        }
    }
}
