//! The holds of a session that have a guard, and the events that concern them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Semaphore;

use crate::client::hold::{Hold, RevokeRequest};
use crate::limits::{HOLD_EVENTS_EARLY_MAX, HOLD_READS_AT_ONCE, HOLDS_SWEEP_MIN};
use crate::model::{EndReason, Event, EventKind, FencingToken, Reason};

/// The holds of a session that have guards.
///
/// - An event may arrive before the answer that grants its hold or gives it the token. It is stored until then.
/// - After a gap in the events, watched holds are read again. A hold without a watcher is read when a caller begins to
///   watch it.
#[derive(Debug)]
pub(crate) struct HoldTable {
    table: Mutex<Table>,
    /// Bounds the reads of holds that run at the same time.
    pub(crate) reads: Semaphore,
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
}

/// What another client, or the end of a lease, did to a hold.
#[derive(Debug, Clone)]
enum HoldEvent {
    LeaseEnded(EndReason),
    Broken(Reason),
    HandedOver,
    RevokeRequested(RevokeRequest),
}

impl HoldEvent {
    /// Returns the event and the token of the hold that it concerns; `None` if it concerns no hold.
    fn of(event: &Event) -> Option<(FencingToken, Self)> {
        let token = event.subject.token();
        match &event.kind {
            EventKind::Expired { reason, .. } => Some((token?, HoldEvent::LeaseEnded(*reason))),
            EventKind::Broken { why, .. } => Some((token?, HoldEvent::Broken(why.clone()))),
            EventKind::HandedOver { from, .. } => Some((*from, HoldEvent::HandedOver)),
            EventKind::RevokeRequested { by, why } => {
                Some((token?, HoldEvent::RevokeRequested(RevokeRequest { by: by.clone(), why: why.clone() })))
            }
            EventKind::Queued { .. }
            | EventKind::Granted { .. }
            | EventKind::WaitEnded { .. }
            | EventKind::Released { .. }
            | EventKind::Upgraded { .. }
            | EventKind::Downgraded
            | EventKind::PermitsReturned { .. }
            | EventKind::Resumed { .. }
            | EventKind::Reopened
            | EventKind::ValueChanged
            | EventKind::Recalled
            | EventKind::LimitChanged { .. }
            | EventKind::SessionOpened
            | EventKind::SessionEnded { .. }
            | EventKind::LeaderlessGap { .. } => None,
        }
    }

    fn apply(&self, hold: &Hold) {
        match self {
            // A hold without a lease ends with its session, whose end is detected by renewals.
            HoldEvent::LeaseEnded(_) if hold.lease_length().is_none() => {}
            HoldEvent::LeaseEnded(reason) => hold.lose(Some(*reason)),
            HoldEvent::Broken(why) => hold.lose_broken(why.clone()),
            HoldEvent::HandedOver => hold.lose(Some(EndReason::HandedOver)),
            HoldEvent::RevokeRequested(request) => hold.request_revoke(request.clone()),
        }
    }
}

impl HoldTable {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::default(), reads: Semaphore::new(HOLD_READS_AT_ONCE) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the hold of a new guard.
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        let mut table = self.table();
        table.apply_early(hold);
        if table.sweep_at <= table.holds.len() {
            table.holds.retain(|hold| hold.strong_count() > 0);
            table.sweep_at = HOLDS_SWEEP_MIN.max(2 * table.holds.len());
        }
        table.holds.push(Arc::downgrade(hold));
    }

    /// Stores the token of an upgrade.
    pub(crate) fn regranted(&self, hold: &Hold, token: FencingToken) {
        let mut table = self.table();
        hold.regranted(token);
        table.apply_early(hold);
    }

    /// Applies an event to the holds with its token, which several guards may share.
    pub(crate) fn on_event(&self, event: &Event) {
        let Some((token, event)) = HoldEvent::of(event) else { return };
        let mut table = self.table();
        let mut known = false;
        for hold in table.holds.iter().filter_map(Weak::upgrade).filter(|hold| hold.token() == token) {
            event.apply(&hold);
            known = true;
        }
        if known {
            return;
        }
        if table.early.len() == HOLD_EVENTS_EARLY_MAX {
            let oldest = table.early.pop_front().map(|(token, _)| token);
            table.forgotten = table.forgotten.max(oldest);
        }
        table.early.push_back((token, event));
    }

    /// Records that events were missed. Returns the holds that must be read now.
    pub(crate) fn missed(&self) -> Vec<Arc<Hold>> {
        let table = self.table();
        table.holds.iter().filter_map(Weak::upgrade).filter(|hold| hold.missed()).collect()
    }
}

impl Table {
    fn apply_early(&mut self, hold: &Hold) {
        let token = hold.token();
        if self.forgotten.is_some_and(|forgotten| token <= forgotten) {
            hold.missed();
        }
        self.early.retain(|(of, event)| {
            let its = *of == token;
            if its {
                event.apply(hold);
            }
            !its
        });
    }
}
