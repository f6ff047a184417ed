//! Queries: answers read from the state, which they do not change.

use std::ops::Bound;

use super::Machine;
use super::acquire::Admission;
use crate::limits;
use crate::model::{
    Acquire, Checked, Claim, EndReason, FencingToken, Health, HolderView, ListFilter, ListShow, LockKey, LockName,
    LockSummary, LockView, Namespace, Outcome, Part, Patience, Place, Position, Query, QueryReply, QueryResult,
    Refusal, RequestId, SessionId, SessionView, TokenState, ValidTokens, WaiterView, page_rows,
};
use crate::state::{ClaimState, Holder, Purpose, Session, Waiter, looked_at};

impl Machine {
    /// Returns the place of a waiting set in the queue of the first lock that it lacks. If it lacks none, returns its
    /// place in the queue of `any`, a lock and the set's sequence number there.
    pub(super) fn place_of_set(&self, request: RequestId, any: (&LockKey, u64)) -> Place {
        self.place(self.first_lacking(request, any), any.1)
    }

    /// The first lock that a waiting set lacks. If it lacks none, the lock `any`, where the set waits under this
    /// sequence number.
    pub(super) fn first_lacking<'a>(&'a self, request: RequestId, (any, place): (&'a LockKey, u64)) -> &'a LockKey {
        let lacks = |key: &LockKey, lock| !self.member_fits(key, lock, place, request.session);
        let mut waits = self.state.claims_of(request).filter(|(_, claim)| *claim == ClaimState::Waiting(place));
        let lacking = waits.find(|(key, _)| self.state.lock(key).is_some_and(|lock| lacks(key, lock)));
        lacking.map_or(any, |(key, _)| key)
    }

    /// The answer to a repeated request of a set that was granted: the locks of the set that it still holds.
    pub(super) fn grants_of_set(&self, request: RequestId) -> Outcome {
        let grants = self.state.claims_of(request).filter_map(|(key, standing)| {
            let ClaimState::Holding(token) = standing else { return None };
            let holder = self.state.holder(key, token)?;
            Some((key.name.clone(), holder.grant(token, request.number)))
        });
        Outcome::GrantedSet(grants.collect())
    }

    /// Whether this acquire, executed now, would only join the queue. If so, its caller loses nothing when it is
    /// executed slightly later, together with the command that frees the lock.
    ///
    /// With `behind_others`, only if other requests wait already: this remains true even if the lock becomes free in
    /// the meantime. Returns `false` if the answer is not cheap to find: for a set, and for a session with claims at
    /// too many locks.
    #[must_use]
    pub fn would_queue(&self, acquire: &Acquire, behind_others: bool) -> bool {
        let id = acquire.request.session;
        let Some(session) = self.state.session(id) else { return false };
        if acquire.patience == Patience::Try || limits::CLAIMS_LOOKED_AT_MAX < session.locks {
            return false;
        }
        let Some((name, access)) = acquire.locks.only() else { return false };
        let key = LockKey { namespace: session.record.namespace.clone(), name: name.clone() };
        let others_wait = || self.state.lock(&key).is_some_and(|lock| !lock.queue.is_empty());
        if behind_others && !others_wait() || session.claims().any(|(_, other, _)| *other == key) {
            return false;
        }
        let fairness = acquire.choices().fairness;
        matches!(self.admission(&key, *access, acquire.patience, fairness, Some(id)), Ok(Admission::Queue))
    }

    /// A waiter's place, counted from 1, and a holder of the lock that blocks it.
    pub(super) fn place(&self, key: &LockKey, sequence: u64) -> Place {
        let ahead = self.state.lock(key).map_or(0, |lock| match lock.queue.last_key_value() {
            // The newest waiter is behind all others, so that a long queue need not be counted.
            Some((last, _)) if *last == sequence => lock.queue.len() - 1,
            Some(_) | None => lock.queue.range(..sequence).count(),
        });
        let held_by = self.state.waiter(key, sequence).and_then(|waiter| {
            let own = match waiter.purpose {
                Purpose::Upgrade(token) => Some(token),
                Purpose::Hold | Purpose::Set => None,
            };
            self.holder_in_the_way(key, waiter.request.mode, own).map(Box::new)
        });
        Place { lock: key.name.clone(), place: ahead as u64 + 1, sequence, held_by }
    }

    /// One holder of a lock, as other clients may see it.
    pub(super) fn view_of(&self, key: &LockKey, token: FencingToken) -> Option<HolderView> {
        Some(self.view(token, self.state.holder(key, token)?))
    }

    /// The view of a holder for other clients.
    pub(super) fn view(&self, token: FencingToken, holder: &Holder) -> HolderView {
        holder.view(token, self.state.session_deadline(holder.request.claim.session()))
    }

    /// Answers a query as of the newest applied entry.
    #[must_use]
    pub fn query(&self, query: &Query) -> QueryReply {
        let answer = match query {
            Query::Check { lock, token } => QueryResult::Checked(self.check_token(lock, *token)),
            Query::Inspect { lock } => QueryResult::Lock(self.inspect(lock)),
            Query::Holders { lock } => QueryResult::Lock(self.without_waiters(lock)),
            Query::List(filter) => self.list(filter),
            Query::Sessions { namespace, after, rows } => self.list_sessions(namespace, *after, *rows),
            Query::Claim { lock, claim } => {
                let outcome = self.claim(lock.as_ref(), *claim);
                let recalled = outcome.as_ref().map(|outcome| self.recalled_with(claim.session(), outcome));
                QueryResult::Claim { outcome, recalled: recalled.unwrap_or_default() }
            }
            Query::Totals => QueryResult::Totals(self.totals()),
            Query::Explain(about) => QueryResult::Explained(self.explain(about)),
            Query::Tokens { lock } => QueryResult::Tokens(self.valid_tokens(lock)),
            Query::History { namespace, lock, after, rows } => {
                let floor = self.state.globals.history_floor;
                QueryResult::History(self.state.history.page(namespace, lock.as_ref(), *after, *rows, floor))
            }
            Query::Documents { namespace, which, rows } => self.list_documents(namespace, which, *rows),
            Query::Pings { namespace, which, rows } => self.list_pings(namespace, which, *rows),
            Query::WouldBreak { lock, token } => {
                let report = self.would_break(lock, *token).map(|report| Outcome::Broken(Box::new(report)));
                QueryResult::WouldBreak(report.unwrap_or_else(Outcome::Refused))
            }
        };
        QueryReply { index: self.state.globals.applied, now: self.state.globals.now, answer }
    }

    fn check_token(&self, key: &LockKey, token: FencingToken) -> Checked {
        let holders = self.state.lock(key).map(|lock| &lock.holders);
        let next = FencingToken::new(self.state.globals.epoch, self.state.globals.tokens + 1);
        let lowest_valid = holders.and_then(|holders| holders.keys().next().copied()).unwrap_or(next);
        let holder = holders.and_then(|holders| holders.get(&token));
        let state = if next <= token {
            TokenState::UnknownEpoch
        } else if holder.is_some() {
            TokenState::Valid
        } else {
            TokenState::Stale
        };
        let since = holder.map(|holder| holder.since);
        let session = holder.and_then(|holder| holder.request.claim.session());
        let deadline = holder.and_then(|holder| holder.deadline(self.state.session_deadline(session)));
        Checked { state, lowest_valid, since, deadline }
    }

    fn valid_tokens(&self, key: &LockKey) -> ValidTokens {
        let holders = self.state.lock(key).into_iter().flat_map(|lock| lock.holders.keys().copied());
        ValidTokens {
            lock: key.clone(),
            seen: Position { index: self.state.globals.applied, n: u32::MAX },
            tokens: holders.collect(),
            next: FencingToken::new(self.state.globals.epoch, self.state.globals.tokens + 1),
        }
    }

    fn inspect(&self, key: &LockKey) -> LockView {
        let queue = self.state.lock(key).into_iter().flat_map(|lock| lock.queue.iter());
        let waiters = queue.zip(1..).map(|((sequence, waiter), place)| waiter.view(place, *sequence));
        LockView { waiters: waiters.collect(), ..self.without_waiters(key) }
    }

    fn without_waiters(&self, key: &LockKey) -> LockView {
        let Some(lock) = self.state.lock(key) else { return LockView::free(key.clone()) };
        let holders = lock.holders.iter().map(|(token, holder)| self.view(*token, holder));
        LockView {
            lock: key.clone(),
            kind: Some(lock.kind),
            limit: lock.limit,
            holders: holders.collect(),
            waiters: Vec::new(),
            delay_ms: self.delay_left_ms(key),
            closed: self.closings(key).collect(),
            value: self.value_of(key),
            free: lock.is_free_for_wait(),
        }
    }

    fn list(&self, filter: &ListFilter) -> QueryResult {
        let rows_max = page_rows(filter.rows);
        let (mut rows, mut last) = (Vec::new(), None::<&LockName>);
        // No lock's name begins with a prefix that is not a valid name.
        let prefix = LockName::parse(&filter.prefix);
        let first = prefix.unwrap_or(LockName::least()).max(filter.after.clone().unwrap_or(LockName::least()));
        let first = LockKey { namespace: filter.namespace.clone(), name: first };
        let named = |key: &LockKey| key.namespace == filter.namespace && key.name.as_str().starts_with(&filter.prefix);
        for ((key, lock), looked) in self.state.locks.range(first..).take_while(|(key, _)| named(key)).zip(1..) {
            looked_at();
            if limits::LISTED_MAX < looked {
                return QueryResult::Locks(Part { rows, next: last.cloned() });
            }
            let before = last.replace(&key.name);
            let oldest = lock.holders.first_key_value();
            let shown = match filter.show {
                ListShow::All => true,
                ListShow::Held => !lock.holders.is_empty(),
                ListShow::Waiting => !lock.queue.is_empty(),
                ListShow::Overdue => oldest.is_some_and(|(_, holder)| {
                    let health = self.health(holder.request.claim.session());
                    matches!(health, Health::Overdue | Health::Disconnected)
                }),
            };
            let age_ms = oldest.map_or(0, |(_, holder)| self.state.globals.now.ms_since(holder.since));
            if !shown || age_ms < filter.older_than_ms || filter.after.as_ref() == Some(&key.name) {
                continue;
            }
            if rows.len() == rows_max {
                return QueryResult::Locks(Part { rows, next: before.cloned() });
            }
            rows.push(LockSummary {
                lock: key.clone(),
                kind: lock.kind,
                limit: lock.limit,
                holders: lock.holders.len() as u64,
                waiters: lock.queue.len() as u64,
                oldest: oldest.map(|(token, holder)| self.view(*token, holder)),
                delay_ms: self.delay_left_ms(key),
                value: self.value_of(key),
            });
        }
        QueryResult::Locks(Part { rows, next: None })
    }

    fn list_sessions(&self, namespace: &Namespace, after: Option<SessionId>, rows: u32) -> QueryResult {
        let rows_max = page_rows(rows);
        let after = (namespace.clone(), after.unwrap_or(SessionId::new(0, 0)));
        let later = (Bound::Excluded(after), Bound::Unbounded);
        let of_namespace = self.state.index.sessions.range(later).take_while(|(of, _)| of == namespace);
        let mut sessions =
            of_namespace.filter_map(|(_, id)| Some((*id, self.state.session(*id)?))).inspect(|_| looked_at());
        let rows: Vec<_> =
            sessions.by_ref().take(rows_max).map(|(id, session)| self.session_view(id, session)).collect();
        let next = rows.last().map(|row| row.session).filter(|_| sessions.next().is_some());
        QueryResult::Sessions(Part { rows, next })
    }

    fn session_view(&self, id: SessionId, session: &Session) -> SessionView {
        let record = &session.record;
        SessionView {
            session: id,
            namespace: record.namespace.clone(),
            metadata: (*record.metadata).clone(),
            ttl_ms: record.ttl_ms,
            opened: record.opened,
            deadline: record.deadline,
            disconnected: record.disconnected,
            leaderless_ms: self.state.globals.leaderless_ms.saturating_sub(record.leaderless_ms),
            holds: session.claims().filter(|(_, _, s)| matches!(s, ClaimState::Holding(_))).count() as u64,
            waits: session.claims().filter(|(_, _, s)| matches!(s, ClaimState::Waiting(_))).count() as u64,
        }
    }

    fn claim(&self, lock: Option<&LockKey>, claim: Claim) -> Option<Outcome> {
        match claim {
            Claim::Request(request) => match lock.map(|lock| self.lives_in(request.session, &lock.namespace)) {
                // The caller need not have proven the session, so it must not learn where the session is.
                Some(Err(_)) => Some(Outcome::Refused(Refusal::SessionEnded {
                    session: request.session,
                    reason: EndReason::Expired,
                    why: None,
                })),
                Some(Ok(())) | None => self.request_outcome(request),
            },
            Claim::Lease(take) => lock.and_then(|key| Some(self.take_outcome(key, self.known_take(key, take)?))),
        }
    }

    /// The current outcome of a request: its place or hold, the remembered answer, or the refusal because its session
    /// has ended or because its answer was forgotten. `None` for a request that has not arrived.
    fn request_outcome(&self, request: RequestId) -> Option<Outcome> {
        let Some(session) = self.state.session(request.session) else {
            return Some(Outcome::Refused(self.session_ended(request.session)));
        };
        let finished = || session.finished.get(&request.number).map(|done| done.outcome.clone());
        let forgotten = || session.too_old(request.number).map(Outcome::Refused);
        self.claim_outcome(request).or_else(finished).or_else(forgotten)
    }
}

impl Waiter {
    /// What other clients may know of this waiter. `place` is its position in the queue.
    pub(super) fn view(&self, place: u64, sequence: u64) -> WaiterView {
        looked_at();
        WaiterView {
            place,
            sequence,
            session: self.request.claim.session(),
            owner: self.request.owner.clone(),
            mode: self.request.mode,
            metadata: (*self.request.metadata).clone(),
            since: self.since,
        }
    }
}
