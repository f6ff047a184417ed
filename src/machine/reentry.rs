//! Reentry: a named owner that enters its own hold again, under the same token.

use super::acquire::Asking;
use super::queue::covers;
use super::state::{ClaimState, Entered};
use super::{Machine, RecordKey};
use crate::model::{
    Access, Claim, FencingToken, Grant, LockKey, Outcome, QuotaKind, Reentry, Refusal, RequestId, SessionId,
};

impl Machine {
    /// The hold that a named owner enters again; `None` for strangers, which the unnamed are to each other. An owner that
    /// holds or waits for one of the locks already, and may not enter it, is refused.
    pub(super) fn reentry(&self, asking: &Asking<'_>) -> Result<Option<FencingToken>, Refusal> {
        if asking.reentry() == Reentry::Wait {
            return Ok(None);
        }
        let Some(owner) = asking.acquire.owner.clone() else { return Ok(None) };
        let session = asking.acquire.request.session;
        let Some(owned) = self.owners.get(&(session, owner)) else { return Ok(None) };
        for (key, access) in asking.members {
            let token = match owned.claim_at(key) {
                None => continue,
                Some(ClaimState::Waiting(_)) => None,
                Some(ClaimState::Holding(token)) => Some(token),
            };
            return match (token, asking.reentry()) {
                (Some(token), Reentry::Count) => self.may_enter_again(key, *access, session, token),
                (token, Reentry::Count | Reentry::Refuse | Reentry::Wait) => {
                    Err(Refusal::AlreadyHeld { lock: key.clone(), session, token })
                }
            };
        }
        Ok(None)
    }

    /// Refuses a mode that the hold does not cover, another limit than the semaphore has, and one entry too many.
    fn may_enter_again(
        &self,
        key: &LockKey,
        access: Access,
        session: SessionId,
        token: FencingToken,
    ) -> Result<Option<FencingToken>, Refusal> {
        let lock = self.locks.get(key);
        let Some(holder) = lock.and_then(|lock| lock.holders.get(&token)) else { return Ok(None) };
        if let (Some(asked), Some(limit)) = (access.limit, lock.and_then(|lock| lock.limit))
            && asked != limit
        {
            return Err(Refusal::LimitMismatch { lock: key.clone(), limit, asked });
        }
        if !covers(holder.request.mode, access.mode) {
            return Err(Refusal::AlreadyHeld { lock: key.clone(), session, token: Some(token) });
        }
        self.quotas.one_more(QuotaKind::DepthOfHold, holder.depth() as u64)?;
        Ok(Some(token))
    }

    /// Enters the hold of its only lock once more.
    pub(super) fn reenter(&mut self, asking: &Asking<'_>, token: FencingToken) -> Outcome {
        let (request, fingerprint) = (asking.acquire.request, asking.fingerprint);
        let Some((key, _)) = asking.members.only() else { return Outcome::Withdrawn };
        let holder = self.locks.get_mut(key).and_then(|lock| lock.holders.get_mut(&token));
        let Some(holder) = holder else { return Outcome::Refused(Refusal::NotHeld { lock: key.clone() }) };
        holder.extras_mut().again.push(Entered { number: request.number, fingerprint });
        let (deadline, ends) = (holder.leased_until(), holder.ends());
        self.add_claim(request, key, ClaimState::Holding(token));
        self.mark_dirty(RecordKey::Holder(key.clone(), token));
        Outcome::Granted(Grant { token, deadline, ends, waited_ms: 0 })
    }

    /// Takes one request out of a hold that is entered more than once; the hold goes on. Its first one is replaced by
    /// the oldest that is left. Answers how many are left.
    pub(super) fn leave_hold(&mut self, key: &LockKey, token: FencingToken, number: u64, answer: Outcome) -> u32 {
        let holder = self.locks.get_mut(key).and_then(|lock| lock.holders.get_mut(&token));
        let Some(holder) = holder else { return 0 };
        let (claim, first) = (holder.request.claim, holder.request.fingerprint);
        let Claim::Request(RequestId { session, number: first_number }) = claim else { return 0 };
        let left_by = if number == first_number {
            let next = holder.extras_mut().again.remove(0);
            holder.request.claim = Claim::Request(RequestId { session, number: next.number });
            holder.request.fingerprint = next.fingerprint;
            holder.extras_mut().set = false;
            first
        } else {
            let extras = holder.extras_mut();
            let at = extras.again.iter().position(|again| again.number == number);
            at.map_or(0, |at| extras.again.remove(at).fingerprint)
        };
        holder.tidy_extras();
        let left = holder.depth();
        self.mark_dirty(RecordKey::Holder(key.clone(), token));
        self.finish_request(key, claim, number, left_by, answer);
        u32::try_from(left).unwrap_or(u32::MAX)
    }
}
