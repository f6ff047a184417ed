//! One permit of a semaphore, where several were acquired together and are to be given back one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::errands::{Change, Request};
use super::guard::Released;
use super::hold::Hold;
use super::hold_watch::HoldWatch;
use super::presence::{Errand, Tie};
use super::{ClientError, HoldState};
use crate::model::FencingToken;

/// One permit out of a guard that was [split](super::LockGuard::into_permits). Dropping it gives it back; the others stay.
///
/// It is lost when the hold is, together with the others that it was granted with, and shares their token.
#[derive(Debug)]
#[must_use = "dropping it gives the permit back"]
pub struct Permit {
    tie: Tie,
    hold: Arc<Hold>,
    /// Permits of the same hold that were not given back yet.
    left: Arc<AtomicU32>,
    /// How many there were; a single one is the whole hold.
    of: u32,
    given_back: bool,
}

impl Permit {
    pub(super) fn of(tie: &Tie, hold: &Arc<Hold>, count: u32) -> Vec<Self> {
        let left = Arc::new(AtomicU32::new(count));
        let one = || Self { tie: tie.clone(), hold: hold.clone(), left: left.clone(), of: count, given_back: false };
        (0..count).map(|_| one()).collect()
    }

    /// The fencing token of the grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// How sure it is.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.hold.state(&self.tie.presence)
    }

    /// A look at the hold, which ends with the last of its permits.
    #[must_use]
    pub fn watch(&self) -> HoldWatch {
        if self.hold.follow_first() {
            self.tie.leave(Errand::Follow(self.hold.clone()));
        }
        HoldWatch { presence: self.tie.presence.clone(), hold: self.hold.clone() }
    }

    /// Gives it back and says how many of the hold are left. Abandoned halfway it is given back all the same.
    pub async fn release(mut self) -> Result<Released, ClientError> {
        self.given_back = true;
        Released::from_reply(self.tie.ask(self.request()).await?)
    }

    /// What gives it back: a change of the hold, or nothing but its release where it is the whole.
    fn request(&self) -> Request {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.hold.give_back();
        }
        let (hold, drawn) = (self.hold.clone(), self.tie.presence.draw());
        if self.of == 1 { Request::Release(hold, drawn) } else { Request::Alter(hold, drawn, Change::ReturnPermits(1)) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.given_back {
            self.tie.leave(Errand::Perform(self.request(), None));
        }
    }
}
