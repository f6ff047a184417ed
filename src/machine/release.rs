//! Release, for sessions.

use super::Machine;
use super::requests::of_release;
use super::state::Holder;
use crate::model::{EndReason, FencingToken, LockKey, Outcome, Refusal, Release};

impl Machine {
    pub(super) fn release(&mut self, release: &Release) -> Outcome {
        let (id, fingerprint) = (release.request.session, of_release(release));
        let namespace = match self.begin(release.request, release.answered_below, fingerprint) {
            Ok(namespace) => namespace,
            Err(known) => return known,
        };
        let key = LockKey { namespace, name: release.name.clone() };
        self.expire_due_at(&key);
        let holder = self.locks.get(&key).and_then(|lock| lock.holders.get(&release.token));
        let outcome = match holder.map(|holder| holder.request.claim.session()) {
            Some(Some(owner)) if owner == id => Outcome::Released { left: self.release_once(&key, release.token) },
            Some(_) | None => {
                Outcome::Refused(self.not_held(&key, |holder| holder.request.claim.session() == Some(id)))
            }
        };
        self.finish(release.request, fingerprint, outcome)
    }

    /// Gives back what the newest of the hold's requests entered; the last one ends the hold. Answers how many are left.
    fn release_once(&mut self, key: &LockKey, token: FencingToken) -> u32 {
        let holder = self.locks.get(key).and_then(|lock| lock.holders.get(&token));
        let newest = holder.and_then(|holder| holder.extras.as_ref()).and_then(|extras| extras.again.last().copied());
        if let Some(newest) = newest {
            return self.leave_hold(key, token, newest.number, Outcome::HoldEnded { reason: EndReason::Released });
        }
        self.end_hold(key, token, EndReason::Released, None);
        0
    }

    /// What somebody is told who gave no proof of a hold: who else holds the lock, or that it is not held. A hold of the
    /// caller's own, which `mine` knows, is never shown to it as somebody else's.
    pub(super) fn not_held(&self, key: &LockKey, mine: impl Fn(&Holder) -> bool) -> Refusal {
        let mut holders = self.locks.get(key).into_iter().flat_map(|lock| &lock.holders);
        match holders.find(|(_, holder)| !mine(holder)) {
            Some((token, holder)) => {
                let holder = Box::new(holder.view(*token, self.session_deadline(holder.request.claim.session())));
                Refusal::HeldByOther { lock: key.clone(), holder }
            }
            None => Refusal::NotHeld { lock: key.clone() },
        }
    }
}
