//! Watches, filters and observers: an outage causes no busy loop, and a gap causes no wrong verdict.

use std::sync::Arc;
use std::time::Duration;

use super::fake::{Asked, Fake, Reaction, is_check, view};
use super::time::{TICK, until};
use crate::clock::ManualClock;
use crate::model::{FencingToken, Invalid, LogTime, Outcome, Place, Position, Query, QueryResult, TokenVerdict};
use crate::service::ServiceError;

const SECOND: Duration = Duration::from_secs(1);
/// Longer than the patience of any caller.
const MINUTE: Duration = Duration::from_secs(60);
/// Limit of the calls in a minute of pauses that double up to a second, each shortened by up to a half, plus the first
/// short ones.
const CALLS_A_MINUTE: usize = 2 * 60 + 20;

fn is_subscription(asked: &Asked) -> bool {
    matches!(asked, Asked::Subscribe)
}

fn is_question_for_tokens(asked: &Asked) -> bool {
    matches!(asked, Asked::Query(Query::Tokens { .. }))
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(0, number)
}

/// Timers do not count a suspend. If the limit of a wait passes while the machine is suspended, the wait ends when the
/// clock is next read.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_free_name_counts_suspend() {
    let fake = Fake::new();
    fake.rule(|asked| {
        let inspects = matches!(asked, Asked::Query(Query::Holders { .. }));
        if inspects { Reaction::Answer(view(token(1), LogTime(u64::MAX))) } else { Reaction::Serve }
    });
    let (clock, hour) = (Arc::new(ManualClock::new(1)), 60 * MINUTE);
    let client = fake.client().clock(clock.clone());
    let suspend = async {
        until(|| fake.count(is_subscription) == 1).await;
        clock.advance(hour);
    };
    let waits = async { tokio::join!(client.wait_free_within("a", hour), suspend) };
    let (free, ()) = tokio::time::timeout(MINUTE, waits).await.expect("the clock is read");
    assert_eq!(free, Ok(false));
}

/// After each error that it has returned, a watch retries for the whole request wait again.
#[tokio::test(start_paused = true)]
async fn a_watch_is_patient_after_each_error() {
    let fake = Fake::new();
    fake.rule(
        |asked| if is_subscription(asked) { Reaction::Fail(ServiceError::unknown("away")) } else { Reaction::Serve },
    );
    let mut watch = fake.client().watch_of(1, "a", Position::default());
    for _ in 0..3 {
        let before = fake.count(is_subscription);
        watch.next().await.expect_err("nothing answers");
        let calls = fake.count(is_subscription) - before;
        assert!((5..CALLS_A_MINUTE).contains(&calls), "{calls}");
    }
}

/// A watch renews a subscription that breaks after a long quiet time: that time was no outage.
#[tokio::test(start_paused = true)]
async fn a_quiet_subscription_is_no_outage() {
    let fake = Fake::new();
    let mut watch = fake.client().watch_of(1, "a", Position::default());
    let breaks = async {
        for subscriptions in 1..=3 {
            until(|| fake.count(is_subscription) == subscriptions).await;
            tokio::time::sleep(6 * SECOND).await;
            if subscriptions < 3 {
                fake.cut();
            }
        }
        fake.publish(Ok(fake.granted(3))).await;
    };
    let (event, ()) = tokio::join!(watch.next(), breaks);
    assert_eq!(event.expect("subscribed again").subject.token(), Some(token(3)));
}

/// Subscriptions that end at once are repeated once a second in the long run: by a watch, and by a session, which each
/// time reads its watched holds.
#[tokio::test(start_paused = true)]
async fn a_subscription_that_ends_at_once_is_no_hot_loop() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(MINUTE).open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    fake.end_subscriptions_at_once();
    let mut watch = fake.client().watch_of(1, "a", Position::default());
    tokio::time::timeout(MINUTE, watch.next()).await.expect_err("nothing happens");
    let of_watch = fake.count(is_subscription);
    fake.cut();
    tokio::time::timeout(MINUTE, guard.lost()).await.expect_err("held");
    let of_guard = fake.count(is_subscription) - of_watch;
    let reads = fake.count(is_check);
    for calls in [of_watch, of_guard, reads] {
        assert!((30..CALLS_A_MINUTE).contains(&calls), "{of_watch} {of_guard} {reads}");
    }
}

/// A wait for a grant that fails again and again is repeated once a second in the long run, although the cluster
/// answers the query for the claim each time.
#[tokio::test(start_paused = true)]
async fn a_wait_that_breaks_off_at_once_is_no_hot_loop() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(MINUTE).open().await.expect("opened");
    let name = crate::model::LockName::parse("a").expect("a name");
    let queued = Outcome::Queued(Place { lock: name, place: 1, sequence: 1, held_by: None });
    fake.rule(move |asked| match asked {
        Asked::Submit(crate::model::Command::Acquire(_)) => Reaction::Outcome(queued.clone()),
        Asked::Query(Query::Claim { .. }) => {
            Reaction::Answer(QueryResult::Claim { outcome: Some(queued.clone()), recalled: vec![] })
        }
        Asked::Settled => Reaction::Fail(ServiceError::unknown("broken")),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Query(_) | Asked::Subscribe | Asked::Status => Reaction::Serve,
    });
    tokio::time::timeout(MINUTE, session.lock("a").acquire()).await.expect_err("never granted");
    let waits = fake.count(|asked| matches!(asked, Asked::Settled));
    assert!((30..CALLS_A_MINUTE).contains(&waits), "{waits}");
}

/// A filter that has missed events calls no valid token stale before it has read the tokens again: a token that was
/// granted in the gap may be older than the token of the next event.
#[tokio::test(start_paused = true)]
async fn a_filter_with_a_gap_calls_no_valid_token_stale() {
    let fake = Fake::new();
    fake.valid(&[5]);
    let mut filter = fake.client().tokens("a").await.expect("followed");
    until(|| fake.count(is_subscription) == 1).await;
    tokio::time::sleep(TICK).await;
    fake.rule(|asked| match asked {
        Asked::Query(Query::Tokens { .. }) => Reaction::Fail(ServiceError::unknown("away")),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    fake.valid(&[5, 6]);
    let resume = fake.granted(6).position;
    fake.publish(Err(ServiceError::EventsMissed { why: "a gap".to_owned(), resume })).await;
    for _ in 0..20 {
        fake.publish(Ok(fake.granted(7))).await;
        tokio::time::sleep(SECOND).await;
    }
    assert!(fake.count(is_question_for_tokens) > 2, "it tries to read them again");
    let known = [4, 5, 6, 7].map(|number| filter.judge(token(number)));
    assert_eq!(known, [TokenVerdict::Stale, TokenVerdict::Valid, TokenVerdict::Ahead, TokenVerdict::Ahead]);
    fake.valid(&[6, 7]);
    fake.rule(|_| Reaction::Serve);
    filter.wait_for(|valid| valid.tokens.contains(&token(6))).await.expect("read again");
    let known = [4, 5, 6, 7].map(|number| filter.judge(token(number)));
    assert_eq!(known, [TokenVerdict::Stale, TokenVerdict::Stale, TokenVerdict::Valid, TokenVerdict::Valid]);
}

/// An observer of an election that missed events reads the lock again, so the last change of leader is never skipped,
/// even if no further event follows.
#[tokio::test(start_paused = true)]
async fn an_observer_that_missed_events_reads_again() {
    let fake = Fake::new();
    let mut observer = fake.client().election("a").observe().await.expect("observing");
    assert_eq!(observer.next().await.expect("looked at"), None);
    let clocks = fake.clone();
    fake.rule(move |asked| match asked {
        Asked::Query(Query::Holders { .. }) => Reaction::Answer(view(token(6), clocks.stamp().after_ms(3_000))),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    let resume = fake.granted(6).position;
    let gap = async {
        until(|| fake.count(is_subscription) == 1).await;
        tokio::time::sleep(SECOND).await;
        fake.publish(Err(ServiceError::EventsMissed { why: "a gap".to_owned(), resume })).await;
    };
    let (next, ()) = tokio::join!(tokio::time::timeout(60 * SECOND, observer.next()), gap);
    let leader = next.expect("it looks again").expect("looked at").expect("one leads");
    assert_eq!(leader.token, token(6));
}

/// A filter whose subscriptions are refused or fail retries once a second in the long run.
#[tokio::test(start_paused = true)]
async fn a_filter_in_an_outage_is_no_hot_loop() {
    let refused = || Invalid::new("position", "of this cluster", "another one").into();
    for error in [ServiceError::unknown("away"), refused()] {
        let fake = Fake::new();
        let filter = fake.client().tokens("a").await.expect("followed");
        fake.rule(move |asked| if is_subscription(asked) { Reaction::Fail(error.clone()) } else { Reaction::Serve });
        tokio::time::sleep(2 * MINUTE).await;
        let before = fake.count(|_| true);
        tokio::time::sleep(MINUTE).await;
        let calls = fake.count(|_| true) - before;
        // Each retry reads the cluster's id, its last position and the valid tokens.
        assert!((30..4 * CALLS_A_MINUTE).contains(&calls), "{calls}");
        drop(filter);
    }
}

/// A filter recovers when the cluster was restored from a backup: it reads the tokens of that cluster.
#[tokio::test(start_paused = true)]
async fn a_filter_follows_a_restored_cluster() {
    let fake = Fake::new();
    fake.valid(&[5]);
    let mut filter = fake.client().tokens("a").await.expect("followed");
    until(|| fake.count(is_subscription) == 1).await;
    fake.valid(&[100]);
    fake.restored();
    let seen = filter.wait_for(|valid| valid.tokens.contains(&token(100)));
    tokio::time::timeout(MINUTE, seen).await.expect("soon").expect("read again");
    assert_eq!(filter.judge(token(5)), TokenVerdict::Stale);
}
