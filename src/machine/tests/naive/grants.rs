//! Which requests are granted, and in which order.

use super::*;

impl Naive {
    /// While any waiter fits together with the holders and overtakes only waiters that it may overtake, grants the one
    /// that came first, over all locks.
    pub(super) fn serve(&mut self) {
        loop {
            let mut next: Option<usize> = None;
            for (at, wait) in self.waits.iter().enumerate() {
                let lock = &wait.ask.lock;
                let parts = self.waits.iter().filter(|part| part.ask.claim == wait.ask.claim);
                let mut parts = parts.filter(|part| part.ask.lock == *lock || wait.ask.set);
                let whole = parts.all(|part| {
                    self.clear_ahead(&part.ask, part.sequence)
                        && (part.upgrades.is_some() || self.fits(&part.ask.lock, part.ask.mode))
                });
                let order = |wait: &Wait| (wait.sequence, wait.ask.lock.clone());
                let sooner = next.is_none_or(|best: usize| order(wait) < order(&self.waits[best]));
                let fits = match wait.upgrades {
                    Some(token) => self.alone(lock, token),
                    None => self.fits(lock, wait.ask.mode),
                };
                if whole && sooner && fits {
                    next = Some(at);
                }
            }
            let Some(at) = next else {
                if self.refuse_in_cycles() {
                    continue;
                }
                return;
            };
            self.wait_changes(at);
            let wait = self.waits.remove(at);
            if wait.ask.set {
                let mut parts = vec![wait];
                while let Some(at) = self.waits.iter().position(|part| part.ask.claim == parts[0].ask.claim) {
                    parts.push(self.waits.remove(at));
                }
                parts.sort_by_key(|part| part.ask.lock.clone());
                for part in parts {
                    self.grant(part.ask);
                }
                continue;
            }
            match wait.upgrades {
                Some(token) => {
                    self.make_exclusive(&wait.ask, token);
                }
                None => {
                    self.grant(wait.ask);
                }
            }
        }
    }

    /// Whether this request may overtake all waiters ahead of it.
    pub(super) fn clear_ahead(&self, ask: &Ask, sequence: u64) -> bool {
        let ahead = self.waits.iter().filter(|o| o.ask.lock == ask.lock && o.sequence < sequence);
        let fair = |o: &Wait| ask.extras.fairness == Fairness::Barging && !o.ask.set;
        ahead.filter(|o| fair(o) || conflict(o.ask.mode, ask.mode)).all(|o| passes(ask, &o.ask) || self.goes_by(ask, o))
    }

    /// Whether a wait at another lock lacks what the session holds, and the wait ahead is that one or is behind it,
    /// directly or through others.
    pub(super) fn goes_by(&self, ask: &Ask, ahead: &Wait) -> bool {
        let Some(session) = ask.claim.session() else { return false };
        let lacks = |wait: &&Wait| {
            let blocks = |hold: &Hold| {
                hold.ask.lock == wait.ask.lock
                    && hold.ask.claim.session() == Some(session)
                    && conflict(hold.ask.mode, wait.ask.mode)
                    && wait.upgrades != Some(hold.token)
            };
            let elsewhere = wait.ask.lock != ask.lock;
            elsewhere && self.holds.iter().any(blocks) && !self.fits(&wait.ask.lock, wait.ask.mode)
        };
        self.and_behind(self.waits.iter().filter(lacks)).contains(&(ahead.ask.claim, ahead.sequence))
    }

    /// These waits, and all waits behind them, directly or through others.
    pub(super) fn and_behind<'a>(&self, waits: impl Iterator<Item = &'a Wait>) -> Vec<(Claim, u64)> {
        and_behind(&self.waits, waits)
    }

    /// Whether this hold is the only one of the lock, and no other hold keeps the lock closed.
    pub(super) fn alone(&self, lock: &LockKey, token: FencingToken) -> bool {
        let closed = self.lost.iter().any(|lost| lost.ask.lock == *lock && lost.token != token);
        !closed && self.holds.iter().all(|hold| hold.ask.lock != *lock || hold.token == token)
    }

    pub(super) fn make_exclusive(&mut self, ask: &Ask, token: FencingToken) -> Grant {
        self.tokens += 1;
        let new = FencingToken::new(0, self.tokens);
        let Claim::Request(request) = ask.claim else { panic!("only sessions upgrade") };
        let found = |hold: &&mut Hold| hold.ask.lock == ask.lock && hold.token == token;
        self.lost.retain(|lost| lost.ask.lock != ask.lock || lost.token != token);
        let hold = self.holds.iter_mut().find(found).expect("it is held");
        hold.token = new;
        hold.ask.mode = Mode::Exclusive;
        hold.upgrade = Some((request.number, ask.payload.clone()));
        let grant = grant_of(hold, self.now.0 - ask.since.0);
        let owner = endless_hold(hold);
        self.suspects.extend(owner);
        self.changes(&ask.lock, None);
        self.granted.push((ask.lock.clone(), ask.claim, new));
        grant
    }

    pub(super) fn fits(&self, lock: &LockKey, mode: Mode) -> bool {
        let mut holds = self.holds.iter().map(|hold| &hold.ask).filter(|ask| ask.lock == *lock);
        let lost = self.lost.iter().map(|lost| &lost.ask).filter(|ask| ask.lock == *lock);
        match mode {
            Mode::Exclusive => holds.next().is_none() && lost.count() == 0,
            Mode::Shared => holds.all(|ask| ask.mode == Mode::Shared) && lost.count() == 0,
            Mode::Permits(count) => {
                let permits = |ask: &Ask| if let Mode::Permits(count) = ask.mode { count } else { 0 };
                let used: u32 = holds.chain(lost).map(permits).sum();
                used + count <= self.limit(lock).expect("a semaphore has a limit")
            }
        }
    }

    pub(super) fn grant(&mut self, ask: Ask) -> Grant {
        self.tokens += 1;
        let token = FencingToken::new(0, self.tokens);
        self.free.retain(|free| free.0 != ask.lock);
        let lease_end = ask.lease_ms.map(|ms| LogTime(self.now.0 + ms));
        let waited_ms = self.now.0 - ask.since.0;
        self.granted.push((ask.lock.clone(), ask.claim, token));
        self.changes(&ask.lock, None);
        let after = |ms: Option<u64>| ms.map(|ms| LogTime(self.now.0 + ms));
        let (ends, closed_until) = (after(ask.extras.at_most_ms), after(ask.extras.at_least_ms));
        let (again, upgrade, recalled) = (vec![], None, false);
        let hold = Hold { ask, token, since: self.now, lease_end, ends, closed_until, again, upgrade, recalled };
        self.suspects.extend(endless_hold(&hold));
        let grant = grant_of(&hold, waited_ms);
        self.holds.push(hold);
        grant
    }
}

/// These waits out of `all`, and all waits behind them, directly or through others.
pub(super) fn and_behind<'a>(all: &[Wait], waits: impl Iterator<Item = &'a Wait>) -> Vec<(Claim, u64)> {
    let mut reached: Vec<(Claim, u64)> = waits.map(|wait| (wait.ask.claim, wait.sequence)).collect();
    let mut at = 0;
    while at < reached.len() {
        let (claim, sequence) = reached[at];
        for part in all.iter().filter(|wait| wait.ask.claim == claim && wait.sequence == sequence) {
            for behind in all.iter().filter(|o| o.ask.lock == part.ask.lock && sequence < o.sequence) {
                let known = (behind.ask.claim, behind.sequence);
                if conflict(part.ask.mode, behind.ask.mode) && !reached.contains(&known) {
                    reached.push(known);
                }
            }
        }
        at += 1;
    }
    reached
}
