//! `ebb events`: the kernel events that ebb reacts to, as they happen.

use super::{Failure, check_left_out, colour, event_loop};
use anyhow::{Context as _, anyhow};
use ebb_agent::clock::{Boot, Clock};
use ebb_journal::Output;
use ebb_probes::{KernelEvent, Options, ProbeSet, ProbeState, Probes};
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `ebb events`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Only these kinds; may be given several times.
    #[arg(short, long, value_enum)]
    kind: Vec<Kind>,
    /// End after this many events.
    #[arg(short = 'n', long)]
    count: Option<u64>,
    /// End after this many seconds.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Size of each ring buffer in bytes: a power of two, at least a page.
    #[arg(long, value_name = "BYTES")]
    ring_bytes: Option<u32>,
    /// Do not attach this program (`ebb check` lists them); `all` attaches none. May be given several times.
    #[arg(long, value_name = "PROGRAM")]
    leave_out: Vec<String>,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Processes that ended.
    Exit,
    /// Kills by the kernel's OOM killer.
    OomKill,
    /// Changes of a cgroup's memory.events.
    MemoryEvent,
    /// Cgroups that came, went or changed.
    Cgroup,
    /// Wakes of kswapd.
    KswapdWake,
}

/// What follows the last event in JSON.
#[derive(Serialize)]
struct End {
    kind: &'static str,
    delivered: u64,
    lost: Option<ebb_probes::Lost>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    check_left_out(&args.leave_out, &[])?;
    if args.count == Some(0) {
        return Ok(());
    }
    let mut options = Options { leave_out: args.leave_out.clone(), ..Options::default() };
    if let Some(bytes) = args.ring_bytes {
        options.vital_bytes = bytes;
        options.events_bytes = bytes;
    }
    event_loop()?.block_on(stream(args, &options))
}

async fn stream(args: &Args, options: &Options) -> Result<(), Failure> {
    let set = ProbeSet::for_host(&ebb_probes::survey(), options);
    let mut probes = Probes::attach(&set, options)
        .map_err(|e| Failure::Input(anyhow!(e).context("cannot attach")))?;
    refuse_when_deaf(&probes)?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
    let until = tokio::time::sleep(Duration::from_secs(args.duration.unwrap_or(u32::MAX.into())));
    tokio::pin!(until);
    let mut printer = Printer::new(args.output);
    // Whoever started this may wait for it to be ready before making events happen.
    super::say(&format!("ebb: {} programs attached, waiting for events\n", attached(&probes)));
    let mut batch = Vec::new();
    let mut delivered = 0;
    'all: loop {
        tokio::select! {
            told = probes.next(&mut batch) => told.context("the kernel will tell nothing more")?,
            () = &mut until => break,
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
        for event in batch.drain(..) {
            if !args.kind.is_empty() && !args.kind.contains(&kind(&event)) {
                continue;
            }
            delivered += 1;
            if !printer.print(&event)? || args.count.is_some_and(|n| delivered >= n) {
                break 'all;
            }
        }
        printer.flush()?;
    }
    let lost = probes.lost().ok();
    printer.end(&End { kind: "end", delivered, lost })
}

/// Refuses, with the reasons of the kernel, when not a single program could be attached.
fn refuse_when_deaf(probes: &Probes) -> Result<(), Failure> {
    if attached(probes) > 0 {
        return Ok(());
    }
    let why = probes.status().iter().find_map(|p| match &p.state {
        ProbeState::Refused(why) | ProbeState::Absent(why) => Some(why.as_str()),
        ProbeState::Attached | ProbeState::Spare => None,
    });
    let why = why.unwrap_or("all were left out");
    Err(Failure::Host(anyhow!("no BPF program could be attached: {why}; `ebb check` says more")))
}

fn attached(probes: &Probes) -> usize {
    probes.status().iter().filter(|p| p.state == ProbeState::Attached).count()
}

fn kind(event: &KernelEvent) -> Kind {
    match event {
        KernelEvent::Exit { .. } => Kind::Exit,
        KernelEvent::OomKill { .. } => Kind::OomKill,
        KernelEvent::MemoryEvent { .. } => Kind::MemoryEvent,
        KernelEvent::Cgroup { .. } => Kind::Cgroup,
        KernelEvent::KswapdWake { .. } => Kind::KswapdWake,
    }
}

struct Printer {
    output: Output,
    colour: bool,
    clock: Clock,
    out: io::BufWriter<io::Stdout>,
}

impl Printer {
    fn new(output: Output) -> Self {
        let out = io::BufWriter::with_capacity(1 << 16, io::stdout());
        Self { output, colour: colour(), clock: Clock::of_process(), out }
    }

    /// Writes one event; `false` when nobody reads any more.
    fn print(&mut self, event: &KernelEvent) -> Result<bool, Failure> {
        let written = match self.output {
            Output::Json => serde_json::to_writer(&mut self.out, event)
                .map_err(io::Error::from)
                .and_then(|()| self.out.write_all(b"\n")),
            Output::Text => self.print_text(event),
        };
        read_on(written)
    }

    fn print_text(&mut self, event: &KernelEvent) -> io::Result<()> {
        let ms = self.clock.unix_ms(Boot(event.ts_ns()));
        let (dim, reset) = if self.colour { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        let clock = ebb_journal::text::time_of_day(ms);
        let line = described(event);
        writeln!(self.out, "{dim}{clock}{reset} {}", ebb_journal::text::plain(&line))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        read_on(self.out.flush()).map(drop)
    }

    /// Says what was delivered and what was lost.
    fn end(mut self, end: &End) -> Result<(), Failure> {
        match self.output {
            Output::Json => {
                let line = serde_json::to_string(end).context("cannot write the end")?;
                read_on(writeln!(self.out, "{line}").and_then(|()| self.out.flush()))?;
            }
            Output::Text => {
                read_on(self.out.flush())?;
                let lost = end.lost.map_or_else(|| "unknown".into(), |l| l.total().to_string());
                super::say(&format!("ebb: {} events, lost: {lost}\n", end.delivered));
            }
        }
        Ok(())
    }
}

/// One event as a line for people.
fn described(event: &KernelEvent) -> String {
    match event {
        KernelEvent::Exit { pid, comm, cgroup, status, .. } => {
            let how = match status {
                Some(ebb_probes::ExitStatus::Code(code)) => format!("with code {code}"),
                Some(ebb_probes::ExitStatus::Signal(n)) => format!("by signal {n}"),
                None => "in a way not told".to_owned(),
            };
            format!("exit         {comm} (pid {pid}) {how}, cgroup {cgroup}")
        }
        KernelEvent::OomKill { pid, comm, victim_cgroup, limit, .. } => format!(
            "oom kill     {comm} (pid {pid}), cgroup {victim_cgroup}, short of memory: {limit:?}"
        ),
        KernelEvent::MemoryEvent { cgroup, which, folded, .. } => format!(
            "memory event {} in cgroup {cgroup}, {folded} more before",
            which.map_or_else(|| "of unknown kind".to_owned(), |w| format!("{w:?}").to_lowercase())
        ),
        KernelEvent::Cgroup { change, id, path, .. } => {
            format!("cgroup       {change:?} {id} {}", path.as_deref().unwrap_or(""))
        }
        KernelEvent::KswapdWake { node, folded, .. } => {
            format!("kswapd wake  node {node}, {folded} more before")
        }
    }
}

/// A reader that has gone away (`ebb events | head`) is an end, not a failure.
fn read_on(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Failure::Failed(anyhow!(e).context("cannot write an event"))),
    }
}
