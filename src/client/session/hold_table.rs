//! The holds of a session that have a guard, and the events that concern them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{Notify, Semaphore};

use crate::client::hold::{Hold, HoldEnd, RevokeRequest};
use crate::client::session::cached_holds::{Admitted, Asked, CachedHolds, Ticket};
use crate::clock::Instant;
use crate::limits::{HOLD_EVENTS_EARLY_MAX, HOLD_READS_AT_ONCE, HOLDS_SWEEP_MIN};
use crate::model::{EndReason, Event, EventKind, FencingToken, LockName, Reason};
use crate::mutex::Mutex;

/// The holds of a session that have guards.
///
/// - An event may arrive before the answer that grants its hold or gives it the token. It is stored until then.
/// - After a gap in the events, watched holds are read again. A hold without a watcher is read when a caller begins to
///   watch it. So is a hold whose request was under way during the gap: its grant may be older than the gap.
#[derive(Debug)]
pub(crate) struct HoldTable {
    table: Mutex<Table>,
    /// Number of gaps in the events. It grows only while the table is locked, so that a hold is added either before a
    /// gap or after it.
    gaps: AtomicU64,
    /// Bounds the reads of holds that run at the same time.
    pub(crate) reads: Semaphore,
    /// Notified when cached holds must be released, or the first one was granted.
    pub(crate) cached_changed: Notify,
    /// Whether the session's task releases cached holds.
    releases_cached: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    /// Holds that have or had a guard. Holds of dropped guards are removed when they may be half of the table.
    holds: Vec<Weak<Hold>>,
    sweep_at: usize,
    /// Events of tokens that no hold in the table has.
    early: VecDeque<(FencingToken, HoldEvent)>,
    /// The largest token of an early event that was removed for lack of space.
    forgotten: Option<FencingToken>,
    cached: CachedHolds,
}

/// What another client, or the end of a lease, did to a hold.
#[derive(Debug, Clone)]
enum HoldEvent {
    LeaseEnded(EndReason),
    Broken(Reason),
    HandedOver,
    Recalled,
    RevokeRequested(RevokeRequest),
}

impl HoldEvent {
    /// Returns the event and the token of the hold that it concerns; `None` if it concerns no hold.
    #[allow(clippy::wildcard_enum_match_arm, reason = "every other event is no news of a hold to its holder")]
    fn of(event: &Event) -> Option<(FencingToken, Self)> {
        let token = event.subject.token();
        match &event.kind {
            EventKind::Expired { reason, .. } => Some((token?, HoldEvent::LeaseEnded(*reason))),
            EventKind::Broken { why, .. } => Some((token?, HoldEvent::Broken(why.clone()))),
            EventKind::HandedOver { from, .. } => Some((*from, HoldEvent::HandedOver)),
            EventKind::Recalled => Some((token?, HoldEvent::Recalled)),
            EventKind::RevokeRequested { by, why } => {
                Some((token?, HoldEvent::RevokeRequested(RevokeRequest { by: by.clone(), why: why.clone() })))
            }
            _ => None,
        }
    }

    fn apply(&self, hold: &Hold) {
        match self {
            // A hold without a lease ends with its session, whose end is detected by renewals.
            HoldEvent::LeaseEnded(_) if hold.lease_ms().is_none() => {}
            HoldEvent::LeaseEnded(reason) => hold.lose(Some(*reason)),
            HoldEvent::Broken(why) => hold.lose_broken(why.clone()),
            HoldEvent::HandedOver => hold.lose(Some(EndReason::HandedOver)),
            // A recall does not end the use that runs.
            HoldEvent::Recalled => {}
            HoldEvent::RevokeRequested(request) => hold.request_revoke(request.clone()),
        }
    }
}

impl HoldTable {
    pub(crate) fn new() -> Self {
        Self {
            table: Mutex::default(),
            gaps: AtomicU64::new(0),
            reads: Semaphore::new(HOLD_READS_AT_ONCE),
            cached_changed: Notify::new(),
            releases_cached: AtomicBool::new(false),
        }
    }

    /// Returns the number of gaps in the events so far, for [`add`](Self::add).
    pub(crate) fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::SeqCst)
    }

    /// Adds a hold. `gaps` is the number of gaps before its request began.
    pub(crate) fn add(&self, hold: &Arc<Hold>, gaps: u64) {
        let mut table = self.table.lock();
        table.apply_missed(hold, gaps < self.gaps());
        // Only an owner that acquires a hold several times has several guards of one token.
        if hold.acquire != 0 {
            let same = |other: &Arc<Hold>| other.token() == hold.token();
            table.holds.iter().filter_map(Weak::upgrade).filter(same).for_each(|other| hold.joins(&other));
        }
        table.add(hold);
    }

    /// Adds the hold that was granted to a cached acquire. The next acquires can take it, unless it was recalled or
    /// has ended. `gaps` is the number of gaps before its request began.
    pub(crate) fn add_cached(&self, ticket: Ticket, hold: &Arc<Hold>, gaps: u64) {
        let mut table = self.table.lock();
        let over = table.apply_missed(hold, gaps < self.gaps());
        table.add(hold);
        let first = table.cached.granted(ticket, hold, over);
        self.wake_release(&table, first);
    }

    /// Wakes the release of cached holds if it has work to do. `first` is whether the table has got its first hold.
    fn wake_release(&self, table: &Table, first: bool) {
        if first || table.cached.has_given_up() {
            self.cached_changed.notify_one();
        }
    }

    /// Whether this is the first call, after which the caller starts the release of cached holds.
    pub(crate) fn starts_releasing(&self) -> bool {
        !self.caches() && !self.releases_cached.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn caches(&self) -> bool {
        self.releases_cached.load(Ordering::Relaxed)
    }

    /// Begins an acquire of a cached hold.
    pub(crate) fn ask_cached(&self, name: &LockName, now: Instant) -> Asked {
        let mut table = self.table.lock();
        let asked = table.cached.ask(name, now);
        if let Asked::Now(Admitted::Taken(hold)) = &asked {
            table.add(hold);
        }
        self.wake_release(&table, false);
        asked
    }

    /// Changes the table of cached holds. Wakes their release if it has work to do then.
    pub(crate) fn cached<T>(&self, change: impl FnOnce(&mut CachedHolds) -> T) -> T {
        let mut table = self.table.lock();
        let result = change(&mut table.cached);
        self.wake_release(&table, false);
        result
    }

    /// Ends a use of a cached hold that its guard has released. Returns false if the hold must be released at the
    /// cluster.
    pub(crate) fn give_back(&self, hold: &Hold, now: Instant) -> bool {
        let mut table = self.table.lock();
        if hold.ended(now) != Some(HoldEnd::Released) {
            table.cached.give_up(hold.token());
            return false;
        }
        let Ok(next) = table.cached.give_back(hold, now) else { return false };
        if let Some(next) = next {
            table.add(&next);
        }
        self.wake_release(&table, false);
        true
    }

    /// Applies the recalled holds that an answer names.
    pub(crate) fn recalled(&self, tokens: &[FencingToken]) {
        if tokens.is_empty() {
            return;
        }
        let mut table = self.table.lock();
        for token in tokens {
            table.on_event(*token, &HoldEvent::Recalled);
        }
        self.wake_release(&table, false);
    }

    /// Stores the token of an upgrade.
    pub(crate) fn regranted(&self, hold: &Hold, token: FencingToken) {
        let mut table = self.table.lock();
        hold.regranted(token);
        table.apply_early(hold);
    }

    /// Applies an event to the holds with its token, which several guards may share.
    pub(crate) fn on_event(&self, event: &Event) {
        let Some((token, event)) = HoldEvent::of(event) else { return };
        let mut table = self.table.lock();
        table.on_event(token, &event);
        self.wake_release(&table, false);
    }

    /// Records that events were missed. Returns the holds that must be read now.
    pub(crate) fn missed(&self) -> Vec<Arc<Hold>> {
        let table = self.table.lock();
        self.gaps.fetch_add(1, Ordering::SeqCst);
        table.holds.iter().filter_map(Weak::upgrade).filter(|hold| hold.missed()).collect()
    }
}

impl Table {
    fn add(&mut self, hold: &Arc<Hold>) {
        if self.sweep_at <= self.holds.len() {
            self.holds.retain(|hold| hold.strong_count() > 0);
            self.sweep_at = HOLDS_SWEEP_MIN.max(2 * self.holds.len());
        }
        self.holds.push(Arc::downgrade(hold));
    }

    fn on_event(&mut self, token: FencingToken, event: &HoldEvent) {
        let mut known = match event {
            HoldEvent::Recalled => self.cached.recalled(token),
            // A hold that no guard uses is released at once.
            HoldEvent::RevokeRequested(_) => self.cached.give_up_idle(token),
            HoldEvent::LeaseEnded(_) | HoldEvent::Broken(_) | HoldEvent::HandedOver => self.cached.give_up(token),
        };
        for hold in self.holds.iter().filter_map(Weak::upgrade).filter(|hold| hold.token() == token) {
            event.apply(&hold);
            known = true;
        }
        let repeated = || self.early.iter().any(|(of, early)| *of == token && matches!(early, HoldEvent::Recalled));
        if known || (matches!(event, HoldEvent::Recalled) && repeated()) {
            return;
        }
        if self.early.len() == HOLD_EVENTS_EARLY_MAX {
            let oldest = self.early.pop_front().map(|(token, _)| token);
            self.forgotten = self.forgotten.max(oldest);
        }
        self.early.push_back((token, event.clone()));
    }

    /// Applies what happened between the grant of this hold and its answer. `missed` is whether events were missed
    /// since its request began. Returns whether the hold was recalled or has ended, or may have.
    fn apply_missed(&mut self, hold: &Hold, missed: bool) -> bool {
        if missed {
            hold.missed();
        }
        self.apply_early(hold) || missed
    }

    /// Applies the events that arrived before the grant of this hold. Returns whether one of them recalled or ended the
    /// hold, or may have.
    fn apply_early(&mut self, hold: &Hold) -> bool {
        let token = hold.token();
        let mut over = self.forgotten.is_some_and(|forgotten| token <= forgotten);
        if over {
            hold.missed();
        }
        self.early.retain(|(of, event)| {
            let its = *of == token;
            if its {
                event.apply(hold);
                over |= !matches!(event, HoldEvent::RevokeRequested(_));
            }
            !its
        });
        over
    }
}
