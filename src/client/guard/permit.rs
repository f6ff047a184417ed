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
    /// How many there were.
    of: u32,
    /// How many this stands for: one, but for what was not split yet.
    count: u32,
    given_back: bool,
}

impl Permit {
    /// All permits of a hold in one.
    pub(super) fn all(tie: &Tie, hold: &Arc<Hold>, count: u32) -> Self {
        let (tie, hold, left) = (tie.clone(), hold.clone(), Arc::new(AtomicU32::new(count)));
        Self { tie, hold, left, of: count, count, given_back: false }
    }

    /// Splits it, one permit at a time: there may be two thousand million of them.
    pub(super) fn one_by_one(self) -> impl Iterator<Item = Self> + Send {
        let mut rest = Some(self);
        std::iter::from_fn(move || match &mut rest {
            Some(several) if several.count > 1 => {
                several.count -= 1;
                let (tie, hold, left) = (several.tie.clone(), several.hold.clone(), several.left.clone());
                Some(Self { tie, hold, left, of: several.of, count: 1, given_back: false })
            }
            Some(_) | None => rest.take(),
        })
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

    /// Gives it back and says how many of the hold are left. Abandoned halfway, or after an error that leaves its outcome
    /// open, it is given back all the same.
    pub async fn release(mut self) -> Result<Released, ClientError> {
        self.given_back = true;
        Released::from_reply(self.tie.ask(self.request()).await?)
    }

    /// What gives it back: a change of the hold, or nothing but its release where it is the whole.
    fn request(&self) -> Request {
        if self.left.fetch_sub(self.count, Ordering::Relaxed) == self.count {
            self.hold.give_back();
        }
        let (hold, drawn) = (self.hold.clone(), self.tie.presence.draw());
        if self.of == self.count {
            return Request::Release(hold, drawn);
        }
        Request::Alter(hold, drawn, Change::ReturnPermits(self.count))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.given_back {
            self.tie.leave(Errand::Perform(self.request(), None));
        }
    }
}
