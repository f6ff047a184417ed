//! What goes over the wire comes back the same; what this version does not know is refused by its field.

mod documents;
mod errors;
pub(in crate::rpc) mod hostile;
mod values;

use proptest::prelude::*;

use self::values::{
    access, alteration, answer, extras, happening, lock, managing, metadata, outcome, owner, patience, refusal,
    session, some_of, token,
};
use super::{
    AsInvalid, Question, Wire, decided, error_from_status, error_from_wire, error_to_status, error_to_wire,
    reply_to_answer,
};
use crate::model::{
    About, Acquire, Alter, Claim, Command, EndSession, Event, FencingToken, Grant, Handle, Instance, Invalid,
    LeaseRequestId, ListFilter, ListShow, LockName, LogTime, Manage, Metadata, Mode, Namespace, OpenSession, Outcome,
    Owner, Patience, Position, Query, QueryReply, Reason, Refusal, Release, Reply, RequestId, SessionId, SmallMap,
    TakeLease, Totals, WallTime,
};
use crate::rpc::pb;
use crate::service::{
    Call, Freshness, LeaderHint, NotSent, Proof, Role, Scope, ServiceError, Status, Subscription, TABLE, Word,
};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// A reply reads back as it was written, refusals included.
    #[test]
    fn replies_read_back(
        (index, stamp) in (any::<u64>(), any::<u64>()),
        outcome in outcome(),
        recalled in some_of(token()),
    ) {
        let reply = Reply { index, stamp: LogTime(stamp), outcome, recalled };
        prop_assert_eq!(Reply::try_from(pb::Reply::from(&reply)), Ok(reply));
    }

    /// A refusal as the status of a call reads back with the place where it was decided.
    #[test]
    fn refusals_read_back_from_a_status(index in any::<u64>(), stamp in any::<u64>(), refusal in refusal()) {
        let reply = Reply::new(index, LogTime(stamp), Outcome::Refused(refusal));
        let status = reply_to_answer(&reply).expect_err("a refusal is an error of its call");
        prop_assert_eq!(decided(&status), Some(reply));
    }

    /// A refusal is a message of its own, which reads back as it was written.
    #[test]
    fn refusals_read_back(refusal in refusal()) {
        prop_assert_eq!(Refusal::try_from(pb::Refused::from(&refusal)), Ok(refusal));
    }

    /// An event reads back as it was written.
    #[test]
    fn events_read_back(index in any::<u64>(), n in any::<u32>(), at in any::<u64>(), what in happening()) {
        let (subject, kind) = what;
        let namespace = subject.lock().map(|lock| lock.namespace.clone());
        let (position, at, wall) = (Position { index, n }, LogTime(at), WallTime(at));
        let event = Event { position, at, wall, namespace, subject, kind };
        prop_assert_eq!(Event::try_from(pb::Event::from(&event)), Ok(event));
    }

    /// A question arrives as it was asked, with the namespace of its names.
    #[test]
    fn questions_read_back(
        (lock, session, token) in (lock(), session(), token()),
        (number, rows) in (any::<u64>(), 1..=1000_u32),
        after in proptest::option::of(any::<(u64, u32)>()),
    ) {
        let (namespace, name) = (lock.namespace.clone(), lock.name.clone());
        let request = RequestId { session, number };
        let position = after.map(|(index, n)| Position { index, n });
        let mut asked = vec![
            Query::Check { lock: lock.clone(), token },
            Query::WouldBreak { lock: lock.clone(), token },
            Query::Inspect { lock: lock.clone() },
            Query::Tokens { lock: lock.clone() },
            Query::Totals,
            Query::Sessions { namespace: namespace.clone(), after: Some(session), rows },
        ];
        let abouts = [About::Lock(lock.clone()), About::Session(session), About::Request(request)];
        asked.extend(abouts.map(Query::Explain));
        asked.extend([Some(lock), None].map(|lock| Query::Claim { lock, claim: Claim::Request(request) }));
        for name in [Some(name), None] {
            let (namespace, lock) = (namespace.clone(), name.clone());
            asked.push(Query::History { namespace: namespace.clone(), lock, after: position, rows });
            let (show, older_than_ms, prefix) = (ListShow::Held, number, "fr".to_owned());
            asked.push(Query::List(ListFilter { namespace, prefix, show, older_than_ms, after: name, rows }));
        }
        for query in asked {
            let question = Question { query, freshness: Freshness::Stale };
            let read = Question::try_from(pb::QueryRequest::from(&question)).and_then(Question::bounded);
            prop_assert_eq!(read, Ok(question));
        }
    }

    /// A subscription arrives as it was asked for.
    #[test]
    fn subscriptions_read_back(
        (lock, session) in (lock(), session()),
        after in proptest::option::of(any::<(u64, u32)>()),
        cluster_id in proptest::option::of(any::<u128>()),
    ) {
        let after = after.map(|(index, n)| Position { index, n });
        let locks = Scope::Namespace { namespace: lock.namespace.clone(), prefix: lock.name.to_string() };
        let all = Scope::Namespace { namespace: lock.namespace, prefix: String::new() };
        let scopes = [locks, all, Scope::Session(session), Scope::SessionEnd(session), Scope::Holds(session)];
        for scope in scopes {
            let asked = pb::WatchRequest::from(&Subscription { scope: scope.clone(), after, cluster_id });
            prop_assert_eq!(super::subscription(asked), Ok(Subscription { scope, after, cluster_id }));
        }
        let everything = pb::watch_request::Scope::Namespace(pb::NamespaceScope::default());
        let bare = super::subscription(pb::WatchRequest { scope: Some(everything), ..Default::default() });
        let everything = Scope::Namespace { namespace: Namespace::default(), prefix: String::new() };
        prop_assert_eq!(bare, Ok(Subscription { scope: everything, after: None, cluster_id: None }));
        prop_assert_eq!(super::subscription(pb::WatchRequest::default()).expect_err("refused").field, "scope");
    }

    /// An answer reads back as it was written.
    #[test]
    fn answers_read_back(index in any::<u64>(), now in any::<u64>(), answer in answer()) {
        let answered = QueryReply { index, now: LogTime(now), answer };
        prop_assert_eq!(QueryReply::try_from(pb::QueryReply::from(&answered)), Ok(answered));
    }

    /// A change of a hold and an act from outside arrive as they were asked, on a stream and as calls.
    #[test]
    fn changes_and_acts_read_back(
        (session, number, answered_below, lock) in (session(), any::<u64>(), any::<u64>(), lock()),
        (alteration, managing) in (alteration(), managing()),
        proof in "[a-z]{1,128}",
    ) {
        let request = RequestId { session, number };
        let alter = Alter { request, answered_below, name: lock.name.clone(), what: alteration };
        prop_assert_eq!(super::stream_alter(session, (&alter).into()), Ok(alter.clone()));
        let asked = pb::CommandRequest {
            namespace: lock.namespace.to_string(),
            session: Some(pb::SessionProof { id: session.as_u64(), handle: proof.clone() }),
            command: Some(pb::command_request::Command::Alter((&alter).into())),
        };
        let proof = Proof::Handle { handle: Handle::parse(&proof).expect("legal"), namespace: lock.namespace.clone() };
        prop_assert_eq!(Call::try_from(asked), Ok(Call { proof, ..Call::new(Command::Alter(alter)) }));
        let end = EndSession {
            namespace: lock.namespace.clone(), session, why: Reason::parse("stuck").expect("legal"),
        };
        prop_assert_eq!(Call::try_from(pb::EndSessionRequest::from(&end)), Ok(Call::new(Command::EndSession(end))));
        let manage = Manage { lock, what: managing };
        prop_assert_eq!(Call::try_from(pb::ManageRequest::from(&manage)), Ok(Call::new(Command::Manage(manage))));
    }

    /// What a caller asks for arrives as it was asked, on a stream and as a call.
    #[test]
    fn commands_read_back(
        (session, number, below, token) in (session(), any::<u64>(), any::<u64>(), token()),
        (lock, access, owner, patience, metadata) in (lock(), access(), owner(), patience(), metadata()),
        handle in "[a-z]{1,128}",
        extras in proptest::option::of(extras().prop_map(Box::new)),
        lease_ms in proptest::option::of(any::<u64>()),
        members in prop::collection::vec((lock().prop_map(|lock| lock.name), access()), 1..5),
    ) {
        let handle = Handle::parse(&handle).expect("legal");
        let request = RequestId { session, number };
        let (name, answered_below) = (lock.name.clone(), below);
        let (acquire_owner, acquire_extras) = (owner.clone(), extras.clone());
        let acquire =
            Acquire { request, answered_below, locks: (name.clone(), access).into(), owner, patience, metadata: metadata.clone(), lease_ms, extras };
        let one = super::acquire_of_one(&acquire).expect("one lock");
        prop_assert_eq!(super::stream_acquire(session, one), Ok(acquire));
        let (owner, extras) = (acquire_owner, acquire_extras);
        let locks: SmallMap<_, _> = members.into_iter().collect();
        let set = Acquire { request, answered_below, locks, owner, patience, metadata: metadata.clone(), lease_ms, extras };
        prop_assert_eq!(super::stream_acquire_set(session, (&set).into()), Ok(set.clone()));
        let asked = pb::CommandRequest {
            namespace: lock.namespace.to_string(),
            session: Some(pb::SessionProof { id: session.as_u64(), handle: handle.reveal().to_owned() }),
            command: Some(pb::command_request::Command::AcquireSet((&set).into())),
        };
        let proof = Proof::Handle { handle: handle.clone(), namespace: lock.namespace.clone() };
        prop_assert_eq!(Call::try_from(asked), Ok(Call { proof, ..Call::new(Command::Acquire(set)) }));
        let release = Release { request, answered_below, name, token };
        prop_assert_eq!(super::stream_release(session, (&release).into()), Ok(release));

        let (instance, disconnect_grace_ms) = (Instance(u128::from(number) << 64), Some(below));
        let namespace = lock.namespace.clone();
        let opened = OpenSession {
            namespace: namespace.clone(), handle: handle.clone(), instance, ttl_ms: number, disconnect_grace_ms,
            accepts_hand_over: number % 2 == 0,
            metadata: metadata.clone(),
        };
        prop_assert_eq!(super::open_session(namespace, (&opened).into()), Ok(opened));

        // No session ends the wait of a lease request.
        let longest = Patience::For { ms: crate::limits::PATIENCE_MS_MAX };
        let patience = if patience == Patience::Session { longest } else { patience };
        let take = TakeLease { lock, take: LeaseRequestId(7), handle, access, lease_ms: number, patience, metadata };
        macro_rules! reads_back {
            ($message:ident, $command:expr) => {
                let call = Call { age_ms: below, since: Some(LogTime(below)), ..Call::new($command) };
                prop_assert_eq!(Call::try_from(pb::$message::try_from(&call).expect("its own")), Ok(call));
            };
        }
        let TakeLease { lock, take: id, handle, .. } = take.clone();
        reads_back!(AcquireRequest, Command::TakeLease(take));
        reads_back!(ReleaseRequest, Command::DropLease { lock: lock.clone(), handle: handle.clone() });
        reads_back!(WithdrawRequest, Command::CancelTake { lock, take: id, handle });
    }
}

fn one_error_of_each_kind() -> Vec<ServiceError> {
    let leader = Some(LeaderHint { node: 2, client: "n2:7601".to_owned() });
    vec![
        ServiceError::NotSent { why: NotSent::NotLeader, leader: leader.clone() },
        ServiceError::NotSent { why: NotSent::Overloaded { pause_ms: 50 }, leader: None },
        ServiceError::NotSent { why: NotSent::Unreachable("a: refused; b: timeout".to_owned()), leader: None },
        ServiceError::Unknown { why: "the line\nbroke – Gößweinstein".to_owned(), leader },
        ServiceError::Invalid(Invalid::new("lock", "1 to 255 bytes", "…")),
        ServiceError::Refused(Refusal::WrongHandle),
        ServiceError::Forbidden { why: "admin".to_owned() },
        ServiceError::EventsMissed { why: "too slow".to_owned(), resume: Position { index: 4, n: 2 } },
        ServiceError::Stopping,
        ServiceError::Internal("impossible".to_owned()),
    ]
}

/// An error reads back exactly, from a status and from a frame; its code, word, advice and leader are the table's.
#[test]
fn errors_read_back_and_follow_the_table() {
    for error in one_error_of_each_kind() {
        let row = error.word().row();
        let status = error_to_status(&error);
        assert_eq!(error_from_status(&status), error);
        assert_eq!(status.code() as i32, i32::from(row.grpc), "{error}");
        let text = |key: &str| status.metadata().get(key).map(|value| value.to_str().expect("text").to_owned());
        assert_eq!(text("lockkeeper-error").as_deref(), Some(row.text));
        assert_eq!(text("lockkeeper-advice").as_deref(), Some(row.advice.word()));
        let hint = error.leader().map(|leader| format!("{} {}", leader.node, leader.client));
        assert_eq!(text("lockkeeper-leader"), hint);

        let wire = error_to_wire(&error);
        assert_eq!((wire.code.as_str(), wire.advice.as_str()), (row.text, row.advice.word()));
        assert_eq!(error_from_wire(&wire), error);
    }
}

/// Every row of the table has a gRPC code that is an error, and a word alone still carries its advice.
#[test]
fn every_word_survives_without_its_detail() {
    for row in TABLE {
        assert_ne!(tonic::Code::from(i32::from(row.grpc)), tonic::Code::Ok, "{}", row.text);
        let wire = pb::Error { code: row.text.to_owned(), detail: "newer".to_owned(), ..Default::default() };
        assert_eq!(error_from_wire(&wire).advice(), row.advice, "{}", row.text);
    }
    let unheard = pb::Error { code: "of-tomorrow".to_owned(), ..Default::default() };
    assert_eq!(error_from_wire(&unheard).word(), Word::Unknown, "an unknown error never says that nothing happened");
}

/// A status from the way, without our metadata, leaves the outcome open.
#[test]
fn a_foreign_status_is_unknown() {
    let cut = tonic::Status::unavailable("connection reset");
    assert!(matches!(error_from_status(&cut), ServiceError::Unknown { .. }));
    let foreign = tonic::Status::unimplemented("no such call");
    assert!(matches!(error_from_status(&foreign), ServiceError::Internal(_)));
}

/// Unset choices, unspecified and unknown enum values, and numbers out of bounds are refused by their field.
#[test]
fn what_is_unknown_or_out_of_bounds_is_refused_by_its_field() {
    let field = |refused: Result<Mode, Invalid>| refused.expect_err("refused").field;
    assert_eq!(field(pb::Mode { how: None }.try_into()), "mode");
    let session = SessionId::new(0, 1);
    for end in [0, 99] {
        assert_eq!(super::stream_close(session, end).expect_err("refused").field, "end");
    }
    let asked = |query| {
        let question = Question::from_wire("question", pb::QueryRequest { query, freshness: 0 });
        question.and_then(Question::bounded)
    };
    let list = |rows, prefix| {
        asked(Some(pb::query_request::Query::List(pb::ListFilter { rows, prefix, ..Default::default() })))
    };
    let field = |refused: Result<Question, Invalid>| refused.expect_err("refused").field;
    assert_eq!(field(asked(None)), "query");
    let page = list(0, String::new()).expect("legal").query;
    assert!(matches!(page, Query::List(ListFilter { rows, .. }) if rows == crate::limits::PAGE_ROWS_MAX as u32));
    assert_eq!(field(list(1 << 20, String::new())), "rows");
    assert_eq!(field(list(1, "x".repeat(256))), "prefix");
    let holder = Some(pb::acquire_request::Holder::Lease(pb::LeaseProof { handle: "h".to_owned() }));
    let taken = |request: &str| pb::AcquireRequest {
        lock: "x".to_owned(),
        holder: holder.clone(),
        request: request.to_owned(),
        ..Default::default()
    };
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    assert!(Call::try_from(taken(uuid)).is_ok() && Call::try_from(taken(&uuid.replace('-', ""))).is_ok());
    for request in ["", "7", &uuid[1..], "+1234567-89ab-cdef-0123-456789abcdef", "é1234567-89ab-cdef-0123-456789abcde"]
    {
        assert_eq!(Call::try_from(taken(request)).expect_err("refused").field, "request", "{request}");
    }
    for request in ["", "-1", "0x7", uuid, &crate::limits::OWN_REQUESTS_MIN.to_string()] {
        let session = pb::SessionProof { id: session.as_u64(), handle: "h".to_owned() };
        let holder = Some(pb::acquire_request::Holder::Session(session));
        let asked = pb::AcquireRequest { holder, ..taken(request) };
        assert_eq!(Call::try_from(asked).expect_err("refused").field, "request", "{request}");
    }
    let owned = pb::AcquireRequest { owner: Some("job".to_owned()), ..taken(uuid) };
    assert_eq!(Call::try_from(owned).expect_err("only in a session").field, "owner");
    let nothing = pb::AcquireRequest { holder: None, ..taken(uuid) };
    assert_eq!(Call::try_from(nothing).expect_err("refused").field, "holder");
    assert_eq!(Freshness::from_wire("freshness", 9).expect_err("refused").field, "freshness");
}

fn sample_status() -> Status {
    let node = |id, role| crate::service::NodeStatus {
        id,
        role,
        client: "a:1".to_owned(),
        peer: "a:2".to_owned(),
        http: String::new(),
        applied: (id > 1).then_some(5),
        healthy: (id > 1).then_some(id > 2),
        version: (id > 1).then(|| "0.1.0".to_owned()),
        features: (id > 1).then_some(2),
    };
    Status {
        cluster: "harbour".to_owned(),
        cluster_id: Some(0x0102 << 100),
        peers_id: 0x0304 << 90,
        node: 1,
        leader: Some(2),
        term: 3,
        log_time: LogTime(4),
        applied: 5,
        nodes: vec![node(1, Role::Follower), node(2, Role::Leader), node(3, Role::Learner)],
        totals: Totals { sessions: 1, ..Totals::default() },
        ttl_ms_min: 3_000,
        ttl_ms_max: 600_000,
        features: 1,
        timing_ms: [50, 150, 300],
        closed_ms: 8,
    }
}

/// The cluster's status reads back as it was written.
#[test]
fn status_reads_back() {
    let status = sample_status();
    for status in [Status { cluster_id: None, ..status.clone() }, status] {
        assert_eq!(Status::try_from(pb::StatusReply::from(&status)), Ok(status));
    }
}

/// A change of the members reads back.
#[test]
fn member_changes_read_back() {
    use crate::service::MemberChange;
    let add = MemberChange::Add { node: 4, client: "a:1".to_owned(), peer: "a:2".to_owned() };
    let promote = |instead_of| MemberChange::Promote { node: 4, instead_of };
    for change in [add, promote(None), promote(Some(3)), MemberChange::Remove { node: 3 }] {
        assert_eq!(MemberChange::try_from(pb::ChangeMembersRequest::from(&change)), Ok(change));
    }
    assert!(MemberChange::try_from(pb::ChangeMembersRequest { change: None }).is_err());
}

/// An event has the parts that its type says; a type that this version does not know is refused, too.
#[test]
fn an_event_without_a_part_of_its_type_is_refused_by_its_field() {
    let position = Some(pb::Position { index: 3, n: 0 });
    let (namespace, lock) = (Some("default".to_owned()), Some("dam".to_owned()));
    let who = Some(pb::claim::Who::Request(pb::RequestId { session: 1, number: 1 }));
    let released = pb::Event {
        position,
        namespace,
        r#type: pb::EventType::Released.into(),
        lock,
        claim: Some(pb::Claim { who }),
        token: Some(7),
        held_ms: Some(2),
        ..Default::default()
    };
    assert!(Event::try_from(released.clone()).is_ok());
    let without = |field: &str, remove: fn(&mut pb::Event)| {
        let mut event = released.clone();
        remove(&mut event);
        assert_eq!(Event::try_from(event).expect_err("refused").field, field);
    };
    without("position", |event| event.position = None);
    without("namespace", |event| event.namespace = None);
    without("lock", |event| event.lock = None);
    without("claim", |event| event.claim = None);
    without("token", |event| event.token = None);
    without("held_ms", |event| event.held_ms = None);
    without("type", |event| event.r#type = 0);
    without("type", |event| event.r#type = 99);
}

/// An acquire and the answer to it take memory for their texts only, whichever way they go: a conversion adds nothing.
#[test]
fn an_acquire_and_its_answer_are_converted_without_further_allocations() {
    let counted = |work: &mut dyn FnMut()| allocation_counter::measure(work).count_total;
    let session = SessionId::new(0, 1);
    let request = RequestId { session, number: 1 };
    let token = FencingToken::new(0, 7);
    let name = LockName::parse("dam").expect("legal");
    let acquire = Acquire {
        request,
        answered_below: 1,
        locks: (name.clone(), Mode::Exclusive.into()).into(),
        owner: Some(Owner::parse("job").expect("legal")),
        patience: Patience::Session,
        metadata: Metadata { who: "ida".into(), why: "rebuild".into(), ..Metadata::default() },
        lease_ms: None,
        extras: None,
    };
    let mut wire = None;
    assert_eq!(counted(&mut || wire = super::acquire_of_one(&acquire)), 4, "lock, owner, who and why");
    assert_eq!(counted(&mut || drop(super::stream_acquire(session, wire.take().expect("one")))), 4, "the same");

    let granted = Outcome::Granted(Grant { token, deadline: None, ends: None, waited_ms: 0 });
    let released = Outcome::Released { left: 0 };
    let renewed = Outcome::Renewed { deadline: LogTime(9), attempt: 1, token: None };
    for outcome in [granted, released, renewed] {
        let reply = Reply::new(3, LogTime(4), outcome);
        let mut wire = None;
        assert_eq!(counted(&mut || wire = Some(pb::Reply::from(&reply))), 0, "{reply:?}");
        assert_eq!(counted(&mut || drop(Reply::try_from(wire.take().expect("written")))), 0, "{reply:?}");
    }
    let release = Release { request, answered_below: 1, name, token };
    let mut wire = None;
    assert_eq!(counted(&mut || wire = Some(pb::StreamRelease::from(&release))), 1, "the lock");
    assert_eq!(counted(&mut || drop(super::stream_release(session, wire.take().expect("written")))), 1, "the lock");
}
