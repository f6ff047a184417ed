//! A client in bare frames against one stream: the rules of hello, credit, answers and endings.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use super::StreamEnd;
use super::hostile::stream_with_room;
use crate::limits;
use crate::model::{
    Attachment, Claim, Command, EndReason, Event, EventKind, FencingToken, LockKey, LockName, LogTime, Namespace,
    Position, Principal, Reason, RequestId, SessionId, Subject, WallTime,
};
use crate::rpc::convert::Wire;
use crate::rpc::fake::{Node, SESSION};
use crate::rpc::pb;
use crate::rpc::pb::client_frame::Body as Asked;
use crate::rpc::pb::command::Command as Submitted;
use crate::rpc::pb::locks_client::LocksClient;
use crate::rpc::pb::server_frame::Body as Told;
use crate::service::LeaderHint;

/// The end of the session that the node has.
fn session_expired() -> Event {
    let kind = EventKind::SessionEnded { reason: EndReason::Expired, why: None };
    let (position, subject) = (Position { index: 11, n: 0 }, Subject::Session(SessionId::new(0, SESSION)));
    Event { position, at: LogTime(1), wall: WallTime(2), namespace: Some(Namespace::default()), subject, kind }
}

/// A client that speaks in bare frames.
struct Raw {
    frames: mpsc::Sender<pb::ClientFrame>,
    told: Streaming<pb::ServerFrame>,
}

impl Raw {
    async fn connect(node: &Node, hello: pb::ClientHello) -> Self {
        let mut client = LocksClient::connect(format!("http://{}", node.address)).await.expect("connected");
        let (frames, outgoing) = mpsc::channel(1024);
        frames.send(pb::ClientFrame { number: 0, body: Some(Asked::Hello(hello)) }).await.expect("room");
        let told = client.session(ReceiverStream::new(outgoing)).await.expect("a stream").into_inner();
        Self { frames, told }
    }

    async fn greeted(node: &Node) -> (Self, pb::ServerHello) {
        let hello = pb::ClientHello { protocol_min: 1, protocol_max: 9, ..Default::default() };
        let mut raw = Self::connect(node, hello).await;
        match raw.next().await {
            (0, Told::Hello(hello)) => (raw, hello),
            other => panic!("a hello comes first, not {other:?}"),
        }
    }

    async fn bound(node: &mut Node) -> Self {
        let (mut raw, _) = Self::greeted(node).await;
        let (namespace, handle) = (String::new(), "h".to_owned());
        let attach = pb::Attach { namespace, session: SESSION, handle, attempt: 4 };
        raw.submit(1, Submitted::Attach(attach)).await;
        assert!(matches!(raw.next().await, (1, Told::Reply(_))));
        assert!(matches!(node.asked().await, Command::Attach(_)));
        raw
    }

    async fn send(&self, number: u64, body: Asked) {
        self.frames.send(pb::ClientFrame { number, body: Some(body) }).await.expect("room");
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

    async fn next(&mut self) -> (u64, Told) {
        let frame = self.told.message().await.expect("no error").expect("not the end");
        (frame.number, frame.body.expect("a body"))
    }

    async fn ended(&mut self) -> tonic::Status {
        loop {
            if let Err(status) = self.told.message().await.map(|frame| frame.expect("ends with an error")) {
                return status;
            }
        }
    }
}

/// How long a test waits for what must happen.
const LONG: std::time::Duration = std::time::Duration::from_secs(20);

fn word(status: &tonic::Status) -> &str {
    status.metadata().get("lockkeeper-error").expect("our metadata").to_str().expect("text")
}

/// A node says who it is, who leads and what it bears, in the newest protocol that both speak.
#[tokio::test]
async fn hellos_agree_on_a_protocol_and_name_the_bounds() {
    let node = Node::start(3).await;
    let (_raw, hello) = Raw::greeted(&node).await;
    assert_eq!((hello.protocol, hello.node, hello.namespace.as_str()), (1, 3, "default"));
    assert_eq!(hello.frames_in_flight_max as usize, limits::STREAM_FRAMES_IN_FLIGHT_MAX);
    assert_eq!(hello.leader.expect("itself").client, node.address);
}

/// A client of another protocol, or of another cluster, is told so and gets no stream.
#[tokio::test]
async fn a_hello_that_does_not_fit_is_refused_by_its_field() {
    let node = Node::start(1).await;
    let newer = pb::ClientHello { protocol_min: 2, protocol_max: 3, ..Default::default() };
    let status = Raw::connect(&node, newer).await.ended().await;
    assert_eq!((status.code(), word(&status)), (Code::InvalidArgument, "invalid"));
    assert!(status.message().starts_with("protocol"), "{status:?}");

    let cluster_id = format!("{:032x}", 0xdef);
    let foreign = pb::ClientHello { protocol_min: 1, protocol_max: 1, cluster_id, ..Default::default() };
    let status = Raw::connect(&node, foreign).await.ended().await;
    assert!(status.message().starts_with("cluster_id"), "{status:?}");
}

/// One frame more than the credit ends the stream, and the error names the bound.
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

/// A frame with a list that is too long cannot be answered by its number, which was not read: the stream ends, and says why.
#[tokio::test]
async fn a_list_that_is_too_long_ends_the_stream_by_its_name() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    let others = vec![pb::SetMember::default(); limits::LIST_ELEMENTS_MAX + 1];
    raw.submit(2, Submitted::Acquire(pb::Acquire { others, ..Default::default() })).await;
    let status = raw.ended().await;
    assert_eq!((status.code(), word(&status)), (Code::InvalidArgument, "invalid"));
    assert_eq!(status.message(), "others: at most 100, got 101");
}

/// Answers come as they are ready: one that is stuck holds up no other, and a queued one is answered twice.
#[tokio::test]
async fn frames_are_answered_as_they_complete() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.acquire(2, "stuck").await;
    raw.acquire(3, "busy").await;
    assert!(matches!(
        raw.next().await,
        (3, Told::Reply(pb::Reply { outcome: Some(pb::reply::Outcome::Queued(_)), .. }))
    ));
    raw.acquire(4, "free").await;
    assert!(matches!(raw.next().await, (4, Told::Reply(_))));
    node.service.grant();
    assert!(matches!(
        raw.next().await,
        (3, Told::Settled(pb::Reply { outcome: Some(pb::reply::Outcome::Granted(_)), .. }))
    ));
}

/// A value out of bounds is that frame's answer; the stream goes on.
#[tokio::test]
async fn an_invalid_frame_is_answered_and_the_stream_goes_on() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.acquire(2, "").await;
    let (number, told) = raw.next().await;
    let Told::Error(error) = told else { panic!("an error, not {told:?}") };
    assert_eq!((number, error.code.as_str(), error.advice.as_str()), (2, "invalid", "give_up"));
    raw.acquire(2, "free").await;
    assert!(matches!(raw.next().await, (2, Told::Reply(_))), "its number is free again");
}

/// An overloaded node answers the frame so, and asks for a pause.
#[tokio::test]
async fn overload_asks_for_a_pause() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.acquire(2, "full").await;
    assert!(matches!(raw.next().await, (2, Told::Error(_))));
}

/// A stream that breaks is told to the service, with the number of its attachment.
#[tokio::test]
async fn a_broken_stream_submits_disconnected() {
    let mut node = Node::start(1).await;
    drop(Raw::bound(&mut node).await);
    let disconnected = Command::Disconnected { session: SessionId::new(0, SESSION), attachment: Attachment(4) };
    assert_eq!(node.asked().await, disconnected);
}

/// Without a leader a broken stream cannot be noted, and while leaders change it may be unknown whether it was. The node tries
/// again until it is noted, or the session would keep its locks for a whole TTL although its client is gone.
#[tokio::test]
async fn a_disconnect_is_repeated_until_there_is_a_leader() {
    let mut node = Node::start(1).await;
    let raw = Raw::bound(&mut node).await;
    node.service.lose_leader_for(2);
    drop(raw);
    let disconnected = Command::Disconnected { session: SessionId::new(0, SESSION), attachment: Attachment(4) };
    for nth in 1..=3 {
        let asked = tokio::time::timeout(LONG, node.asked()).await;
        assert_eq!(asked.as_ref(), Ok(&disconnected), "try {nth}");
    }
    node.stop.send_replace(true);
    (&mut node.serving).await.expect("served to the end");
    assert!(node.calls.try_recv().is_err(), "it was noted the third time");
}

/// A settle costs no credit, but a stream waits for no more requests than a session may have: what is beyond is turned away
/// at once, however often the same request is asked for, and everything before is still answered.
#[tokio::test]
async fn settles_are_bounded() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    let most = limits::STREAM_WAITS_MAX as u64;
    for number in 0..2 * most {
        let settle = pb::StreamSettle { request: 1, lock: "busy".to_owned() };
        raw.send(100 + number, Asked::Settle(settle)).await;
        // Those that are turned away cost credit until they are.
        if most <= number {
            let answer = tokio::time::timeout(LONG, raw.next()).await;
            let (turned_away, told) = answer.expect("it is turned away at once");
            let Told::Error(error) = told else { panic!("settle {number} is waited for: {told:?}") };
            assert_eq!((turned_away, error.code.as_str()), (100 + number, "overloaded"));
            assert_eq!(error.retry_after_ms, limits::OVERLOADED_PAUSE_MS);
        }
    }
    node.service.grant();
    for _ in 0..most {
        let (number, told) = raw.next().await;
        assert!((100..100 + most).contains(&number) && matches!(told, Told::Settled(_)), "{number}: {told:?}");
    }
}

/// After a stream broke and its session was called disconnected, nothing is answered for it any more, not even to a client
/// that would still hear it: a grant that comes in then would be believed by one whose grace is running.
#[tokio::test]
async fn nothing_is_answered_after_the_disconnect() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.acquire(2, "busy").await;
    assert!(matches!(node.asked().await, Command::Acquire(_)));
    assert!(matches!(raw.next().await, (2, Told::Reply(_))));
    let Raw { frames, mut told } = raw;
    drop(frames);
    assert!(matches!(node.asked().await, Command::Disconnected { .. }));
    node.service.grant();
    node.service.tell(session_expired()).await;
    let after = told.message().await.expect("no error");
    assert!(after.is_none(), "{after:?}");
}

/// A session that was closed leaves no disconnect behind when its stream goes.
#[tokio::test]
async fn a_closed_session_is_not_disconnected() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.close(2).await;
    assert!(matches!(raw.next().await, (2, Told::Reply(_))));
    assert!(matches!(node.asked().await, Command::CloseSession { .. }));
    drop(raw);
    node.stop.send_replace(true);
    (&mut node.serving).await.expect("served to the end");
    assert!(node.calls.try_recv().is_err(), "nothing was submitted after the close");
}

/// A node that stops sends its streams away and calls no session disconnected.
#[tokio::test]
async fn stopping_moves_streams_away_without_a_disconnect() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    node.stop.send_replace(true);
    assert!(matches!(raw.next().await, (0, Told::MoveTo(pb::MoveTo { leader: None }))));
    assert!(raw.told.message().await.expect("a clean end").is_none());
    drop(raw);
    (&mut node.serving).await.expect("served to the end");
    assert!(node.calls.try_recv().is_err(), "nothing was submitted after the attach");
}

/// When another node leads, streams are sent there.
#[tokio::test]
async fn a_new_leader_moves_streams_to_it() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    node.leader.send_replace(Some(LeaderHint { node: 2, client: "elsewhere:1".to_owned() }));
    let (_, told) = raw.next().await;
    let Told::MoveTo(pb::MoveTo { leader: Some(leader) }) = told else { panic!("a move, not {told:?}") };
    assert_eq!((leader.node, leader.client.as_str()), (2, "elsewhere:1"));
}

/// A node that leads no more, and knows no other leader, sends its streams away: its clients would wait at a node that can
/// grant them nothing.
#[tokio::test]
async fn a_node_that_lost_its_quorum_sends_its_streams_away() {
    let mut node = Node::start(1).await;
    node.leader.send_replace(Some(LeaderHint { node: 1, client: "here:1".to_owned() }));
    let mut raw = Raw::bound(&mut node).await;
    node.leader.send_replace(None);
    let moved = tokio::time::timeout(LONG, raw.next()).await.expect("it is sent away");
    assert!(matches!(moved, (0, Told::MoveTo(pb::MoveTo { leader: None }))), "{moved:?}");
}

/// A stream that is sent to the next leader goes on until its client has ended it, and everything asked has its answer.
#[tokio::test]
async fn a_stream_that_is_sent_away_answers_what_was_asked() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    raw.acquire(2, "late").await;
    node.asked().await;
    node.leader.send_replace(Some(LeaderHint { node: 2, client: "elsewhere:1".to_owned() }));
    assert!(matches!(raw.next().await, (0, Told::MoveTo(_))));
    raw.acquire(3, "free").await;
    assert!(matches!(raw.next().await, (3, Told::Reply(_))), "sent before the client heard of the move");
    let Raw { frames, mut told } = raw;
    drop(frames);
    node.service.grant();
    let last = told.message().await.expect("no error").expect("an answer");
    assert!(last.number == 2 && matches!(last.body, Some(Told::Reply(_))), "{last:?}");
    assert!(told.message().await.expect("no error").is_none(), "that was all");
}

/// Streams stay at the node that begins to lead: a client that is sent away avoids the node that it comes from.
#[tokio::test]
async fn a_node_that_begins_to_lead_keeps_its_streams() {
    let mut node = Node::start(1).await;
    let led_by = |node, client: &str| Some(LeaderHint { node, client: client.to_owned() });
    node.leader.send_replace(led_by(2, "elsewhere:1"));
    let mut raw = Raw::bound(&mut node).await;
    node.leader.send_replace(led_by(1, "here:1"));
    tokio::task::yield_now().await;
    raw.close(2).await;
    let (number, told) = raw.next().await;
    assert!(number == 2 && matches!(told, Told::Reply(_)), "{told:?}");
    node.leader.send_replace(led_by(2, "elsewhere:1"));
    assert!(matches!(raw.next().await, (0, Told::MoveTo(pb::MoveTo { leader: Some(leader) })) if leader.node == 2));
}

/// The end of the session itself is pushed, and its stream is no longer called disconnected.
#[tokio::test]
async fn the_end_of_the_session_is_pushed() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    while node.service.subscribers() == 0 {
        tokio::task::yield_now().await;
    }
    node.service.tell(session_expired()).await;
    assert!(matches!(
        raw.next().await,
        (0, Told::SessionEnded(pb::SessionEnded { session: SESSION, reason: 2, why: None }))
    ));
}

/// What happens to a hold of the session is pushed, event by event; what is about no hold is not.
#[tokio::test]
async fn events_of_the_sessions_holds_are_pushed() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    while node.service.subscribers() < 2 {
        tokio::task::yield_now().await;
    }
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("a name") };
    let claim = Claim::Request(RequestId { session: SessionId::new(0, SESSION), number: 3 });
    let hold = Subject::hold(&lock, claim, FencingToken::new(0, 33));
    let asked = EventKind::RevokeRequested { by: Principal::default(), why: Reason::parse("mine").expect("a reason") };
    let opened = Event { kind: EventKind::SessionOpened, ..session_expired() };
    let namespace = Some(Namespace::default());
    let of_hold = |kind| Event { subject: hold.clone(), kind, namespace: namespace.clone(), ..session_expired() };
    let told = [of_hold(EventKind::Recalled), opened, of_hold(asked)];
    for event in &told {
        node.service.tell(event.clone()).await;
    }
    for expected in [&told[0], &told[2]] {
        let (0, Told::HoldEvent(event)) = raw.next().await else { panic!("no push of {expected:?}") };
        assert_eq!(Event::from_wire("event", event), Ok(expected.clone()));
    }
}

/// A session whose events had a gap is notified of it, and of the events after it.
#[tokio::test]
async fn a_gap_between_events_of_holds_is_pushed() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    node.service.cut();
    let (0, Told::HoldEventsMissed(_)) = raw.next().await else { panic!("no push of the gap") };
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("a name") };
    let claim = Claim::Request(RequestId { session: SessionId::new(0, SESSION), number: 3 });
    let subject = Subject::hold(&lock, claim, FencingToken::new(0, 33));
    let recalled =
        Event { subject, kind: EventKind::Recalled, namespace: Some(Namespace::default()), ..session_expired() };
    node.service.tell(recalled.clone()).await;
    let (0, Told::HoldEvent(event)) = raw.next().await else { panic!("no push of {recalled:?}") };
    assert_eq!(Event::from_wire("event", event), Ok(recalled));
}

/// Behind frames that its client has not read yet, others wait in their order.
#[tokio::test]
async fn frames_for_a_slow_reader_keep_their_order() {
    let (mut stream, mut reader) = stream_with_room(1);
    for number in 1..=3 {
        assert!(stream.send(Ok(pb::ServerFrame { number, body: None })).is_ok());
    }
    let read = async {
        let mut numbers = Vec::new();
        while numbers.len() < 3 {
            numbers.push(reader.recv().await.expect("a frame").expect("no error").number);
        }
        numbers
    };
    let (given, read) = tokio::join!(stream.hand_over(), read);
    assert!(given.is_ok());
    assert_eq!(read, [1, 2, 3]);
}

/// A client that reads nothing for the bound counts as gone.
#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_counts_as_gone() {
    let (mut stream, _reader) = stream_with_room(1);
    for number in 1..=2 {
        assert!(stream.send(Ok(pb::ServerFrame { number, body: None })).is_ok());
    }
    let begun = tokio::time::Instant::now();
    assert!(matches!(stream.hand_over().await, Err(StreamEnd::Broken)));
    assert_eq!(begun.elapsed().as_millis() as u64 / 1_000, limits::STREAM_SEND_MS_MAX / 1_000);
}
