//! Permits given back some at a time: what was acquired together becomes free piece by piece.

use super::alter::HoldChange;
use super::{Machine, RecordKey};
use crate::model::{Claim, EndReason, EventKind, FencingToken, Kind, Mode, Outcome, Refusal};

impl Machine {
    /// The hold goes on with the others, under the same token. A hold that its owner entered again keeps what it has:
    /// nobody could say which of its entries the permits belong to.
    pub(super) fn return_permits(&mut self, change: &HoldChange<'_>, token: FencingToken, count: u32) -> Outcome {
        let key = change.key;
        let (claim, left) = match self.permits_left(change, token, count) {
            Ok(found) => found,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        if left == 0 {
            self.end_hold(key, token, EndReason::Released, None);
            return Outcome::Released { left };
        }
        let Some(lock) = self.locks.get_mut(key).filter(|_| count != 0) else { return Outcome::Released { left } };
        lock.permits_held -= u64::from(count);
        let Some(holder) = lock.holders.get_mut(&token) else { return Outcome::Released { left } };
        holder.request.mode = Mode::Permits(count);
        let returned = holder.as_ref().clone();
        holder.request.mode = Mode::Permits(left);
        self.begin_delay(key, token, &returned, (EndReason::Released, false));
        self.mark_dirty(RecordKey::Holder(key.clone(), token));
        self.check_queue(key, 0);
        self.capacity_changes(key);
        let mode = Some(Mode::Permits(left));
        self.happened(key, Some((claim, token)), EventKind::PermitsReturned { count }, mode);
        Outcome::Released { left }
    }

    /// Whose hold it is, and what is left of it without so many permits.
    fn permits_left(&self, change: &HoldChange<'_>, token: FencingToken, count: u32) -> Result<(Claim, u32), Refusal> {
        let holder = self.own_hold(change, token)?;
        let lock = change.key.clone();
        let Mode::Permits(held) = holder.request.mode else {
            return Err(Refusal::KindMismatch { lock, kind: Kind::Lock });
        };
        if 1 < holder.depth() {
            let depth = u32::try_from(holder.depth()).unwrap_or(u32::MAX);
            return Err(Refusal::Entered { lock, depth });
        }
        match held.checked_sub(count) {
            Some(left) => Ok((holder.request.claim, left)),
            None => Err(Refusal::PermitsNotHeld { lock, held, asked: count }),
        }
    }
}
