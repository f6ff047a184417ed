//! Every waiting call has a bound, and its unfinished work is completed in the background.

use std::time::Duration;

use super::fake::{Asked, Fake, Reaction};
use super::time::{TICK, until};
use crate::model::{Alteration, Command, Outcome, Query, Refusal};
use crate::service::{ErrorCode, LockService, NotSent, REQUEST_WAIT, ServiceError};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn is_open(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::OpenSession(_)))
}

fn is_release(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::Release(_)))
}

fn is_change(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::Alter(_)))
}

/// Returns the values that the changes so far set, in the order of their attempts.
fn values(fake: &Fake) -> Vec<String> {
    let values = fake.asked(is_change).into_iter().filter_map(|(_, asked)| {
        let Asked::Submit(Command::Alter(alter)) = asked else { return None };
        let Alteration::SetValue { value, .. } = alter.what else { return None };
        value.map(|value| value.to_string())
    });
    values.collect()
}

fn silence(fake: &Fake, of: impl Fn(&Asked) -> bool + Send + 'static) {
    fake.rule(move |asked| if of(asked) { Reaction::Silence } else { Reaction::Serve });
}

/// Several callers of one client wait for its session to be opened, each for its own time and not for the patience of
/// earlier callers. Their error says that the service did not answer, not that the lock is held.
#[tokio::test(start_paused = true)]
async fn callers_do_not_wait_for_each_others_patience() {
    let fake = Fake::new();
    silence(&fake, is_open);
    let client = fake.client();
    let began = tokio::time::Instant::now();
    let tries = |wait: Option<Duration>| {
        let request = client.lock("a");
        let request = if let Some(wait) = wait { request.wait(wait) } else { request.try_once() };
        async move { (request.acquire().await.expect_err("no session").code(), began.elapsed()) }
    };
    let waits = [None, None, None, Some(SECOND), Some(MINUTE)];
    let ended = futures_util::future::join_all(waits.map(tries)).await;
    for ((code, after), wait) in ended.into_iter().zip(waits) {
        assert!(matches!(code, ErrorCode::Unreachable | ErrorCode::Unknown), "{code:?}");
        assert!(after <= REQUEST_WAIT.min(wait.unwrap_or(MINUTE)), "{after:?} of {wait:?}");
    }
    fake.rule(|_| Reaction::Serve);
    drop(client.lock("a").acquire().await.expect("free"));
}

/// A wait of zero is a try, which gets its answer.
#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_is_a_try() {
    let fake = Fake::new();
    drop(fake.client().lock("a").wait(Duration::ZERO).acquire().await.expect("free"));
    drop(fake.client().lease("a").wait(Duration::ZERO).take().await.expect("free"));
}

/// The error of a lease request that could not be sent in time does not claim that another client holds the lock. It is
/// the last error of the service, if there was one.
#[tokio::test(start_paused = true)]
async fn a_take_that_was_never_sent_is_unreachable() {
    let fake = Fake::new();
    silence(&fake, |asked| matches!(asked, Asked::Query(Query::Totals)));
    let error = fake.client().lease("a").wait(SECOND).take().await.map(|_| ()).expect_err("no answer");
    assert_eq!(error.code(), ErrorCode::Unreachable);
    let refused = || ServiceError::not_sent(NotSent::Unreachable("a:1: Connection refused".to_owned()));
    fake.rule(move |_| Reaction::Fail(refused()));
    let error = fake.client().lease("a").wait(SECOND).take().await.map(|_| ()).expect_err("no connection");
    assert_eq!(error, refused().into());
}

/// The error of a lock request whose session was not opened in time is the last error of the opening, whichever of its
/// calls failed. It never says that the lock may be held, because the request was not sent.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_opened_in_time_has_a_reason() {
    let refused = || ServiceError::not_sent(NotSent::Unreachable("a:1: Connection refused".to_owned()));
    let calls: [fn(&Asked) -> bool; 2] = [|asked| matches!(asked, Asked::Status), is_open];
    for fails in calls {
        let fake = Fake::new();
        fake.rule(move |asked| if fails(asked) { Reaction::Fail(refused()) } else { Reaction::Serve });
        let error = fake.client().lock("a").wait(SECOND).acquire().await.map(drop).expect_err("no session");
        assert_eq!(error, refused().into());
    }
    let fake = Fake::new();
    fake.rule(|_| Reaction::Fail(ServiceError::unknown("the connection was reset")));
    let error = fake.client().lock("a").wait(SECOND).acquire().await.map(drop).expect_err("no session");
    assert_eq!(error.code(), ErrorCode::Unreachable);
    assert!(error.to_string().contains("the connection was reset"), "{error}");
}

/// A release that is not answered returns an error after the request wait. The session's task continues it under the
/// same number, which counts as unanswered until then.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_answered_is_bounded() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(MINUTE).open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    silence(&fake, is_release);
    let released = tokio::time::timeout(2 * REQUEST_WAIT, guard.release()).await.expect("bounded");
    assert_eq!(released.expect_err("no answer").code(), ErrorCode::Unknown);
    session.lock("b").acquire().await.expect("free").release().await.expect_err("no answer");
    fake.rule(|_| Reaction::Serve);
    fake.answers(2).await;
    let releases = fake.asked(is_release).into_iter().filter_map(|(_, asked)| {
        let Asked::Submit(Command::Release(release)) = asked else { return None };
        Some((release.name.to_string(), release.request.number, release.answered_below))
    });
    let releases: Vec<_> = releases.collect();
    let first = releases[0].1;
    assert!(releases.len() > 3, "{releases:?}");
    for (name, number, answered_below) in releases {
        assert_eq!(name == "a", number == first);
        assert!(answered_below <= first, "{number} says that {first} was answered");
    }
}

/// A busy session finishes thousands of requests while one is delayed, and the cluster refuses that one as too old.
/// An acquire and a release run again under a new number, even if their caller dropped the guard. A return of permits
/// is not repeated, because the first copy may have run.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_too_old_gets_a_new_number() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(MINUTE).open().await.expect("opened");
    let too_old_once = |of: fn(&Asked) -> bool| {
        let mut refuse = true;
        fake.rule(move |asked| match of(asked) && std::mem::take(&mut refuse) {
            true => Reaction::Outcome(Outcome::Refused(Refusal::TooOld { number: 1, floor: 2 })),
            false => Reaction::Serve,
        });
    };
    let numbers = |of: fn(&Asked) -> bool| {
        let asked = fake.asked(of).into_iter();
        let numbers = asked.map(|(_, asked)| match &asked {
            Asked::Submit(Command::Acquire(acquire)) => acquire.request.number,
            Asked::Submit(Command::Release(release)) => release.request.number,
            Asked::Submit(_)
            | Asked::Renew(_)
            | Asked::Settled
            | Asked::Query(_)
            | Asked::Subscribe
            | Asked::Status => {
                panic!("{asked:?}")
            }
        });
        numbers.collect::<Vec<_>>()
    };
    let is_acquire = |asked: &Asked| matches!(asked, Asked::Submit(Command::Acquire(_)));
    too_old_once(is_acquire);
    let guard = session.lock("a").acquire().await.expect("free");
    assert_eq!(numbers(is_acquire), [1, 2]);
    too_old_once(is_release);
    drop(guard);
    until(|| fake.count(is_release) == 2).await;
    assert_eq!(numbers(is_release), [3, 4]);
    let next = session.lock("a").acquire().await.expect("free");
    too_old_once(is_release);
    next.release().await.expect("released under the second number");
    let permits = session.lock("p").permits(2, 3).acquire().await.expect("free").into_permits();
    let asked = fake.asked(is_acquire).into_iter().next_back();
    let Some((_, Asked::Submit(Command::Acquire(acquire)))) = asked else { panic!("{asked:?}") };
    assert_eq!(acquire.answered_below, acquire.request.number, "no number is left outstanding");
    let mut permits: Vec<_> = permits.collect();
    let permit = permits.pop().expect("two");
    too_old_once(is_change);
    assert_eq!(permit.release().await.expect_err("it may have run").code(), ErrorCode::TooOld);
    assert_eq!(fake.count(is_change), 1);
}

/// A request that ran out of time is reported as timed out only after its cancel was answered, because until then it
/// may have been granted. Otherwise the error is *unknown*, and the session's task continues the cancel under the same
/// number.
#[tokio::test(start_paused = true)]
async fn a_timeout_is_reported_only_once_the_cancel_was_answered() {
    let is_cancel = |asked: &Asked| matches!(asked, Asked::Submit(Command::Cancel { .. }));
    let fake = Fake::new();
    let session = fake.client().session().ttl(MINUTE).open().await.expect("opened");
    silence(&fake, move |asked| is_cancel(asked) || matches!(asked, Asked::Submit(Command::Acquire(_))));
    let began = tokio::time::Instant::now();
    let error = session.lock("a").wait(SECOND).acquire().await.map(drop).expect_err("no answer");
    assert_eq!(error.code(), ErrorCode::Unknown, "{error}");
    assert!(began.elapsed() <= SECOND + 2 * REQUEST_WAIT, "{:?}", began.elapsed());
    let cancels = fake.count(is_cancel);
    fake.rule(|_| Reaction::Serve);
    until(|| fake.count(is_cancel) > cancels).await;
    let numbers = fake.asked(is_cancel).into_iter().filter_map(|(_, asked)| {
        let Asked::Submit(Command::Cancel { request, .. }) = asked else { return None };
        Some(request.number)
    });
    let numbers: Vec<_> = numbers.collect();
    assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
}

/// A change that is not answered returns an error after the request wait. A later change waits until the session's task
/// has completed it, so the later one takes effect.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_answered_is_bounded() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(MINUTE).open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    silence(&fake, is_change);
    let first = tokio::time::timeout(2 * REQUEST_WAIT, guard.set_value(Some("one"))).await.expect("bounded");
    assert_eq!(first.expect_err("no answer").code(), ErrorCode::Unknown);
    fake.rule(|_| Reaction::Serve);
    guard.set_value(Some("two")).await.expect("answered");
    assert_eq!(values(&fake), ["one", "one", "two"]);
}

/// During an outage, a change is not answered in time, and another one waits for it too long. The session continues
/// with both, and a third change, which is made at once, runs after them.
#[tokio::test(start_paused = true)]
async fn a_change_keeps_its_place_after_its_error() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(MINUTE).open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    let no_leader = || Reaction::Fail(ServiceError::not_sent(NotSent::NoLeader));
    fake.rule(move |asked| if is_change(asked) { no_leader() } else { Reaction::Serve });
    for value in ["one", "two"] {
        let error = guard.set_value(Some(value)).await.expect_err("no leader");
        assert_eq!(error.code(), ErrorCode::Unknown, "{value}: {error}");
    }
    fake.rule(|_| Reaction::Serve);
    guard.set_value(Some("three")).await.expect("answered");
    let mut values = values(&fake);
    values.dedup();
    assert_eq!(values, ["one", "two", "three"]);
}

/// The client of a session requests locks in that session and opens no other. Observers made from it do not keep the
/// session alive.
#[tokio::test(start_paused = true)]
async fn the_client_of_a_session_shares_it() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(MINUTE).open().await.expect("opened");
    let guard = session.client().lock("a").acquire().await.expect("free");
    assert_eq!((guard.session(), fake.count(is_open)), (session.id(), 1));
    let observer = session.client().election("a").observe().await.expect("observing");
    let filter = session.client().tokens("a").await.expect("followed");
    drop((guard, session));
    until(|| fake.count(|asked| matches!(asked, Asked::Submit(Command::CloseSession { .. }))) == 1).await;
    drop((observer, filter));
    assert!(*fake.attachment(super::fake::session()).borrow());
}

/// A dry run of a break submits no command: it is one read.
#[tokio::test(start_paused = true)]
async fn a_dry_run_submits_nothing() {
    let fake = Fake::new();
    let (seen, asked) = std::sync::mpsc::channel();
    fake.rule(move |asked| {
        seen.send(format!("{asked:?}")).expect("the test reads it");
        Reaction::Serve
    });
    let refused = fake.client().would_break("a", "7".parse().expect("legal")).await.expect_err("it is not held");
    assert_eq!(refused.code(), ErrorCode::NotHeld);
    let asked: Vec<String> = asked.try_iter().collect();
    assert!(matches!(&asked[..], [one] if one.contains("WouldBreak")), "{asked:?}");
}

/// A request whose future is not polled keeps no other one from the session that it opens.
#[tokio::test(start_paused = true)]
async fn an_opening_needs_no_poll_of_its_first_caller() {
    let fake = Fake::new();
    let client = fake.client();
    let mut first = std::pin::pin!(client.lock("a").acquire());
    let second = tokio::select! {
        biased;
        _ = &mut first => panic!("it takes longer"),
        () = tokio::time::sleep(TICK) => tokio::time::timeout(SECOND, client.lock("b").acquire()).await,
    };
    let second = second.expect("in time").expect("free");
    assert_eq!(first.await.expect("free").session(), second.session());
    assert_eq!(fake.count(is_open), 1);
}

/// A request gives up while its session opens, so no caller gets that session before it is lost. The next request opens
/// another one.
#[tokio::test(start_paused = true)]
async fn a_session_that_was_lost_before_its_first_use_is_replaced() {
    let fake = Fake::new();
    let client = fake.client();
    let is_renewal = |asked: &Asked| matches!(asked, Asked::Renew(_) | Asked::Submit(Command::Attach(_)));
    silence(&fake, is_renewal);
    fake.ways(SECOND, SECOND);
    let error = client.lock("a").wait(SECOND).acquire().await.map(drop).expect_err("no session yet");
    assert_eq!(error.code(), ErrorCode::Unreachable, "{error}");
    // The session's task closes the session when it is lost.
    until(|| fake.count(|asked| matches!(asked, Asked::Submit(Command::CloseSession { .. }))) == 1).await;
    fake.rule(|_| Reaction::Serve);
    drop(client.lock("a").acquire().await.expect("free"));
    assert_eq!(fake.count(is_open), 2);
}

/// A change of a hold whose future is not polled delays a later change by the request wait at most. The session then
/// continues with the later one, once the first one has ended.
#[tokio::test(start_paused = true)]
async fn a_change_does_not_wait_long_for_one_that_is_not_polled() {
    let fake = Fake::new();
    let session = fake.client().request_wait(SECOND).session().ttl(MINUTE).open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    {
        let mut first = std::pin::pin!(guard.set_value(Some("one")));
        let second = tokio::select! {
            biased;
            _ = &mut first => panic!("it takes longer"),
            () = tokio::time::sleep(TICK) => tokio::time::timeout(2 * SECOND, guard.set_value(Some("two"))).await,
        };
        assert_eq!(second.expect("bounded").expect_err("it has to wait").code(), ErrorCode::Unknown);
        assert_eq!(fake.count(is_change), 1);
        first.await.expect("answered");
    }
    until(|| fake.count(is_change) == 2).await;
}

/// Changes that wait for each other are no outage, however many they are.
#[tokio::test(start_paused = true)]
async fn changes_that_make_progress_are_waited_for() {
    let fake = Fake::new();
    let session = fake.client().request_wait(SECOND).session().ttl(MINUTE).open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    fake.ways(SECOND / 4, SECOND / 4);
    let changes = futures_util::future::join_all((0..10).map(|_| guard.set_value(Some("one")))).await;
    assert!(changes.iter().all(Result::is_ok), "{changes:?}");
}
