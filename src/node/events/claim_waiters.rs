//! Calls that wait until a claim is granted or its wait ends.

use std::collections::{BTreeMap, HashMap};

use tokio::sync::oneshot;

use crate::model::{Claim, Event, EventKind};
use crate::mutex::Mutex;

/// One registered call. Dropping it removes the registration.
pub(in crate::node) struct ClaimWaiter<'a> {
    waiters: &'a ClaimWaiters,
    claim: Claim,
    number: u64,
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
        self.waiters.forget(self.claim, self.number);
    }
}

/// Wakes calls when an event concerns the claim that they wait for. A woken call reads the outcome from the machine, so
/// an extra wake-up does no harm, and all calls are woken after anything that may have hidden an event.
#[derive(Debug, Default)]
pub(in crate::node) struct ClaimWaiters {
    calls: Mutex<Calls>,
}

/// The calls that wait. Each has a separate number, so that its removal does not depend on the other calls of its
/// claim: `apply` waits for the mutex.
#[derive(Debug, Default)]
struct Calls {
    of_claim: HashMap<Claim, BTreeMap<u64, oneshot::Sender<()>>>,
    /// Number of the newest call.
    newest: u64,
}

impl ClaimWaiters {
    /// Registers a call. Read the machine only afterwards, so that no event is missed.
    pub(in crate::node) fn register(&self, claim: Claim) -> ClaimWaiter<'_> {
        let (sender, receiver) = oneshot::channel();
        let mut calls = self.calls.lock();
        calls.newest += 1;
        let number = calls.newest;
        calls.of_claim.entry(claim).or_default().insert(number, sender);
        ClaimWaiter { waiters: self, claim, number, receiver }
    }

    /// Removes the call with this number, which has been dropped.
    fn forget(&self, claim: Claim, number: u64) {
        let mut calls = self.calls.lock();
        if let Some(waiting) = calls.of_claim.get_mut(&claim) {
            waiting.remove(&number);
            if waiting.is_empty() {
                calls.of_claim.remove(&claim);
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
            let decided = self.calls.lock().of_claim.remove(&decided);
            // Wakes the calls after the mutex is free, because each of them takes it next.
            drop(decided);
        }
    }

    /// Wakes all calls, because leadership moved or a snapshot was installed. In the order of the claims, so that a
    /// simulation is repeatable.
    pub(in crate::node) fn wake_all(&self) {
        let mut calls: Vec<_> = self.calls.lock().of_claim.drain().collect();
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

    /// The work of dropping a call does not grow with the other calls of its claim, because one client may open many.
    /// None of them remains.
    #[test]
    fn dropped_calls_of_one_claim_are_removed_one_by_one() {
        let waiters = ClaimWaiters::default();
        let waiting: Vec<_> = (0..200_000).map(|_| waiters.register(claim(1))).collect();
        let other = waiters.register(claim(2));
        let begun = tokio::time::Instant::now();
        drop(waiting);
        // With work for each of the other calls, it would take minutes.
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!(waiters.calls.lock().of_claim.len(), 1);
        drop(other);
        assert!(waiters.calls.lock().of_claim.is_empty());
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
