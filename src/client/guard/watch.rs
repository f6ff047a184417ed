//! References to a hold: the one inside its guard, and watches, which do not own the hold.

use std::sync::Arc;
use std::time::Duration;

use crate::client::error::Lost;
use crate::client::hold::{Hold, HoldEnd, HoldState, Released, RevokeRequest};
use crate::client::session::commands::{HoldChange, SessionCommand};
use crate::client::session::reference::SessionRef;
use crate::client::session::state::SessionState;
use crate::model::FencingToken;

/// A hold and a reference that keeps its session alive.
#[derive(Debug, Clone)]
pub(crate) struct HoldRef {
    pub(crate) session: SessionRef,
    pub(crate) hold: Arc<Hold>,
}

impl HoldRef {
    pub(crate) fn state(&self) -> HoldState {
        let session = &self.session.state;
        self.hold.state(session.state(), session.clock.now())
    }

    pub(crate) fn valid_for(&self) -> Duration {
        let session = &self.session.state;
        let now = session.clock.now();
        if self.hold.ended(now).is_some() {
            return Duration::ZERO;
        }
        let valid = session.valid_for();
        self.hold.left(now).map_or(valid, |left| left.min(valid))
    }

    /// Returns a watch for the changes of the hold that also detects its loss.
    pub(crate) fn watch(&self) -> HoldWatch {
        self.begin_watch();
        self.changes()
    }

    /// Returns a watch for the changes of the hold only. It can miss a loss, because it does not call
    /// [`begin_watch`](Self::begin_watch).
    pub(crate) fn changes(&self) -> HoldWatch {
        HoldWatch { session: self.session.state.clone(), hold: self.hold.clone() }
    }

    /// Starts to watch the hold. If events of it may have been missed, the session's task reads its state.
    pub(crate) fn begin_watch(&self) {
        if self.hold.watch() {
            let SessionRef { state, service, .. } = &self.session;
            self.session.run_in_background(service.read(state.clone(), self.hold.clone()));
        }
    }

    /// Returns the command that releases the hold. Sends nothing.
    pub(crate) fn release(&self) -> SessionCommand {
        SessionCommand::Change(self.hold.clone(), self.session.state.draw(), HoldChange::Release)
    }

    /// Ends the use of a cached hold, which its session keeps if it can. Returns the result of the release if nothing
    /// must be sent.
    pub(crate) fn keep(&self) -> Option<Released> {
        let kept = self.hold.kept?;
        let session = &self.session.state;
        session.holds.give_back(&self.hold, session.clock.now()).then_some(kept)
    }

    /// Makes a cached hold an ordinary one. The cluster does the same: a change of a hold clears its cached mark there.
    pub(crate) fn stop_caching(&self) {
        if self.hold.kept.is_some() {
            self.session.state.holds.cached(|cached| cached.give_up(self.hold.token()));
        }
    }

    /// Returns the command for a change of the hold, which is no longer cached from now on. Sends nothing.
    pub(crate) fn change(&self, change: HoldChange) -> SessionCommand {
        self.stop_caching();
        SessionCommand::Change(self.hold.clone(), self.session.state.draw(), change)
    }
}

/// Watches a hold. It keeps neither the hold nor its session alive. Clones watch the same hold; a request to release it
/// is returned to only one of them.
#[derive(Debug, Clone)]
pub struct HoldWatch {
    session: Arc<SessionState>,
    hold: Arc<Hold>,
}

impl HoldWatch {
    /// Returns the fencing token of the hold.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// Returns how certain it is that the hold lasts; [`HoldState::Lost`] after its release.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.hold.state(self.session.state(), self.session.clock.now())
    }

    /// Whether a change of the hold, for example its release, has begun and is not answered yet. If its caller got no
    /// answer, the session's task continues with it. False once the session has ended.
    pub(crate) fn is_changing(&self) -> bool {
        self.session.state() != HoldState::Lost && self.hold.is_changing()
    }

    /// Waits until the hold is lost, as [`LockGuard::lost`](super::LockGuard::lost) does. After a release of the hold,
    /// it waits until the session ends.
    pub async fn lost(&self) -> Lost {
        let session = &self.session;
        let (alone, reason) = tokio::select! {
            biased;
            end = session.lost() => (false, end.reason()),
            HoldEnd::Lost(reason) = self.hold.over(&*session.clock) => (true, reason),
        };
        let why = if alone { self.hold.broken_why().cloned() } else { session.why() };
        Lost { lock: self.hold.name.clone(), token: self.token(), session: session.id, alone, reason, why }
    }

    /// Waits until another client asks the holder to release; `None` once the hold is released or lost.
    pub async fn revoke_requested(&self) -> Option<RevokeRequest> {
        tokio::select! {
            biased;
            request = self.hold.revoke_requested() => Some(request),
            _ = self.hold.over(&*self.session.clock) => None,
            _ = self.session.lost() => None,
        }
    }
}
