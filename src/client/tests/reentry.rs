//! A hold that its owner acquired several times: each guard has its own state of it, with the same token.

use std::time::Duration;

use super::fake::{Asked, Fake, Reaction};
use super::time::until;
use crate::client::{HoldState, LockGuard, Session};
use crate::model::{
    Command, EndReason, Event, EventKind, FencingToken, Grant, Outcome, Principal, Reason, Reentry, RenewalTarget,
};
use crate::service::RenewalCall;

const SECOND: Duration = Duration::from_secs(1);

/// A session whose acquires are all granted under one token.
async fn session(fake: &Fake) -> Session<Fake> {
    let clocks = fake.clone();
    fake.rule(move |asked| match asked {
        Asked::Submit(Command::Acquire(acquire)) => {
            let deadline = acquire.lease_ms.map(|ms| clocks.stamp().after_ms(ms));
            let grant = Grant { token: FencingToken::new(0, 1), deadline, ends: None, waited_ms: 0 };
            Reaction::Outcome(Outcome::Granted(grant))
        }
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    fake.client().session().ttl(60 * SECOND).open().await.expect("opened")
}

async fn enter(session: &Session<Fake>, lease: Duration) -> LockGuard {
    session.lock("a").owner("job").reentry(Reentry::Count).lease(lease).acquire().await.expect("its own")
}

/// A renewal by the guard with the shorter lease must not end the lease before the other guard expects it.
#[tokio::test(start_paused = true)]
async fn both_guards_renew_by_the_longer_lease() {
    for lengths in [[30, 2], [2, 30]] {
        let fake = Fake::new();
        let session = session(&fake).await;
        let first = enter(&session, lengths[0] * SECOND).await;
        let second = enter(&session, lengths[1] * SECOND).await;
        tokio::time::sleep(25 * SECOND).await;
        let renewals = fake.asked(|asked| matches!(asked, Asked::Renew(_)));
        let length = |asked| {
            let Asked::Renew(RenewalCall { target: RenewalTarget::Hold { lease_ms, .. }, .. }) = asked else {
                return None;
            };
            Some(lease_ms)
        };
        let lengths: Vec<_> = renewals.into_iter().filter_map(|(_, asked)| length(asked)).collect();
        assert!(3 < lengths.len() && lengths.iter().all(|ms| *ms == 30_000), "{lengths:?}");
        assert_eq!((first.state(), second.state()), (HoldState::Held, HoldState::Held));
    }
}

/// Each guard releases its own acquire: a release that runs twice, or before the cancel of another acquire, must not
/// free an acquire that another guard relies on.
#[tokio::test(start_paused = true)]
async fn a_release_names_its_acquire() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let (first, second) = (enter(&session, SECOND).await, enter(&session, SECOND).await);
    let single = session.lock("b").acquire().await.expect("free");
    for guard in [first, second, single] {
        guard.release().await.expect("released");
    }
    let commands = || {
        let asked = fake.asked(|_| true).into_iter();
        asked.filter_map(|(_, asked)| if let Asked::Submit(command) = asked { Some(command) } else { None })
    };
    let acquire = |command| if let Command::Acquire(asked) = command { Some(asked.request.number) } else { None };
    let release = |command| if let Command::Release(release) = command { Some(release.acquire) } else { None };
    let acquired: Vec<_> = commands().filter_map(acquire).collect();
    let released: Vec<_> = commands().filter_map(release).collect();
    assert_eq!(released, [acquired[0], acquired[1], 0], "a hold that is acquired once has no other acquire");
}

/// A hold is broken while the answer to its second acquire is on its way. The second guard is lost as well.
#[tokio::test(start_paused = true)]
async fn a_break_before_the_second_grant_is_answered_ends_both() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let first = enter(&session, 30 * SECOND).await;
    fake.ways(Duration::from_millis(1), SECOND);
    let breaks = async {
        until(|| fake.count(|asked| matches!(asked, Asked::Submit(Command::Acquire(_)))) == 2).await;
        let why = Reason::parse("mine").expect("a reason");
        let kind = EventKind::Broken { by: Principal::default(), why, held_ms: 1 };
        fake.publish(Ok(Event { kind, ..fake.granted(1) })).await;
        first.lost().await
    };
    let (second, lost) = tokio::join!(enter(&session, 30 * SECOND), breaks);
    assert_eq!(lost.reason, Some(EndReason::Broken));
    assert_eq!(second.state(), HoldState::Lost);
    assert_eq!(second.lost().await.reason, Some(EndReason::Broken));
}
