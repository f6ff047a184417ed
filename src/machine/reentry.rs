//! Reentry: a named owner that enters its own hold again, under the same token.

use super::acquire::Admission;
use super::queue::covers;
use super::state::{Entered, Standing};
use super::{Machine, RecordKey};
use crate::model::{
    Acquire, Claim, FencingToken, Grant, LockKey, Mode, Outcome, Owner, QuotaKind, Reentry, Refusal, RequestId,
    SessionId,
};

impl Machine {
    /// What a named owner that holds the lock or waits for it already may do; `None` for strangers, which the unnamed
    /// are to each other.
    pub(super) fn reentry(&self, key: &LockKey, acquire: &Acquire) -> Result<Option<Admission>, Refusal> {
        let how = acquire.choices().reentry;
        if how == Reentry::Wait {
            return Ok(None);
        }
        let owner = acquire.owner.as_ref();
        let Some(token) = self.standing_of_owner(key, acquire.request.session, owner) else { return Ok(None) };
        let (Some(token), Reentry::Count) = (token, how) else {
            return Err(self.already_held(key, acquire, token));
        };
        let lock = self.locks.get(key);
        let Some(holder) = lock.and_then(|lock| lock.holders.get(&token)) else { return Ok(None) };
        if let (Mode::Permits { limit: Some(asked), .. }, Some(limit)) =
            (acquire.mode, lock.and_then(|lock| lock.limit))
            && asked != limit
        {
            return Err(Refusal::LimitMismatch { lock: key.clone(), limit, asked });
        }
        if !covers(holder.mode, acquire.mode) {
            return Err(self.already_held(key, acquire, Some(token)));
        }
        self.quotas.one_more(QuotaKind::DepthOfHold, holder.depth() as u64)?;
        Ok(Some(Admission::Enter(token)))
    }

    fn already_held(&self, key: &LockKey, acquire: &Acquire, token: Option<FencingToken>) -> Refusal {
        Refusal::AlreadyHeld { lock: key.clone(), session: acquire.request.session, token }
    }

    /// The token of the owner's oldest hold, or none where it only waits; outermost `None` where it does neither.
    pub(super) fn standing_of_owner(
        &self,
        key: &LockKey,
        session: SessionId,
        owner: Option<&Owner>,
    ) -> Option<Option<FencingToken>> {
        self.owners.get(&(session, owner?.clone()))?.claim_at(key)
    }

    /// Enters a hold once more.
    pub(super) fn enter(
        &mut self,
        key: &LockKey,
        token: FencingToken,
        request: RequestId,
        fingerprint: u64,
    ) -> Outcome {
        let holder = self.locks.get_mut(key).and_then(|lock| lock.holders.get_mut(&token));
        let Some(holder) = holder else { return Outcome::Refused(Refusal::NotHeld { lock: key.clone() }) };
        holder.extras_mut().again.push(Entered { number: request.number, fingerprint });
        let deadline = holder.lease.as_ref().map(|lease| lease.deadline);
        self.stand(request, key, Standing::Holds(token), false);
        self.touch(RecordKey::Holder(key.clone(), token));
        Outcome::Granted(Grant { token, deadline, waited_ms: 0 })
    }

    /// Takes one request out of a hold that is entered more than once; the hold goes on. Its first one is replaced by
    /// the oldest that is left. Answers how many are left.
    pub(super) fn leave_hold(&mut self, key: &LockKey, token: FencingToken, number: u64, answer: Outcome) -> u32 {
        let holder = self.locks.get_mut(key).and_then(|lock| lock.holders.get_mut(&token));
        let Some(holder) = holder else { return 0 };
        let (claim, first) = (holder.claim, holder.fingerprint);
        let Claim::Request(RequestId { session, number: first_number }) = claim else { return 0 };
        let left_by = if number == first_number {
            let next = holder.extras_mut().again.remove(0);
            holder.claim = Claim::Request(RequestId { session, number: next.number });
            holder.fingerprint = next.fingerprint;
            holder.extras_mut().set = false;
            first
        } else {
            let extras = holder.extras_mut();
            let at = extras.again.iter().position(|again| again.number == number);
            at.map_or(0, |at| extras.again.remove(at).fingerprint)
        };
        holder.tidy_extras();
        let left = holder.depth();
        self.touch(RecordKey::Holder(key.clone(), token));
        self.request_is_over(key, claim, number, left_by, answer);
        u32::try_from(left).unwrap_or(u32::MAX)
    }
}
