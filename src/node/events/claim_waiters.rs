//! Calls that wait for a claim to be settled.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::model::{Claim, Event, EventKind};

/// One registered call. Dropping it takes it out again.
pub(in crate::node) struct ClaimWaiter<'a> {
    waiters: &'a ClaimWaiters,
    claim: Claim,
    receiver: oneshot::Receiver<()>,
}

impl ClaimWaiter<'_> {
    /// Waits until something happened to the claim; a call that was cut off is woken, too.
    pub(in crate::node) async fn notified(mut self) {
        let _ = (&mut self.receiver).await;
    }
}

impl Drop for ClaimWaiter<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        self.waiters.forget(self.claim);
    }
}

/// Wakes calls when something happens to the claim that they wait for. What happened they read from the machine, so a
/// spurious wake does no harm, and one for good measure after anything that may have hidden an event does good.
#[derive(Debug, Default)]
pub(in crate::node) struct ClaimWaiters {
    calls: Mutex<HashMap<Claim, Vec<oneshot::Sender<()>>>>,
}

impl ClaimWaiters {
    fn calls(&self) -> MutexGuard<'_, HashMap<Claim, Vec<oneshot::Sender<()>>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers; look at the machine only afterwards.
    pub(in crate::node) fn register(&self, claim: Claim) -> ClaimWaiter<'_> {
        let (sender, receiver) = oneshot::channel();
        self.calls().entry(claim).or_default().push(sender);
        ClaimWaiter { waiters: self, claim, receiver }
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
    pub(in crate::node) fn on_event(&self, event: &Event) {
        match &event.kind {
            EventKind::Granted { .. }
            | EventKind::HandedOver { .. }
            | EventKind::Upgraded { .. }
            | EventKind::WaitEnded { .. } => {}
            EventKind::Queued { .. }
            | EventKind::Released { .. }
            | EventKind::Expired { .. }
            | EventKind::Downgraded
            | EventKind::PermitsReturned { .. }
            | EventKind::Resumed { .. }
            | EventKind::Reopened
            | EventKind::Broken { .. }
            | EventKind::RevokeRequested { .. }
            | EventKind::ValueChanged
            | EventKind::Recalled
            | EventKind::LimitChanged { .. }
            | EventKind::SessionOpened
            | EventKind::SessionEnded { .. }
            | EventKind::LeaderlessGap { .. } => return,
        }
        if let Some(settled) = event.subject.claim() {
            self.calls().remove(&settled);
        }
    }

    /// Wakes everybody: leadership moved, or a snapshot was installed. In order, so that a simulation repeats it.
    pub(in crate::node) fn wake_all(&self) {
        let mut calls: Vec<_> = self.calls().drain().collect();
        calls.sort_unstable_by_key(|(claim, _)| *claim);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::model::{
        FencingToken, LockKey, LockName, LogTime, Mode, Namespace, Position, Principal, RequestId, SessionId, Subject,
        WaitEndReason, WallTime,
    };

    fn claim(number: u64) -> Claim {
        Claim::Request(RequestId { session: SessionId::new(0, 7), number })
    }

    /// A call that waits is woken by everything that ends its wait, at once, and by nothing that happens to another claim.
    #[test]
    fn whatever_ends_a_wait_wakes_its_call() {
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("legal") };
        let (token, mode, by) = (FencingToken::new(0, 1), Mode::Exclusive, Principal::default());
        let ending = |claim| {
            let hold = Subject::hold(&lock, claim, token);
            [
                (hold.clone(), EventKind::Granted { mode, waited_ms: 1 }),
                (hold.clone(), EventKind::HandedOver { was: self::claim(9), from: token, mode, by: by.clone() }),
                (hold, EventKind::Upgraded { from: token, waited_ms: 1 }),
                (Subject::wait(&lock, claim), EventKind::WaitEnded { sequence: 1, why: WaitEndReason::Withdrawn }),
            ]
            .map(|(subject, kind)| {
                let (position, namespace) = (Position::default(), Some(Namespace::default()));
                Event { position, at: LogTime(1), wall: WallTime(0), namespace, subject, kind }
            })
        };
        for (mine, other) in ending(claim(1)).into_iter().zip(ending(claim(2))) {
            let waiters = ClaimWaiters::default();
            let mut woken = Box::pin(waiters.register(claim(1)).notified());
            waiters.on_event(&other);
            assert!(woken.as_mut().now_or_never().is_none(), "{other:?}");
            waiters.on_event(&mine);
            assert!(woken.now_or_never().is_some(), "{mine:?}");
        }
    }
}
