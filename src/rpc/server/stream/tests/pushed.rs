//! What a node sends without a frame that asks for it, and readers that are slow.

use super::*;

/// The end of the session is sent to its client, and its stream is then not reported as disconnected.
#[tokio::test]
async fn the_end_of_the_session_is_pushed() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    while node.service.subscribers() == 0 {
        tokio::task::yield_now().await;
    }
    node.service.send_event(session_expired()).await;
    assert!(matches!(
        raw.next().await,
        (0, ServerBody::SessionEnded(pb::SessionEnded { session: SESSION, reason: 2, why: None }))
    ));
}

/// Events of the session's holds are sent to its client, one by one; other events are not.
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
    let incoming = [of_hold(EventKind::Recalled), opened, of_hold(asked)];
    for event in &incoming {
        node.service.send_event(event.clone()).await;
    }
    for expected in [&incoming[0], &incoming[2]] {
        let (0, ServerBody::HoldEvent(event)) = raw.next().await else { panic!("no push of {expected:?}") };
        assert_eq!(Event::from_wire("event", event), Ok(expected.clone()));
    }
}

/// A client is notified of a gap in the events of its session's holds, and of the events after it.
#[tokio::test]
async fn a_gap_between_events_of_holds_is_pushed() {
    let mut node = Node::start(1).await;
    let mut raw = Raw::bound(&mut node).await;
    node.service.cut();
    let (0, ServerBody::HoldEventsMissed(missed)) = raw.next().await else { panic!("no push of the gap") };
    assert_eq!(missed.resume, Some(pb::Position { index: 3, n: 1 }));
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("a name") };
    let claim = Claim::Request(RequestId { session: SessionId::new(0, SESSION), number: 3 });
    let subject = Subject::hold(&lock, claim, FencingToken::new(0, 33));
    let recalled =
        Event { subject, kind: EventKind::Recalled, namespace: Some(Namespace::default()), ..session_expired() };
    node.service.send_event(recalled.clone()).await;
    let (0, ServerBody::HoldEvent(event)) = raw.next().await else { panic!("no push of {recalled:?}") };
    assert_eq!(Event::from_wire("event", event), Ok(recalled));
}

/// The end of the session, or of the node, is no gap in the events of the session's holds.
#[tokio::test]
async fn the_end_of_the_session_is_no_gap() {
    let ended = Refusal::SessionEnded { session: SessionId::new(0, SESSION), reason: EndReason::Expired, why: None };
    for end in [ended.into(), ServiceError::Stopping] {
        let mut node = Node::start(1).await;
        let mut raw = Raw::bound(&mut node).await;
        while node.service.subscribers() < 2 {
            tokio::task::yield_now().await;
        }
        node.service.end_events(&end);
        // A gap would be pushed before the answer of a later frame.
        raw.send(5, Asked::Renew(pb::StreamRenew { attempt: 1 })).await;
        assert!(matches!(raw.next().await, (5, ServerBody::Reply(_))), "{end}");
        assert_eq!(node.service.subscribers(), 0, "{end}: no further subscription");
    }
}

/// Frames wait in their order behind frames that the client has not read yet.
#[tokio::test]
async fn frames_for_a_slow_reader_keep_their_order() {
    let (mut stream, mut reader) = stream_with_capacity(1);
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

/// a stream that ends because the node refuses the certificate of its connection is not reported as broken, so no
/// grace starts.
#[tokio::test]
async fn a_refused_certificate_reports_no_break() {
    for refused in [false, true] {
        let (mut stream, mut asked) = bound_stream();
        if refused {
            stream.certificate.refuse();
        }
        stream.over(StreamEnd::Unread(Box::new(tonic::Status::unknown("the connection failed")))).await;
        let reported = asked.try_recv().map(|call| matches!(call.command, Command::Disconnected { .. }));
        assert_eq!(reported.unwrap_or(false), !refused);
    }
}

/// A client that reads nothing for the time limit counts as gone.
#[tokio::test(start_paused = true)]
async fn a_reader_that_reads_nothing_counts_as_gone() {
    let (mut stream, _reader) = stream_with_capacity(1);
    for number in 1..=2 {
        assert!(stream.send(Ok(pb::ServerFrame { number, body: None })).is_ok());
    }
    let begun = tokio::time::Instant::now();
    assert!(matches!(stream.hand_over().await, Err(StreamEnd::Broken)));
    assert_eq!(begun.elapsed().as_millis() as u64 / 1_000, limits::STREAM_SEND_MS_MAX / 1_000);
}
