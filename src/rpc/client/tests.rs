//! The remote service with nodes that have only a client port.

mod endpoints;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::{RemoteService, RemoteSettings};
use crate::limits;
use crate::model::{
    Access, Acquire, Attach, Attachment, Claim, Command, Event, EventKind, FencingToken, Handle, Instance,
    LeaseRequestId, LockName, LogTime, Metadata, Mode, Namespace, OpenSession, Outcome, Patience, Position, Query,
    QueryResult, Refusal, RenewalTarget, RequestId, SessionId, Subject, TakeLease, WallTime,
};
use crate::rpc::fake::{Node, SESSION, granted, lock, reply};
use crate::service::{
    Call, ClaimRef, Freshness, LeaderHint, LockService, NotSent, Proof, RenewalCall, Scope, ServiceError, Subscription,
};

fn connect<'a>(addresses: impl IntoIterator<Item = &'a String>) -> RemoteService {
    RemoteService::new(RemoteSettings::new(addresses.into_iter().cloned())).expect("legal endpoints")
}

fn handle() -> Handle {
    Handle::parse("secret").expect("legal")
}

pub(super) fn session() -> SessionId {
    SessionId::new(0, SESSION)
}

pub(super) fn open() -> Call {
    Call::new(Command::OpenSession(OpenSession {
        namespace: Namespace::default(),
        handle: handle(),
        instance: Instance(1),
        ttl_ms: 10_000,
        disconnect_grace_ms: None,
        accepts_hand_over: false,
        metadata: Metadata::default(),
    }))
}

fn batch() -> Namespace {
    Namespace::parse("batch").expect("legal")
}

pub(super) fn acquire(name: &str, number: u64) -> Call {
    Call::new(Command::Acquire(Acquire {
        request: RequestId { session: session(), number },
        answered_below: number,
        locks: (LockName::parse(name).expect("legal"), Access::permits(2, 3)).into(),
        owner: None,
        patience: Patience::For { ms: 1_000 },
        metadata: Metadata { why: "to test".into(), ..Metadata::default() },
        lease_ms: None,
        extras: None,
    }))
}

pub(super) fn take(name: &str) -> Call {
    Call::new(Command::TakeLease(TakeLease {
        lock: lock(name),
        take: LeaseRequestId(5),
        handle: handle(),
        access: Mode::Shared.into(),
        lease_ms: 1_000,
        patience: Patience::Try,
        metadata: Metadata::default(),
        claim_ms: None,
    }))
}

pub(super) fn attach(attempt: u64) -> Call {
    Call::new(Command::Attach(Attach { namespace: batch(), session: session(), handle: handle(), attempt }))
}

/// Commands and renewals of a session use its stream and arrive unchanged.
#[tokio::test]
async fn a_session_works_over_its_stream() {
    let mut node = Node::start(1).await;
    let remote = connect([&node.address]);
    let opened = remote.submit(open()).await.expect("answered");
    let deadline = LogTime(11_000);
    assert_eq!(opened, reply(Outcome::Opened { session: session(), ttl_ms: 10_000, deadline }));
    assert_eq!(node.asked().await, open().command);

    assert_eq!(remote.submit(acquire("free", 1)).await, Ok(reply(granted())));
    assert_eq!(node.asked().await, acquire("free", 1).command);

    let renewal = RenewalCall { target: RenewalTarget::Session(session()), proof: Proof::Trusted, attempt: 8 };
    let renewed = remote.renew(vec![renewal]).await.expect("answered");
    assert_eq!(renewed, [reply(Outcome::Renewed { deadline: LogTime(12_000), attempt: 8, token: None })]);
}

/// The outcome of a queued acquire comes over its stream, or from a unary call if the stream is gone.
#[tokio::test]
async fn a_queued_acquire_gets_its_outcome() {
    let node = Node::start(1).await;
    let remote = connect([&node.address]);
    remote.submit(open()).await.expect("opened");
    let queued = remote.submit(acquire("busy", 1)).await.expect("answered");
    assert!(matches!(queued.outcome, Outcome::Queued(_)));
    let claim = |number| {
        let claim = Claim::Request(RequestId { session: session(), number });
        ClaimRef { lock: lock("busy"), claim }
    };
    let (settled, ()) = tokio::join!(remote.wait_outcome(claim(1)), async { node.service.grant() });
    assert_eq!(settled, Ok(reply(granted())));
    assert_eq!(remote.wait_outcome(claim(99)).await, Ok(reply(granted())));
}

/// The client gets only the final outcome of a queued acquire, however often the node has to wait again.
#[tokio::test]
async fn a_long_wait_has_one_outcome() {
    let node = Node::start(1).await;
    let remote = connect([&node.address]);
    remote.submit(open()).await.expect("opened");
    remote.submit(acquire("portions", 1)).await.expect("answered");
    let claim = Claim::Request(RequestId { session: session(), number: 1 });
    let claim = ClaimRef { lock: lock("portions"), claim };
    let (settled, ()) = tokio::join!(remote.wait_outcome(claim), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        node.service.grant();
    });
    assert_eq!(settled, Ok(reply(granted())));
}

/// A call that waits on a replaced stream gets its outcome over the new one, although the old node sends nothing.
#[tokio::test]
async fn a_wait_continues_on_the_newer_stream() {
    let (first, second) = (Node::start(1).await, Node::start(1).await);
    let remote = connect([&first.address, &second.address]);
    remote.submit(attach(1)).await.expect("attached");
    remote.submit(acquire("busy", 1)).await.expect("queued");
    let claim = ClaimRef { lock: lock("busy"), claim: Claim::Request(RequestId { session: session(), number: 1 }) };
    let mut waits = Box::pin(remote.wait_outcome(claim));
    assert!(futures_util::poll!(&mut waits).is_pending());
    remote.submit(attach(2)).await.expect("attached to the other node");
    second.service.grant();
    assert_eq!(waits.await, Ok(reply(granted())));
}

/// The error of a command arrives unchanged: refused, not sent, or unknown.
#[tokio::test]
async fn errors_keep_their_meaning_over_the_wire() {
    let node = Node::start(1).await;
    let remote = connect([&node.address]);
    remote.submit(open()).await.expect("opened");
    let refused = Refusal::LimitUnknown { lock: lock("held") };
    assert_eq!(remote.submit(acquire("held", 1)).await, Ok(reply(Outcome::Refused(refused))));
    let full = ServiceError::not_sent(NotSent::Overloaded { pause_ms: 50 });
    assert_eq!(remote.submit(acquire("full", 2)).await, Err(full));
    assert_eq!(remote.submit(acquire("lost", 3)).await, Err(ServiceError::unknown("the leader changed")));
    let refused = Refusal::Held { lock: lock("held"), holder: None, closed: None };
    assert_eq!(remote.submit(take("held")).await, Ok(reply(Outcome::Refused(refused))), "unary, as a status");
    let forbidden = ServiceError::Forbidden { why: "only for captains".to_owned() };
    assert_eq!(remote.status().await, Err(forbidden));
}

/// A session without a stream gets an error that requests an attach; after the attach it works again, and only the new
/// stream counts.
#[tokio::test]
async fn a_detached_session_attaches_again() {
    let mut node = Node::start(1).await;
    let remote = connect([&node.address]);
    let detached = ServiceError::not_sent(NotSent::Detached);
    assert_eq!(remote.submit(acquire("free", 1)).await, Err(detached));
    assert!(!*remote.attachment(session()).borrow());
    remote.submit(attach(1)).await.expect("attached");
    assert_eq!(node.asked().await, attach(1).command);
    remote.submit(attach(2)).await.expect("attached");
    assert_eq!(node.asked().await, attach(2).command);
    let first_broke = Command::Disconnected { session: session(), attachment: Attachment(1) };
    assert_eq!(node.asked().await, first_broke);
    assert!(*remote.attachment(session()).borrow());
    assert_eq!(remote.submit(acquire("free", 2)).await, Ok(reply(granted())));
}

/// A session that is sent to the next leader sends nothing more on its stream, and gets the outcomes of the commands
/// that it has sent.
#[tokio::test]
async fn what_was_asked_before_a_move_is_answered() {
    let mut node = Node::start(1).await;
    let remote = connect([&node.address]);
    remote.submit(open()).await.expect("opened");
    node.asked().await;
    let late = tokio::spawn({
        let remote = remote.clone();
        async move { remote.submit(acquire("late", 1)).await }
    });
    node.asked().await;
    node.leader.send_replace(Some(LeaderHint { node: 2, client: "127.0.0.1:1".to_owned() }));
    while *remote.attachment(session()).borrow() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(remote.submit(acquire("free", 2)).await, Err(ServiceError::not_sent(NotSent::Detached)));
    node.service.grant();
    assert_eq!(late.await.expect("no panic"), Ok(reply(granted())));
}

/// Events of a session's holds come over its stream, from its open on; a session without a stream gets none.
#[tokio::test]
async fn events_of_holds_come_over_the_stream() {
    let mut node = Node::start(1).await;
    let remote = connect([&node.address]);
    assert!(matches!(remote.hold_events(session()), Err(ServiceError::NotSent { why: NotSent::Detached, .. })));
    remote.submit(open()).await.expect("opened");
    node.asked().await;
    let claim = Claim::Request(RequestId { session: session(), number: 1 });
    let subject = Subject::hold(&lock("free"), claim, FencingToken::new(0, 33));
    let (position, namespace) = (Position { index: 7, n: 0 }, Some(Namespace::default()));
    let recalled = Event { position, at: LogTime(1), wall: WallTime(0), namespace, subject, kind: EventKind::Recalled };
    node.service.send_event(recalled.clone()).await;
    let mut events = remote.hold_events(session()).expect("a stream");
    assert_eq!(events.next().await, Ok(recalled.clone()));
    node.service.cut();
    assert!(events.next().await.is_err(), "a gap");
    let mut events = remote.hold_events(session()).expect("a stream");
    node.service.send_event(recalled.clone()).await;
    assert_eq!(events.next().await, Ok(recalled));
}

/// A node that sends a stream away and then hangs blocks no caller: unanswered calls go to another node, long before
/// they would time out.
#[tokio::test]
async fn a_node_that_hangs_after_a_move_is_left() {
    let mut node = Node::start(1).await;
    let still = Arc::new(AtomicBool::new(false));
    let relay = relay(node.address.clone(), Arc::default(), Arc::clone(&still)).await;
    let remote = RemoteService::new(RemoteSettings { request_wait: 2 * LONG, ..RemoteSettings::new([relay]) });
    let remote = remote.expect("legal");
    remote.submit(open()).await.expect("opened");
    node.asked().await;
    let late = tokio::spawn({
        let remote = remote.clone();
        async move { remote.submit(acquire("late", 1)).await }
    });
    node.asked().await;
    let leader = LeaderHint { node: 2, client: "127.0.0.1:1".to_owned() };
    node.leader.send_replace(Some(leader.clone()));
    while *remote.attachment(session()).borrow() {
        tokio::task::yield_now().await;
    }
    still.store(true, SeqCst);
    let outcome = tokio::time::timeout(LONG, late).await.expect("long before").expect("no panic");
    assert!(matches!(outcome, Err(ServiceError::Unknown { leader: Some(next), .. }) if next == leader));
}

const LONG: Duration = Duration::from_secs(30);

/// The client reads from a node that takes no more frames but still sends some: its client may wait for them.
#[tokio::test]
async fn a_client_reads_while_its_frames_wait() {
    let node = Node::start(1).await;
    let deaf = Arc::new(AtomicBool::new(false));
    let relay = relay(node.address.clone(), Arc::clone(&deaf), Arc::default()).await;
    let remote = RemoteService::new(RemoteSettings { request_wait: LONG, ..RemoteSettings::new([relay]) });
    let remote = remote.expect("legal");
    remote.submit(open()).await.expect("opened");
    remote.submit(acquire("busy", 1)).await.expect("queued");
    let request = |number| Claim::Request(RequestId { session: session(), number });
    let mut granted = Box::pin(remote.wait_outcome(ClaimRef { lock: lock("busy"), claim: request(1) }));
    assert!(futures_util::poll!(&mut granted).is_pending());

    deaf.store(true, SeqCst);
    // Far more bytes than the connection to the node can buffer.
    let (long, frames) = (lock(&"x".repeat(limits::LOCK_NAME_BYTES_MAX)), 4 * limits::STREAM_FRAMES_WAITING_MAX as u64);
    let claims = (2..frames).map(|number| ClaimRef { lock: long.clone(), claim: request(number) });
    let waits: FuturesUnordered<_> = claims.map(|claim| remote.wait_outcome(claim)).collect();
    let mut waits = pin!(waits.collect::<Vec<_>>());
    for _ in 0..frames {
        assert!(futures_util::poll!(&mut waits).is_pending());
        tokio::task::yield_now().await;
    }
    node.service.grant();
    // A transport that stays full ends the stream, so the answer has to arrive before that.
    assert_eq!(granted.await, Ok(reply(crate::rpc::fake::granted())));
}

/// Relays one connection to `node`, byte for byte: nothing from the client once `deaf` is set, and nothing to the
/// client once `still` is set.
async fn relay(node: String, deaf: Arc<AtomicBool>, still: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.expect("a client");
        let mut server = TcpStream::connect(node).await.expect("the node");
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::join!(carry(from_client, to_server, deaf), carry(from_server, to_client, still))
    });
    address
}

/// Relays bytes until `stopped` is set; later bytes are lost.
async fn carry(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, stopped: Arc<AtomicBool>) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if !stopped.load(SeqCst) && to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
    std::future::pending::<()>().await;
}

/// A late reply to an attach does not replace the stream of a newer one, and the late stream is dropped.
#[tokio::test]
async fn a_late_attach_does_not_replace_a_newer_stream() {
    let (mut first, mut second) = (Node::start(1).await, Node::start(1).await);
    let remote = connect([&first.address, &second.address]);
    remote.submit(attach(5)).await.expect("attached");
    assert_eq!(first.asked().await, attach(5).command);
    // This attach goes to the other endpoint, because an attach tries the node of the previous stream last.
    remote.submit(attach(4)).await.expect("attached");
    assert_eq!(second.asked().await, attach(4).command);
    let late_broke = Command::Disconnected { session: session(), attachment: Attachment(4) };
    assert_eq!(second.asked().await, late_broke);
    remote.submit(acquire("free", 1)).await.expect("granted");
    assert_eq!(first.asked().await, acquire("free", 1).command);
}

/// With the proof, a session without a stream is served by unary calls.
#[tokio::test]
async fn a_proof_replaces_a_stream() {
    let mut node = Node::start(1).await;
    let remote = connect([&node.address]);
    let call = Call { proof: Proof::Handle { handle: handle(), namespace: batch() }, ..acquire("free", 1) };
    assert_eq!(remote.submit(call.clone()).await, Ok(reply(granted())));
    assert_eq!(node.calls.recv().await, Some(call));
}

/// A stream with an unanswered frame ends: the outcome is unknown, and the session is detached.
#[tokio::test]
async fn an_unanswered_frame_is_unknown_and_ends_the_stream() {
    let node = Node::start(1).await;
    let mut settings = RemoteSettings::new([node.address.clone()]);
    settings.request_wait = Duration::from_millis(300);
    let remote = RemoteService::new(settings).expect("legal");
    remote.submit(open()).await.expect("opened");
    let stuck = remote.submit(acquire("stuck", 1)).await;
    assert!(matches!(stuck, Err(ServiceError::Unknown { .. })), "{stuck:?}");
    assert!(!*remote.attachment(session()).borrow(), "known before any caller has its answer");
    assert_eq!(remote.submit(acquire("free", 2)).await, Err(ServiceError::not_sent(NotSent::Detached)));
}

/// Queries and their answers arrive unchanged, and events arrive in order.
#[tokio::test]
async fn queries_and_events_arrive_unchanged() {
    let node = Node::start(1).await;
    let remote = connect([&node.address]);
    for query in [
        Query::Totals,
        Query::Inspect { lock: lock("x") },
        Query::Claim { lock: None, claim: Claim::Lease(LeaseRequestId(3)) },
    ] {
        let there = node.service.query(query.clone(), Freshness::Linearizable).await;
        assert_eq!(remote.query(query, Freshness::Linearizable).await, there);
    }
    let checked = remote.query(Query::Check { lock: lock("x"), token: "9".parse().expect("legal") }, Freshness::Stale);
    assert!(matches!(checked.await.expect("answered").answer, QueryResult::Checked(_)));

    let scope = Scope::Namespace { namespace: Namespace::default(), prefix: String::new() };
    let mut events = remote.subscribe(Subscription { scope, after: None, cluster_id: None }).await.expect("subscribed");
    for index in 1..=3 {
        let position = crate::model::Position { index, n: 0 };
        let kind = crate::model::EventKind::LeaderlessGap { gap_ms: index };
        let (at, wall, subject) = (LogTime(1), crate::model::WallTime(2), crate::model::Subject::Cluster);
        let event = crate::model::Event { position, at, wall, namespace: None, subject, kind };
        node.service.send_event(event.clone()).await;
        assert_eq!(events.next().await, Ok(event));
    }
    node.stop.send_replace(true);
    assert_eq!(events.next().await, Err(ServiceError::Stopping));
}

/// A dry run of a break is a read for client and server: nothing is submitted.
#[tokio::test]
async fn a_dry_run_of_a_break_is_a_query() {
    let mut node = Node::start(1).await;
    let remote = connect([&node.address]);
    let query = Query::WouldBreak { lock: lock("x"), token: "9".parse().expect("legal") };
    let there = node.service.query(query.clone(), Freshness::Linearizable).await;
    assert_eq!(remote.query(query, Freshness::Linearizable).await, there);
    assert!(node.calls.try_recv().is_err(), "a dry run was submitted");
}
