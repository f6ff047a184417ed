//! Questions: answered from the state as it is, changing nothing.

use std::ops::Bound;

use super::acquire::Admission;
use super::state::{ClaimState, Waiter};
use super::{Machine, looked_at};
use crate::limits;
use crate::model::{
    Acquire, Checked, Claim, FencingToken, HolderView, LeaseRequestId, ListFilter, ListShow, LockKey, LockName,
    LockSummary, LockView, Namespace, Outcome, Page, Patience, Place, Position, Query, QueryReply, QueryResult,
    RequestId, SessionId, SessionView, TokenState, ValidTokens, WaiterView,
};

impl Machine {
    /// Where a set waits that stands in the queue `any`: its place for the first lock that it lacks.
    pub(super) fn place_of_set(&self, request: RequestId, any: (&LockKey, u64)) -> Place {
        let mut waits = self.claims_of(request).filter_map(|(key, standing)| match standing {
            ClaimState::Waiting(sequence) => Some((key, sequence)),
            ClaimState::Holding(_) => None,
        });
        let lacks = |key: &LockKey, sequence| {
            self.locks.get(key).is_some_and(|lock| !self.member_fits(key, lock, sequence, request.session))
        };
        let (key, sequence) = waits.find(|(key, sequence)| lacks(key, *sequence)).unwrap_or(any);
        self.place(key, sequence)
    }

    /// The answer to a repeated request of a set that holds: what it still holds.
    pub(super) fn grants_of_set(&self, request: RequestId) -> Outcome {
        let grants = self.claims_of(request).filter_map(|(key, standing)| {
            let ClaimState::Holding(token) = standing else { return None };
            let holder = self.locks.get(key)?.holders.get(&token)?;
            Some((key.name.clone(), holder.grant(token, request.number)))
        });
        Outcome::GrantedSet(grants.collect())
    }

    /// Whether this acquire, executed now, would join the queue and do nothing else: its caller loses nothing if it is executed a
    /// moment later, together with what frees the lock. In doubt it would not: a set is not checked, and a session with claims
    /// at many locks is not searched for this one.
    #[must_use]
    pub fn would_queue(&self, acquire: &Acquire) -> bool {
        let id = acquire.request.session;
        let Some(session) = self.sessions.get(&id) else { return false };
        if acquire.patience == Patience::Try || limits::CLAIMS_LOOKED_AT_MAX < session.locks() {
            return false;
        }
        let Some((name, access)) = acquire.locks.only() else { return false };
        let key = LockKey { namespace: session.record.namespace.clone(), name: name.clone() };
        if session.claims().any(|(_, other, _)| *other == key) {
            return false;
        }
        let fairness = acquire.choices().fairness;
        matches!(self.admission(&key, *access, acquire.patience, fairness, Some(id)), Ok(Admission::Queue))
    }

    /// As [`would_queue`](Self::would_queue), also if the lock becomes free before: others wait already.
    #[must_use]
    pub fn would_queue_behind_others(&self, acquire: &Acquire) -> bool {
        let Some((namespace, (name, _))) = self.namespace_of(acquire.request.session).zip(acquire.locks.only()) else {
            return false;
        };
        let key = LockKey { namespace: namespace.clone(), name: name.clone() };
        self.locks.get(&key).is_some_and(|lock| !lock.queue.is_empty()) && self.would_queue(acquire)
    }

    /// A waiter's place, and a holder that is in its way.
    pub(super) fn place(&self, key: &LockKey, sequence: u64) -> Place {
        let ahead = self.locks.get(key).map_or(0, |lock| match lock.queue.last_key_value() {
            // The newest waiter stands behind all others: a long queue is not counted.
            Some((last, _)) if *last == sequence => lock.queue.len() - 1,
            Some(_) | None => lock.queue.range(..sequence).count(),
        });
        Place { lock: key.name.clone(), place: ahead as u64 + 1, sequence, held_by: self.one_holder(key).map(Box::new) }
    }

    /// The longest holder of a lock, as others may see it.
    pub(super) fn one_holder(&self, key: &LockKey) -> Option<HolderView> {
        let (token, _) = self.locks.get(key)?.holders.first_key_value()?;
        self.view_of(key, *token)
    }

    /// One holder of a lock, as others may see it.
    pub(super) fn view_of(&self, key: &LockKey, token: FencingToken) -> Option<HolderView> {
        let holder = self.locks.get(key)?.holders.get(&token)?;
        Some(holder.view(token, self.session_deadline(holder.request.claim.session())))
    }

    /// Answers a question as of the newest applied entry.
    #[must_use]
    pub fn query(&self, query: &Query) -> QueryReply {
        let answer = match query {
            Query::Check { lock, token } => QueryResult::Checked(self.check_token(lock, *token)),
            Query::Inspect { lock } => QueryResult::Lock(self.inspect(lock)),
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
                let floor = self.globals.history_floor;
                QueryResult::History(self.history.page(namespace, lock.as_ref(), *after, *rows, floor))
            }
            Query::Documents { namespace, which, rows } => self.list_documents(namespace, which, *rows),
            Query::Pings { namespace, which, rows } => self.list_pings(namespace, which, *rows),
            Query::WouldBreak { lock, token } => QueryResult::WouldBreak(self.would_break(lock, *token)),
        };
        QueryReply { index: self.globals.applied, now: self.globals.now, answer }
    }

    fn check_token(&self, key: &LockKey, token: FencingToken) -> Checked {
        let holders = self.locks.get(key).map(|lock| &lock.holders);
        let next = FencingToken::new(self.globals.epoch, self.globals.tokens + 1);
        let lowest_valid = holders.and_then(|holders| holders.keys().next().copied()).unwrap_or(next);
        let state = if next <= token {
            TokenState::UnknownEpoch
        } else if holders.is_some_and(|holders| holders.contains_key(&token)) {
            TokenState::Valid
        } else {
            TokenState::Stale
        };
        Checked { state, lowest_valid }
    }

    fn valid_tokens(&self, key: &LockKey) -> ValidTokens {
        let holders = self.locks.get(key).into_iter().flat_map(|lock| lock.holders.keys().copied());
        ValidTokens {
            lock: key.clone(),
            seen: Position { index: self.globals.applied, n: u32::MAX },
            tokens: holders.collect(),
            next: FencingToken::new(self.globals.epoch, self.globals.tokens + 1),
        }
    }

    pub(super) fn inspect(&self, key: &LockKey) -> LockView {
        let Some(lock) = self.locks.get(key) else {
            return LockView::free(key.clone());
        };
        let holders = lock.holders.iter();
        let holders =
            holders.map(|(token, holder)| holder.view(*token, self.session_deadline(holder.request.claim.session())));
        let waiters = lock.queue.iter().zip(1..).map(|((sequence, waiter), place)| waiter.view(place, *sequence));
        LockView {
            lock: key.clone(),
            kind: Some(lock.kind),
            limit: lock.limit,
            holders: holders.collect(),
            waiters: waiters.collect(),
            delay_ms: self.delay_left_ms(key),
            closed: self.closings(key).collect(),
            value: self.value_of(key),
            free: lock.is_free_for_wait(),
        }
    }

    fn list(&self, filter: &ListFilter) -> QueryResult {
        let rows_max = (filter.rows as usize).clamp(1, limits::PAGE_ROWS_MAX);
        let mut rows = Vec::new();
        // No lock has a name that begins with what is no name itself.
        let prefix = LockName::parse(&filter.prefix);
        let first = prefix.unwrap_or(LockName::least()).max(filter.after.clone().unwrap_or(LockName::least()));
        let first = LockKey { namespace: filter.namespace.clone(), name: first };
        let named = |key: &LockKey| key.namespace == filter.namespace && key.name.as_str().starts_with(&filter.prefix);
        for (key, lock) in self.locks.range(first..).take_while(|(key, _)| named(key)) {
            looked_at();
            let shown = match filter.show {
                ListShow::All => true,
                ListShow::Held => !lock.holders.is_empty(),
                ListShow::Waiting => !lock.queue.is_empty(),
            };
            let since = lock.holders.first_key_value().map(|(_, holder)| holder.since);
            let age_ms = since.map_or(0, |since| self.globals.now.ms_since(since));
            if !shown || age_ms < filter.older_than_ms || filter.after.as_ref() == Some(&key.name) {
                continue;
            }
            if rows.len() == rows_max {
                return QueryResult::Locks(Page { rows, more: true });
            }
            rows.push(LockSummary {
                lock: key.clone(),
                kind: lock.kind,
                limit: lock.limit,
                holders: lock.holders.len() as u64,
                waiters: lock.queue.len() as u64,
                oldest: self.one_holder(key),
                delay_ms: self.delay_left_ms(key),
                value: self.value_of(key),
            });
        }
        QueryResult::Locks(Page { rows, more: false })
    }

    fn list_sessions(&self, namespace: &Namespace, after: Option<SessionId>, rows: u32) -> QueryResult {
        let rows_max = (rows as usize).clamp(1, limits::PAGE_ROWS_MAX);
        let later = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let mut views = self.sessions.range(later).filter(|(_, session)| session.record.namespace == *namespace).map(
            |(id, session)| SessionView {
                session: *id,
                namespace: namespace.clone(),
                metadata: (*session.record.metadata).clone(),
                ttl_ms: session.record.ttl_ms,
                opened: session.record.opened,
                deadline: session.record.deadline,
                disconnected: session.record.disconnected,
                leaderless_ms: self.globals.leaderless_ms.saturating_sub(session.record.leaderless_ms),
                holds: session.claims().filter(|(_, _, s)| matches!(s, ClaimState::Holding(_))).count() as u64,
                waits: session.claims().filter(|(_, _, s)| matches!(s, ClaimState::Waiting(_))).count() as u64,
            },
        );
        let rows: Vec<_> = views.by_ref().take(rows_max).collect();
        QueryResult::Sessions(Page { rows, more: views.next().is_some() })
    }

    fn claim(&self, lock: Option<&LockKey>, claim: Claim) -> Option<Outcome> {
        match claim {
            Claim::Request(request) => match lock.map(|lock| self.lives_in(request.session, &lock.namespace)) {
                Some(Err(refusal)) => Some(Outcome::Refused(refusal)),
                Some(Ok(())) | None => self.request_outcome(request),
            },
            Claim::Lease(take) => self.take_query(lock?, take),
        }
    }

    /// What has become of a request: where it stands, the remembered answer, or that its session has ended.
    fn request_outcome(&self, request: RequestId) -> Option<Outcome> {
        let Some(session) = self.sessions.get(&request.session) else {
            return Some(Outcome::Refused(self.session_ended(request.session)));
        };
        let finished = || session.finished.get(&request.number).map(|done| done.outcome.clone());
        self.claim_outcome(request).or_else(finished)
    }

    fn take_query(&self, key: &LockKey, take: LeaseRequestId) -> Option<Outcome> {
        self.known_take(key, take).map(|known| self.take_outcome(key, known))
    }
}

impl Waiter {
    /// What others may know of it, where it stands in this place.
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
