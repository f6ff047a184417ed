//! A client that sends single frames on one stream: the rules of hello, credit, replies and endings.

mod hostile;
mod pushed;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use self::hostile::{bound_stream, stream_with_capacity};
use super::StreamEnd;
use crate::limits;
use crate::model::{
    Attachment, Claim, Command, EndReason, Event, EventKind, FencingToken, LockKey, LockName, LogTime, Namespace,
    Outcome, Place, Position, Principal, Reason, Refusal, RequestId, SessionId, Subject, WallTime,
};
use crate::rpc::convert::Wire;
use crate::rpc::fake::{Node, SESSION};
use crate::rpc::pb;
use crate::rpc::pb::client_frame::Body as Asked;
use crate::rpc::pb::command::Command as Submitted;
use crate::rpc::pb::locks_client::LocksClient;
use crate::rpc::pb::server_frame::Body as ServerBody;
use crate::service::{LeaderHint, ServiceError};

/// Returns the event of the end of the node's session.
fn session_expired() -> Event {
    let kind = EventKind::SessionEnded { reason: EndReason::Expired, why: None };
    let (position, subject) = (Position { index: 11, n: 0 }, Subject::Session(SessionId::new(0, SESSION)));
    Event { position, at: LogTime(1), wall: WallTime(2), namespace: Some(Namespace::default()), subject, kind }
}

/// A client that sends single frames.
struct Raw {
    frames: mpsc::Sender<pb::ClientFrame>,
    incoming: Streaming<pb::ServerFrame>,
}

impl Raw {
    async fn connect(node: &Node, hello: pb::ClientHello) -> Self {
        let mut client = LocksClient::connect(format!("http://{}", node.address)).await.expect("connected");
        let (frames, outgoing) = mpsc::channel(1024);
        frames.send(pb::ClientFrame { number: 0, body: Some(Asked::Hello(hello)) }).await.expect("capacity");
        let incoming = client.session(ReceiverStream::new(outgoing)).await.expect("a stream").into_inner();
        Self { frames, incoming }
    }

    async fn greeted(node: &Node) -> (Self, pb::ServerHello) {
        let hello = pb::ClientHello { protocol_min: 1, protocol_max: 9, ..Default::default() };
        let mut raw = Self::connect(node, hello).await;
        match raw.next().await {
            (0, ServerBody::Hello(hello)) => (raw, hello),
            other => panic!("a hello comes first, not {other:?}"),
        }
    }

    async fn bound(node: &mut Node) -> Self {
        let (mut raw, _) = Self::greeted(node).await;
        let (namespace, handle) = (String::new(), "h".to_owned());
        let attach = pb::Attach { namespace, session: SESSION, handle, attempt: 4 };
        raw.submit(1, Submitted::Attach(attach)).await;
        assert!(matches!(raw.next().await, (1, ServerBody::Reply(_))));
        assert!(matches!(node.asked().await, Command::Attach(_)));
        raw
    }

    async fn send(&self, number: u64, body: Asked) {
        self.frames.send(pb::ClientFrame { number, body: Some(body) }).await.expect("capacity");
    }

    async fn submit(&self, number: u64, command: Submitted) {
        self.send(number, Asked::Command(pb::Command { command: Some(command) })).await;
    }

    async fn acquire(&self, number: u64, lock: &str) {
        let acquire = pb::Acquire { request: number, lock: lock.to_owned(), ..Default::default() };
        self.submit(number, Submitted::Acquire(acquire)).await;
    }

    async fn close(&self, number: u64) {
        self.submit(number, Submitted::CloseSession(pb::CloseSession::default())).await;
    }

    async fn next(&mut self) -> (u64, ServerBody) {
        let frame = self.incoming.message().await.expect("no error").expect("not the end");
        (frame.number, frame.body.expect("a body"))
    }

    async fn ended(&mut self) -> tonic::Status {
        loop {
            if let Err(status) = self.incoming.message().await.map(|frame| frame.expect("ends with an error")) {
                return status;
            }
        }
    }
}

/// Time limit of a test for an event that must happen.
const LONG: std::time::Duration = std::time::Duration::from_secs(20);

fn code(status: &tonic::Status) -> &str {
    status.metadata().get("lockkeeper-error").expect("our metadata").to_str().expect("text")
}

/// A node reports its id, the leader and its limits, in the newest protocol that both sides support.
#[tokio::test]
async fn hellos_agree_on_a_protocol_and_name_the_bounds() {
    let node = Node::start(3).await;
    let (_raw, hello) = Raw::greeted(&node).await;
    assert_eq!((hello.protocol, hello.node, hello.namespace.as_str()), (1, 3, "default"));
    assert_eq!(hello.frames_in_flight_max as usize, limits::STREAM_FRAMES_IN_FLIGHT_MAX);
    assert_eq!(hello.leader.expect("itself").client, node.address);
}

/// A client with another protocol or another cluster gets an error and no stream.
#[tokio::test]
async fn a_hello_that_does_not_fit_is_refused_by_its_field() {
    let node = Node::start(1).await;
    let newer = pb::ClientHello { protocol_min: 2, protocol_max: 3, ..Default::default() };
    let status = Raw::connect(&node, newer).await.ended().await;
    assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, "invalid"));
    assert!(status.message().starts_with("protocol"), "{status:?}");

    let cluster_id = format!("{:032x}", 0xdef);
    let foreign = pb::ClientHello { protocol_min: 1, protocol_max: 1, cluster_id, ..Default::default() };
    let status = Raw::connect(&node, foreign).await.ended().await;
    assert!(status.message().starts_with("cluster_id"), "{status:?}");
}

/// One frame more than the credit ends the stream, and the error names the limit.
#[tokio::test]
async fn a_frame_beyond_the_credit_ends_the_stream() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    for number in 0..=limits::STREAM_FRAMES_IN_FLIGHT_MAX as u64 {
        raw.acquire(100 + number, "stuck").await;
    }
    let status = raw.ended().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains(&limits::STREAM_FRAMES_IN_FLIGHT_MAX.to_string()), "{status:?}");
}

/// A frame with a list that is too long has no reply, as its number was not decoded: the stream ends with the reason.
#[tokio::test]
async fn a_list_that_is_too_long_ends_the_stream_by_its_name() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    let others = vec![pb::SetMember::default(); limits::LIST_ELEMENTS_MAX + 1];
    raw.submit(2, Submitted::Acquire(pb::Acquire { others, ..Default::default() })).await;
    let status = raw.ended().await;
    assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, "invalid"));
    assert_eq!(status.message(), "others: at most 100, got 101");
}

/// Replies are sent as they become ready: a stuck command delays no other, and a queued one is answered twice.
#[tokio::test]
async fn frames_are_answered_as_they_complete() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.acquire(2, "stuck").await;
    raw.acquire(3, "busy").await;
    assert!(matches!(
        raw.next().await,
        (3, ServerBody::Reply(pb::Reply { outcome: Some(pb::reply::Outcome::Queued(_)), .. }))
    ));
    raw.acquire(4, "free").await;
    assert!(matches!(raw.next().await, (4, ServerBody::Reply(_))));
    node.service.grant();
    assert!(matches!(
        raw.next().await,
        (3, ServerBody::Settled(pb::Reply { outcome: Some(pb::reply::Outcome::Granted(_)), .. }))
    ));
}

/// A take that is queued is answered twice, like a queued acquire.
#[tokio::test]
async fn a_queued_take_is_settled() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    let place = Place { lock: LockName::parse("busy").expect("a name"), place: 1, sequence: 9, held_by: None };
    node.service.answer_next([Ok(Outcome::Queued(place))]);
    let lock = Some(pb::LockKey { namespace: "default".to_owned(), name: "busy".to_owned() });
    let (take, handle, wait_ms) = ("07".repeat(16), "h".to_owned(), Some(60_000));
    let take = pb::TakeLease { lock, take, handle, lease_ms: 60_000, wait_ms, ..Default::default() };
    raw.submit(2, Submitted::TakeLease(take)).await;
    let (number, incoming) = raw.next().await;
    let ServerBody::Reply(pb::Reply { outcome: Some(pb::reply::Outcome::Queued(_)), .. }) = incoming else {
        panic!("it is queued, and not {incoming:?}")
    };
    assert_eq!(number, 2);
    node.service.grant();
    let (number, incoming) = tokio::time::timeout(LONG, raw.next()).await.expect("it is settled");
    assert!(number == 2 && matches!(incoming, ServerBody::Settled(_)), "{number}: {incoming:?}");
}

/// A value out of bounds gets an error as the frame's reply; the stream continues.
#[tokio::test]
async fn an_invalid_frame_is_answered_and_the_stream_continues() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.acquire(2, "").await;
    let (number, incoming) = raw.next().await;
    let ServerBody::Error(error) = incoming else { panic!("an error, not {incoming:?}") };
    assert_eq!((number, error.code.as_str(), error.advice.as_str()), (2, "invalid", "give_up"));
    raw.acquire(2, "free").await;
    assert!(matches!(raw.next().await, (2, ServerBody::Reply(_))), "its number is free again");
}

/// An overloaded node answers the frame with an error that requests a pause.
#[tokio::test]
async fn overload_asks_for_a_pause() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.acquire(2, "full").await;
    assert!(matches!(raw.next().await, (2, ServerBody::Error(_))));
}

/// A broken stream is reported to the service, with the number of its attachment.
#[tokio::test]
async fn a_broken_stream_submits_disconnected() {
    let mut node = Node::start(1).await;
    drop(Raw::bound(&mut node).await);
    let disconnected = Command::Disconnected { session: SessionId::new(0, SESSION), attachment: Attachment(4) };
    assert_eq!(node.asked().await, disconnected);
}

/// Without a leader a broken stream cannot be reported, and while leaders change the outcome may be unknown. The node
/// retries until it is reported, because otherwise the session would keep its locks for a whole TTL although its client
/// is gone.
#[tokio::test]
async fn a_disconnect_is_repeated_until_there_is_a_leader() {
    let mut node = Node::start(1).await;
    let raw = Raw::bound(&mut node).await;
    node.service.lose_leader_for(2);
    drop(raw);
    let disconnected = Command::Disconnected { session: SessionId::new(0, SESSION), attachment: Attachment(4) };
    for nth in 1..=3 {
        let asked = tokio::time::timeout(LONG, node.asked()).await;
        assert_eq!(asked.as_ref(), Ok(&disconnected), "attempt {nth}");
    }
    node.stop.send_replace(true);
    (&mut node.serving).await.expect("served to the end");
    assert!(node.calls.try_recv().is_err(), "it was reported the third time");
}

/// A stream without a session ends in time, before its first session and after its last one. A stream with a session
/// stays.
#[tokio::test]
async fn a_stream_without_a_session_ends() {
    let mut node = Node::start(1).await;
    let (mut fresh, _) = Raw::greeted(&node).await;
    let mut bound = Raw::bound(&mut node).await;
    tokio::time::pause();
    let longest = std::time::Duration::from_millis(limits::UNBOUND_STREAM_MS_MAX);
    let status = tokio::time::timeout(2 * longest, fresh.ended()).await.expect("it ends");
    assert_eq!((status.code(), code(&status)), (Code::InvalidArgument, "invalid"));
    assert!(status.message().starts_with("session: opened or attached within 30000 ms"), "{status:?}");
    assert!(tokio::time::timeout(2 * longest, bound.incoming.message()).await.is_err(), "its session lives");
    bound.close(2).await;
    assert!(matches!(bound.next().await, (2, ServerBody::Reply(_))));
    let status = tokio::time::timeout(2 * longest, bound.ended()).await.expect("it ends");
    assert!(status.message().starts_with("session: "), "{status:?}");
}

/// A settle needs no credit, but a stream waits for no more outcomes than a session may have requests, even if they
/// name the same request. Any further settle is refused at once and counted, and all earlier waits are still answered.
#[tokio::test]
async fn settles_are_bounded() {
    #[cfg(feature = "cli")]
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    #[cfg(feature = "cli")]
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    let most = limits::STREAM_WAITS_MAX as u64;
    for number in 0..2 * most {
        let settle = pb::StreamSettle { request: 1, lock: "busy".to_owned() };
        raw.send(100 + number, Asked::Settle(settle)).await;
        // Refused settles need credit until they are answered.
        if most <= number {
            let answer = tokio::time::timeout(LONG, raw.next()).await;
            let (refused, incoming) = answer.expect("it is refused at once");
            let ServerBody::Error(error) = incoming else { panic!("settle {number} is waited for: {incoming:?}") };
            assert_eq!((refused, error.code.as_str()), (100 + number, "overloaded"));
            assert_eq!(error.retry_after_ms, limits::OVERLOADED_PAUSE_MS);
        }
    }
    node.service.grant();
    for _ in 0..most {
        let (number, incoming) = raw.next().await;
        assert!(
            (100..100 + most).contains(&number) && matches!(incoming, ServerBody::Settled(_)),
            "{number}: {incoming:?}"
        );
    }
    #[cfg(feature = "cli")]
    {
        let (text, series) = (recorder.handle().render(), "lockkeeper_refusals_total{node=\"1\",word=\"overloaded\"}");
        assert!(text.lines().any(|line| line == format!("{series} {most}")), "{text}");
    }
}

/// A stream waits for no more outcomes of queued requests than a session may have. The outcome of a further request
/// is unknown, as it is queued, too. All other requests are answered as usual.
#[tokio::test]
async fn waits_of_queued_requests_are_bounded() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    let most = limits::STREAM_WAITS_MAX as u64;
    for number in 2..most + 2 {
        raw.acquire(number, "busy").await;
        let (replied, incoming) = raw.next().await;
        assert!(replied == number && matches!(incoming, ServerBody::Reply(_)), "{number}: {incoming:?}");
    }
    raw.acquire(most + 2, "busy").await;
    let (number, incoming) = raw.next().await;
    let ServerBody::Error(error) = incoming else { panic!("a further wait: {incoming:?}") };
    assert_eq!((number, error.code.as_str(), error.advice.as_str()), (most + 2, "unknown", "ask"));
    raw.acquire(most + 2, "free").await;
    let (number, incoming) = raw.next().await;
    assert!(number == most + 2 && matches!(incoming, ServerBody::Reply(_)), "{number}: {incoming:?}");
    node.service.grant();
    for _ in 0..most {
        let (number, incoming) = raw.next().await;
        assert!(number < most + 2 && matches!(incoming, ServerBody::Settled(_)), "{number}: {incoming:?}");
    }
}

/// After a stream broke and its session was reported as disconnected, the client gets no further reply, even if it
/// could still read one: it would believe in a grant while the grace runs.
#[tokio::test]
async fn nothing_is_answered_after_the_disconnect() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.acquire(2, "busy").await;
    assert!(matches!(node.asked().await, Command::Acquire(_)));
    assert!(matches!(raw.next().await, (2, ServerBody::Reply(_))));
    let Raw { frames, mut incoming } = raw;
    drop(frames);
    assert!(matches!(node.asked().await, Command::Disconnected { .. }));
    node.service.grant();
    node.service.send_event(session_expired()).await;
    let after = incoming.message().await.expect("no error");
    assert!(after.is_none(), "{after:?}");
}

/// A closed session is not reported as disconnected when its stream ends.
#[tokio::test]
async fn a_closed_session_is_not_disconnected() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.close(2).await;
    assert!(matches!(raw.next().await, (2, ServerBody::Reply(_))));
    assert!(matches!(node.asked().await, Command::CloseSession { .. }));
    drop(raw);
    node.stop.send_replace(true);
    (&mut node.serving).await.expect("served to the end");
    assert!(node.calls.try_recv().is_err(), "nothing was submitted after the close");
}

/// The end of another session, at the request of an operator with a stream, leaves that stream its own session.
#[tokio::test]
async fn the_end_of_another_session_leaves_the_stream_bound() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    let end = pb::EndSession { namespace: String::new(), session: SESSION + 1, why: "stuck".to_owned() };
    raw.submit(2, Submitted::EndSession(end)).await;
    assert!(matches!(raw.next().await, (2, ServerBody::Reply(_))));
    raw.send(3, Asked::Renew(pb::StreamRenew { attempt: 1 })).await;
    let (number, incoming) = raw.next().await;
    assert!(number == 3 && matches!(incoming, ServerBody::Reply(_)), "{number}: {incoming:?}");
}

/// A node that stops sends its streams to other nodes and reports no session as disconnected.
#[tokio::test]
async fn stopping_moves_streams_away_without_a_disconnect() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    node.stop.send_replace(true);
    assert!(matches!(raw.next().await, (0, ServerBody::MoveTo(pb::MoveTo { leader: None, stops: true }))));
    assert!(raw.incoming.message().await.expect("a clean end").is_none());
    drop(raw);
    (&mut node.serving).await.expect("served to the end");
    assert!(node.calls.try_recv().is_err(), "nothing was submitted after the attach");
}

/// A node that stops after another node was elected names that node, and reports that its connections end.
#[tokio::test]
async fn a_node_that_stops_reports_this_and_the_leader() {
    let mut node = Node::start(1).await;
    node.leader.send_replace(Some(LeaderHint { node: 2, client: "elsewhere:1".to_owned() }));
    let mut raw = Raw::bound(&mut node).await;
    node.stop.send_replace(true);
    let (_, incoming) = raw.next().await;
    assert!(matches!(incoming, ServerBody::MoveTo(pb::MoveTo { leader: Some(_), stops: true })), "{incoming:?}");
}

/// When another node leads, streams are sent there.
#[tokio::test]
async fn a_new_leader_moves_streams_to_it() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    node.leader.send_replace(Some(LeaderHint { node: 2, client: "elsewhere:1".to_owned() }));
    let (_, incoming) = raw.next().await;
    let ServerBody::MoveTo(pb::MoveTo { leader: Some(leader), stops: false }) = incoming else {
        panic!("a move, not {incoming:?}")
    };
    assert_eq!((leader.node, leader.client.as_str()), (2, "elsewhere:1"));
}

/// A node that no longer leads, and knows no other leader, sends its streams away: it could grant nothing to their
/// clients.
#[tokio::test]
async fn a_node_that_lost_its_quorum_sends_its_streams_away() {
    let mut node = Node::start(1).await;
    node.leader.send_replace(Some(LeaderHint { node: 1, client: "here:1".to_owned() }));
    let mut raw = Raw::bound(&mut node).await;
    node.leader.send_replace(None);
    let moved = tokio::time::timeout(LONG, raw.next()).await.expect("it is sent away");
    assert!(matches!(moved, (0, ServerBody::MoveTo(pb::MoveTo { leader: None, .. }))), "{moved:?}");
}

/// A stream that is sent to the next leader continues until its client has closed it and has all replies.
#[tokio::test]
async fn a_stream_that_is_sent_away_answers_what_was_asked() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.acquire(2, "late").await;
    node.asked().await;
    node.leader.send_replace(Some(LeaderHint { node: 2, client: "elsewhere:1".to_owned() }));
    assert!(matches!(raw.next().await, (0, ServerBody::MoveTo(_))));
    raw.acquire(3, "free").await;
    assert!(matches!(raw.next().await, (3, ServerBody::Reply(_))), "sent before the client knew of the move");
    let Raw { frames, mut incoming } = raw;
    drop(frames);
    node.service.grant();
    let last = incoming.message().await.expect("no error").expect("an answer");
    assert!(last.number == 2 && matches!(last.body, Some(ServerBody::Reply(_))), "{last:?}");
    assert!(incoming.message().await.expect("no error").is_none(), "that was all");
}

/// Streams stay at a node that starts to lead: a client that is sent away avoids the node that it comes from.
#[tokio::test]
async fn a_node_that_starts_to_lead_keeps_its_streams() {
    let mut node = Node::start(1).await;
    let led_by = |node, client: &str| Some(LeaderHint { node, client: client.to_owned() });
    node.leader.send_replace(led_by(2, "elsewhere:1"));
    let mut raw = Raw::bound(&mut node).await;
    node.leader.send_replace(led_by(1, "here:1"));
    tokio::task::yield_now().await;
    raw.close(2).await;
    let (number, incoming) = raw.next().await;
    assert!(number == 2 && matches!(incoming, ServerBody::Reply(_)), "{incoming:?}");
    node.leader.send_replace(led_by(2, "elsewhere:1"));
    assert!(
        matches!(raw.next().await, (0, ServerBody::MoveTo(pb::MoveTo { leader: Some(leader), .. })) if leader.node == 2)
    );
}
