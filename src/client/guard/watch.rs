//! Looking at a hold without owning it: for those who have to hear of its loss while somebody else releases it.

use std::sync::Arc;

use super::hold::{Asked, Hold};
use super::presence::Presence;
use super::{HoldState, Lost};
use crate::model::FencingToken;

/// Tells what becomes of a hold. It keeps neither the hold nor its session alive. Clones watch the same hold; a request to
/// give it up is told to one of them.
#[derive(Debug, Clone)]
pub struct HoldWatch {
    pub(super) presence: Arc<Presence>,
    pub(super) hold: Arc<Hold>,
}

impl HoldWatch {
    /// The fencing token of the hold.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// How sure the hold is. One that was given back is lost.
    #[must_use]
    pub fn state(&self) -> HoldState {
        if self.hold.is_given_back() { HoldState::Lost } else { self.hold.state(&self.presence) }
    }

    /// Waits until the hold is lost, as [`LockGuard::lost`](super::LockGuard::lost) does. One that is given back is never
    /// lost: its watch waits until its session ends.
    pub async fn lost(&self) -> Lost {
        let presence = &self.presence;
        let (alone, reason) = tokio::select! {
            biased;
            end = presence.lost() => (false, end.reason()),
            reason = self.hold.lost(presence) => (true, reason),
        };
        let why = presence.why().filter(|_| !alone);
        Lost { lock: self.hold.name.clone(), token: self.token(), session: presence.id, alone, reason, why }
    }

    /// Waits until somebody asks the holder to give it up; `None` once it is given back or lost.
    pub async fn asked(&self) -> Option<Asked> {
        tokio::select! {
            biased;
            asked = self.hold.asked() => Some(asked),
            () = self.hold.given_back() => None,
            _ = self.lost() => None,
        }
    }
}
