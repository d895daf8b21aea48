//! The loop: inputs are taken, verdicts follow, requests go out, and it waits for the next input.

use crate::collector::Collector;
use crate::config::{Config, Mode};
use crate::http;
use crate::job::{Done, Found};
use crate::leader::{self, Leadership};
use crate::record::{Format, Record};
use crate::recorder::Recorder;
use crate::status::Status;
use crate::watches::Watches;
use anyhow::{Context as _, Result};
use ebb_kube::{Api, Discovery, Event, Look};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// Between two discoveries.
const DISCOVERY: Duration = Duration::from_secs(30);
/// Between two that ask for everything.
const WHOLE: Duration = Duration::from_secs(300);
/// Between a change that calls for discovery and discovery: what was changed takes a moment to be served.
const SETTLES: Duration = Duration::from_millis(500);
/// How long requests under way may take at the end.
const LAST: Duration = Duration::from_secs(5);
/// Inputs at once: after them, verdicts.
const AT_ONCE: usize = 128;
/// The loop comes round at least that often.
const BEAT: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT; records go to `out`.
///
/// # Errors
/// It cannot listen where it was told to, or not for signals.
pub async fn run(
    config: Config,
    api: Api,
    format: Format,
    out: impl Write + Send + 'static,
) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let status = Arc::new(Status::new(Instant::now()));
    let taken = config.listen.map(|at| {
        ebb_http::take(at)
            .with_context(|| format!("cannot listen on {at}"))
            .map(|taken| (at, taken))
    });
    let taken = taken.transpose()?;
    let (recorder, writer) = Recorder::start(format, out);
    let mode = if config.mode == Mode::Enforce { "enforce" } else { "observe" };
    recorder.say(Record::Started { server: api.server().to_owned(), mode });
    let server = taken.map(|(at, taken)| {
        if let ebb_http::Taken::AnotherHas(_) = taken {
            recorder.say(Record::NotServed { address: at.to_string() });
        }
        tokio::spawn(http::serve(taken, Arc::clone(&status), api.clone()))
    });
    let (to_watches, watches) = mpsc::channel(64);
    let (to_done, done) = mpsc::unbounded_channel();
    let (tell, leadership) = watch::channel(Leadership::Standby { holder: None, error: None });
    let (stop_election, stopped) = oneshot::channel();
    let election = match &config.lease_namespace {
        // Who changes nothing needs no permission to.
        Some(namespace) if config.mode == Mode::Enforce => {
            let me = leader::identity();
            Some(tokio::spawn(leader::take_part(api.clone(), namespace.clone(), me, tell, stopped)))
        }
        _ => {
            tell.send_replace(Leadership::Alone);
            None
        }
    };
    let ask = Arc::new(Notify::new());
    let (to_found, found) = mpsc::channel(1);
    let discovery = tokio::spawn(discover(api.clone(), Arc::clone(&ask), to_found));
    let watching = Watches::new(to_watches);
    let collector = Collector::new(config, api, watching, recorder, status, to_done);
    let mut inputs = Inputs { watches, done, found, leadership, ask };
    let mut looped = Loop { collector, is_ready: false, published: None };
    looped.lead(&inputs);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = looped.forever(&mut inputs) => {}
    }
    discovery.abort();
    looped.finish(&mut inputs).await;
    // An election that is over already heard nothing.
    _ = stop_election.send(());
    if let Some(election) = election {
        _ = tokio::time::timeout(LAST, election).await;
    }
    if let Some(server) = server {
        server.abort();
    }
    looped.collector.recorder.say(Record::Stopped);
    drop(looped);
    _ = writer.join();
    Ok(())
}

/// Looks again every so often, or sooner when asked to.
async fn discover(api: Api, ask: Arc<Notify>, to: mpsc::Sender<Found>) {
    let mut discovery = Discovery::default();
    let mut whole = Instant::now();
    let mut look = Look::Whole;
    loop {
        let found = discovery.look(&api, look).await;
        let pause = if found.is_ok() { DISCOVERY } else { Duration::from_secs(2) };
        if to.send(found).await.is_err() {
            return;
        }
        tokio::select! {
            () = ask.notified() => {
                tokio::time::sleep(SETTLES).await;
                look = Look::Whole;
            }
            () = tokio::time::sleep(pause) => {
                look = if whole.elapsed() < WHOLE { Look::Again } else { Look::Whole };
            }
        }
        if look == Look::Whole {
            whole = Instant::now();
        }
    }
}

struct Inputs {
    watches: mpsc::Receiver<(u64, Event)>,
    done: mpsc::UnboundedReceiver<Done>,
    found: mpsc::Receiver<Found>,
    leadership: watch::Receiver<Leadership>,
    ask: Arc<Notify>,
}

struct Loop {
    collector: Collector,
    is_ready: bool,
    /// When the status was last brought up to date, and how long that took.
    published: Option<(Instant, Duration)>,
}

impl Loop {
    async fn forever(&mut self, inputs: &mut Inputs) {
        loop {
            self.once(inputs).await;
        }
    }

    async fn once(&mut self, inputs: &mut Inputs) {
        let wake = tokio::time::Instant::from_std(self.wake_at(Instant::now()));
        tokio::select! {
            biased;
            Some(done) = inputs.done.recv() => self.collector.finished(done, Instant::now()),
            changed = inputs.leadership.changed() => {
                match changed {
                    Ok(()) => self.lead(inputs),
                    // No election any more: whoever led, led alone.
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
            Some(found) = inputs.found.recv() => self.collector.discovered(found),
            Some((id, event)) = inputs.watches.recv() => self.collector.watched(id, event),
            () = tokio::time::sleep_until(wake) => {}
        }
        for _ in 0..AT_ONCE {
            if let Ok(done) = inputs.done.try_recv() {
                self.collector.finished(done, Instant::now());
            } else if let Ok((id, event)) = inputs.watches.try_recv() {
                self.collector.watched(id, event);
            } else {
                break;
            }
        }
        let now = Instant::now();
        self.collector.judge(now);
        self.collector.collect_pods(now);
        self.collector.dispatch(now);
        if std::mem::take(&mut self.collector.must_discover) {
            inputs.ask.notify_one();
        }
        self.publish(now);
    }

    fn lead(&mut self, inputs: &Inputs) {
        let leadership = inputs.leadership.borrow().clone();
        self.collector.lead(leadership, Instant::now());
    }

    fn wake_at(&self, now: Instant) -> Instant {
        if self.collector.is_dirty() {
            return now;
        }
        // What nobody may or is to do now is due for ever: it must not wake anybody.
        let pods = self.collector.config.collectors.pods;
        let acts = self.collector.may_act(now);
        let soon = [
            acts.then(|| self.collector.requests.wake_at(now)).flatten(),
            pods.then(|| self.collector.pods.wake_at(now)).flatten(),
            self.collector.believed.front().map(|(until, _)| *until),
        ];
        soon.into_iter().flatten().min().unwrap_or(now + BEAT).min(now + BEAT)
    }

    /// Brings the status up to date, not more often than it costs.
    fn publish(&mut self, now: Instant) {
        let is_ready = self.collector.is_synced();
        if is_ready && !self.is_ready {
            let (resources, broken) = self.collector.counts();
            let objects = self.collector.graph.len();
            self.collector.recorder.say(Record::Ready { objects, resources, broken });
        }
        // Ready once is ready: a list again does not take it out of service.
        self.is_ready |= is_ready;
        {
            let mut status = self.collector.status.lock();
            status.beat = now;
            status.is_ready = self.is_ready;
            status.queued = self.collector.requests.queue.len();
            status.in_flight = self.collector.requests.in_flight;
            status.window = self.collector.requests.window.size(now);
            status.is_leading = self.collector.may_act(now);
        }
        let is_due = self.published.is_none_or(|(last, took)| {
            now.duration_since(last) >= Duration::from_secs(1).max(took * 50)
        });
        if is_due {
            let objects = self.collector.graph.len();
            self.collector.status.lock().objects = objects;
            self.published = Some((now, now.elapsed()));
        }
    }

    /// Nothing new is begun; what is under way may end, and a pod that is marked is deleted.
    async fn finish(&mut self, inputs: &mut Inputs) {
        self.collector.watches.stop_all();
        self.collector.requests.clear();
        let end = tokio::time::Instant::now() + LAST;
        while self.collector.requests.in_flight > 0 {
            match tokio::time::timeout_at(end, inputs.done.recv()).await {
                Ok(Some(done)) => {
                    let now = Instant::now();
                    self.collector.finished(done, now);
                    self.collector.dispatch(now);
                }
                _ => break,
            }
        }
    }
}
