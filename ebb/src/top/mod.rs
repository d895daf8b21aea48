//! `ebb top`: a live view of the node in a terminal, from a running agent or from a recorded incident.
//!
//! ```text
//!  keys ─────────────────────┐
//!  an agent (source) ────────┼─► Event ─► model ─► view ─► terminal
//!  signals ──────────────────┘     one loop, which owns the model
//! ```
//! [`model`] and [`view`] are pure: the same events make the same screen. `--once` draws one as plain text.

mod keys;
mod model;
mod picture;
mod replay;
mod source;
mod terminal;
mod tree;
mod view;

use super::client::{ClientArgs, failure};
use super::{Failure, colour, event_loop, incident, takes_escapes};
use anyhow::{Context as _, anyhow};
use ebb_agent::threads;
use ebb_api::client::Client;
use model::{Flow, Focus, Model, Update};
use ratatui::crossterm::event::KeyEvent;
use ratatui::crossterm::style::force_color_output;
use source::Agent;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use terminal::Screen;
use tokio::signal::unix::{Signal, SignalKind, signal};
use view::Look;

/// Columns of a screen that is no terminal's.
const WIDTH: u16 = 80;
const WIDEST: u16 = 500;

/// Arguments of `ebb top`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    api: ClientArgs,
    /// Show a recorded incident instead, decision by decision: a file, or the id that `ebb incident list` shows.
    #[arg(long, value_name = "FILE|ID", conflicts_with_all = ["api", "interval"])]
    replay: Option<PathBuf>,
    /// How often the agent is asked, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print one screen as plain text and end; as wide as $COLUMNS says, else 80 columns.
    #[arg(long)]
    once: bool,
    /// Whether to use colours; `auto` does in a terminal, unless $NO_COLOR is set.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    color: Color,
}

/// Whether to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// Everything that can happen.
#[derive(Debug)]
enum Event {
    Key(KeyEvent),
    Resized,
    /// The source has something to say.
    Update(Update),
    /// The end: a signal, or what went wrong.
    Stop(Option<String>),
}

fn seconds(text: &str) -> anyhow::Result<Duration> {
    let seconds: f64 = text.parse().map_err(|_| anyhow!("give a number of seconds, as in 0.5"))?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err(anyhow!("give 0.1 to 3600 seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if !args.once && !takes_escapes(&std::io::stdout()) {
        return Err(Failure::Input(anyhow!(
            "standard output is no terminal that a screen can be drawn on; `ebb top --once` prints one screen as text, `ebb status` how the node stands"
        )));
    }
    let mut model = match &args.replay {
        Some(named) => recorded(named)?,
        None => asked(args)?,
    };
    if args.once {
        let mut text = view::lines(&model, width()).join("\n");
        text.push('\n');
        std::io::stdout().write_all(text.as_bytes()).context("cannot write the screen")?;
        return Ok(());
    }
    let has_colour = match args.color {
        Color::Auto => colour(),
        Color::Always => true,
        Color::Never => false,
    };
    force_color_output(has_colour);
    let (events, told) = channel();
    let agent = args
        .replay
        .is_none()
        .then(|| Agent { socket: args.api.path().to_owned(), every: args.interval });
    // Signals are caught from before the terminal is taken: none finds it ours and kills.
    let runtime = event_loop()?;
    let signals = {
        let _inside = runtime.enter();
        Signals::catch()?
    };
    start("ebb-top-source", events.clone(), move |events| {
        runtime.block_on(listen(signals, agent, events));
        Ok(())
    })?;
    let screen = Screen::take()?;
    start("ebb-top-keys", events, |events| {
        terminal::read_keys(events);
        Ok(())
    })?;
    let look = Look { has_colour, is_interactive: true };
    show(screen, &mut model, &told, look)
}

/// The incident that was named.
fn recorded(named: &std::path::Path) -> Result<Model, Failure> {
    let (id, incident) = incident::recorded(named)?;
    Model::recorded(replay::steps(&id, &incident))
        .ok_or_else(|| Failure::Input(anyhow!("incident {id}: no decision was recorded of it")))
}

/// The agent, asked once: whoever asks for one that is not there is told so.
fn asked(args: &Args) -> Result<Model, Failure> {
    let model = event_loop()?.block_on(async {
        let mut client = Client::connect(args.api.path()).await?;
        let mut model = Model::live(source::ask(&mut client).await?);
        if args.once {
            let records = source::records(&mut client).await?;
            records.into_iter().for_each(|record| model.take(Update::Record(record)));
        }
        Ok(model)
    });
    model.map_err(failure)
}

fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.map_or(WIDTH, |columns: u16| columns.clamp(WIDTH / 2, WIDEST))
}

/// The signals that ask for the end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("cannot receive signals");
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
        })
    }
}

/// Tells of the agent, if there is one, until a signal asks for the end.
async fn listen(mut signals: Signals, agent: Option<Agent>, events: &Sender<Event>) {
    let Signals { terminate, interrupt, hangup } = &mut signals;
    let follow = async {
        match agent {
            Some(agent) => {
                source::follow(agent, |update| events.send(Event::Update(update)).is_ok()).await;
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
        () = follow => {}
    }
}

/// Starts a thread with whose end, also by a panic, everything ends.
fn start(
    name: &'static str,
    events: Sender<Event>,
    work: impl FnOnce(&Sender<Event>) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    let end = End(events);
    let work = move || {
        if let Err(error) = work(&end.0) {
            let _ = end.0.send(Event::Stop(Some(format!("{error:#}"))));
        }
    };
    threads::spawn(name, work).with_context(|| format!("cannot start the thread {name}"))?;
    Ok(())
}

/// Tells of the end of a thread when dropped.
struct End(Sender<Event>);

impl Drop for End {
    fn drop(&mut self) {
        let panicked = std::thread::panicking().then(|| "a thread of it panicked".to_owned());
        let _ = self.0.send(Event::Stop(panicked));
    }
}

/// Draws, and takes in what happens, until the end.
fn show(
    mut screen: Screen,
    model: &mut Model,
    events: &Receiver<Event>,
    look: Look,
) -> Result<(), Failure> {
    loop {
        model.fit(view::page(model, screen.area()?));
        screen.draw(|frame| view::draw(model, frame.area(), frame.buffer_mut(), look))?;
        // Whatever has happened by now is on the next screen.
        let first = events.recv().unwrap_or(Event::Stop(None));
        for event in std::iter::once(first).chain(events.try_iter()) {
            match event {
                Event::Update(update) => model.take(update),
                Event::Resized => {}
                Event::Key(key) => {
                    let action = keys::action(key, model.focus == Focus::Filter);
                    if action.is_some_and(|action| model.act(action) == Flow::Quit) {
                        return Ok(());
                    }
                }
                Event::Stop(None) => return Ok(()),
                Event::Stop(Some(why)) => return Err(Failure::Failed(anyhow!(why))),
            }
        }
    }
}
