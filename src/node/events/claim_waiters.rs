//! Calls that wait until a claim is granted or its wait ends.

use std::collections::HashMap;

use tokio::sync::oneshot;

use crate::model::{Claim, Event, EventKind};
use crate::mutex::Mutex;

/// One registered call. Dropping it removes the registration.
pub(in crate::node) struct ClaimWaiter<'a> {
    waiters: &'a ClaimWaiters,
    claim: Claim,
    receiver: oneshot::Receiver<()>,
}

impl ClaimWaiter<'_> {
    /// Waits until an event concerns the claim, or until all calls are woken.
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

/// Wakes calls when an event concerns the claim that they wait for. A woken call reads the outcome from the machine, so
/// an extra wake-up does no harm, and all calls are woken after anything that may have hidden an event.
#[derive(Debug, Default)]
pub(in crate::node) struct ClaimWaiters {
    calls: Mutex<HashMap<Claim, Vec<oneshot::Sender<()>>>>,
}

impl ClaimWaiters {
    /// Registers a call. Read the machine only afterwards, so that no event is missed.
    pub(in crate::node) fn register(&self, claim: Claim) -> ClaimWaiter<'_> {
        let (sender, receiver) = oneshot::channel();
        self.calls.lock().entry(claim).or_default().push(sender);
        ClaimWaiter { waiters: self, claim, receiver }
    }

    /// Removes the calls for this claim that have been dropped.
    fn forget(&self, claim: Claim) {
        let mut calls = self.calls.lock();
        if let Some(waiting) = calls.get_mut(&claim) {
            waiting.retain(|call| !call.is_closed());
            if waiting.is_empty() {
                calls.remove(&claim);
            }
        }
    }

    /// Wakes the calls whose claim this event decides.
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
        if let Some(decided) = event.subject.claim() {
            self.calls.lock().remove(&decided);
        }
    }

    /// Wakes all calls, because leadership moved or a snapshot was installed. In the order of the claims, so that a
    /// simulation is repeatable.
    pub(in crate::node) fn wake_all(&self) {
        let mut calls: Vec<_> = self.calls.lock().drain().collect();
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

    /// A waiting call is woken at once by every event that ends its wait, and by no event of another claim.
    #[test]
    fn every_event_that_ends_a_wait_wakes_its_call() {
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
