//! Cached holds of one session: which of them a use may take without a message. A pure state machine with explicit
//! time.
//!
//! - A name is absent, *requested* by one acquire at the log, *used* by one guard, or *idle*. Later cached acquires of
//!   a requested or used name wait in its local queue, and the oldest of them is next.
//! - Only a hold in this table can be taken or kept. A hold leaves the table before its release is sent, so no use can
//!   begin after that. The guard of a hold that has left releases it like any other guard.
//! - A hold leaves the table when it is recalled, broken or handed over, before any change of it, when events of it may
//!   have been missed, and when it was idle for too long. If it is idle then, the session releases it; if it is used,
//!   the acquires of its local queue go to the log, behind the request that waits there.
//! - An event or an answer may name a recalled hold before its grant has arrived. The caller of
//!   [`granted`](CachedHolds::granted) then says so, and the hold does not enter the table.
//! - A local take needs a fresh renewal, which proves that no recall before it was missed. Exclusion does not depend on
//!   it: the hold excludes all others until its session releases it or ends.
//! - An acquire that is dropped leaves its local queue first and then returns its turn, if it has received one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::client::hold::{Hold, Released};
use crate::clock::Instant;
use crate::faults::{self, Fault};
use crate::limits::{CACHED_IDLE_MAX, CACHED_IDLE_MS_MAX};
use crate::model::{FencingToken, LockName};

/// The cached holds of a session, and the acquires that wait for them.
#[derive(Debug, Default)]
pub(crate) struct CachedHolds {
    names: BTreeMap<LockName, Entry>,
    /// The name of each hold in the table.
    tokens: BTreeMap<FencingToken, LockName>,
    /// Number of idle holds in the table.
    idle: usize,
    tickets: u64,
    /// Until when a use may take a hold without a message; `None` without a renewal since the last attach.
    fresh_until: Option<Instant>,
    /// Whether the events of the session's holds arrive. No hold enters the table while they do not.
    followed: bool,
    /// Holds that left the table idle and must be released.
    given_up: Vec<Arc<Hold>>,
}

/// Identifies one acquire of a cached hold within its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// How an acquire of a cached hold continues.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// It has taken the hold, whose use begins.
    Taken(Arc<Hold>),
    /// It sends a request, and reports its end with this ticket.
    Request(Ticket),
}

/// The first answer to an acquire of a cached hold.
#[derive(Debug)]
pub(crate) enum Asked {
    Now(Admitted),
    /// It waits in the local queue.
    Queued(Ticket, oneshot::Receiver<Admitted>),
}

#[derive(Debug)]
struct Entry {
    state: State,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
enum State {
    Requested(Ticket),
    Used(Kept),
    Idle(Kept, Instant),
}

/// A granted hold, without the state of a single use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    token: FencingToken,
    granted: Released,
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    admitted: oneshot::Sender<Admitted>,
}

impl Kept {
    fn next_use(self, name: &LockName) -> Arc<Hold> {
        Arc::new(Hold::new(name.clone(), self.token, None, None).kept_as(self.granted))
    }
}

impl CachedHolds {
    /// Records until when the last renewal allows local takes; `None` after a detach or while an attach is under way.
    pub(crate) fn renewed(&mut self, fresh_until: Option<Instant>) {
        self.fresh_until = fresh_until;
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.fresh_until.is_some_and(|until| now < until)
    }

    fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Begins an acquire: takes the idle hold of this name, or waits behind its use or request, or sends a request.
    pub(crate) fn ask(&mut self, name: &LockName, now: Instant) -> Asked {
        let (fresh, ticket) = (self.is_fresh(now), self.next_ticket());
        let Some(entry) = self.names.get_mut(name) else {
            self.names.insert(name.clone(), Entry { state: State::Requested(ticket), queue: VecDeque::new() });
            return Asked::Now(Admitted::Request(ticket));
        };
        match entry.state {
            State::Idle(kept, _) if fresh => {
                entry.state = State::Used(kept);
                self.idle -= 1;
                Asked::Now(Admitted::Taken(kept.next_use(name)))
            }
            State::Idle(kept, _) => {
                entry.state = State::Requested(ticket);
                self.forget_idle(name, kept);
                Asked::Now(Admitted::Request(ticket))
            }
            State::Requested(_) | State::Used(_) => {
                let (admitted, receiver) = oneshot::channel();
                entry.queue.push_back(Waiter { ticket, admitted });
                Asked::Queued(ticket, receiver)
            }
        }
    }

    /// Removes an acquire from the local queue. If it had its turn already, its caller must return the turn.
    pub(crate) fn leave(&mut self, name: &LockName, ticket: Ticket) {
        if let Some(entry) = self.names.get_mut(name) {
            entry.queue.retain(|waiter| waiter.ticket != ticket);
        }
    }

    /// Records the grant to a request. The hold enters the table, unless `over` says that it was recalled or has ended,
    /// or a newer request of this session waits for it. Returns true if it is the only hold in the table.
    pub(crate) fn granted(&mut self, ticket: Ticket, hold: &Hold, over: bool) -> bool {
        let Some(granted) = hold.kept else { return false };
        let (name, kept) = (&hold.name, Kept { token: hold.token(), granted });
        let stays = self.followed && !over;
        let state = self.names.get(name).map(|entry| &entry.state);
        let replaces = match state {
            None => true,
            Some(State::Requested(by)) => *by == ticket,
            // The newer grant proves that the hold in the table has ended.
            Some(State::Used(old) | State::Idle(old, _)) => old.token < kept.token,
        };
        if !replaces {
            return false;
        }
        match state {
            Some(State::Used(old) | State::Idle(old, _)) => drop(self.give_up(old.token)),
            Some(State::Requested(_)) if !stays => self.flush(&name.clone()),
            Some(State::Requested(_)) | None => {}
        }
        if !stays {
            return false;
        }
        let first = self.tokens.is_empty();
        self.tokens.insert(kept.token, name.clone());
        let entry = Entry { state: State::Used(kept), queue: VecDeque::new() };
        self.names.entry(name.clone()).or_insert(entry).state = State::Used(kept);
        first
    }

    /// Records that a request ended without a grant. The oldest acquire of the local queue sends the next one.
    pub(crate) fn failed(&mut self, name: &LockName, ticket: Ticket) {
        if self.names.get(name).is_some_and(|entry| matches!(entry.state, State::Requested(by) if by == ticket)) {
            self.request_next(name);
        }
    }

    /// Lets the oldest acquire of the local queue send a request, or removes the name.
    fn request_next(&mut self, name: &LockName) {
        let Some(entry) = self.names.get_mut(name) else { return };
        while let Some(waiter) = entry.queue.pop_front() {
            entry.state = State::Requested(waiter.ticket);
            if waiter.admitted.send(Admitted::Request(waiter.ticket)).is_ok() {
                return;
            }
        }
        self.names.remove(name);
    }

    /// Ends a use. Returns the hold of the next use, or nothing if the hold stays idle; an error if the hold is not in
    /// the table, so that the guard must release it.
    pub(crate) fn give_back(&mut self, hold: &Hold, now: Instant) -> Result<Option<Arc<Hold>>, NotKept> {
        let (fresh, name) = (self.is_fresh(now), &hold.name);
        let entry = self.names.get_mut(name).ok_or(NotKept)?;
        let State::Used(kept) = entry.state else { return Err(NotKept) };
        if kept.token != hold.token() {
            return Err(NotKept);
        }
        if !fresh && !entry.queue.is_empty() {
            self.tokens.remove(&kept.token);
            self.request_next(name);
            return Err(NotKept);
        }
        while let Some(waiter) = entry.queue.pop_front() {
            let next = kept.next_use(name);
            if waiter.admitted.send(Admitted::Taken(next.clone())).is_ok() {
                return Ok(Some(next));
            }
        }
        entry.state = State::Idle(kept, now);
        self.idle += 1;
        if CACHED_IDLE_MAX < self.idle {
            self.give_up_longest_idle();
        }
        Ok(None)
    }

    fn idle_holds(&self) -> impl Iterator<Item = (Instant, FencingToken)> {
        self.names.values().filter_map(|entry| match entry.state {
            State::Idle(kept, since) => Some((since, kept.token)),
            State::Requested(_) | State::Used(_) => None,
        })
    }

    fn give_up_longest_idle(&mut self) {
        if let Some((_, token)) = self.idle_holds().min() {
            self.give_up(token);
        }
    }

    /// Removes a hold that the cluster recalled. Returns false if it is not in the table.
    pub(crate) fn recalled(&mut self, token: FencingToken) -> bool {
        if faults::on(Fault::RecallIgnored) {
            return self.tokens.contains_key(&token);
        }
        if faults::on(Fault::ReleasedHoldTaken)
            && let Some((name, kept)) = self.idle_hold(token)
        {
            self.given_up.push(kept.next_use(&name));
            return true;
        }
        self.give_up(token)
    }

    fn idle_hold(&self, token: FencingToken) -> Option<(LockName, Kept)> {
        let name = self.tokens.get(&token)?;
        match self.names.get(name)?.state {
            State::Idle(kept, _) => Some((name.clone(), kept)),
            State::Requested(_) | State::Used(_) => None,
        }
    }

    /// Removes a hold from the table. Returns false if it is not in the table.
    pub(crate) fn give_up(&mut self, token: FencingToken) -> bool {
        if let Some((name, kept)) = self.idle_hold(token) {
            self.forget_idle(&name, kept);
            self.names.remove(&name);
            return true;
        }
        let used = self.tokens.remove(&token);
        used.inspect(|name| self.flush(name)).is_some()
    }

    /// Removes the token of an idle hold, which is released.
    fn forget_idle(&mut self, name: &LockName, kept: Kept) {
        self.tokens.remove(&kept.token);
        self.idle -= 1;
        self.given_up.push(kept.next_use(name));
    }

    /// Removes a hold from the table if it is idle. Returns whether it was.
    pub(crate) fn give_up_idle(&mut self, token: FencingToken) -> bool {
        self.idle_hold(token).is_some() && self.give_up(token)
    }

    /// Removes a name whose hold is used or was recalled at its grant: all acquires of its local queue send requests.
    fn flush(&mut self, name: &LockName) {
        let queue = self.names.remove(name).map(|entry| entry.queue);
        for Waiter { ticket, admitted } in queue.into_iter().flatten() {
            // A waiter that is gone needs no turn.
            drop(admitted.send(Admitted::Request(ticket)));
        }
    }

    /// Removes all holds from the table, because events of them may be missed from now on.
    pub(crate) fn unfollowed(&mut self) {
        self.followed = false;
        for token in self.tokens.keys().copied().collect::<Vec<_>>() {
            self.give_up(token);
        }
    }

    /// Records that the events of the session's holds arrive from now on.
    pub(crate) fn followed(&mut self) {
        self.followed = true;
    }

    /// Removes the holds that were idle for too long. Returns when to look again; `None` if the table has no hold.
    pub(crate) fn give_up_overdue(&mut self, now: Instant) -> Option<Instant> {
        let longest = Duration::from_millis(CACHED_IDLE_MS_MAX);
        let overdue: Vec<_> = self.idle_holds().filter(|(since, _)| since.after(longest) <= now).collect();
        for (_, token) in overdue {
            self.give_up(token);
        }
        let next = self.idle_holds().map(|(since, _)| since).min().unwrap_or(now);
        (!self.tokens.is_empty()).then(|| next.after(longest))
    }

    /// Returns the holds that must be released.
    pub(crate) fn take_given_up(&mut self) -> Vec<Arc<Hold>> {
        std::mem::take(&mut self.given_up)
    }

    /// Whether holds must be released.
    pub(crate) fn has_given_up(&self) -> bool {
        !self.given_up.is_empty()
    }
}

/// The hold is not in the table: its guard releases it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotKept;
