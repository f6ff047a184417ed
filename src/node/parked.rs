//! Calls that wait for a claim to be settled.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::model::{Claim, EventKind};

/// Wakes calls when something happens to the claim that they wait for. What happened they read from the machine, so a
/// spurious wake does no harm, and one for good measure after anything that may have hidden an event does good.
#[derive(Debug, Default)]
pub(super) struct Parked {
    calls: Mutex<HashMap<Claim, Vec<oneshot::Sender<()>>>>,
}

impl Parked {
    fn calls(&self) -> MutexGuard<'_, HashMap<Claim, Vec<oneshot::Sender<()>>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers; look at the machine only afterwards.
    pub(super) fn park(&self, claim: Claim) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut calls = self.calls();
        let waiting = calls.entry(claim).or_default();
        waiting.retain(|call| !call.is_closed());
        waiting.push(sender);
        receiver
    }

    /// Wakes the calls whose claim this event settles.
    pub(super) fn happened(&self, kind: &EventKind) {
        let settled = match kind {
            EventKind::Granted { claim, .. } | EventKind::Left { claim, .. } => *claim,
            EventKind::Queued { .. }
            | EventKind::Released { .. }
            | EventKind::Expired { .. }
            | EventKind::SessionOpened { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::LeaderlessGap { .. } => return,
        };
        self.calls().remove(&settled);
    }

    /// Wakes everybody: leadership moved, or a snapshot was installed.
    pub(super) fn wake_all(&self) {
        self.calls().clear();
    }
}
