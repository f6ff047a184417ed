//! The valid tokens of a lock. A resource keeps them, so that it can check tokens without a request to the cluster.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Event, EventKind, FencingToken, LockKey, Position};

/// The valid tokens of one lock, as of a position.
///
/// - A stale token stays stale, so this verdict is final.
/// - A token that is valid here may have become stale in the meantime. A resource that only follows events cannot
///   exclude this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidTokens {
    /// The lock's full name.
    pub lock: LockKey,
    /// The position up to which events are included.
    pub seen: Position,
    /// Tokens of the current holders: at most one for an exclusive hold, several for shared holds and permits.
    pub tokens: BTreeSet<FencingToken>,
    /// A token below every token that is granted later.
    pub next: FencingToken,
}

/// How the valid tokens changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenChange {
    /// The token that is stale from now on.
    pub ended: Option<FencingToken>,
    /// The token that is valid from now on.
    pub granted: Option<FencingToken>,
}

/// What is known of a token without a request to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenVerdict {
    /// The hold of the token has ended, or it was never a token of this lock. This verdict is final.
    Stale,
    /// The token belonged to a holder at the position `seen`.
    Valid,
    /// The token is newer than all events that were seen. Ask the cluster, or wait for more events.
    Ahead,
}

impl ValidTokens {
    /// Every token below this one is stale: the oldest valid token, or the next one if the lock is free.
    #[must_use]
    pub fn floor(&self) -> FencingToken {
        self.tokens.first().copied().unwrap_or(self.next)
    }

    /// The verdict on this token.
    #[must_use]
    pub fn judge(&self, token: FencingToken) -> TokenVerdict {
        if self.tokens.contains(&token) {
            TokenVerdict::Valid
        } else if token < self.next {
            TokenVerdict::Stale
        } else {
            TokenVerdict::Ahead
        }
    }

    /// Applies an event and returns how it changed the tokens. An event that was applied before changes nothing.
    pub fn follow(&mut self, event: &Event) -> Option<TokenChange> {
        if event.position <= self.seen {
            return None;
        }
        self.seen = event.position;
        if event.subject.lock() != Some(&self.lock) {
            return None;
        }
        let (ended, granted) = event.tokens();
        if let Some(granted) = granted {
            self.tokens.insert(granted);
            self.next = self.next.max(granted.following());
        }
        let ended = ended.filter(|ended| self.tokens.remove(ended));
        (ended.is_some() || granted.is_some()).then_some(TokenChange { ended, granted })
    }
}

impl Event {
    /// Returns the token that the event ended, and the token that it granted.
    pub(crate) fn tokens(&self) -> (Option<FencingToken>, Option<FencingToken>) {
        let token = self.subject.token();
        match &self.kind {
            EventKind::Granted { .. } => (None, token),
            EventKind::Upgraded { from, .. } | EventKind::Resumed { from, .. } | EventKind::HandedOver { from, .. } => {
                (Some(*from), token)
            }
            EventKind::Released { .. } | EventKind::Expired { .. } | EventKind::Broken { .. } => (token, None),
            EventKind::Queued { .. }
            | EventKind::WaitEnded { .. }
            | EventKind::Downgraded
            | EventKind::PermitsReturned { .. }
            | EventKind::RevokeRequested { .. }
            | EventKind::ValueChanged
            | EventKind::Recalled
            | EventKind::LimitChanged { .. }
            | EventKind::Reopened
            | EventKind::SessionOpened
            | EventKind::SessionEnded { .. }
            | EventKind::LeaderlessGap { .. } => (None, None),
        }
    }
}
