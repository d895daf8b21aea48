//! Why the API does not serve a client any more, or did not begin to.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a client of the API was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClientRefusal {
    /// It is neither root, nor ebb's own user, nor in the group that was named.
    NotAllowed,
    /// As many clients as may be connected are.
    TooMany,
    /// It took nothing in although there was something for it.
    NotReading,
}

/// For people: what follows the client.
impl fmt::Display for ClientRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAllowed => {
                "refused: it is neither root, nor ebb's own user, nor in the group of --api-group"
            }
            Self::TooMany => "refused: as many clients as may be connected are",
            Self::NotReading => "disconnected: it took nothing in",
        })
    }
}
