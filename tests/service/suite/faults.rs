//! Faults between client and service: lost answers, ended streams, outages and missing answers.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::client::{ClientError, HoldState};
use lockkeeper::model::{EventKind, Position};
use lockkeeper::service::{ErrorCode, LockService, ServiceError};

use super::{LONG, PATIENT, SHORT, client, in_use, session, short_session, until};
use crate::faulty::Faulty;

/// When renewals are no longer answered, work under a guard is cancelled before the lock can be granted to another
/// client, and the lost session is closed.
pub(crate) async fn work_is_cancelled_before_another_is_granted<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let session = short_session(faulty, "run").await;
    let guard = session.lock("a").acquire().await.expect("free");
    faults.ignores_renewals.store(true, SeqCst);
    let other = client(service, "run");
    let next = other.lock("a").wait(LONG).acquire();
    let (lost, next) = tokio::join!(
        async {
            let lost = guard.run(std::future::pending::<()>()).await.expect_err("lost");
            // The next client may be granted the lock once the lost session is closed, but not before this check.
            (lost, other.check("a", guard.token()).await.expect("checked").state)
        },
        next
    );
    assert_eq!((lost.0.token, lost.0.code(), lost.0.reason), (guard.token(), ErrorCode::Lost, None));
    assert_eq!(guard.state(), HoldState::Lost);
    assert_eq!(guard.valid_for(), Duration::ZERO);
    assert!(guard.token() < next.expect("granted after the loss").token());
    assert_eq!(session.lock("b").acquire().await.expect_err("lost").code(), ErrorCode::SessionEnded);
}

/// A request whose answer was lost is repeated and gets the first answer; a wait that fails is resumed.
pub(crate) async fn a_retried_request_gets_the_same_answer<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let session = session(faulty, "retry").await;
    faults.answers_lost.store(2, SeqCst);
    let guard = session.lock("a").acquire().await.expect("free");
    faults.answers_lost.store(1, SeqCst);
    faults.waits_broken.store(3, SeqCst);
    let (next, released) = tokio::join!(session.lock("a").wait(LONG).acquire(), async {
        until("the waits break", async || faults.waits_broken.load(SeqCst) == 0).await;
        faults.answers_lost.store(1, SeqCst);
        guard.release().await
    });
    released.expect("the first answer");
    next.expect("granted").release().await.expect("released");
}

/// A wait that fails is resumed, even if it has lasted longer than the retry limit: only the time of the failure
/// counts.
pub(crate) async fn a_long_wait_is_resumed<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let patient = client(faulty, "long-wait");
    // Long enough for the first answer of a busy machine.
    let limit = SHORT * 10;
    let client = patient.clone().request_wait(limit);
    let guard = patient.lock("a").acquire().await.expect("free");
    let (next, released) = tokio::join!(client.lock("a").wait(LONG).acquire(), async {
        in_use(&patient, "a", 1, 1).await;
        tokio::time::sleep(limit * 2).await;
        faults.waits_cut.notify_waiters();
        tokio::time::sleep(limit * 2).await;
        guard.release().await
    });
    released.expect("released");
    drop(next.expect("granted"));
    in_use(&patient, "a", 0, 0).await;
}

/// A wait that fails repeatedly sends no further command: the client only asks for the outcome again, and receives the
/// grant.
pub(crate) async fn a_resumed_wait_sends_no_command<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let client = client(faulty, "wait-cost");
    let guard = client.lock("a").acquire().await.expect("free");
    let before = faults.acquires.load(SeqCst);
    faults.waits_broken.store(4, SeqCst);
    let (next, released) = tokio::join!(client.lock("a").wait(LONG).acquire(), async {
        until("the waits break", async || faults.waits_broken.load(SeqCst) == 0).await;
        guard.release().await
    });
    released.expect("released");
    next.expect("granted").release().await.expect("released");
    assert_eq!(faults.acquires.load(SeqCst) - before, 1);
}

/// A watch whose subscription is cut repeatedly returns every event once, in order.
pub(crate) async fn a_watch_continues_after_cuts<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let client = client(faulty, "watch-cut");
    let mut watch = client.watch("a", None).await.expect("watching");
    faults.events_before_cut.store(2, SeqCst);
    let mut tokens = Vec::new();
    for _ in 0..5 {
        let guard = client.lock("a").acquire().await.expect("free");
        tokens.push(guard.token());
        guard.release().await.expect("released");
    }
    let (mut granted, mut released) = (Vec::new(), Vec::new());
    while released.len() < tokens.len() {
        let event = watch.next().await.expect("an event");
        match event.kind.word() {
            "granted" => granted.extend(event.subject.token()),
            "released" => released.extend(event.subject.token()),
            _ => {}
        }
    }
    assert_eq!((&granted, &released), (&tokens, &tokens));
}

/// If events are no longer kept, a watch returns one error with the position at which it resumes, and then continues
/// from there without a duplicate or a further gap.
pub(crate) async fn a_watch_says_once_that_events_were_missed<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let (client, observer) = (client(faulty, "watch-missed"), client(service, "watch-missed"));
    // Each subscription delivers one event, so the watch subscribes again after every event.
    faults.events_before_cut.store(1, SeqCst);
    let mut watch = client.watch("a", None).await.expect("watching");
    let mut other = observer.watch("a", None).await.expect("watching");
    let (mut tokens, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let guard = client.lock("a").acquire().await.expect("free");
        tokens.push(guard.token());
        guard.release().await.expect("released");
        ends.push(loop {
            let event = other.next().await.expect("an event");
            if matches!(event.kind, EventKind::Released { .. }) {
                break event.position;
            }
        });
    }
    while watch.position() < ends[0] {
        watch.next().await.expect("an event");
    }
    let missed = ends[1];
    *faults.missed.lock().expect("not poisoned") = Some(missed);
    let error = watch.next().await.expect_err("the second round was not kept");
    let ClientError::Service(ServiceError::EventsMissed { resume, .. }) = &error else { panic!("{error:?}") };
    assert_eq!((*resume, watch.position()), (missed, missed));
    let (granted, released) = (watch.next().await.expect("an event"), watch.next().await.expect("an event"));
    assert_eq!([&granted, &released].map(|event| event.subject.token()), [Some(tokens[2]); 2]);
    assert_eq!([&granted, &released].map(|event| event.kind.word()), ["granted", "released"]);
    assert!(missed < granted.position && granted.position < released.position);
}

/// A wait for a free lock checks the lock again after events were missed, and continues.
pub(crate) async fn waiting_for_a_free_lock_survives_missed_events<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let client = client(faulty, "free-missed");
    let guard = client.lock("a").acquire().await.expect("free");
    *faults.missed.lock().expect("not poisoned") = Some(Position::default());
    let mut waits = Box::pin(client.wait_free("a"));
    while faults.missed.lock().expect("not poisoned").is_some() {
        assert!(tokio::time::timeout(SHORT, &mut waits).await.is_err(), "held");
    }
    guard.release().await.expect("released");
    waits.await.expect("free");
}

/// Calls to an unreachable service are retried up to the client's limit, and then return the error.
pub(crate) async fn an_outage_is_reported<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let patient = client(faulty, "outage");
    // Long enough to open a session on a busy machine. The session's calls have the same limit.
    let session = patient.clone().request_wait(SHORT * 40).session().open().await.expect("opened");
    faults.answers_lost.store(u32::MAX, SeqCst);
    let error = session.lock("a").acquire().await.expect_err("no answers");
    assert_eq!(error.code(), ErrorCode::Unknown);
    faults.answers_lost.store(0, SeqCst);
    // The request may have been granted; the session task withdraws it as soon as the service answers again.
    in_use(&patient, "a", 0, 0).await;
}

/// A session whose stream ended attaches again and keeps its locks.
pub(crate) async fn a_broken_stream_is_attached_again<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let session = session(faulty, "attach").await;
    let guard = session.lock("a").acquire().await.expect("free");
    for _ in 0..2 {
        faults.detach();
        session.lock("b").wait(LONG).acquire().await.expect("after an attach").release().await.expect("released");
        assert!(!faults.detached.load(SeqCst));
    }
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("released");
}

/// A session without a stream, whose commands are still answered, is attached at its next command, long before its
/// renewal is due. It attaches only once, because a second attach could move the stream away from the leader.
pub(crate) async fn a_session_without_a_stream_is_attached_once<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let session = &client(faulty, "streamless").session().ttl(PATIENT).open().await.expect("opened");
    let pairs = |lock: u32| {
        let faults = faults.clone();
        async move {
            let name = format!("a{lock}");
            while !faults.has_stream() {
                session.lock(&name).acquire().await.expect("free").release().await.expect("released");
            }
        }
    };
    for round in 1..=20 {
        faults.cut_stream();
        futures_util::future::join_all((0..8).map(pairs)).await;
        session.lock("a").acquire().await.expect("free").release().await.expect("released");
        assert_eq!(faults.attaches.load(SeqCst), round);
    }
}

/// An idle session without a stream is attached when its renewal is due.
pub(crate) async fn an_idle_session_without_a_stream_is_attached<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let session = short_session(faulty, "idle").await;
    let guard = session.lock("a").acquire().await.expect("free");
    faults.cut_stream();
    until("the session is attached", async || faults.has_stream()).await;
    assert_eq!((faults.attaches.load(SeqCst), guard.state()), (1, HoldState::Held));
    guard.release().await.expect("released");
}

/// A release whose caller stops waiting still completes: its first attempt found no stream, and its caller left before
/// the next one.
pub(crate) async fn an_abandoned_release_completes<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let session = session(faulty, "abandon").await;
    let guard = session.lock("a").acquire().await.expect("free");
    faults.ignores_renewals.store(true, SeqCst);
    faults.detach();
    tokio::time::timeout(SHORT, guard.release()).await.expect_err("there is no answer");
    let other = client(service, "abandon");
    in_use(&other, "a", 1, 0).await;
    faults.ignores_renewals.store(false, SeqCst);
    in_use(&other, "a", 0, 0).await;
    session.lock("a").acquire().await.expect("the session continues").release().await.expect("released");
}

/// A release waits for an upgrade that its caller abandoned, so that it releases the token that is held by then.
pub(crate) async fn a_release_waits_for_an_abandoned_upgrade<S: LockService>(service: S) {
    let session = session(service.clone(), "turns").await;
    let other = client(service, "turns");
    for _ in 0..20 {
        let mut guard = session.lock("a").shared().acquire().await.expect("free");
        {
            let mut upgrade = Box::pin(guard.upgrade_within(LONG));
            assert!(futures_util::poll!(&mut upgrade).is_pending());
        }
        guard.release().await.expect("the current token");
        in_use(&other, "a", 0, 0).await;
    }
}
