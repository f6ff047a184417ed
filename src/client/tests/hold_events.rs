//! Breaks and other events of a session's holds arrive as events; holds are read only if events may have been missed.

use std::time::Duration;

use super::fake::{Asked, Fake, Reaction, is_check};
use super::time::{TICK, until};
use crate::client::{HoldState, LockGuard, RevokeRequest, Session};
use crate::limits::{HOLD_EVENTS_EARLY_MAX, HOLD_READS_AT_ONCE};
use crate::model::{
    Checked, Command, EndReason, Event, EventKind, FencingToken, Grant, Outcome, Principal, Query, QueryResult, Reason,
    TokenState,
};
use crate::service::ServiceError;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

async fn session(fake: &Fake) -> Session<Fake> {
    fake.client().session().ttl(MINUTE).open().await.expect("opened")
}

async fn guards(session: &Session<Fake>, count: usize) -> Vec<LockGuard> {
    let names = (0..count).map(|number| format!("a{number}"));
    let guards = futures_util::future::join_all(names.map(|name| session.lock(&name).acquire())).await;
    guards.into_iter().map(|guard| guard.expect("free")).collect()
}

fn reason() -> Reason {
    Reason::parse("mine").expect("a reason")
}

fn event(fake: &Fake, token: u64, kind: EventKind) -> Event {
    Event { kind, ..fake.granted(token) }
}

fn broken(fake: &Fake, token: u64) -> Event {
    event(fake, token, EventKind::Broken { by: Principal::default(), why: reason(), held_ms: 1 })
}

fn revoke_requested(fake: &Fake, token: u64) -> Event {
    event(fake, token, EventKind::RevokeRequested { by: Principal::default(), why: reason() })
}

/// The answer to a check of an earlier token than this one.
fn stale(lowest_valid: u64) -> Reaction {
    let lowest_valid = FencingToken::new(0, lowest_valid);
    let checked = Checked { state: TokenState::Stale, lowest_valid, since: None, deadline: None };
    Reaction::Answer(QueryResult::Checked(checked))
}

/// Waits until an acquire is granted and its answer is still in transit.
async fn granted_soon(fake: &Fake) {
    until(|| fake.count(|asked| matches!(asked, Asked::Submit(Command::Acquire(_)))) == 1).await;
    tokio::time::sleep(10 * TICK).await;
}

/// All watched guards of a session share one subscription and cause no read; events reach the guards.
#[tokio::test(start_paused = true)]
async fn watching_a_hold_costs_no_read() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let guards = guards(&session, 3).await;
    for guard in &guards {
        tokio::time::timeout(SECOND, guard.run(std::future::pending::<()>())).await.expect_err("held");
    }
    fake.publish(Ok(revoke_requested(&fake, 2))).await;
    let asked = guards[1].revoke_requested().await;
    assert_eq!(asked, RevokeRequest { by: Principal::default(), why: reason() });
    fake.publish(Ok(broken(&fake, 2))).await;
    let lost = guards[1].lost().await;
    assert_eq!((lost.alone, lost.reason, &lost.why), (true, Some(EndReason::Broken), &Some(reason())));
    assert!(lost.to_string().ends_with(&format!("it was broken: {}", reason().as_str())), "{lost}");
    assert_eq!((guards[0].state(), guards[2].state()), (HoldState::Held, HoldState::Held));
    assert_eq!(fake.count(is_check), 0);
    assert_eq!(fake.count(|asked| matches!(asked, Asked::Subscribe)), 1);
}

/// An event that arrives before the answer that grants its hold applies to that hold.
#[tokio::test(start_paused = true)]
async fn an_event_may_come_before_its_grant_is_answered() {
    let fake = Fake::new();
    let session = session(&fake).await;
    fake.ways(TICK, SECOND);
    let acquire = session.lock("a").acquire();
    let breaks = async {
        granted_soon(&fake).await;
        fake.publish(Ok(broken(&fake, 1))).await;
    };
    let (guard, ()) = tokio::join!(acquire, breaks);
    let guard = guard.expect("granted");
    assert_eq!(guard.token(), FencingToken::new(0, 1));
    assert_eq!((guard.state(), guard.lost().await.reason), (HoldState::Lost, Some(EndReason::Broken)));
    assert_eq!(fake.count(is_check), 0);
}

/// An event with the token of an upgrade that arrives before the upgrade's answer applies, too.
#[tokio::test(start_paused = true)]
async fn an_event_may_come_before_its_upgrade_is_answered() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let mut guard = session.lock("a").shared().acquire().await.expect("free");
    let upgraded = Grant { token: FencingToken::new(0, 9), deadline: None, ends: None, waited_ms: 0 };
    fake.rule(move |asked| match asked {
        Asked::Submit(Command::Alter(_)) => Reaction::Late(SECOND, Outcome::Granted(upgraded.clone())),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    let (upgraded, ()) = tokio::join!(guard.upgrade(), async { fake.publish(Ok(broken(&fake, 9))).await });
    assert_eq!(upgraded, Ok(FencingToken::new(0, 9)));
    assert_eq!(guard.lost().await.reason, Some(EndReason::Broken));
}

/// After a gap a session with a thousand watched holds reads each of them once, a bounded number at a time.
#[tokio::test(start_paused = true)]
async fn the_reads_of_many_holds_are_bounded() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let guards = guards(&session, 1_000).await;
    let _watches: Vec<_> = guards.iter().map(LockGuard::watch).collect();
    tokio::time::sleep(SECOND).await;
    for reads in [0, 1_000, 2_000] {
        until(|| fake.count(is_check) == reads).await;
        tokio::time::sleep(SECOND).await;
        assert_eq!(fake.count(is_check), reads);
        assert!(fake.most_questions() <= HOLD_READS_AT_ONCE);
        fake.cut();
    }
}

/// After a gap a hold without a watcher is read once, when a caller begins to watch it; the reads at the same time are
/// bounded.
#[tokio::test(start_paused = true)]
async fn a_hold_is_read_when_it_is_first_watched() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let guards = guards(&session, 100).await;
    fake.cut();
    tokio::time::sleep(SECOND).await;
    assert_eq!(fake.count(is_check), 0);
    fake.rule(|asked| match asked {
        Asked::Query(Query::Check { token, .. }) if *token == FencingToken::new(0, 7) => stale(8),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    for _ in 0..2 {
        let lost = guards.iter().find(|guard| guard.token() == FencingToken::new(0, 7)).expect("granted");
        let _watches: Vec<_> = guards.iter().map(LockGuard::watch).collect();
        assert_eq!(lost.lost().await.reason, None);
        tokio::time::sleep(SECOND).await;
        assert_eq!(fake.count(is_check), 100);
        assert!(fake.most_questions() <= HOLD_READS_AT_ONCE);
    }
}

/// A hold was broken in a gap, and the first reads of it get errors that a retry of a caller cannot fix. It is read
/// until there is an answer, so its holder learns of the loss.
#[tokio::test(start_paused = true)]
async fn a_hold_is_read_until_there_is_an_answer() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let guard = session.lock("a").acquire().await.expect("free");
    let watch = guard.watch();
    let revoked = ServiceError::Unauthenticated { why: "the token is being replaced".to_owned() };
    let mut errors = vec![revoked, ServiceError::Internal("a fault".to_owned())].into_iter();
    fake.rule(move |asked| {
        if !is_check(asked) {
            return Reaction::Serve;
        }
        errors.next().map_or_else(|| stale(2), Reaction::Fail)
    });
    fake.cut();
    tokio::time::timeout(MINUTE / 2, watch.lost()).await.expect("it was broken in the gap");
    assert_eq!(fake.count(is_check), 3);
}

/// If there were too many events with unknown tokens, a hold that may have missed one is read; a later hold is not. A
/// watch for the changes of a hold reads nothing.
#[tokio::test(start_paused = true)]
async fn a_hold_whose_early_event_was_dropped_is_read() {
    let fake = Fake::new();
    let session = session(&fake).await;
    fake.ways(TICK, SECOND);
    let acquire = session.lock("a").acquire();
    let events = async {
        granted_soon(&fake).await;
        for token in 1..=1 + HOLD_EVENTS_EARLY_MAX as u64 {
            fake.publish(Ok(broken(&fake, token))).await;
        }
    };
    let (guard, ()) = tokio::join!(acquire, events);
    let guard = guard.expect("granted");
    assert_eq!((guard.token(), guard.state()), (FencingToken::new(0, 1), HoldState::Held));
    let later = session.lock("b").acquire().await.expect("free");
    assert!(!guard.changes().is_changing());
    for (guard, reads) in [(&later, 0), (&guard, 1)] {
        tokio::time::sleep(MINUTE / 30).await;
        assert_eq!(fake.count(is_check), 0);
        let _watch = guard.watch();
        tokio::time::sleep(MINUTE / 30).await;
        assert_eq!(fake.count(is_check), reads);
    }
}

/// A grant may be older than a gap although its answer arrives after it. If the hold was broken in the gap, no event
/// follows, so the hold is read when a caller begins to watch it. A hold that was requested after the gap is not read.
#[tokio::test(start_paused = true)]
async fn a_hold_that_was_granted_before_a_gap_is_read() {
    let fake = Fake::new();
    let session = session(&fake).await;
    fake.rule(|asked| match asked {
        Asked::Query(Query::Check { token, .. }) if *token == FencingToken::new(0, 1) => stale(2),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    fake.ways(TICK, SECOND);
    let gap = async {
        granted_soon(&fake).await;
        fake.cut();
        until(|| fake.count(|asked| matches!(asked, Asked::Subscribe)) == 2).await;
    };
    let (guard, ()) = tokio::join!(session.lock("a").acquire(), gap);
    let guard = guard.expect("granted");
    let later = session.lock("b").acquire().await.expect("free");
    assert_eq!(fake.count(is_check), 0);
    tokio::time::timeout(MINUTE / 2, guard.lost()).await.expect("it was broken in the gap");
    tokio::time::timeout(SECOND, later.lost()).await.expect_err("held");
    assert_eq!(fake.count(is_check), 1);
}
