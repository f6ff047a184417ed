//! Cached holds, which a session keeps between uses.

use super::*;

impl Naive {
    /// Recalls every cached hold behind which a request waits, in the order of the names.
    pub(super) fn recall(&mut self) {
        let waits = &self.waits;
        let awaited = |hold: &Hold| waits.iter().any(|wait| wait.ask.lock == hold.ask.lock);
        let mut found: Vec<&mut Hold> =
            self.holds.iter_mut().filter(|hold| hold.ask.extras.cached && !hold.recalled && awaited(hold)).collect();
        found.sort_by_key(|hold| hold.ask.lock.clone());
        for hold in found {
            hold.recalled = true;
            self.recalls.push(hold.token);
        }
    }

    /// Whether a new request for the lock would be the first behind a cached hold.
    pub(super) fn is_first_behind_cached(&self, lock: &LockKey) -> bool {
        let cached = self.holds.iter().any(|hold| hold.ask.lock == *lock && hold.ask.extras.cached);
        cached && self.waits.iter().all(|wait| wait.ask.lock != *lock)
    }

    /// The answer to a wait that has timed out. For a try, it names the holder of the lock, or of the first lock of the
    /// set that is not free.
    pub(super) fn ran_out(&self, at: usize) -> Outcome {
        let wait = &self.waits[at];
        if !wait.tries {
            return Outcome::TimedOut;
        }
        let mut parts: Vec<_> = self.waits.iter().filter(|part| part.ask.claim == wait.ask.claim).collect();
        parts.retain(|part| wait.ask.set || part.ask.lock == wait.ask.lock);
        parts.sort_by_key(|part| part.ask.lock.clone());
        let lacks =
            |part: &&&Wait| !(self.clear_ahead(&part.ask, part.sequence) && self.fits(&part.ask.lock, part.ask.mode));
        let Ask { lock, mode, .. } = parts.iter().find(lacks).map_or(&wait.ask, |part| &part.ask);
        self.held_or_closed(lock, *mode, self.holder(lock, |_| false))
    }

    /// Records which recalled holds of the session an answer contains.
    pub(super) fn name_recalled(&mut self, session: Option<SessionId>, outcome: &Outcome) {
        let names = matches!(
            outcome,
            Outcome::Granted(_) | Outcome::GrantedSet(_) | Outcome::Attached { .. } | Outcome::Renewed { .. }
        );
        let recalled = |hold: &&Hold| hold.recalled && session.is_some() && hold.ask.claim.session() == session;
        let mut tokens: Vec<_> = self.holds.iter().filter(recalled).map(|hold| hold.token).collect();
        tokens.retain(|_| names);
        tokens.sort_unstable();
        self.named.push(tokens);
    }
}
