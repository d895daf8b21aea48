//! `--listen` and `--listen-probes`: `/livez`, `/readyz` and `/metrics` of the agent, each address on a thread of its own.

use super::Failure;
use super::in_kernel::Descriptors;
use anyhow::{Context as _, anyhow};
use ebb_agent::report::Reporter;
use ebb_agent::sense::process::status_bytes;
use ebb_agent::threads;
use ebb_http::{Answer, Kept, Taken};
use ebb_journal::metrics::Metrics;
use ebb_journal::{Part, Record};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Where the agent answers.
#[derive(Debug, clap::Args)]
pub(super) struct ListenArgs {
    /// Serve /livez, /readyz and /metrics there, as in 127.0.0.1:8080, or :8080 for every address of this host. Nothing of workloads is shown but counts.
    #[arg(long, value_name = "ADDR", value_parser = ebb_http::address)]
    listen: Option<SocketAddr>,
    /// Serve /livez and /readyz there as well, for whoever starts ebb anew when they fail: an address that strangers do not reach, as 127.0.0.1:8081.
    #[arg(long, value_name = "ADDR", value_parser = ebb_http::address)]
    listen_probes: Option<SocketAddr>,
}

/// What is served at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    All,
    Probes,
}

/// An address that was asked for, and is not served yet.
pub(super) struct Listener {
    flag: &'static str,
    thread: &'static str,
    what: What,
    at: SocketAddr,
    taken: Taken,
}

impl ListenArgs {
    /// Takes the addresses, while privileges are there for a port below 1024; those that somebody else has are told in `missing`, and tried again while the agent runs.
    pub(super) fn take(&self, missing: &mut Vec<String>) -> Result<Vec<Listener>, Failure> {
        let all = [
            ("--listen", "ebb-http", What::All, self.listen),
            ("--listen-probes", "ebb-probes", What::Probes, self.listen_probes),
        ];
        let mut listeners = Vec::new();
        for (flag, thread, what, at) in all {
            let Some(at) = at else { continue };
            let taken = ebb_http::take(at)
                .map_err(|error| Failure::Input(anyhow!("{flag} {at}: {error}")))?;
            if let Taken::AnotherHas(_) = taken {
                // Whoever runs on this host may take a port: that must not keep the node without ebb.
                missing.push(format!(
                    "{flag} {at}: somebody else has the address; it is tried again every few seconds"
                ));
            }
            listeners.push(Listener { flag, thread, what, at, taken });
        }
        Ok(listeners)
    }
}

impl Listener {
    /// Serves there for as long as the process lives; where that ends early it is told by a reporter of `reporters`', and the agent goes on.
    pub(super) fn serve(
        self,
        metrics: Arc<Metrics>,
        reporters: impl Fn() -> Reporter + Clone + Send + 'static,
    ) -> anyhow::Result<()> {
        let Self { flag, thread, what, at, taken } = self;
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tell = move |why: String| {
            let what = format!("{flag} {at} is served no more: {why}; the agent goes on");
            reporters().tell(Record::Degraded { part: Part::Http, what });
        };
        let tell_panic = tell.clone();
        let serve = move || {
            let served = executor.block_on(async {
                let listener = taken.listener().await?;
                let (in_kernel, kept) = (Descriptors::default(), Kept::default());
                let answer = move |path: &str| answer(what, path, &metrics, &in_kernel, &kept);
                ebb_http::serve(listener, answer).await;
                Ok::<_, std::io::Error>(())
            });
            if let Err(error) = served {
                tell(error.to_string());
            }
        };
        let panicked = move |what: String| tell_panic(format!("it panicked: {what}"));
        threads::spawn_beside(thread, serve, panicked)
            .with_context(|| format!("cannot start the thread that serves {flag}"))?;
        Ok(())
    }
}

fn answer(
    what: What,
    path: &str,
    metrics: &Metrics,
    in_kernel: &Descriptors,
    kept: &Kept,
) -> Answer {
    let state = match (path, what) {
        ("/livez", _) => metrics.alive(),
        ("/readyz", _) => metrics.ready(),
        ("/metrics", What::All) => {
            return kept.get(Instant::now(), || {
                let mut text = metrics.text();
                write_own(&mut text);
                in_kernel.write(&mut text);
                text.push_str("# EOF\n");
                Answer::metrics(text)
            });
        }
        (_, What::All) => return Answer::not_found("/livez, /readyz and /metrics"),
        (_, What::Probes) => return Answer::not_found("/livez and /readyz"),
    };
    match state {
        Ok(()) => Answer::ok(),
        Err(why) => Answer::unavailable(why),
    }
}

/// What the agent costs, by the names that Prometheus' clients have for it.
fn write_own(out: &mut String) {
    let version = env!("CARGO_PKG_VERSION");
    // Writing into a String cannot fail.
    _ = write!(
        out,
        "# TYPE ebb_build info\n# HELP ebb_build Which ebb this is.\nebb_build_info{{version=\"{version}\"}} 1\n"
    );
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let time = usage.user_time() + usage.system_time();
        let microseconds = time.num_microseconds();
        _ = write!(
            out,
            "# TYPE process_cpu_seconds counter\n# UNIT process_cpu_seconds seconds\n# HELP process_cpu_seconds Processor time that this process has used.\nprocess_cpu_seconds_total {}.{:06}\n",
            microseconds / 1_000_000,
            microseconds % 1_000_000
        );
    }
    if let Some(bytes) = resident() {
        _ = write!(
            out,
            "# TYPE process_resident_memory_bytes gauge\n# UNIT process_resident_memory_bytes bytes\n# HELP process_resident_memory_bytes Memory that this process has resident.\nprocess_resident_memory_bytes {bytes}\n"
        );
    }
}

/// Bytes that are resident, unless that cannot be read.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status_bytes(&status, "VmRSS:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_costs_is_known() {
        let mut text = String::new();
        write_own(&mut text);
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse::<f64>().ok())
        };
        assert!(of("process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6), "{text}");
        assert!(of("process_cpu_seconds_total").is_some(), "{text}");
    }
    #[test]
    fn what_ebb_costs_is_in_the_guide_with_its_type() {
        let guide = include_str!("../../docs/operating.md");
        let mut text = String::new();
        write_own(&mut text);
        Descriptors::default().write(&mut text);
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        for (name, kind) in types {
            let end = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            let row = format!("| `{name}{end}` | {kind} |");
            assert!(guide.contains(&row), "docs/operating.md has no {row}");
        }
    }
}
