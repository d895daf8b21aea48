//! The terminal: taken over on the way in, and given back on every way out, a panic too.

use super::Event;
use anyhow::{Context as _, Result};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event as Input};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use ratatui::layout::{Position, Rect};
use ratatui::{Frame, Terminal};
use std::cell::Cell;
use std::io::{Stdout, stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

/// It is ours: it is given back once, by whoever is first.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Held while a screen is drawn: a thread that panics meanwhile waits until it is whole, and none is drawn afterwards.
static DRAWING: Mutex<()> = Mutex::new(());

thread_local! {
    /// This thread draws, and so must not wait for itself.
    static DRAWS: Cell<bool> = const { Cell::new(false) };
}

/// The terminal, while it is ours.
pub(super) struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    /// Takes it over.
    pub(super) fn take() -> Result<Self> {
        let told = panic::take_hook();
        // What a panic says is to be read afterwards, on the screen that was there before.
        panic::set_hook(Box::new(move |info| {
            give_back();
            told(info);
        }));
        enable_raw_mode().context("cannot read keys from this terminal")?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        DRAWS.set(true);
        let take = || {
            execute!(stdout(), EnterAlternateScreen, Hide)?;
            Terminal::new(CrosstermBackend::new(stdout()))
        };
        match take() {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                give_back();
                Err(error).context("cannot draw on this terminal")
            }
        }
    }
}

impl Screen {
    /// Its size.
    pub(super) fn area(&self) -> Result<Rect> {
        let size = self.0.size().context("this terminal has no size")?;
        Ok(Rect::from((Position::ORIGIN, size)))
    }

    /// Draws a screen, unless the terminal was given back already. It is shown all at once, by terminals that can do that.
    pub(super) fn draw(&mut self, screen: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        let _drawing = DRAWING.lock().unwrap_or_else(PoisonError::into_inner);
        if IS_TAKEN.load(Ordering::SeqCst) {
            let begun = queue!(stdout(), BeginSynchronizedUpdate);
            let drawn = begun.and_then(|()| self.0.draw(screen).map(drop));
            // Also after an error: until then the terminal shows nothing new.
            let ended = execute!(stdout(), EndSynchronizedUpdate);
            drawn.and(ended).context("cannot draw on this terminal")?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives it back; whoever cannot be reached needs nothing.
fn give_back() {
    let _drawn = (!DRAWS.get()).then(|| DRAWING.lock().unwrap_or_else(PoisonError::into_inner));
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // Whoever panics while it draws has not ended the update.
        let _ = execute!(stdout(), EndSynchronizedUpdate, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Tells of keys and of a new size until nobody listens, or there is nothing to read from any more.
pub(super) fn read_keys(events: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(Input::Key(key)) => Event::Key(key),
            Ok(Input::Resize(..)) => Event::Resized,
            Ok(_) => continue,
            Err(error) => Event::Stop(Some(format!("keys cannot be read any more: {error}"))),
        };
        let is_last = matches!(event, Event::Stop(_));
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}
