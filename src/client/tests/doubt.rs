//! Whether a call that failed may have had an effect: a read never, a command if any of its attempts was not answered.

use std::time::Duration;

use super::fake::{Asked, Fake, Reaction, view};
use super::time::{TICK, until};
use crate::client::{Client, ClientError};
use crate::model::{
    Command, FencingToken, Handle, LockKey, LockName, LogTime, Namespace, Outcome, Place, ProcessId, Query,
    QueryResult, QuotaKind, Refusal, Setting,
};
use crate::service::{Advice, ErrorCode, NotSent, ServiceError};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn is_change(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::ChangeSetting(_)))
}

/// Changes a setting of a service whose attempts fail with these errors, one after the other, and then succeed.
async fn changed(errors: impl IntoIterator<Item = ServiceError>) -> Result<(), ServiceError> {
    let (fake, mut errors) = (Fake::new(), errors.into_iter().collect::<Vec<_>>().into_iter());
    fake.rule(move |asked| match errors.next() {
        Some(error) if is_change(asked) => Reaction::Fail(error),
        Some(_) | None => Reaction::Outcome(Outcome::Done),
    });
    match fake.client().change_setting(Setting::TtlMax(60_000)).await {
        Err(ClientError::Service(error)) => Err(error),
        other => other.map_err(|error| panic!("{error}")),
    }
}

/// An attempt without an answer may have made the change, also if a later attempt is refused: the token may have
/// been revoked in between. An attempt that was not sent leaves no doubt.
#[tokio::test(start_paused = true)]
async fn a_later_error_does_not_end_the_doubt() {
    let revoked = || ServiceError::Unauthenticated { why: "the token is not known".to_owned() };
    let lost = || ServiceError::unknown("the leader changed");
    let not_sent = || ServiceError::not_sent(NotSent::NoLeader);
    assert_eq!(changed([lost(), not_sent()]).await, Ok(()));
    assert_eq!(changed([revoked()]).await, Err(revoked()));
    assert_eq!(changed([not_sent(), revoked()]).await, Err(revoked()));
    for last in [revoked(), ServiceError::Forbidden { why: "it may only read".to_owned() }] {
        let error = changed([lost(), not_sent(), last.clone()]).await.expect_err("refused");
        let ServiceError::Unknown { why, .. } = &error else { panic!("{error:?}") };
        assert!(why.ends_with(&last.to_string()), "{why}");
    }
    let outage = std::iter::once(lost()).chain(std::iter::repeat_with(not_sent).take(1_000));
    assert_eq!(changed(outage).await.expect_err("no leader").advice(), Advice::Ask);
    let outage = std::iter::repeat_with(not_sent).take(1_000);
    assert_eq!(changed(outage).await, Err(not_sent()));
}

/// A read that no node answers in time had no effect, so its error advises a retry. A command is in doubt then.
#[tokio::test(start_paused = true)]
async fn a_read_is_never_in_doubt() {
    let fake = Fake::new();
    fake.rule(|_| Reaction::Silence);
    let advice = |error: ClientError| error.advice();
    let client = fake.client();
    assert_eq!(client.totals().await.map(drop).map_err(advice), Err(Advice::Retry));
    assert_eq!(client.status().await.map(drop).map_err(advice), Err(Advice::Retry));
    assert_eq!(client.change_setting(Setting::TtlMax(60_000)).await.map_err(advice), Err(Advice::Ask));
}

fn lost() -> ServiceError {
    ServiceError::unknown("the leader changed")
}

fn not_sent() -> ServiceError {
    ServiceError::not_sent(NotSent::NoLeader)
}

fn full() -> ServiceError {
    let limit = "too many wrong handles".to_owned();
    ServiceError::not_sent(NotSent::LimitReached { limit, pause_ms: 10 })
}

/// More errors than a caller is patient for.
fn outage(error: fn() -> ServiceError) -> Vec<ServiceError> {
    std::iter::repeat_with(error).take(1_000).collect()
}

/// Fails the matching commands with these errors, one after the other, and then answers with this outcome.
fn fails(fake: &Fake, of: fn(&Command) -> bool, errors: Vec<ServiceError>, outcome: Outcome) {
    let mut errors = errors.into_iter();
    fake.rule(move |asked| match asked {
        Asked::Submit(command) if of(command) => match errors.next() {
            Some(error) => Reaction::Fail(error),
            None => Reaction::Outcome(outcome.clone()),
        },
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
}

fn lock() -> LockKey {
    LockKey { namespace: Namespace::default(), name: LockName::parse("a").expect("a name") }
}

fn queued() -> Outcome {
    Outcome::Queued(Place { lock: lock().name, place: 1, sequence: 1, held_by: None })
}

/// A lease that is no longer held counts as released by the call only if an attempt of the call had no answer. An
/// attempt that was not sent has released nothing, but does not end the doubt about an earlier one either.
#[tokio::test(start_paused = true)]
async fn a_release_of_a_lease_is_in_doubt_only_after_a_lost_answer() {
    let QueryResult::Lock(view) = view(FencingToken::new(0, 5), LogTime(9)) else { panic!("a lock") };
    let holder = view.holders.into_iter().next().map(Box::new).expect("held");
    for gone in [Refusal::NotHeld { lock: lock() }, Refusal::HeldByOther { lock: lock(), holder }] {
        let released = async |errors| {
            let fake = Fake::new();
            fails(
                &fake,
                |command| matches!(command, Command::DropLease { .. }),
                errors,
                Outcome::Refused(gone.clone()),
            );
            let handle = Handle::parse("wrong").expect("a handle");
            fake.client().release("a", &handle).await.map(|released| released.left).map_err(|error| error.code())
        };
        let code = ErrorCode::of_refusal(&gone);
        assert_eq!(released(vec![]).await, Err(code));
        assert_eq!(released(vec![full()]).await, Err(code));
        assert_eq!(released(vec![not_sent(), full(), not_sent()]).await, Err(code));
        assert_eq!(released(vec![lost()]).await, Ok(0));
        assert_eq!(released(vec![lost(), full()]).await, Ok(0));
        assert_eq!(released(outage(not_sent)).await, Err(ErrorCode::NoLeader));
        assert_eq!(released([vec![lost()], outage(not_sent)].concat()).await, Err(ErrorCode::Unknown));
    }
}

/// A caller releases a lease again after an error, or after it dropped the first release. If an attempt had no answer,
/// the lease is gone because of it. The answer ends the doubt: a further release reports that the lock is not held.
#[tokio::test(start_paused = true)]
async fn a_release_of_a_lease_remembers_the_doubt_about_an_earlier_one() {
    let of = |command: &Command| matches!(command, Command::DropLease { .. });
    let gone = || Outcome::Refused(Refusal::NotHeld { lock: lock() });
    let errors: [(fn() -> ServiceError, _); 2] = [(lost, Ok(0)), (not_sent, Err(ErrorCode::NotHeld))];
    for (error, expected) in errors {
        for dropped in [true, false] {
            let fake = Fake::new();
            let lease = fake.client().lease("a").take().await.expect("free");
            let released = async || lease.release().await.map(|released| released.left).map_err(|error| error.code());
            fails(&fake, of, outage(error), gone());
            // After the answer to the third attempt the release pauses.
            let third = async {
                until(|| fake.count(|asked| matches!(asked, Asked::Submit(command) if of(command))) == 3).await;
                tokio::time::sleep(5 * TICK).await;
            };
            tokio::select! {
                first = released() => panic!("{first:?}"),
                () = third => {}
            }
            if !dropped {
                released().await.expect_err("no answer");
            }
            fails(&fake, of, vec![], gone());
            assert_eq!(released().await, expected, "dropped: {dropped}");
            assert_eq!(released().await, Err(ErrorCode::NotHeld), "dropped: {dropped}");
        }
    }
}

/// A release that its caller dropped may still be on its way when a later refresh finds the lock held. So the refresh
/// does not end the doubt: if the lease is gone afterwards, that release has ended it.
#[tokio::test(start_paused = true)]
async fn a_refresh_does_not_end_the_doubt_about_a_release() {
    let of = |command: &Command| matches!(command, Command::DropLease { .. });
    let fake = Fake::new();
    let mut lease = fake.client().lease("a").take().await.expect("free");
    let is_release = move |asked: &Asked| matches!(asked, Asked::Submit(command) if of(command));
    fake.rule(move |asked| if is_release(asked) { Reaction::Silence } else { Reaction::Serve });
    tokio::time::timeout(SECOND, lease.release()).await.expect_err("no answer");
    lease.refresh().await.expect("still held");
    fails(&fake, of, vec![], Outcome::Refused(Refusal::NotHeld { lock: lock() }));
    assert_eq!(lease.release().await.map(|released| released.left), Ok(0));
}

/// A request, a change of a document and the opening of a session are in doubt after a lost answer, although later
/// attempts were not sent or were not permitted. Without a lost answer the last error is returned.
#[tokio::test(start_paused = true)]
async fn no_later_error_says_that_a_request_had_no_effect() {
    type Attempt = fn(Client<Fake>) -> futures_util::future::BoxFuture<'static, Result<(), ClientError>>;
    type Case = (fn(&Command) -> bool, Attempt);
    let cases: [Case; 4] = [
        (
            |command| matches!(command, Command::TakeLease(_)),
            |client| Box::pin(async move { client.lease("a").wait(MINUTE).take().await.map(drop) }),
        ),
        (
            |command| matches!(command, Command::Acquire(_)),
            |client| Box::pin(async move { client.lock("a").wait(MINUTE).acquire().await.map(drop) }),
        ),
        (
            |command| matches!(command, Command::OpenSession(_)),
            |client| Box::pin(async move { client.session().open().await.map(drop) }),
        ),
        (
            |command| matches!(command, Command::Document(_)),
            |client| Box::pin(async move { client.ping(ProcessId::parse("p").expect("a process")).await }),
        ),
    ];
    let revoked = || ServiceError::Unauthenticated { why: "the token is not known".to_owned() };
    for (number, (of, attempt)) in cases.into_iter().enumerate() {
        let tried = async |errors| {
            let fake = Fake::new();
            fails(&fake, of, errors, Outcome::Withdrawn);
            attempt(fake.client()).await.expect_err("it failed").code()
        };
        assert_eq!(tried(outage(not_sent)).await, ErrorCode::NoLeader, "{number}");
        assert_eq!(tried([vec![lost()], outage(not_sent)].concat()).await, ErrorCode::Unknown, "{number}");
        assert_eq!(tried(vec![not_sent(), revoked()]).await, ErrorCode::Unauthenticated, "{number}");
        assert_eq!(tried(vec![lost(), revoked()]).await, ErrorCode::Unknown, "{number}");
    }
}

/// A request that waits in the queue was executed: an outage during its wait leaves it in doubt.
#[tokio::test(start_paused = true)]
async fn an_outage_of_a_wait_leaves_doubt() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(20 * MINUTE).open().await.expect("opened");
    fake.rule(|asked| match asked {
        Asked::Submit(Command::Acquire(_) | Command::TakeLease(_)) => Reaction::Outcome(queued()),
        Asked::Settled | Asked::Query(Query::Claim { .. }) => Reaction::Fail(not_sent()),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Query(_) | Asked::Subscribe | Asked::Status => Reaction::Serve,
    });
    let acquired = session.lock("a").wait(MINUTE).acquire().await.map(drop).map_err(|error| error.code());
    assert_eq!(acquired, Err(ErrorCode::Unknown));
    let taken = fake.client().lease("a").wait(MINUTE).take().await.map(drop).map_err(|error| error.code());
    assert_eq!(taken, Err(ErrorCode::Unknown));
}

/// A request whose time is over may have been granted until its withdrawal is answered. An outage, or a cluster without
/// space for the withdrawal, leaves it in doubt. A lease request of which no attempt was sent had no effect.
#[tokio::test(start_paused = true)]
async fn a_request_that_could_not_be_withdrawn_is_in_doubt() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(20 * MINUTE).open().await.expect("opened");
    let refused = || Outcome::Refused(Refusal::Quota { what: QuotaKind::Takes, limit: 1 });
    for (lose, refuse, expected) in
        [(true, false, ErrorCode::Unknown), (true, true, ErrorCode::Unknown), (false, false, ErrorCode::NoLeader)]
    {
        fake.rule(move |asked| match asked {
            Asked::Submit(Command::Acquire(_) | Command::TakeLease(_)) if lose => Reaction::Silence,
            Asked::Submit(Command::CancelTake { .. }) if refuse => Reaction::Outcome(refused()),
            Asked::Submit(
                Command::Acquire(_) | Command::TakeLease(_) | Command::Cancel { .. } | Command::CancelTake { .. },
            ) => Reaction::Fail(not_sent()),
            Asked::Submit(_)
            | Asked::Renew(_)
            | Asked::Settled
            | Asked::Query(_)
            | Asked::Subscribe
            | Asked::Status => Reaction::Serve,
        });
        let error = fake.client().lease("a").wait(SECOND).take().await.map(drop).expect_err("not withdrawn");
        assert_eq!(error.code(), expected, "{error}");
        if lose {
            let error = session.lock("a").wait(SECOND).acquire().await.map(drop).expect_err("not withdrawn");
            assert_eq!(error.code(), ErrorCode::Unknown, "{error}");
        }
    }
}

/// A request whose time is over may have been granted, also if its withdrawal is not permitted at the moment.
#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_is_not_permitted_leaves_doubt() {
    let why = || "the token is being replaced".to_owned();
    for refused in [ServiceError::Unauthenticated { why: why() }, ServiceError::Forbidden { why: why() }] {
        let fake = Fake::new();
        let session = fake.client().session().ttl(20 * MINUTE).open().await.expect("opened");
        fake.rule(move |asked| match asked {
            Asked::Submit(Command::Acquire(_)) => Reaction::Silence,
            Asked::Submit(Command::Cancel { .. }) => Reaction::Fail(refused.clone()),
            Asked::Submit(_)
            | Asked::Renew(_)
            | Asked::Settled
            | Asked::Query(_)
            | Asked::Subscribe
            | Asked::Status => Reaction::Serve,
        });
        let error = session.lock("a").wait(SECOND).acquire().await.map(drop).expect_err("not withdrawn");
        assert_eq!(error.code(), ErrorCode::Unknown, "{error}");
    }
}

/// The session continues with a change and with a release that could not be sent in time, so their errors do not advise
/// to try again.
#[tokio::test(start_paused = true)]
async fn what_the_session_continues_is_in_doubt() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(20 * MINUTE).open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    let of = |command: &Command| matches!(command, Command::Alter(_) | Command::Release(_));
    let sent = || fake.count(|asked| matches!(asked, Asked::Submit(command) if of(command)));
    fails(&fake, of, outage(not_sent), Outcome::Done);
    let error = guard.set_value(Some("one")).await.expect_err("no leader");
    assert_eq!(error.advice(), Advice::Ask, "{error}");
    let before = sent();
    tokio::time::sleep(2 * SECOND).await;
    assert!(before < sent(), "the session continues");
    fails(&fake, of, outage(not_sent), Outcome::Released { left: 0 });
    let error = guard.release().await.expect_err("no leader");
    assert_eq!(error.advice(), Advice::Ask, "{error}");
}
