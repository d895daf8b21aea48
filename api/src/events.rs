//! What the server itself has to tell, on its way from the tasks to its loop.

use crate::peer::Peer;
use ebb_journal::ClientRefusal;
use tokio::sync::mpsc;

/// Events that may wait to be told.
const WAITING: usize = 64;

/// What the server itself has to tell.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client was refused or disconnected.
    Refused(Peer, ClientRefusal),
    /// A call panicked.
    Panicked,
}

/// The way of events to the server's loop.
#[derive(Clone, Debug)]
pub(crate) struct Events(mpsc::Sender<Event>);

/// A way, and its other end.
pub(crate) fn events() -> (Events, mpsc::Receiver<Event>) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Events(sender), receiver)
}

impl Events {
    /// Tells of an event; one too many is not told.
    pub(crate) fn tell(&self, event: Event) {
        let _ = self.0.try_send(event);
    }
}
