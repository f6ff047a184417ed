//! One permit of a semaphore, where several were acquired together and are to be given back one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::error::ClientError;
use crate::client::guard::watch::{HoldRef, HoldWatch};
use crate::client::hold::{HoldState, Released};
use crate::client::on_drop::OnDrop;
use crate::client::session::commands::{HoldChange, SessionCommand};
use crate::model::FencingToken;

/// One permit out of a guard that was [split](super::LockGuard::into_permits). Dropping it gives it back; the others stay.
///
/// It is lost when the hold is, together with the others that it was granted with, and shares their token.
#[derive(Debug)]
#[must_use = "dropping it gives the permit back"]
pub struct Permit(OnDrop<Share>);

/// A part of the permits of a hold.
#[derive(Debug)]
struct Share {
    held: HoldRef,
    /// Permits of the same hold that were not given back yet.
    left: Arc<AtomicU32>,
    /// How many there were.
    of: u32,
    /// How many this stands for: one, except for the rest that was not split yet.
    count: u32,
}

impl Permit {
    /// All permits of a hold in one.
    pub(crate) fn all(held: HoldRef, count: u32) -> Self {
        Self::new(Share { held, left: Arc::new(AtomicU32::new(count)), of: count, count })
    }

    fn new(share: Share) -> Self {
        Self(OnDrop::new(share, |share| {
            let command = share.give_back();
            share.held.session.finish_in_background(command, None);
        }))
    }

    /// Splits it, one permit at a time: there may be two thousand million of them.
    pub(crate) fn one_by_one(self) -> impl Iterator<Item = Self> + Send {
        let mut rest = Some(self);
        std::iter::from_fn(move || match &mut rest {
            Some(Self(several)) if several.count > 1 => {
                several.count -= 1;
                let (held, left) = (several.held.clone(), several.left.clone());
                Some(Self::new(Share { held, left, of: several.of, count: 1 }))
            }
            Some(_) | None => rest.take(),
        })
    }

    /// The fencing token of the grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.0.held.hold.token()
    }

    /// How certain it is.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.0.held.state()
    }

    /// Watches the hold, which ends with the last of its permits.
    #[must_use]
    pub fn watch(&self) -> HoldWatch {
        self.0.held.watch()
    }

    /// Gives it back and returns how many of the hold are left. Abandoned halfway, or after an error that leaves its outcome
    /// open, it is given back all the same.
    pub async fn release(mut self) -> Result<Released, ClientError> {
        self.0.disarm();
        let command = self.0.give_back();
        Released::from_reply(self.0.held.session.run(command).await?)
    }
}

impl Share {
    /// The command that gives it back: a change of the hold, or its release where this is the whole.
    fn give_back(&self) -> SessionCommand {
        if self.left.fetch_sub(self.count, Ordering::Relaxed) == self.count {
            self.held.hold.release();
        }
        if self.of == self.count {
            return self.held.release();
        }
        self.held.change(HoldChange::ReturnPermits(self.count))
    }
}
