//! `--listen`: `/livez`, `/readyz` and `/metrics` of the agent, on a thread of its own.

use super::Failure;
use super::in_kernel::Descriptors;
use anyhow::{Context as _, anyhow};
use ebb_agent::sense::process::status_bytes;
use ebb_http::Answer;
use ebb_journal::metrics::Metrics;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Takes the address, while privileges are there for a port below 1024.
pub(super) fn take(at: SocketAddr) -> Result<TcpListener, Failure> {
    ebb_http::listen(at).map_err(|error| Failure::Input(anyhow!("--listen {at}: {error}")))
}

/// Serves there for as long as the process lives.
pub(super) fn serve(listener: TcpListener, metrics: Arc<Metrics>) -> anyhow::Result<()> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = executor.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    ebb_agent::threads::spawn("ebb-http", move || {
        let in_kernel = Descriptors::default();
        let answer = move |path: &str| answer(path, &metrics, &in_kernel);
        executor.block_on(ebb_http::serve(listener, answer));
    })
    .context("cannot start the thread that serves metrics")?;
    Ok(())
}

fn answer(path: &str, metrics: &Metrics, in_kernel: &Descriptors) -> Answer {
    let state = match path {
        "/livez" => metrics.alive(),
        "/readyz" => metrics.ready(),
        "/metrics" => {
            let mut text = metrics.text();
            write_own(&mut text);
            in_kernel.write(&mut text);
            text.push_str("# EOF\n");
            return Answer::metrics(text);
        }
        _ => return Answer::not_found("/livez, /readyz and /metrics"),
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
