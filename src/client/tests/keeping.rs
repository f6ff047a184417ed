//! The task that keeps a session alive: how it handles the answers to its attaches and renewals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::fake::{Asked, Fake, Reaction};
use super::time::{TICK, until};
use crate::client::{ClientError, HoldState, Session};
use crate::clock::Clock as _;
use crate::limits::ATTACH_MS_MAX;
use crate::model::{Attachment, Command, Handle, Outcome, Place, Refusal, SessionClose};
use crate::service::{ErrorCode, NotSent, ServiceError};

const SECOND: Duration = Duration::from_secs(1);

fn is_attach(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::Attach(_)))
}

fn is_attempt(asked: &Asked) -> bool {
    is_attach(asked) || matches!(asked, Asked::Renew(_))
}

fn attempts(fake: &Fake) -> Vec<u64> {
    let attempt = |asked| if let Asked::Submit(Command::Attach(attach)) = asked { Some(attach.attempt) } else { None };
    fake.asked(is_attach).into_iter().filter_map(|(_, asked)| attempt(asked)).collect()
}

fn stale(newest: u64) -> Outcome {
    Outcome::Refused(Refusal::StaleAttempt { newest })
}

/// Opens a session with a TTL of 9 s whose first renewal reports that the session has no stream. Then each attach gets
/// the next of these answers, with its delay, and further attaches are served.
async fn attaching(answers: Vec<(Duration, Outcome)>) -> (Fake, crate::client::Session<Fake>) {
    let fake = Fake::new();
    let (mut answers, mut renewals) = (answers.into_iter(), 0);
    fake.rule(move |asked| match asked {
        Asked::Renew(_) => {
            renewals += 1;
            if renewals == 1 { Reaction::Fail(ServiceError::not_sent(NotSent::Detached)) } else { Reaction::Serve }
        }
        Asked::Submit(Command::Attach(_)) => match answers.next() {
            Some((late, outcome)) => Reaction::Late(late, outcome),
            None => Reaction::Serve,
        },
        Asked::Submit(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => Reaction::Serve,
    });
    let session = fake.client().session().ttl(9 * SECOND).open().await.expect("opened");
    (fake, session)
}

/// An attach is not answered in time, and a second one is made. A late answer to the first one does not concern the
/// second, so no third attach follows, which would leave the node of the second one.
#[tokio::test(start_paused = true)]
async fn a_late_answer_to_an_older_attach_causes_no_other() {
    let attached = |at_ms: u64| {
        let deadline = crate::model::LogTime(at_ms).after_ms(9_000);
        Outcome::Attached { attachment: Attachment(3), deadline }
    };
    for first in [stale(3), Outcome::Refused(Refusal::WrongHandle)] {
        for (late, second) in [(4 * SECOND, Duration::ZERO), (2 * SECOND, SECOND)] {
            let (fake, session) = attaching(vec![(late, first.clone()), (second, attached(6_000))]).await;
            until(|| fake.count(is_attempt) == 5).await;
            assert_eq!(attempts(&fake), [2, 3], "{first:?} {late:?} late, and {second:?}");
            drop(session);
        }
    }
}

/// An attach that is refused because a copy of it was applied, or because the cluster knows a larger number, is
/// repeated with a number above all of those.
#[tokio::test(start_paused = true)]
async fn a_newest_attach_that_is_stale_is_made_again() {
    for (newest, again) in [(2, 3), (10, 11)] {
        let (fake, session) = attaching(vec![(Duration::ZERO, stale(newest))]).await;
        until(|| fake.count(is_attempt) == 4).await;
        assert_eq!(attempts(&fake), [2, again]);
        drop(session);
    }
}

/// Opens a session with a TTL of 9 s. The answer to the first request is lost, and no repeat arrives until `late`.
async fn opened_late(late: Duration, handle: Option<Handle>) -> (Fake, Result<Session<Fake>, ClientError>) {
    let fake = Fake::new();
    let (clock, mut tries) = (fake.clock.clone(), 0);
    fake.rule(move |asked| {
        if !matches!(asked, Asked::Submit(Command::OpenSession(_))) {
            return Reaction::Serve;
        }
        tries += 1;
        if tries == 1 {
            return Reaction::Lost;
        }
        let arrives = late <= clock.begun.elapsed();
        if arrives { Reaction::Serve } else { Reaction::Fail(ServiceError::not_sent(NotSent::NoLeader)) }
    });
    let builder = fake.client().request_wait(60 * SECOND).session().ttl(9 * SECOND);
    let builder = if let Some(handle) = handle { builder.handle(handle) } else { builder };
    let opened = builder.open().await;
    (fake, opened)
}

/// A repeated request to open a session gets the deadline of the first one, which may come before the usual time of the
/// first renewal. The session is renewed at once.
#[tokio::test(start_paused = true)]
async fn a_session_that_was_opened_late_is_renewed_at_once() {
    let (fake, session) = opened_late(7 * SECOND, None).await;
    let session = session.expect("opened");
    assert!(session.valid_for() < 3 * SECOND, "the first deadline: {:?}", session.valid_for());
    fake.answers(1).await;
    assert!(8 * SECOND < session.valid_for(), "{:?}", session.valid_for());
}

/// The answer to the first request is lost, and the session has ended when the repeat arrives. The client opens another
/// session. If its caller gave the handle, the caller decides.
#[tokio::test(start_paused = true)]
async fn a_session_that_ended_unanswered_is_opened_again() {
    let (_fake, session) = opened_late(10 * SECOND, None).await;
    assert_eq!(session.expect("another session").state(), HoldState::Held);
    let (_fake, session) = opened_late(10 * SECOND, Some(Handle::from_random(1))).await;
    let refused = session.err();
    assert!(matches!(refused, Some(ClientError::Refused(Refusal::Tombstoned { .. }))), "{refused:?}");
}

/// A renewal that is answered after a later attempt does not change the time of the next attempt.
#[tokio::test(start_paused = true)]
async fn a_late_answer_to_an_older_renewal_causes_no_other_attempt() {
    let fake = Fake::new();
    let (clocks, mut renewals) = (fake.clone(), 0);
    fake.rule(move |asked| match asked {
        Asked::Renew(renewal) => {
            renewals += 1;
            let deadline = clocks.stamp().after_ms(9_000);
            let renewed = Outcome::Renewed { deadline, attempt: renewal.attempt, token: None };
            if renewals == 1 { Reaction::Late(4 * SECOND, renewed) } else { Reaction::Serve }
        }
        Asked::Submit(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => Reaction::Serve,
    });
    let session = fake.client().session().ttl(9 * SECOND).open().await.expect("opened");
    until(|| fake.count(is_attempt) == 3).await;
    let sent: Vec<_> = fake.asked(is_attempt).into_iter().map(|(sent, _)| sent).collect();
    assert!(sent[0].after(4 * SECOND) < sent[2], "the late answer came first: {sent:?}");
    assert!(3 * SECOND - SECOND / 10 < sent[2].since(sent[1]), "a third of the TTL later: {sent:?}");
    drop(session);
}

/// The cluster may keep a session that its client considers lost until the TTL is over. The close is retried until it
/// is answered, and each attempt reports that the session was lost.
#[tokio::test(start_paused = true)]
async fn the_close_of_a_lost_session_is_retried() {
    let fake = Fake::new();
    let closes = |fake: &Fake| {
        let end = |asked| if let Asked::Submit(Command::CloseSession { end, .. }) = asked { Some(end) } else { None };
        fake.asked(|_| true).into_iter().filter_map(|(_, asked)| end(asked)).collect::<Vec<_>>()
    };
    let mut tries = 0;
    fake.rule(move |asked| match asked {
        Asked::Renew(_) | Asked::Submit(Command::Attach(_)) => Reaction::Silence,
        Asked::Submit(Command::CloseSession { .. }) => {
            tries += 1;
            if tries < 3 { Reaction::Fail(ServiceError::unknown("cut")) } else { Reaction::Serve }
        }
        Asked::Submit(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => Reaction::Serve,
    });
    let session = fake.client().session().ttl(9 * SECOND).open().await.expect("opened");
    session.lost().await;
    until(|| closes(&fake).len() == 3).await;
    fake.answers(0).await;
    assert_eq!(closes(&fake), [SessionClose::Lost; 3]);
}

fn is_close(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::CloseSession { .. }))
}

/// The caller of a close that is not permitted gets that error after its request wait, or the error *unknown* if an
/// attempt had no answer. The session's task continues with the close until it is answered, because nothing else
/// releases the session's locks.
#[tokio::test(start_paused = true)]
async fn a_close_that_is_not_permitted_continues_after_its_error() {
    for (lost, code) in [(false, ErrorCode::Unauthenticated), (true, ErrorCode::Unknown)] {
        let fake = Fake::new();
        let session = fake.client().request_wait(2 * SECOND).session().ttl(9 * SECOND).open().await.expect("opened");
        let revoked = || ServiceError::Unauthenticated { why: "the token is not known".to_owned() };
        let permitted = Arc::new(AtomicBool::new(false));
        let (is_permitted, mut lost) = (Arc::clone(&permitted), lost);
        fake.rule(move |asked| {
            if !is_close(asked) || is_permitted.load(Ordering::Relaxed) {
                return Reaction::Serve;
            }
            Reaction::Fail(if std::mem::take(&mut lost) { ServiceError::unknown("cut") } else { revoked() })
        });
        let began = tokio::time::Instant::now();
        let error = session.close().await.expect_err("not permitted");
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().ends_with(&revoked().to_string()), "{error}");
        assert_eq!(began.elapsed().as_secs(), 2);
        let before = fake.count(is_close);
        permitted.store(true, Ordering::Relaxed);
        until(|| fake.count(is_close) == before + 1).await;
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(fake.count(is_close), before + 1, "no attempt after the answer");
    }
}

/// A close outlasts an error that passes, also one that a retry usually cannot fix.
#[tokio::test(start_paused = true)]
async fn a_close_outlasts_a_passing_refusal() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(9 * SECOND).open().await.expect("opened");
    let mut tries = 0;
    fake.rule(move |asked| {
        tries += usize::from(is_close(asked));
        if is_close(asked) && tries < 4 {
            return Reaction::Fail(ServiceError::Unauthenticated { why: "the file is being replaced".to_owned() });
        }
        Reaction::Serve
    });
    assert_eq!(session.close().await, Ok(()));
    assert_eq!(fake.count(is_close), 4);
}

/// An error that may pass does not end the attempts to close a session. If none is answered within the
/// request wait, the caller gets the last error in words.
#[tokio::test(start_paused = true)]
async fn a_close_without_an_answer_names_its_last_error() {
    let fake = Fake::new();
    let session = fake.client().session().ttl(9 * SECOND).open().await.expect("opened");
    let no_leader = || ServiceError::not_sent(NotSent::NoLeader);
    fake.rule(move |asked| if is_close(asked) { Reaction::Fail(no_leader()) } else { Reaction::Serve });
    let error = session.close().await.expect_err("no answer");
    let ClientError::Service(ServiceError::Unknown { why, .. }) = &error else { panic!("{error:?}") };
    assert!(why.ends_with(&no_leader().to_string()), "{why}");
}

/// A session whose TTL is short must not end, or stay open, because of a pause between two attempts: the client makes
/// one at least every half interval, until the close of the lost session is given up.
#[tokio::test(start_paused = true)]
async fn attempts_for_a_short_ttl_have_short_pauses() {
    let fake = Fake::new();
    let extends_or_closes =
        |asked: &Asked| is_attempt(asked) || matches!(asked, Asked::Submit(Command::CloseSession { .. }));
    fake.rule(move |asked| match asked {
        asked if extends_or_closes(asked) => Reaction::Fail(ServiceError::not_sent(NotSent::NoLeader)),
        _ => Reaction::Serve,
    });
    let session = fake.client().session().ttl(3 * SECOND).open().await.expect("opened");
    session.lost().await;
    tokio::time::sleep(3 * SECOND).await;
    let sent: Vec<_> = fake.asked(extends_or_closes).into_iter().map(|(sent, _)| sent).collect();
    let longest = sent.windows(2).map(|pair| pair[1].since(pair[0])).max();
    assert!(longest.is_some_and(|longest| longest <= SECOND / 2 + SECOND / 100), "{sent:?}");
    assert!(4 * SECOND < sent[sent.len() - 1].since(sent[0]), "{sent:?}");
}

/// Opens a session with a TTL of 9 s, cuts its stream, and returns how long it stays without one.
async fn time_without_stream(fake: &Fake, grace: Option<Duration>) -> Duration {
    let session = fake.client().session().ttl(9 * SECOND).disconnect_grace(grace).open().await.expect("opened");
    let (cut, before) = (fake.clock.now(), fake.count(is_attach));
    fake.attached(false);
    until(|| before < fake.count(is_attach)).await;
    drop(session);
    fake.sent(is_attach).since(cut)
}

/// Sessions that lost their streams together attach apart, and soon. One with a disconnect grace attaches at once,
/// because its locks end after the grace.
#[tokio::test(start_paused = true)]
async fn lost_streams_are_replaced_one_after_another() {
    let fake = Fake::new();
    fake.clock.draw_apart();
    let mut times = Vec::new();
    for _ in 0..10 {
        times.push(time_without_stream(&fake, None).await);
    }
    assert!(times.iter().all(|time| *time <= Duration::from_millis(ATTACH_MS_MAX)), "{times:?}");
    times.sort_unstable();
    times.dedup();
    assert!(5 < times.len(), "{times:?}");
    assert!(time_without_stream(&fake, Some(6 * SECOND)).await <= TICK);
}

/// A session without a stream attaches at once when a request of it waits in a queue, because the outcome arrives on
/// the stream. Many such requests do not postpone the attach.
#[tokio::test(start_paused = true)]
async fn a_queued_request_needs_the_stream_at_once() {
    let fake = Fake::new();
    fake.clock.draw_apart();
    for _ in 0..10 {
        let session = fake.client().session().ttl(9 * SECOND).open().await.expect("opened");
        let state = session.reference.state.clone();
        let (cut, before) = (fake.clock.now(), fake.count(is_attach));
        fake.attached(false);
        let requests = tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK / 2).await;
                state.stream_needed.notify_waiters();
            }
        });
        until(|| before < fake.count(is_attach)).await;
        assert!(fake.sent(is_attach).since(cut) <= 10 * TICK);
        requests.abort();
    }
}

/// An acquire that waits in a queue reports that it needs the stream.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_waits_needs_the_stream() {
    let fake = Fake::new();
    fake.rule(|asked| match asked {
        Asked::Submit(Command::Acquire(acquire)) => {
            let lock = acquire.locks.keys().next().cloned().expect("a lock");
            Reaction::Outcome(Outcome::Queued(Place { lock, place: 1, sequence: 1, held_by: None }))
        }
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    let session = fake.client().session().ttl(9 * SECOND).open().await.expect("opened");
    let state = session.reference.state.clone();
    let needed = state.stream_needed.notified();
    tokio::select! {
        () = needed => {}
        acquired = session.lock("a").acquire() => panic!("{}", acquired.is_ok()),
    }
}
