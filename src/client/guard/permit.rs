//! One permit of a semaphore, for permits that were acquired together and are released one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::error::ClientError;
use crate::client::guard::watch::{HoldRef, HoldWatch};
use crate::client::hold::{HoldState, Released};
use crate::client::on_drop::OnDrop;
use crate::client::session::commands::{HoldChange, SessionCommand};
use crate::model::FencingToken;

/// One permit of a [split](super::LockGuard::into_permits) guard. Dropping it releases this permit; the others stay
/// held.
///
/// The permit is lost together with the other permits of its hold, and has the same token.
#[derive(Debug)]
#[must_use = "dropping it releases the permit"]
pub struct Permit(OnDrop<Share>);

/// A part of the permits of a hold.
#[derive(Debug)]
struct Share {
    held: HoldRef,
    /// Permits of the same hold that were not released yet.
    left: Arc<AtomicU32>,
    /// How many permits the hold had.
    of: u32,
    /// How many permits this share represents: one, except for the part that is not split yet.
    count: u32,
}

impl Permit {
    fn new(share: Share) -> Self {
        Self(OnDrop::new(share, |share| {
            let command = share.give_back();
            share.held.session.finish_in_background(command, None);
        }))
    }

    /// Splits a hold into its permits lazily, one at a time: a semaphore may have two thousand million permits.
    pub(crate) fn split(held: HoldRef, count: u32) -> impl Iterator<Item = Self> + Send {
        let mut rest = Some(Self::new(Share { held, left: Arc::new(AtomicU32::new(count)), of: count, count }));
        std::iter::from_fn(move || match &mut rest {
            Some(Self(several)) if several.count > 1 => {
                several.count -= 1;
                let (held, left) = (several.held.clone(), several.left.clone());
                Some(Self::new(Share { held, left, of: several.of, count: 1 }))
            }
            Some(_) | None => rest.take(),
        })
    }

    /// Returns the fencing token of the grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.0.held.hold.token()
    }

    /// Returns how certain it is that the permit is held.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.0.held.state()
    }

    /// Returns a watch of the hold, which ends with its last permit.
    #[must_use]
    pub fn watch(&self) -> HoldWatch {
        self.0.held.watch()
    }

    /// Releases the permit and returns how many of the hold remain. If the future is dropped, or after every error but
    /// a refusal, the session's task completes the release.
    pub async fn release(mut self) -> Result<Released, ClientError> {
        self.0.disarm();
        let command = self.0.give_back();
        Released::from_reply(self.0.held.session.run(command).await?)
    }
}

impl Share {
    /// Returns the command that releases this share: a change of the hold, or its release if this is the whole hold.
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
