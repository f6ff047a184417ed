//! Calls that wait for a claim to be settled.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::model::{Claim, EventKind};

/// One registered call. Dropping it takes it out again.
pub(super) struct ParkedCall<'a> {
    parked: &'a Parked,
    claim: Claim,
    receiver: oneshot::Receiver<()>,
}

impl ParkedCall<'_> {
    /// Waits until something happened to the claim; a call that was cut off is woken, too.
    pub(super) async fn woken(mut self) {
        let _ = (&mut self.receiver).await;
    }
}

impl Drop for ParkedCall<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        self.parked.forget(self.claim);
    }
}

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
    pub(super) fn park(&self, claim: Claim) -> ParkedCall<'_> {
        let (sender, receiver) = oneshot::channel();
        self.calls().entry(claim).or_default().push(sender);
        ParkedCall { parked: self, claim, receiver }
    }

    /// Forgets calls on this claim that nobody waits for any more.
    fn forget(&self, claim: Claim) {
        let mut calls = self.calls();
        if let Some(waiting) = calls.get_mut(&claim) {
            waiting.retain(|call| !call.is_closed());
            if waiting.is_empty() {
                calls.remove(&claim);
            }
        }
    }

    /// Wakes the calls whose claim this event settles.
    pub(super) fn happened(&self, kind: &EventKind) {
        let settled = match kind {
            EventKind::Granted { claim, .. }
            | EventKind::HandedOver { claim, .. }
            | EventKind::Upgraded { claim, .. }
            | EventKind::Left { claim, .. } => *claim,
            EventKind::Queued { .. }
            | EventKind::Released { .. }
            | EventKind::Expired { .. }
            | EventKind::Downgraded { .. }
            | EventKind::PermitsReturned { .. }
            | EventKind::Resumed { .. }
            | EventKind::Reopened { .. }
            | EventKind::Broken { .. }
            | EventKind::RevokeRequested { .. }
            | EventKind::ValueChanged { .. }
            | EventKind::LimitChanged { .. }
            | EventKind::SessionOpened { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::LeaderlessGap { .. } => return,
        };
        self.calls().remove(&settled);
    }

    /// Wakes everybody: leadership moved, or a snapshot was installed. In order, so that a simulation repeats it.
    pub(super) fn wake_all(&self) {
        let mut calls: Vec<_> = self.calls().drain().collect();
        calls.sort_unstable_by_key(|(claim, _)| *claim);
    }
}
