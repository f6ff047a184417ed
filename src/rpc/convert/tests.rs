//! Values are unchanged after a conversion to the wire and back; values that this version does not know are refused by
//! their field.

mod answers;
mod documents;
mod errors;
pub(in crate::rpc) mod hostile;
mod names;
mod values;

use proptest::prelude::*;

use self::answers::{one_error_of_each_kind, sample_status};
use self::values::{
    access, alteration, answer, extras, happening, lock, managing, metadata, outcome, owner, patience, refusal,
    session, some_of, token,
};
use super::{AsInvalid, Question, Wire, error_from_wire, error_to_wire};
use crate::model::{
    About, Acquire, Alter, Attach, Attachment, Claim, Command, EndSession, Event, FencingToken, Grant, Handle,
    Instance, Invalid, LeaseRequestId, ListFilter, ListShow, LockKey, LockName, LogTime, Manage, Metadata, Mode,
    Namespace, OpenSession, Outcome, Owner, Patience, Position, Query, QueryReply, Reason, Refusal, Release,
    RenewalTarget, Reply, RequestId, SessionClose, SessionId, Setting, SmallMap, TakeLease, Totals, WallTime,
};
use crate::rpc::pb;
use crate::rpc::pb::command::Command as Asked;
use crate::service::{
    Call, ErrorCode, Freshness, LeaderHint, NotSent, Proof, RenewalCall, Role, Scope, ServiceError, Status,
    Subscription, TABLE,
};

/// Converts a value to the wire and back.
fn over<T: Wire<P>, P>(sent: &T) -> Result<T, Invalid> {
    T::from_wire("message", sent.to_wire())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// A reply is unchanged after a round trip, including refusals.
    #[test]
    fn replies_read_back(
        (index, stamp) in (any::<u64>(), any::<u64>()),
        outcome in outcome(),
        recalled in some_of(token()),
    ) {
        let reply = Reply { index, stamp: LogTime(stamp), outcome, recalled };
        prop_assert_eq!(over::<Reply, pb::Reply>(&reply), Ok(reply));
    }

    /// A refusal is unchanged after a round trip as the status of a call.
    #[test]
    fn refusals_read_back_from_a_status(refusal in refusal()) {
        let status = tonic::Status::from(ServiceError::Refused(refusal.clone()));
        prop_assert_eq!(ServiceError::from(status), ServiceError::Refused(refusal));
    }

    /// A refusal is a separate message, which is unchanged after a round trip.
    #[test]
    fn refusals_read_back(refusal in refusal()) {
        prop_assert_eq!(over::<Refusal, pb::Refused>(&refusal), Ok(refusal));
    }

    /// An event is unchanged after a round trip.
    #[test]
    fn events_read_back(index in any::<u64>(), n in any::<u32>(), at in any::<u64>(), what in happening()) {
        let (subject, kind) = what;
        let namespace = subject.lock().map(|lock| lock.namespace.clone());
        let (position, at, wall) = (Position { index, n }, LogTime(at), WallTime(at));
        let event = Event { position, at, wall, namespace, subject, kind };
        prop_assert_eq!(over::<Event, pb::Event>(&event), Ok(event));
    }

    /// A query arrives unchanged, with the namespace of its names.
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
            Query::Holders { lock: lock.clone() },
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
            let read = over::<Question, pb::QueryRequest>(&question);
            prop_assert_eq!(read, Ok(question));
        }
    }

    /// A subscription arrives unchanged.
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
            let asked: pb::WatchRequest = Subscription { scope: scope.clone(), after, cluster_id }.to_wire();
            prop_assert_eq!(Subscription::from_wire("watch", asked), Ok(Subscription { scope, after, cluster_id }));
        }
        let everything = pb::watch_request::Scope::Namespace(pb::NamespaceScope::default());
        let bare = Subscription::from_wire("watch", pb::WatchRequest { scope: Some(everything), ..Default::default() });
        let everything = Scope::Namespace { namespace: Namespace::default(), prefix: String::new() };
        prop_assert_eq!(bare, Ok(Subscription { scope: everything, after: None, cluster_id: None }));
        prop_assert_eq!(Subscription::from_wire("watch", pb::WatchRequest::default()).expect_err("refused").field, "scope");
    }

    /// An answer is unchanged after a round trip.
    #[test]
    fn answers_read_back(index in any::<u64>(), now in any::<u64>(), answer in answer()) {
        let answered = QueryReply { index, now: LogTime(now), answer };
        prop_assert_eq!(over::<QueryReply, pb::QueryReply>(&answered), Ok(answered));
    }

    /// Changes of holds and operations on locks arrive unchanged, on a stream and as calls.
    #[test]
    fn changes_and_acts_read_back(
        (session, number, answered_below, lock) in (session(), any::<u64>(), any::<u64>(), lock()),
        (alteration, managing) in (alteration(), managing()),
        handle in "[a-z]{1,128}",
    ) {
        let request = RequestId { session, number };
        let alter = Alter { request, answered_below, name: lock.name.clone(), what: alteration };
        reads_back_in(session, &handle, &lock.namespace, Command::Alter(alter))?;
        let (namespace, why) = (lock.namespace.clone(), Reason::parse("stuck").expect("legal"));
        reads_back(Call::new(Command::EndSession(EndSession { namespace, session, why })))?;
        reads_back(Call::new(Command::ChangeSetting(Setting::TtlMax(number))))?;
        reads_back(Call::new(Command::Manage(Manage { lock, what: managing })))?;
    }

    /// Commands arrive unchanged, on a stream and as calls.
    #[test]
    fn commands_read_back(
        (session, number, below, token) in (session(), any::<u64>(), any::<u64>(), token()),
        (lock, access, owner, patience, metadata) in (lock(), access(), owner(), patience(), metadata()),
        handle in "[a-z]{1,128}",
        extras in proptest::option::of(extras().prop_map(Box::new)),
        lease_ms in proptest::option::of(any::<u64>()),
        members in prop::collection::vec((lock().prop_map(|lock| lock.name), access()), 1..5),
    ) {
        let (proof, namespace) = (handle.clone(), lock.namespace.clone());
        let in_session = |command| reads_back_in(session, &proof, &namespace, command);
        let request = RequestId { session, number };
        let (name, answered_below) = (lock.name.clone(), below);
        for locks in [(name.clone(), access).into(), members.into_iter().collect::<SmallMap<_, _>>()] {
            let (owner, metadata, extras) = (owner.clone(), metadata.clone(), extras.clone());
            let acquire = Acquire { request, answered_below, locks, owner, patience, metadata, lease_ms, extras };
            in_session(Command::Acquire(acquire))?;
        }
        in_session(Command::Release(Release { request, answered_below, name, token, acquire: 0 }))?;
        in_session(Command::Cancel { request })?;
        for end in [SessionClose::Done, SessionClose::Lost] {
            in_session(Command::CloseSession { session, end })?;
        }

        let handle = Handle::parse(&handle).expect("legal");
        let (instance, disconnect_grace_ms) = (Instance(u128::from(number) << 64), Some(below));
        let opened = OpenSession {
            namespace: namespace.clone(), handle: handle.clone(), instance, ttl_ms: number, disconnect_grace_ms,
            accepts_hand_over: number % 2 == 0,
            metadata: metadata.clone(),
        };
        reads_back(Call::new(Command::OpenSession(opened)))?;
        let attach = Attach { namespace: namespace.clone(), session, handle: handle.clone(), attempt: below };
        reads_back(Call::new(Command::Attach(attach)))?;

        let id = LeaseRequestId(u128::from(number) << 60);
        let cancel = Command::CancelTake { lock: lock.clone(), take: id, handle: handle.clone() };
        let drop = Command::DropLease { lock: lock.clone(), handle: handle.clone() };
        let claim_ms = (number % 2 == 0).then_some(below);
        let take = TakeLease { lock, take: id, handle, access, lease_ms: number, patience, metadata, claim_ms };
        for command in [Command::TakeLease(take), cancel, drop] {
            reads_back(Call { age_ms: below, since: Some(LogTime(number)), ..Call::new(command) })?;
        }
    }

    /// A renewal arrives unchanged, with its proof.
    #[test]
    fn renewals_read_back(
        (session, token, lock) in (session(), token(), lock()),
        (lease_ms, attempt) in any::<(u64, u64)>(),
        handle in "[a-z]{1,128}",
    ) {
        let handle = Handle::parse(&handle).expect("legal");
        let proof = Proof::Handle { handle: handle.clone(), namespace: lock.namespace.clone() };
        let hold = RenewalTarget::Hold { lock: lock.clone(), session, token, lease_ms };
        let lease = RenewalTarget::Lease { lock, handle, lease_ms };
        for (target, proof) in
            [(RenewalTarget::Session(session), proof.clone()), (hold, proof), (lease, Proof::Trusted)]
        {
            let renewal = RenewalCall { target, proof, attempt };
            prop_assert_eq!(RenewalCall::from_wire("renewal", renewal.to_wire()), Ok(renewal));
        }
    }
}

/// Converts a call to the wire and back.
fn reads_back(call: Call) -> Result<(), TestCaseError> {
    let asked = super::command(&call, &call.proof).expect("a caller's command");
    prop_assert_eq!(super::call(asked, super::proven), Ok(call));
    Ok(())
}

/// Converts a session's command to the wire and back: over a stream, without a proof, and as a call with its proof.
fn reads_back_in(
    session: SessionId,
    handle: &str,
    namespace: &Namespace,
    command: Command,
) -> Result<(), TestCaseError> {
    let on_stream = Call::new(command);
    let asked = super::command(&on_stream, &Proof::Trusted).expect("a caller's command");
    prop_assert_eq!(
        super::call(asked, |proof| {
            assert_eq!(proof, None, "a stream's session is known");
            Ok((session, Proof::Trusted))
        }),
        Ok(on_stream.clone())
    );
    let proof = Proof::Handle { handle: Handle::parse(handle).expect("legal"), namespace: namespace.clone() };
    reads_back(Call { proof, ..on_stream })
}

/// Commands that only a node makes are never sent, and a session's command, renewal or hold without its proof is never
/// treated as trusted.
#[test]
fn what_is_not_proven_is_refused() {
    let session = SessionId::new(0, 1);
    for command in [Command::Tick, Command::Disconnected { session, attachment: Attachment(1) }] {
        let refused = super::command(&Call::new(command), &Proof::Trusted);
        assert!(matches!(refused, Err(ServiceError::Forbidden { .. })), "{refused:?}");
    }
    let unproven = Call::new(Command::CloseSession { session, end: SessionClose::Done });
    let asked = super::command(&unproven, &Proof::Trusted).expect("a caller's command");
    assert_eq!(super::call(asked, super::proven).expect_err("no proof").field, "session");
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("legal") };
    let hold = RenewalTarget::Hold { lock, session, token: FencingToken::new(0, 7), lease_ms: 9 };
    for target in [RenewalTarget::Session(session), hold] {
        let renewal = RenewalCall { target, proof: Proof::Trusted, attempt: 1 };
        RenewalCall::from_wire("renewal", renewal.to_wire()).expect_err("no proof");
    }
}

/// Unset choices, unspecified and unknown enum values, and numbers out of bounds are refused by their field.
#[test]
fn what_is_unknown_or_out_of_bounds_is_refused_by_its_field() {
    assert_eq!(Mode::from_wire("mode", pb::Mode { how: None }).expect_err("refused").field, "mode");
    let asked = |command| super::call(pb::Command { command: Some(command) }, super::proven);
    let session = Some(pb::SessionProof { id: 1, handle: "h".to_owned(), namespace: String::new() });
    let close = |end| asked(Asked::CloseSession(pb::CloseSession { session: session.clone(), end }));
    assert_eq!(close(0), close(pb::SessionClose::Done.into()));
    assert_eq!(close(99).expect_err("refused").field, "end");
    assert_eq!(super::call(pb::Command::default(), super::proven).expect_err("refused").field, "command");
    let acquire = |session, lock: &str, others| {
        asked(Asked::Acquire(pb::Acquire { session, lock: lock.to_owned(), others, ..Default::default() }))
    };
    let member = |lock: &str| pb::SetMember { lock: lock.to_owned(), mode: None, limit: None };
    assert!(acquire(session.clone(), "a", vec![member("b")]).is_ok());
    assert_eq!(acquire(session.clone(), "a", vec![member("a")]).expect_err("twice").field, "locks");
    assert_eq!(acquire(session.clone(), "", vec![]).expect_err("no name").field, "lock");
    assert_eq!(acquire(None, "a", vec![]).expect_err("no proof").field, "session");
    let unproven = session.clone().map(|session| pb::SessionProof { handle: String::new(), ..session });
    assert_eq!(acquire(unproven, "a", vec![]).expect_err("no handle").field, "handle");
    assert_eq!(Question::from_wire("question", pb::QueryRequest::default()).expect_err("refused").field, "query");
    let take = "0123456789abcdef0123456789abcdef";
    let taken = |take: &str, lock| {
        let (take, handle) = (take.to_owned(), "h".to_owned());
        let taken = pb::TakeLease { lock, take, handle, ..Default::default() };
        super::call(pb::Command { command: Some(Asked::TakeLease(taken)) }, super::proven)
    };
    let lock = Some(pb::LockKey { namespace: String::new(), name: "x".to_owned() });
    assert!(taken(take, lock.clone()).is_ok());
    assert_eq!(taken(take, None).expect_err("refused").field, "lock");
    assert!(taken("01234567-89ab-cdef-0123-456789abcdef", lock.clone()).is_ok());
    for id in [
        "",
        "7",
        "0123456-789ab-cdef-0123-456789abcdef",
        &take[1..],
        "+123456789abcdef0123456789abcdef",
        "é23456789abcdef0123456789abcdef",
    ] {
        assert_eq!(taken(id, lock.clone()).expect_err("refused").field, "take", "{id}");
    }
    assert_eq!(Freshness::from_wire("freshness", 9).expect_err("refused").field, "freshness");
}

/// A change of the members is unchanged after a round trip.
#[test]
fn member_changes_read_back() {
    use crate::service::MemberChange;
    let add = MemberChange::Add { node: 4, client: "a:1".to_owned(), peer: "a:2".to_owned() };
    let promote = |instead_of| MemberChange::Promote { node: 4, instead_of };
    for change in [add, promote(None), promote(Some(3)), MemberChange::Remove { node: 3 }] {
        assert_eq!(over::<MemberChange, pb::ChangeMembersRequest>(&change), Ok(change));
    }
    assert!(MemberChange::from_wire("change", pb::ChangeMembersRequest { change: None }).is_err());
}

/// An event must have the fields of its type; an unknown type is refused, too.
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
    assert!(Event::from_wire("event", released.clone()).is_ok());
    let without = |field: &str, remove: fn(&mut pb::Event)| {
        let mut event = released.clone();
        remove(&mut event);
        assert_eq!(Event::from_wire("event", event).expect_err("refused").field, field);
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

/// An acquire and its reply allocate memory only for their texts, in both directions: the conversion allocates nothing
/// more.
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
    let on_stream = |asked| super::call(asked, |_| Ok((session, Proof::Trusted)));
    let acquire = Call::new(Command::Acquire(acquire));
    let mut wire = None;
    assert_eq!(counted(&mut || wire = super::command(&acquire, &Proof::Trusted).ok()), 4, "lock, owner, who and why");
    assert_eq!(counted(&mut || drop(on_stream(wire.take().expect("one")))), 4, "the same");

    let granted = Outcome::Granted(Grant { token, deadline: None, ends: None, waited_ms: 0 });
    let released = Outcome::Released { left: 0 };
    let renewed = Outcome::Renewed { deadline: LogTime(9), attempt: 1, token: None };
    for outcome in [granted, released, renewed] {
        let reply = Reply::new(3, LogTime(4), outcome);
        let mut wire = None;
        assert_eq!(counted(&mut || wire = Some(Wire::<pb::Reply>::to_wire(&reply))), 0, "{reply:?}");
        assert_eq!(counted(&mut || drop(Reply::from_wire("reply", wire.take().expect("written")))), 0, "{reply:?}");
    }
    let release = Call::new(Command::Release(Release { request, answered_below: 1, name, token, acquire: 0 }));
    let mut wire = None;
    assert_eq!(counted(&mut || wire = super::command(&release, &Proof::Trusted).ok()), 1, "the lock");
    assert_eq!(counted(&mut || drop(on_stream(wire.take().expect("written")))), 1, "the lock");
}
