//! Which tokens of a lock are valid: what a resource keeps, to check tokens without asking.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Event, EventKind, FencingToken, LockKey, Position};

/// The valid tokens of one lock, as of a position.
///
/// - A token that was stale once is stale for ever, so what is called stale here is stale.
/// - A token that is valid here may have become stale since: nobody who only listens can know better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidTokens {
    /// Which lock.
    pub lock: LockKey,
    /// Up to where the log was seen.
    pub seen: Position,
    /// Those of the present holders: one at most for an exclusive hold, several for shared ones and permits.
    pub tokens: BTreeSet<FencingToken>,
    /// Lower than every token that is granted later.
    pub next: FencingToken,
}

/// How the valid tokens changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenChange {
    /// Stale from now on.
    pub ended: Option<FencingToken>,
    /// Valid from now on.
    pub granted: Option<FencingToken>,
}

/// What is known of a token without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenVerdict {
    /// Its hold has ended, or it was never one of this lock. Certain, now and for ever.
    Stale,
    /// It was a holder's at the position that was seen.
    Valid,
    /// It is newer than everything that was seen: ask, or wait until more was seen.
    Ahead,
}

impl ValidTokens {
    /// Below this every token is stale: the oldest valid one, or the next where nobody holds the lock.
    #[must_use]
    pub fn floor(&self) -> FencingToken {
        self.tokens.first().copied().unwrap_or(self.next)
    }

    /// What is known of this token.
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

    /// Takes up what happened; answers what that changed, if anything. What was seen already changes nothing.
    pub fn follow(&mut self, event: &Event) -> Option<TokenChange> {
        if event.position <= self.seen {
            return None;
        }
        self.seen = event.position;
        if event.subject.lock() != Some(&self.lock) {
            return None;
        }
        let (ended, granted) = changes(event);
        if let Some(granted) = granted {
            self.tokens.insert(granted);
            self.next = self.next.max(granted.following());
        }
        let ended = ended.filter(|ended| self.tokens.remove(ended));
        (ended.is_some() || granted.is_some()).then_some(TokenChange { ended, granted })
    }
}

/// The token that ended, and the one that was granted.
fn changes(event: &Event) -> (Option<FencingToken>, Option<FencingToken>) {
    let token = event.subject.token();
    match &event.kind {
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
