//! Random commands on the holds of other clients, and on leases without a session.

use super::*;

impl Scenario {
    /// Limits, breaks, requests to release, and hand-overs, mostly of current holds.
    pub(super) fn manage(&mut self) -> Command {
        let why = Reason::parse("stuck").expect("legal");
        let (at, to) = (self.session(), self.session());
        let (mut name, mut token) = self.held(at);
        let namespace = self.known[at].open.namespace.clone();
        let to = self.known[to].id;
        let what = match self.random.below(20) {
            0..4 => {
                name = self.name();
                Managing::SetLimit { limit: 1 + self.random.below(5) as u32 }
            }
            4..8 => {
                name = self.name();
                Managing::RemoveLimit
            }
            8..12 => {
                let recent = self.lost.len().saturating_sub(2);
                if let Some((lock, lost, _)) = self.random.pick(&self.lost[recent..]).cloned()
                    && self.random.percent(30)
                {
                    (name, token) = (lock.name, lost);
                }
                Managing::BreakHold { token, why }
            }
            12..14 => Managing::Ask { token, why },
            _ => return self.hand_over(LockKey { namespace, name }, token, to),
        };
        Command::Manage(Manage { lock: LockKey { namespace, name }, what })
    }

    /// Hands a lock over, mostly to a session that waits.
    pub(super) fn hand_over(&mut self, mut lock: LockKey, mut token: FencingToken, mut to: SessionId) -> Command {
        let known = |held: &&Held| self.waits.iter().any(|(lock, _)| lock.name == held.name);
        let held: Vec<_> = self.held.iter().filter(known).cloned().collect();
        let waiters = self.random.percent(70);
        if let Some(held) = self.random.pick(&held).cloned().filter(|_| waiters) {
            let waits: Vec<_> = self.waits.iter().filter(|(lock, _)| lock.name == held.name).cloned().collect();
            if let Some((of, request)) = self.random.pick(&waits).cloned() {
                (lock, token, to) = (of, held.token, request.session);
            }
        }
        Command::Manage(Manage { lock, what: Managing::HandOver { token, to } })
    }

    pub(super) fn cancel(&mut self) -> Command {
        let recent = self.altered.len().saturating_sub(3);
        if let Some(Command::Alter(alter)) = self.random.pick(&self.altered[recent..]).cloned()
            && self.random.percent(8)
        {
            return Command::Cancel { request: alter.request };
        }
        let at = self.session();
        let (roll, back) = (self.random.below(10), self.random.below(8));
        let known = &self.known[at];
        let altered = known.past.iter().rev().find_map(|past| match past {
            Command::Alter(alter) => Some(alter.request.number),
            _ => None,
        });
        let number = match roll {
            0..3 if altered.is_some() => altered.unwrap_or_default(),
            0..7 => known.next.saturating_sub(back + 1),
            7..9 => known.next + back / 4,
            _ => back,
        };
        Command::Cancel { request: RequestId { session: known.id, number } }
    }

    pub(super) fn recent_take(&mut self) -> Option<TakeLease> {
        let recent = self.takes.len().saturating_sub(6);
        self.random.pick(&self.takes[recent..]).cloned()
    }

    pub(super) fn take(&mut self) -> Command {
        let drawn = self.draw();
        let roll = self.random.below(100);
        if let Some(mut again) = self.recent_take().filter(|_| roll < 38) {
            again.patience = self.patience();
            again.claim_ms = self.claim_ms();
            match roll {
                0..8 => again.lease_ms += 1,
                8..14 => again.handle = handle(drawn),
                14..22 => again.take = LeaseRequestId(drawn),
                _ => {}
            }
            return Command::TakeLease(again);
        }
        let name = self.name();
        let batch = self.random.percent(15);
        let namespace = Namespace::parse(if batch { "batch" } else { "default" }).expect("legal");
        let access = self.access(&name);
        let lock = LockKey { namespace, name };
        let (take, handle, lease_ms) = (LeaseRequestId(drawn), handle(drawn), self.lease_ms());
        let (patience, metadata, claim_ms) = (self.patience(), Metadata::default(), self.claim_ms());
        let take = TakeLease { lock, take, handle, access, lease_ms, patience, metadata, claim_ms };
        self.takes.push(take.clone());
        Command::TakeLease(take)
    }

    fn claim_ms(&mut self) -> Option<u64> {
        self.random.percent(30).then(|| self.lease_ms() / 2)
    }

    pub(super) fn drop_lease(&mut self) -> Command {
        let drawn = self.draw();
        let stranger = self.random.percent(12);
        match self.recent_take() {
            Some(take) => {
                let handle = if stranger { handle(drawn) } else { take.handle };
                Command::DropLease { lock: take.lock, handle }
            }
            None => Command::Tick,
        }
    }

    pub(super) fn cancel_take(&mut self) -> Command {
        let drawn = self.draw();
        let roll = self.random.below(10);
        let Some(take) = self.recent_take() else { return Command::Tick };
        let id = if roll == 0 { LeaseRequestId(drawn) } else { take.take };
        let handle = if roll == 1 { handle(drawn) } else { take.handle };
        Command::CancelTake { lock: take.lock, take: id, handle }
    }
}
