//! Random requests of sessions: locks, sets of them, releases and changes of holds.

use super::*;

impl Scenario {
    pub(super) fn acquire_set(&mut self) -> Command {
        let at = self.session();
        let sets: Vec<_> = self.known[at]
            .past
            .iter()
            .filter(|past| matches!(past, Command::Acquire(acquire) if acquire.is_set()))
            .collect();
        let recent = sets.len().saturating_sub(5);
        let again = self.random.pick(&sets[recent..]).copied().cloned();
        let (roll, patience, name) = (self.random.below(100), self.patience(), self.name());
        if let Some(Command::Acquire(mut again)) = again.filter(|_| roll < 25) {
            again.patience = patience;
            if roll < 6 {
                again.locks.insert(name, Mode::Exclusive.into());
            }
            return Command::Acquire(again);
        }
        let mut locks = SmallMap::new();
        for _ in 0..2 + self.random.below(2) {
            let name = self.name();
            locks.insert(name.clone(), self.access(&name));
        }
        let lease_ms = self.random.percent(20).then(|| self.lease_ms());
        let set = Acquire {
            request: RequestId { session: self.known[at].id, number: self.number(at) },
            answered_below: self.answered_below(at),
            locks,
            owner: self.owner(),
            patience: self.patience(),
            metadata: Metadata::default(),
            lease_ms,
            extras: None,
        };
        let command = Command::Acquire(set);
        self.known[at].past.push(command.clone());
        command
    }

    /// Random choices of an acquire, and its lease.
    fn extras(&mut self) -> (Option<Box<Extras>>, Option<u64>) {
        if self.random.percent(45) {
            return (None, None);
        }
        let reentry = match self.random.below(6) {
            0..3 => Reentry::Count,
            3 => Reentry::Wait,
            _ => Reentry::Refuse,
        };
        let lease_ms = self.random.percent(30).then(|| self.lease_ms());
        let fairness = if self.random.percent(25) { Fairness::Barging } else { Fairness::Fair };
        let value = self.random.percent(10).then(|| LockValue::parse("n1:7600").expect("legal"));
        let delay_ms = if self.random.percent(35) { self.random.below(20_000) } else { 0 };
        let parents = self.random.percent(25);
        let parent = self.random.pick(&self.known).map(|known| known.id).filter(|_| parents);
        let parent = parent.zip(self.owner()).map(|(session, owner)| Parent { session, owner });
        let deadlock = if self.random.percent(10) { OnDeadlock::Wait } else { OnDeadlock::Refuse };
        let at_least_ms = self.random.percent(20).then(|| 1 + self.random.below(20_000));
        let at_most_ms = self.random.percent(20).then(|| 1 + self.random.below(20_000));
        let cached = self.random.percent(5);
        let extras = Extras { reentry, fairness, value, delay_ms, parent, deadlock, at_least_ms, at_most_ms, cached };
        (Some(Box::new(extras)), lease_ms)
    }

    pub(super) fn answered_below(&mut self, at: usize) -> u64 {
        let back = self.random.below(12);
        if self.random.percent(12) { self.known[at].next.saturating_sub(back) } else { 0 }
    }

    /// A past command of the session, unchanged or slightly changed.
    pub(super) fn again(&mut self, at: usize) -> Option<Command> {
        let recent = self.known[at].past.len().saturating_sub(12);
        let back = if self.random.percent(85) { recent } else { 0 };
        let mut command = self.random.pick(&self.known[at].past[back..]).cloned()?;
        let changed = self.random.percent(35);
        let (patience, name) = (self.patience(), self.name());
        match &mut command {
            Command::Acquire(acquire) => {
                acquire.patience = patience;
                if changed && acquire.is_set() {
                    acquire.locks.insert(name, Mode::Exclusive.into());
                } else if changed {
                    let (_, access) = acquire.locks.pop_first()?;
                    acquire.locks = (name, access).into();
                }
            }
            Command::Release(release) if changed => release.name = name,
            Command::Alter(alter) if changed => alter.name = name,
            _ => {}
        }
        Some(command)
    }

    /// Acquires a lock with a cached hold.
    pub(super) fn acquire_cached(&mut self) -> Command {
        let at = self.session();
        let name = LockName::parse(self.random.pick(&["a", "b", "c", "d"]).expect("some")).expect("legal");
        let command = Command::Acquire(Acquire {
            request: RequestId { session: self.known[at].id, number: self.number(at) },
            answered_below: self.answered_below(at),
            locks: (name, Mode::Exclusive.into()).into(),
            owner: None,
            patience: self.patience(),
            metadata: Metadata::default(),
            lease_ms: None,
            extras: Some(Box::new(Extras { cached: true, ..Extras::default() })),
        });
        self.known[at].past.push(command.clone());
        command
    }

    pub(super) fn acquire(&mut self) -> Command {
        let at = self.session();
        if self.random.percent(18)
            && let Some(again) = self.again(at)
        {
            return again;
        }
        if self.random.percent(14)
            && let Some(again) = self.enter_again(at)
        {
            return again;
        }
        let (name, (extras, lease_ms)) = (self.name(), self.extras());
        let command = Command::Acquire(Acquire {
            request: RequestId { session: self.known[at].id, number: self.number(at) },
            answered_below: self.answered_below(at),
            locks: (name.clone(), self.access(&name)).into(),
            owner: self.owner(),
            patience: self.patience(),
            metadata: Metadata::default(),
            lease_ms,
            extras,
        });
        self.known[at].past.push(command.clone());
        command
    }

    pub(super) fn release(&mut self) -> Command {
        let at = self.session();
        if self.random.percent(10)
            && let Some(again) = self.again(at)
        {
            return again;
        }
        let (wrong, early, number) = (self.random.percent(8), self.random.percent(10), self.number(at));
        let answered_below = self.answered_below(at);
        let token = FencingToken::new(0, 1 + self.random.below(50));
        let known = &mut self.known[at];
        let (name, token) = match known.tokens.pop() {
            Some((name, _)) if wrong => (name, token),
            Some((name, token)) if early => {
                known.tokens.push((name.clone(), token));
                (name, token)
            }
            Some(found) => found,
            None => (self.name(), token),
        };
        let request = RequestId { session: self.known[at].id, number };
        let acquired = self.known[at].past.iter().rev().find_map(|past| match past {
            Command::Acquire(acquire) if acquire.locks.contains_key(&name) => Some(acquire.request.number),
            _ => None,
        });
        let acquire = acquired.filter(|_| self.random.percent(10)).unwrap_or_default();
        let command = Command::Release(Release { request, answered_below, name, token, acquire });
        self.known[at].past.push(command.clone());
        command
    }

    /// Upgrades, downgrades and resumes, mostly of current or former holds.
    pub(super) fn alter(&mut self) -> Command {
        let at = self.session();
        let altered: Vec<_> = self.known[at].past.iter().filter(|past| matches!(past, Command::Alter(_))).collect();
        let recent = altered.len().saturating_sub(8);
        let again = self.random.pick(&altered[recent..]).copied().cloned();
        if let Some(again) = again.filter(|_| self.random.percent(25)) {
            return again;
        }
        let recent = self.altered.len().saturating_sub(4);
        let again = self.random.pick(&self.altered[recent..]).cloned();
        if let Some(again) = again.filter(|_| self.random.percent(15)) {
            return again;
        }
        let (number, answered_below) = (self.number(at), self.answered_below(at));
        let (mut name, token) = self.held(at);
        let recent = self.lost.len().saturating_sub(3);
        let lost = self.random.pick(&self.lost[recent..]).cloned();
        let (patience, lease_ms) = (self.patience(), self.random.percent(30).then(|| self.lease_ms()));
        let what = match (self.random.below(10), lost) {
            (0..2, _) | (8.., None) => Alteration::Downgrade { token },
            (2, _) => Alteration::SetValue { token, value: self.value() },
            _ if self.random.percent(if name.as_str().starts_with("pool") { 70 } else { 5 }) => {
                Alteration::ReturnPermits { token, count: 1 + u32::try_from(self.random.below(3)).expect("small") }
            }
            (3..6, _) | (_, None) => Alteration::Upgrade { token, patience },
            (_, Some((lock, token, known))) => {
                name = lock.name;
                let handle = if self.random.percent(25) { handle(u128::MAX) } else { known };
                Alteration::Resume { token, handle, lease_ms }
            }
        };
        let request = RequestId { session: self.known[at].id, number };
        let command = Command::Alter(Alter { request, answered_below, name, what });
        self.known[at].past.push(command.clone());
        command
    }

    pub(super) fn value(&mut self) -> Option<LockValue> {
        let values = [None, Some("n1:7600"), Some("n2:7600")];
        self.random.pick(&values).copied().flatten().map(|text| LockValue::parse(text).expect("legal"))
    }
}
