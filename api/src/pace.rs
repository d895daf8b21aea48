//! How a client is handed something: at its own pace, and no slower than is good for everybody.

use crate::connection::Client;
use crate::events::{Event, Events};
use ebb_journal::ClientRefusal;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

/// How long a client may take nothing in although something is there for it.
const STALLED: Duration = Duration::from_secs(10);

/// Bytes of one piece of what is handed out in pieces.
pub(crate) const PIECE: usize = 32 << 10;

/// Hands things to a client.
pub(crate) struct Hand<T> {
    pub(crate) to: Sender<T>,
    pub(crate) client: Client,
    pub(crate) events: Events,
}

impl<T> Hand<T> {
    /// Hands it the next thing; returns whether it is still there.
    ///
    /// One that takes nothing in loses its connection: of an answer that nobody takes, nothing more is ever asked for, and what it holds would be held for as long as it likes.
    pub(crate) async fn over(&self, next: T) -> bool {
        match timeout(STALLED, self.to.send(next)).await {
            Ok(sent) => sent.is_ok(),
            Err(_) => {
                let refused = Event::Refused(self.client.peer, ClientRefusal::NotReading);
                self.events.tell(refused);
                self.client.disconnect();
                false
            }
        }
    }
}
