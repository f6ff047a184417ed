//! What a caller has given up is given back: a release or a withdrawal is repeated until it is answered or refused,
//! after any error of its attempts.

use std::time::Duration;

use super::fake::{Asked, Fake, Reaction};
use super::time::{TICK, until};
use crate::client::{LockGuard, Session};
use crate::model::{Alteration, Command, Event, EventKind, FencingToken, Grant, Outcome, QuotaKind, Refusal};
use crate::service::{ErrorCode, ServiceError};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Number of attempts that fail.
const FAILURES: usize = 3;

/// Errors that a retry of the caller cannot fix, but which may pass.
fn passing() -> [ServiceError; 3] {
    let why = || "the key file is being replaced".to_owned();
    [
        ServiceError::Unauthenticated { why: why() },
        ServiceError::Forbidden { why: why() },
        ServiceError::Internal(why()),
    ]
}

async fn session(fake: &Fake) -> Session<Fake> {
    fake.client().session().ttl(MINUTE).open().await.expect("opened")
}

async fn guard(session: &Session<Fake>) -> LockGuard {
    session.lock("a").acquire().await.expect("free")
}

/// The number of a request that gives something back.
fn number_of(asked: &Asked) -> Option<u64> {
    match asked {
        Asked::Submit(Command::Release(release)) => Some(release.request.number),
        Asked::Submit(Command::Cancel { request }) => Some(request.number),
        Asked::Submit(Command::Alter(alter)) if matches!(alter.what, Alteration::ReturnPermits { .. }) => {
            Some(alter.request.number)
        }
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            None
        }
    }
}

/// Fails the first attempts to give something back with this error. Later ones get this outcome.
fn fail(fake: &Fake, error: &ServiceError, outcome: Outcome) {
    let (error, mut failures) = (error.clone(), 0);
    fake.rule(move |asked| match number_of(asked) {
        Some(_) if failures < FAILURES => {
            failures += 1;
            Reaction::Fail(error.clone())
        }
        Some(_) => Reaction::Outcome(outcome.clone()),
        None => Reaction::Serve,
    });
}

/// Waits until one request to give something back was answered, and checks that no further attempt follows.
async fn given_back(fake: &Fake) {
    let attempts = || fake.asked(|asked| number_of(asked).is_some());
    until(|| attempts().len() == FAILURES + 1).await;
    tokio::time::sleep(5 * SECOND).await;
    let numbers: Vec<_> = attempts().iter().filter_map(|(_, asked)| number_of(asked)).collect();
    assert_eq!(numbers, [numbers[0]; FAILURES + 1], "one request, and no attempt after its answer");
}

/// Checks that the last acquire reports every earlier number as answered.
fn none_is_outstanding(fake: &Fake) {
    let asked = fake.asked(|asked| matches!(asked, Asked::Submit(Command::Acquire(_))));
    let Some((_, Asked::Submit(Command::Acquire(acquire)))) = asked.last() else { panic!("{asked:?}") };
    assert_eq!(acquire.answered_below, acquire.request.number);
}

/// A guard that is dropped releases its lock.
#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_released() {
    for error in passing() {
        let fake = Fake::new();
        let session = session(&fake).await;
        let guard = guard(&session).await;
        fail(&fake, &error, Outcome::Released { left: 0 });
        drop(guard);
        given_back(&fake).await;
    }
}

/// The caller of a release gets its error at once, and the session continues with the release.
#[tokio::test(start_paused = true)]
async fn a_release_continues_after_its_error() {
    for error in passing() {
        let fake = Fake::new();
        let session = session(&fake).await;
        let guard = guard(&session).await;
        fail(&fake, &error, Outcome::Released { left: 0 });
        assert_eq!(guard.release().await.expect_err("it failed").code(), error.code());
        given_back(&fake).await;
        drop(self::guard(&session).await);
        none_is_outstanding(&fake);
    }
}

/// A permit is returned like a lock.
#[tokio::test(start_paused = true)]
async fn a_permit_is_returned() {
    for error in passing() {
        let fake = Fake::new();
        let session = session(&fake).await;
        let mut permits = session.lock("p").permits(2, 2).acquire().await.expect("free").into_permits();
        let (one, two) = (permits.next().expect("two"), permits.next().expect("two"));
        fail(&fake, &error, Outcome::Released { left: 1 });
        assert_eq!(one.release().await.expect_err("it failed").code(), error.code());
        given_back(&fake).await;
        drop(two);
    }
}

/// An acquire that its caller drops is withdrawn.
#[tokio::test(start_paused = true)]
async fn a_dropped_acquire_is_withdrawn() {
    for error in passing() {
        let fake = Fake::new();
        let session = session(&fake).await;
        let mut failures = 0;
        let fails = error.clone();
        fake.rule(move |asked| match asked {
            Asked::Submit(Command::Acquire(_)) => Reaction::Silence,
            Asked::Submit(Command::Cancel { .. }) if failures < FAILURES => {
                failures += 1;
                Reaction::Fail(fails.clone())
            }
            Asked::Submit(_)
            | Asked::Renew(_)
            | Asked::Settled
            | Asked::Query(_)
            | Asked::Subscribe
            | Asked::Status => Reaction::Serve,
        });
        tokio::time::timeout(SECOND, session.lock("a").acquire()).await.expect_err("no answer");
        given_back(&fake).await;
    }
}

/// A lease request that its caller drops is withdrawn.
#[tokio::test(start_paused = true)]
async fn a_dropped_lease_request_is_withdrawn() {
    for error in passing() {
        let fake = Fake::new();
        let (client, mut failures) = (fake.client(), 0);
        fake.rule(move |asked| match asked {
            Asked::Submit(Command::TakeLease(_)) => Reaction::Silence,
            Asked::Submit(Command::CancelTake { .. }) if failures < FAILURES => {
                failures += 1;
                Reaction::Fail(error.clone())
            }
            Asked::Submit(_)
            | Asked::Renew(_)
            | Asked::Settled
            | Asked::Query(_)
            | Asked::Subscribe
            | Asked::Status => Reaction::Serve,
        });
        tokio::time::timeout(SECOND, client.lease("a").take()).await.expect_err("no answer");
        until(|| fake.count(|asked| matches!(asked, Asked::Submit(Command::CancelTake { .. }))) == FAILURES + 1).await;
    }
}

/// A lease request that was not permitted has no effect, so its client withdraws nothing.
#[tokio::test(start_paused = true)]
async fn a_lease_request_that_is_not_permitted_is_not_withdrawn() {
    let [revoked, forbidden, _] = passing();
    for error in [revoked, forbidden] {
        let fake = Fake::new();
        let (client, code) = (fake.client(), error.code());
        let is_command = |asked: &Asked| matches!(asked, Asked::Submit(_));
        fake.rule(move |asked| if is_command(asked) { Reaction::Fail(error.clone()) } else { Reaction::Serve });
        assert_eq!(client.lease("a").take().await.expect_err("not permitted").code(), code);
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(fake.count(is_command), 1);
    }
}

/// The cluster remembers no refusal for want of room. After an attempt without an answer the outcome is unknown, and
/// the withdrawal is repeated until there is room for it. A first attempt that is refused leaves nothing to withdraw.
#[tokio::test(start_paused = true)]
async fn a_lease_request_without_room_is_withdrawn_only_after_a_lost_answer() {
    let is_take = |asked: &Asked| matches!(asked, Asked::Submit(Command::TakeLease(_)));
    let is_cancel = |asked: &Asked| matches!(asked, Asked::Submit(Command::CancelTake { .. }));
    for (lost, code, withdrawals) in [(true, ErrorCode::Unknown, FAILURES + 1), (false, ErrorCode::Quota, 0)] {
        let fake = Fake::new();
        let (client, mut takes, mut cancels) = (fake.client(), 0, 0);
        fake.rule(move |asked| {
            takes += usize::from(is_take(asked));
            cancels += usize::from(is_cancel(asked));
            if is_take(asked) && lost && takes == 1 {
                return Reaction::Fail(ServiceError::unknown("the leader changed"));
            }
            if is_take(asked) || (is_cancel(asked) && cancels <= FAILURES) {
                return Reaction::Outcome(Outcome::Refused(Refusal::Quota { what: QuotaKind::Takes, limit: 1 }));
            }
            Reaction::Serve
        });
        assert_eq!(client.lease("a").take().await.expect_err("no room").code(), code);
        until(|| fake.count(is_cancel) == withdrawals).await;
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(fake.count(is_cancel), withdrawals, "an answer is lost: {lost}");
    }
}

/// A session that is dropped is closed, which releases all that it holds.
#[tokio::test(start_paused = true)]
async fn a_dropped_session_is_closed() {
    let is_close = |asked: &Asked| matches!(asked, Asked::Submit(Command::CloseSession { .. }));
    for error in passing() {
        let fake = Fake::new();
        let session = session(&fake).await;
        let mut failures = 0;
        fake.rule(move |asked| {
            if !is_close(asked) || FAILURES <= failures {
                return Reaction::Serve;
            }
            failures += 1;
            Reaction::Fail(error.clone())
        });
        drop(session);
        until(|| fake.count(is_close) == FAILURES + 1).await;
    }
}

/// An upgrade is granted under a new token, but its answer is lost or not understood, and a repetition gets an error
/// that a retry cannot fix. Its withdrawal returns the grant, so the release of the guard names the new token.
#[tokio::test(start_paused = true)]
async fn an_upgrade_without_an_answer_is_released_under_its_new_token() {
    let [revoked, forbidden, internal] = passing();
    for (silent, error) in [(true, revoked), (true, forbidden), (true, internal.clone()), (false, internal)] {
        let code = if silent { ErrorCode::Unknown } else { error.code() };
        let fake = Fake::new();
        let session = session(&fake).await;
        let mut guard = session.lock("a").shared().acquire().await.expect("free");
        let (token, mut attempts) = (FencingToken::new(0, 9), 0);
        fake.rule(move |asked| match asked {
            Asked::Submit(Command::Alter(_)) => {
                attempts += 1;
                if silent && attempts == 1 { Reaction::Silence } else { Reaction::Fail(error.clone()) }
            }
            Asked::Submit(Command::Cancel { .. }) => {
                Reaction::Outcome(Outcome::Granted(Grant { token, deadline: None, ends: None, waited_ms: 0 }))
            }
            Asked::Submit(_)
            | Asked::Renew(_)
            | Asked::Settled
            | Asked::Query(_)
            | Asked::Subscribe
            | Asked::Status => Reaction::Serve,
        });
        assert_eq!(guard.upgrade().await.expect_err("no answer").code(), code);
        drop(guard);
        let releases = || fake.asked(|asked| matches!(asked, Asked::Submit(Command::Release(_))));
        until(|| !releases().is_empty()).await;
        let released = releases();
        let Some((_, Asked::Submit(Command::Release(release)))) = released.first() else { panic!("{released:?}") };
        assert_eq!(release.token, token);
    }
}

/// The session continues with a change, loses one more answer, and then gets an error that a retry cannot fix. It does
/// not repeat the change after that, so the number of the change counts as answered.
#[tokio::test(start_paused = true)]
async fn a_change_that_failed_leaves_no_number_outstanding() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let guard = guard(&session).await;
    let ([revoked, ..], mut attempts) = (passing(), 0);
    fake.rule(move |asked| match asked {
        Asked::Submit(Command::Alter(_)) => {
            attempts += 1;
            match attempts {
                1 => Reaction::Silence,
                2 => Reaction::Fail(ServiceError::unknown("the connection was cut")),
                3 => Reaction::Fail(revoked.clone()),
                _ => Reaction::Serve,
            }
        }
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    assert_eq!(guard.set_value(Some("one")).await.expect_err("no answer").code(), ErrorCode::Unknown);
    // It waits until the session has ended the first change.
    guard.set_value(Some("two")).await.expect("answered");
    drop(session.lock("b").acquire().await.expect("free"));
    none_is_outstanding(&fake);
}

/// A cached hold that another client asks for is released.
#[tokio::test(start_paused = true)]
async fn a_recalled_hold_is_released() {
    for error in passing() {
        let fake = Fake::new();
        let session = session(&fake).await;
        drop(session.lock("a").cached().acquire().await.expect("free"));
        fail(&fake, &error, Outcome::Released { left: 0 });
        fake.publish(Ok(Event { kind: EventKind::Recalled, ..fake.granted(1) })).await;
        given_back(&fake).await;
    }
}

/// A refusal is an answer, and a change that gives nothing back ends with an error that a retry cannot fix: the session
/// does not continue with either.
#[tokio::test(start_paused = true)]
async fn an_answer_is_not_repeated() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let (first, second) = (guard(&session).await, session.lock("b").acquire().await.expect("free"));
    let lock = session.reference.state.key(first.name());
    let refused = ServiceError::Refused(Refusal::NotHeld { lock });
    let [revoked, ..] = passing();
    fake.rule(move |asked| match asked {
        Asked::Submit(Command::Alter(_)) => Reaction::Fail(revoked.clone()),
        Asked::Submit(Command::Release(_)) => Reaction::Fail(refused.clone()),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    assert_eq!(first.set_value(Some("one")).await.expect_err("revoked").code(), ErrorCode::Unauthenticated);
    assert_eq!(first.release().await.expect_err("refused").code(), ErrorCode::NotHeld);
    drop(second);
    tokio::time::sleep(10 * SECOND).await;
    let attempts = fake.count(|asked| matches!(asked, Asked::Submit(Command::Alter(_) | Command::Release(_))));
    assert_eq!(attempts, 3);
}

/// A lease request that is dropped outside of every runtime is withdrawn all the same.
#[test]
fn a_lease_request_that_is_dropped_outside_a_runtime_is_withdrawn() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let is_take = |asked: &Asked| matches!(asked, Asked::Submit(Command::TakeLease(_)));
    let is_cancel = |asked: &Asked| matches!(asked, Asked::Submit(Command::CancelTake { .. }));
    let (fake, client, mut take) = runtime.block_on(async {
        let fake = Fake::new();
        fake.rule(move |asked| if is_take(asked) { Reaction::Silence } else { Reaction::Serve });
        let client = fake.client();
        let mut take = Box::pin(client.lease("a").take());
        tokio::time::timeout(SECOND, &mut take).await.expect_err("no answer");
        (fake, client, Some(take))
    });
    drop(take.take());
    runtime.block_on(async {
        until(|| fake.count(is_cancel) == 1).await;
        tokio::time::sleep(TICK).await;
    });
    drop(client);
}
