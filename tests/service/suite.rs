//! What every lock service owes its clients, whoever implements it. Each function needs a service of its own or a
//! shared one: names and namespaces do not meet.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::client::{Client, ClientError, HoldState, Session};
use lockkeeper::model::{Command, EventKind, ListShow, Mode, Namespace, Outcome, Refusal, TokenState};
use lockkeeper::service::{Call, LockService, Word};

pub(crate) use crate::changes::*;
use crate::faulty::Faulty;

/// Waits that are meant to end by something else than time.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// Waits that are meant to run out.
pub(crate) const SHORT: Duration = Duration::from_millis(50);
/// Between two looks at a condition.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

tokio::task_local! {
    /// Which way to the service is tried: each has its own namespaces.
    pub(crate) static WAY: &'static str;
}

pub(crate) fn client<S: LockService>(service: S, namespace: &str) -> Client<S> {
    let namespace = format!("{namespace}.{}", WAY.get());
    Client::new(service).namespace(Namespace::parse(&namespace).expect("a good name"))
}

pub(crate) async fn session<S: LockService>(service: S, namespace: &str) -> Session<S> {
    client(service, namespace).session().open().await.expect("opened")
}

/// The shortest TTL that the service allows.
pub(crate) async fn short_session<S: LockService>(service: S, namespace: &str) -> Session<S> {
    let client = client(service, namespace);
    let ttl = Duration::from_millis(client.status().await.expect("a status").ttl_ms_min);
    client.session().ttl(ttl).open().await.expect("opened")
}

/// Awaits that so many hold the lock and so many wait for it.
pub(crate) async fn in_use<S: LockService>(client: &Client<S>, name: &str, holders: usize, waiters: usize) {
    let met = async {
        loop {
            let view = client.inspect(name).await.expect("inspected").value;
            if (view.holders.len(), view.waiters.len()) == (holders, waiters) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(LONG, met).await.is_err() {
        panic!("{name}: expected {holders} holders and {waiters} waiters, is {:?}", client.inspect(name).await);
    }
}

/// An exclusive lock has one holder; a try is refused with the holder's name, and a release frees it.
pub(crate) async fn an_exclusive_lock_has_one_holder<S: LockService>(service: S) {
    let session = session(service, "exclusive").await;
    let guard = session.lock("a").acquire().await.expect("free");
    let refused = session.lock("a").try_once().acquire().await.expect_err("held");
    let ClientError::NotAcquired { holder: Some(holder), .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((holder.token, refused.word()), (guard.token(), Word::NotAcquired));
    assert_eq!(guard.state(), HoldState::Held);
    assert!(guard.valid_for() > Duration::ZERO && guard.valid_for() < session.ttl());
    guard.release().await.expect("released");
    session.lock("a").try_once().acquire().await.expect("free again").release().await.expect("released");
}

/// The queue is served in its order, with growing tokens, and each waiter is told its place.
pub(crate) async fn waiters_are_served_in_order<S: LockService>(service: S) {
    let client = client(service.clone(), "fifo");
    let first = client.lock("a").acquire().await.expect("free");
    let (places, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (grants, mut granted) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=3_u64 {
        let (client, places, grants) = (client.clone(), places.clone(), grants.clone());
        tasks.spawn(async move {
            let tell = move |place: &lockkeeper::model::Place| {
                let _ = places.send(place.place);
            };
            let guard = client.lock("a").on_queued(tell).acquire().await.expect("granted in turn");
            grants.send((number, guard.token())).expect("the test listens");
        });
        assert_eq!(told.recv().await, Some(number));
    }
    let mut last = first.token();
    drop(first);
    for number in 1..=3 {
        let (who, token) = granted.recv().await.expect("granted");
        assert_eq!(who, number);
        assert!(last < token);
        last = token;
    }
    while tasks.join_next().await.is_some() {}
}

/// A wait that runs out is reported only when nothing of it is left in the queue.
pub(crate) async fn a_wait_that_runs_out_leaves_no_waiter<S: LockService>(service: S) {
    let client = client(service.clone(), "timeout");
    let guard = client.lock("a").acquire().await.expect("free");
    let late = client.lock("a").wait(SHORT).acquire().await.expect_err("held");
    assert!(matches!(late, ClientError::NotAcquired { .. }), "{late:?}");
    in_use(&client, "a", 1, 0).await;
    guard.release().await.expect("released");
    in_use(&client, "a", 0, 0).await;
}

/// An acquire that is dropped while it waits leaves the queue, and one that is dropped around its grant holds nothing.
pub(crate) async fn a_dropped_acquire_leaves_nothing<S: LockService>(service: S) {
    let client = client(service.clone(), "dropped");
    let guard = client.lock("a").acquire().await.expect("free");
    assert!(tokio::time::timeout(SHORT, client.lock("a").acquire()).await.is_err());
    in_use(&client, "a", 1, 0).await;
    let mut waits = Box::pin(client.lock("a").acquire());
    tokio::select! {
        _ = &mut waits => panic!("held by another"),
        () = in_use(&client, "a", 1, 1) => {}
    }
    guard.release().await.expect("released");
    // Granted by now, but nobody has looked at the answer.
    drop(waits);
    in_use(&client, "a", 0, 0).await;
}

/// Dropping a guard gives the lock back.
pub(crate) async fn a_dropped_guard_gives_the_lock_back<S: LockService>(service: S) {
    let client = client(service.clone(), "drop");
    drop(client.lock("a").acquire().await.expect("free"));
    let session = client.session().open().await.expect("opened");
    drop(session.lock("a").wait(LONG).acquire().await.expect("free again"));
    in_use(&client, "a", 0, 0).await;
}

/// Dropping the last handle on a session closes it, and everything that it held is free.
pub(crate) async fn dropping_the_last_handle_closes_the_session<S: LockService>(service: S) {
    let client = client(service.clone(), "last-handle");
    let session = client.session().open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    drop(session);
    assert_eq!(client.all_sessions().await.expect("listed").value.len(), 1, "the guard keeps the session alive");
    drop(guard);
    in_use(&client, "a", 0, 0).await;
    let gone = async {
        while !client.all_sessions().await.expect("listed").value.is_empty() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("the session is closed");
}

/// Shared holders hold together; a waiting writer is not passed by later readers.
pub(crate) async fn readers_share_and_do_not_pass_a_writer<S: LockService>(service: S) {
    let client = client(service.clone(), "shared");
    let one = client.lock("a").shared().acquire().await.expect("free");
    let two = client.lock("a").shared().try_once().acquire().await.expect("shared");
    let mut writer = Box::pin(client.lock("a").acquire());
    tokio::select! {
        _ = &mut writer => panic!("readers hold it"),
        () = in_use(&client, "a", 2, 1) => {}
    }
    client.lock("a").shared().try_once().acquire().await.expect_err("behind the writer");
    drop((one, two));
    let writer = writer.await.expect("the readers are gone");
    client.lock("a").shared().try_once().acquire().await.expect_err("the writer holds it");
    writer.release().await.expect("released");
}

/// A semaphore grants permits up to its limit, refuses what can never be, and is not a lock.
pub(crate) async fn permits_are_counted<S: LockService>(service: S) {
    let session = session(service, "permits").await;
    let two = session.lock("s").permits(2, 3).acquire().await.expect("free");
    session.lock("s").permits(2, 3).try_once().acquire().await.expect_err("one is left");
    let one = session.lock("s").permits(1, None).try_once().acquire().await.expect("one is left");
    let never = session.lock("s").permits(4, 3).acquire().await.expect_err("more than there are");
    assert_eq!(never.word(), Word::LimitExceeded);
    assert_eq!(session.lock("s").try_once().acquire().await.expect_err("a semaphore").word(), Word::KindMismatch);
    two.release().await.expect("released");
    one.release().await.expect("released");
}

/// A lease is refreshed and released by its handle alone, and by no other.
pub(crate) async fn a_lease_belongs_to_its_handle<S: LockService>(service: S) {
    let client = client(service.clone(), "lease");
    let mut lease = client.lease("a").duration(LONG).take().await.expect("free");
    assert!(lease.valid_for() > Duration::ZERO && lease.valid_for() <= LONG);
    let stranger = client.lease("a").take().await.expect_err("held");
    assert_eq!(stranger.word(), Word::NotAcquired);
    let refreshed = lease.refresh_for(LONG * 2).await.expect("held");
    assert!(LONG < refreshed.valid_for && LONG < lease.valid_for());
    let wrong = lockkeeper::model::Handle::parse("not the handle").expect("a good handle");
    client.refresh("a", &wrong, LONG).await.expect_err("not its handle");
    client.release("a", &wrong).await.expect_err("not its handle");
    client.refresh("a", lease.handle(), LONG).await.expect("its handle");
    client.release("a", lease.handle()).await.expect("its handle");
    assert!(lease.release().await.is_err(), "released already");
    in_use(&client, "a", 0, 0).await;
}

/// A lease that nobody refreshes ends by itself, first for its holder, then for the cluster, and the next is granted.
pub(crate) async fn a_lease_ends_by_itself<S: LockService>(service: S) {
    let client = client(service.clone(), "lease-end");
    let first = client.lease("a").duration(SHORT).take().await.expect("free");
    let second = client.lease("a").duration(LONG).wait(LONG).take().await.expect("the first one ends");
    assert_eq!(first.valid_for(), Duration::ZERO);
    assert!(first.token() < second.token());
    assert!(second.valid_for() > LONG / 2, "{:?}", second.valid_for());
    second.release().await.expect("released");
}

/// A take that runs out of time or is dropped leaves no waiter.
pub(crate) async fn a_take_that_ends_early_leaves_no_waiter<S: LockService>(service: S) {
    let client = client(service.clone(), "lease-wait");
    let holder = client.lease("a").duration(LONG).take().await.expect("free");
    client.lease("a").wait(SHORT).take().await.expect_err("held");
    in_use(&client, "a", 1, 0).await;
    assert!(tokio::time::timeout(SHORT, client.lease("a").wait(LONG).take()).await.is_err());
    in_use(&client, "a", 1, 0).await;
    holder.release().await.expect("released");
}

/// A token is valid while its lock is held with it, and stale ever after.
pub(crate) async fn a_token_is_checked<S: LockService>(service: S) {
    let client = client(service.clone(), "check");
    let guard = client.lock("a").acquire().await.expect("free");
    let token = guard.token();
    assert_eq!(client.check("a", token).await.expect("checked").state, TokenState::Valid);
    assert_eq!(client.check("b", token).await.expect("checked").state, TokenState::Stale);
    guard.release().await.expect("released");
    let checked = client.check("a", token).await.expect("checked");
    assert_eq!(checked.state, TokenState::Stale);
    assert!(token < checked.lowest_valid);
}

/// Locks and sessions can be looked at: who holds, who waits, and what they say of themselves.
pub(crate) async fn locks_and_sessions_can_be_seen<S: LockService>(service: S) {
    let client = client(service.clone(), "look");
    let session = client.session().open().await.expect("opened");
    let _guard = session.lock("jobs/one").owner("task").why("to be seen").acquire().await.expect("free");
    let _other = session.lock("other").acquire().await.expect("free");
    let view = client.inspect("jobs/one").await.expect("inspected").value;
    assert_eq!(&*view.holders[0].metadata.why, "to be seen");
    assert_eq!(view.holders[0].owner.as_ref().map(|owner| owner.as_str()), Some("task"));
    let listed = client.list("jobs/").show(ListShow::Held).all().await.expect("listed").value;
    assert_eq!(listed.iter().map(|row| row.lock.name.as_str()).collect::<Vec<_>>(), ["jobs/one"]);
    let page = client.list("").rows(1).page().await.expect("listed").value;
    assert!(page.rows.len() == 1 && page.more);
    assert_eq!(client.list("").rows(1).all().await.expect("listed").value.len(), 2);
    let sessions = client.all_sessions().await.expect("listed").value;
    assert_eq!(sessions.iter().map(|row| (row.session, row.holds)).collect::<Vec<_>>(), [(session.id(), 2)]);
}

/// A watch tells everything after its beginning once, in order; another one goes on where the first one stopped.
pub(crate) async fn a_watch_goes_on_where_it_stopped<S: LockService>(service: S) {
    let client = client(service.clone(), "watch");
    let mut watch = client.watch("a", None).await.expect("watching");
    let guard = client.lock("a").acquire().await.expect("free");
    let token = guard.token();
    drop(client.lock("b").acquire().await.expect("free"));
    guard.release().await.expect("released");
    let granted = loop {
        let event = watch.next().await.expect("an event");
        if event.kind.token() == Some(token) {
            break event;
        }
    };
    assert!(matches!(granted.kind, EventKind::Granted { .. }));
    let mut second = client.watch("a", Some(granted.position)).await.expect("watching");
    let (here, there) = (watch.next().await.expect("an event"), second.next().await.expect("an event"));
    assert_eq!(here, there);
    assert!(matches!(here.kind, EventKind::Released { .. }), "{here:?}");
    assert!(granted.position < here.position);
}

/// Closing a session frees what it held for the next waiter, and its guards are lost.
pub(crate) async fn closing_a_session_wakes_the_next<S: LockService>(service: S) {
    let client = client(service.clone(), "close");
    let session = client.session().open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    let next = client.lock("a").wait(LONG).acquire();
    let (next, closed) = tokio::join!(next, async {
        in_use(&client, "a", 1, 1).await;
        session.close().await
    });
    closed.expect("closed");
    assert_eq!(guard.state(), HoldState::Lost);
    assert!(guard.token() < next.expect("the session is gone").token());
}

/// Waiting for a free lock returns when it is free, and at once where it is.
pub(crate) async fn a_free_lock_is_awaited<S: LockService>(service: S) {
    let client = client(service.clone(), "wait-free");
    client.wait_free("a").await.expect("free");
    let guard = client.lock("a").acquire().await.expect("free");
    assert!(tokio::time::timeout(SHORT, client.wait_free("a")).await.is_err(), "held");
    let (free, released) = tokio::join!(client.wait_free("a"), guard.release());
    free.expect("free");
    released.expect("released");
}

/// The same owner of the same session is told that it holds the lock already; another one waits.
pub(crate) async fn the_same_owner_is_refused<S: LockService>(service: S) {
    let session = session(service, "owner").await;
    let _guard = session.lock("a").owner("task").acquire().await.expect("free");
    let again = session.lock("a").owner("task").acquire().await.expect_err("its own");
    assert_eq!(again.word(), Word::AlreadyHeld);
    let other = session.lock("a").owner("other").wait(SHORT).acquire().await.expect_err("held");
    assert_eq!(other.word(), Word::NotAcquired);
}

/// A session that is renewed outlives its TTL by far.
pub(crate) async fn a_session_is_renewed<S: LockService>(service: S) {
    let session = short_session(service, "renewed").await;
    let guard = session.lock("a").acquire().await.expect("free");
    let work = tokio::time::sleep(session.ttl() * 3);
    guard.run(work).await.expect("held all along");
    guard.release().await.expect("released");
}

/// When renewals are no longer answered, work under a guard is cancelled before the lock can be granted to another,
/// and the lost session is closed.
pub(crate) async fn work_is_cancelled_before_another_is_granted<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let session = short_session(faulty, "run").await;
    let guard = session.lock("a").acquire().await.expect("free");
    faults.deaf.store(true, SeqCst);
    let other = client(service, "run");
    let next = other.lock("a").wait(LONG).acquire();
    let (lost, next) = tokio::join!(
        async {
            let lost = guard.run(std::future::pending::<()>()).await.expect_err("lost");
            // The next one may have been granted once the lost session was closed, but not before this moment.
            (lost, other.check("a", guard.token()).await.expect("checked").state)
        },
        next
    );
    assert_eq!((lost.0.token, lost.0.word(), lost.0.reason), (guard.token(), Word::Lost, None));
    assert_eq!(guard.state(), HoldState::Lost);
    assert_eq!(guard.valid_for(), Duration::ZERO);
    assert!(guard.token() < next.expect("granted after the loss").token());
    assert_eq!(session.lock("b").acquire().await.expect_err("lost").word(), Word::SessionEnded);
}

/// A request whose answer got lost is repeated and gets the first answer; a wait that broke off goes on.
pub(crate) async fn a_retried_request_gets_the_same_answer<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let session = session(faulty, "retry").await;
    faults.answers_lost.store(2, SeqCst);
    let guard = session.lock("a").acquire().await.expect("free");
    faults.answers_lost.store(1, SeqCst);
    faults.waits_broken.store(3, SeqCst);
    let (next, released) = tokio::join!(session.lock("a").wait(LONG).acquire(), async {
        while faults.waits_broken.load(SeqCst) > 0 {
            tokio::time::sleep(LOOK).await;
        }
        faults.answers_lost.store(1, SeqCst);
        guard.release().await
    });
    released.expect("the first answer");
    next.expect("granted").release().await.expect("released");
}

/// A wait that breaks off after longer than an outage may last is taken up again: it was in order all the while.
pub(crate) async fn a_long_wait_that_breaks_off_goes_on<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let client = client(faulty, "long-wait").request_wait(SHORT);
    let guard = client.lock("a").acquire().await.expect("free");
    let (next, released) = tokio::join!(client.lock("a").wait(LONG).acquire(), async {
        in_use(&client, "a", 1, 1).await;
        tokio::time::sleep(SHORT * 2).await;
        faults.waits_cut.notify_waiters();
        tokio::time::sleep(SHORT * 2).await;
        guard.release().await
    });
    released.expect("released");
    next.expect("granted").release().await.expect("released");
}

/// A watch whose subscription is cut again and again tells every event once, in order.
pub(crate) async fn a_watch_goes_on_through_cuts<S: LockService>(service: S) {
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
            "granted" => granted.extend(event.kind.token()),
            "released" => released.extend(event.kind.token()),
            _ => {}
        }
    }
    assert_eq!((&granted, &released), (&tokens, &tokens));
}

/// A service that cannot be reached is asked again for as long as the client was told, and its error is given back.
pub(crate) async fn an_outage_is_reported<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let client = client(faulty, "outage").request_wait(SHORT);
    let session = client.session().open().await.expect("opened");
    faults.answers_lost.store(u32::MAX, SeqCst);
    let error = session.lock("a").acquire().await.expect_err("no answers");
    assert_eq!(error.word(), Word::Unknown);
    faults.answers_lost.store(0, SeqCst);
    // The request may have been granted; the keeper withdraws it as soon as there are answers again.
    in_use(&client, "a", 0, 0).await;
}

/// A session whose stream broke attaches again and keeps its locks.
pub(crate) async fn a_broken_stream_is_attached_again<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let session = session(faulty, "attach").await;
    let guard = session.lock("a").acquire().await.expect("free");
    for _ in 0..2 {
        faults.detached.store(true, SeqCst);
        session.lock("b").wait(LONG).acquire().await.expect("after an attach").release().await.expect("released");
        assert!(!faults.detached.load(SeqCst));
    }
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("released");
}

/// The handle of a live session opens it for nobody else, and a closed one is not opened again.
pub(crate) async fn a_handle_opens_one_session<S: LockService>(service: S) {
    let client = client(service, "handle");
    let session = client.session().open().await.expect("opened");
    let handle = session.handle().clone();
    let second = client.session().handle(handle.clone()).open().await.expect_err("another instance");
    assert_eq!(second.word(), Word::AlreadyOpen);
    session.close().await.expect("closed");
    let late = client.session().handle(handle).open().await.expect_err("ended");
    assert_eq!(late.word(), Word::SessionEnded);
}

/// A release with another's token is refused and changes nothing.
pub(crate) async fn a_foreign_release_is_refused<S: LockService>(service: S) {
    let (one, two) = tokio::join!(session(service.clone(), "foreign"), session(service.clone(), "foreign"));
    let guard = one.lock("a").acquire().await.expect("free");
    let release = lockkeeper::model::Release {
        request: lockkeeper::model::RequestId { session: two.id(), number: 1_000 },
        answered_below: 0,
        name: guard.name().clone(),
        token: guard.token(),
    };
    let call = Call { proof: Some(two.handle().clone()), ..Call::new(Command::Release(release)) };
    let reply = service.submit(call).await.expect("answered");
    assert!(matches!(reply.outcome, Outcome::Refused(Refusal::HeldByOther { .. })), "{reply:?}");
    guard.release().await.expect("still held");
}

/// A lease may be shared, and one that waits is granted when the holder gives it back.
pub(crate) async fn a_lease_waits_its_turn<S: LockService>(service: S) {
    let client = client(service, "lease-turn");
    let first = client.lease("a").mode(Mode::Shared).duration(LONG).take().await.expect("free");
    client.lease("a").mode(Mode::Shared).duration(LONG).take().await.expect("shared").release().await.expect("held");
    let waits = client.lease("a").duration(LONG).wait(LONG);
    let (second, released) = tokio::join!(waits.take(), async {
        in_use(&client, "a", 1, 1).await;
        first.release().await
    });
    released.expect("released");
    second.expect("granted").release().await.expect("released");
}
