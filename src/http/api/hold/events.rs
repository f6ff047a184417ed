//! The events of a `hold`.

use serde::Serialize;
use utoipa::ToSchema;

use crate::http::api::acquire::GrantedMember;
use crate::http::api::fields::Ends;
use crate::http::api::stream::StreamEvent;
use crate::shapes::Holder;

/// An event of a `hold`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(in crate::http::api) enum HoldEvent {
    /// The request waits in the queue. Sent again when its place has changed.
    Waiting(HoldWaiting),
    /// The lock is held.
    Granted(Box<HoldGranted>),
    /// A renewal was answered.
    Alive(HoldAlive),
    /// Another client asks for the lock. The holder decides.
    Asked(HoldAsked),
    /// The stream ends soon.
    Ending(HoldEnding),
    /// The lock is no longer held, or was not acquired. This is the last event.
    Lost(HoldEnd),
    /// The hold was released. This is the last event.
    Released(HoldEnd),
    /// A newer stream continues the hold. This is the last event.
    Moved(HoldEnd),
    /// The node stops: continue at another node. This is the last event.
    Move(HoldMove),
}

/// The place of a `hold` in the queue.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::api) struct HoldWaiting {
    /// Position in the queue, from 1.
    pub(super) place: u64,
    /// One of the holders.
    pub(super) held_by: Option<Holder>,
}

/// The grant of a `hold`.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::api) struct HoldGranted {
    /// Fencing token; null for a set.
    pub(super) token: Option<String>,
    /// The locks of a set; null for one lock.
    pub(super) locks: Option<Vec<GrantedMember>>,
    pub(super) session: String,
    pub(super) request: String,
    pub(super) handle: String,
    /// Whether an earlier stream had this hold or its place in the queue.
    pub(super) resumed: bool,
    /// Time between two events `alive`.
    pub(super) beat_ms: u64,
    /// Time without `granted` or `alive` after which the client no longer believes that it holds the lock.
    pub(super) silence_ms: u64,
    #[serde(flatten)]
    pub(super) ends: Ends,
}

/// The earliest end of a `hold` if no later renewal is answered.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::api) struct HoldAlive {
    #[serde(flatten)]
    pub(super) ends: Ends,
}

/// The request of another client to release a `hold`.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::api) struct HoldAsked {
    pub(super) lock: String,
    /// Principal of the client that asks.
    pub(super) by: String,
    /// The reason that it gives.
    pub(super) why: String,
}

/// The time until a `hold` ends because of `max_ms`.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::api) struct HoldEnding {
    pub(super) in_ms: u64,
}

/// Why a `hold` ended.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::api) struct HoldEnd {
    /// How the hold ended, for example `broken`, `expired` or `handed over`; `deadline` if its renewals were not
    /// answered in time, `not-acquired` if the wait was over, or `max_ms`.
    pub(super) reason: String,
    /// The lock of a set that ended first, or the only one; null if the session ended.
    pub(super) lock: Option<String>,
    /// The reason that an operator gave.
    pub(super) why: Option<String>,
}

impl HoldEnd {
    /// An end with only this reason.
    pub(super) fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), lock: None, why: None }
    }
}

/// The HTTP addresses of the other nodes.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::api) struct HoldMove {
    pub(super) endpoints: Vec<String>,
}

impl StreamEvent for HoldEvent {
    fn word(&self) -> &'static str {
        match self {
            Self::Waiting(_) => "waiting",
            Self::Granted(_) => "granted",
            Self::Alive(_) => "alive",
            Self::Asked(_) => "asked",
            Self::Ending(_) => "ending",
            Self::Lost(_) => "lost",
            Self::Released(_) => "released",
            Self::Moved(_) => "moved",
            Self::Move(_) => "move",
        }
    }
}
