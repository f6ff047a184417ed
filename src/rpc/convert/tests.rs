//! What goes over the wire comes back the same; what this version does not know is refused by its field.

use proptest::option;
use proptest::prelude::*;

use super::{decided, error_from_status, error_from_wire, error_to_status, error_to_wire, reply_to_answer};
use crate::model::{
    Acquire, Answer, Answered, Attachment, Breach, Checked, CircleLink, Claim, Command, EndReason, Event, EventKind,
    Extras, Fairness, FencingToken, Grant, Handle, HolderView, Instance, Invalid, Kind, LeaveReason, LockKey, LockName,
    LockSummary, LockValue, LockView, LogTime, Metadata, Mode, Namespace, OnDeadlock, OpenSession, Outcome, Owner,
    Parent, Patience, Place, Position, Principal, Reason, Reentry, Refusal, Release, Reply, RequestId, SessionId,
    SessionView, TakeId, TakeLease, TokenState, Totals, WaiterView, WaitsBecause, WallTime,
};
use crate::rpc::pb;
use crate::service::{Call, LeaderHint, NotSent, Role, ServiceError, Status, TABLE, Word};

fn session() -> impl Strategy<Value = SessionId> {
    (1..1u64 << 63).prop_map(|number| SessionId::from_u64(number).expect("within 63 bits"))
}

fn token() -> impl Strategy<Value = FencingToken> {
    (1..1u64 << 63).prop_map(|number| FencingToken::from_u64(number).expect("within 63 bits"))
}

fn lock_name() -> impl Strategy<Value = LockName> {
    "[a-zäß/ ]{1,40}".prop_map(|name| LockName::parse(&name).expect("legal"))
}

fn lock() -> impl Strategy<Value = LockKey> {
    ("[a-z0-9._-]{1,64}", lock_name())
        .prop_map(|(namespace, name)| LockKey { namespace: Namespace::parse(&namespace).expect("legal"), name })
}

fn mode() -> impl Strategy<Value = Mode> {
    let permits = || 1..=crate::limits::PERMITS_MAX;
    prop_oneof![
        Just(Mode::Exclusive),
        Just(Mode::Shared),
        (permits(), option::of(permits())).prop_map(|(count, limit)| Mode::Permits { count, limit }),
    ]
}

fn patience() -> impl Strategy<Value = Patience> {
    prop_oneof![
        Just(Patience::Try),
        Just(Patience::Session),
        (0..=crate::limits::PATIENCE_MS_MAX).prop_map(|ms| Patience::For { ms }),
    ]
}

fn metadata() -> impl Strategy<Value = Metadata> {
    ("[a-zé \n\t\"]{0,60}", "[a-z]{0,60}", any::<u32>()).prop_map(|(why, host, pid)| Metadata {
        who: "captain".into(),
        why: why.into(),
        host: host.into(),
        pid,
        process: "h:1:2:3".into(),
        trace: "".into(),
    })
}

fn owner() -> impl Strategy<Value = Option<Owner>> {
    option::of("[a-z]{1,128}".prop_map(|owner| Owner::parse(&owner).expect("legal")))
}

fn extras() -> impl Strategy<Value = Extras> {
    let reentry = prop_oneof![Just(Reentry::Refuse), Just(Reentry::Count), Just(Reentry::Wait)];
    let fairness = prop_oneof![Just(Fairness::Fair), Just(Fairness::Barging)];
    let deadlock = prop_oneof![Just(OnDeadlock::Refuse), Just(OnDeadlock::Wait)];
    let value = option::of("[a-zé\n]{0,60}".prop_map(|text| LockValue::parse(&text).expect("legal")));
    let parent = option::of((session(), owner()))
        .prop_map(|parent| parent.and_then(|(session, owner)| owner.map(|owner| Parent { session, owner })));
    (reentry, fairness, option::of(any::<u64>()), any::<u64>(), value, parent, deadlock).prop_map(
        |(reentry, fairness, lease_ms, delay_ms, value, parent, deadlock)| Extras {
            reentry,
            fairness,
            lease_ms,
            delay_ms,
            value,
            parent,
            deadlock,
        },
    )
}

fn claim() -> impl Strategy<Value = Claim> {
    prop_oneof![
        (session(), any::<u64>()).prop_map(|(session, number)| Claim::Request(RequestId { session, number })),
        any::<u128>().prop_map(|take| Claim::Take(TakeId(take))),
    ]
}

fn end_reason() -> impl Strategy<Value = EndReason> {
    use EndReason::{Broken, Cancelled, Expired, HandedOver, Lost, Released};
    prop_oneof![Just(HandedOver), Just(Released), Just(Expired), Just(Lost), Just(Cancelled), Just(Broken)]
}

fn holder() -> impl Strategy<Value = HolderView> {
    (option::of(session()), owner(), token(), mode(), metadata(), any::<u64>()).prop_map(
        |(session, owner, token, mode, metadata, at)| HolderView {
            session,
            owner,
            principal: Principal::default(),
            token,
            mode,
            metadata,
            since: LogTime(at),
            deadline: LogTime(at ^ 1),
        },
    )
}

fn waiter() -> impl Strategy<Value = WaiterView> {
    (option::of(session()), owner(), mode(), metadata(), any::<[u64; 3]>()).prop_map(
        |(session, owner, mode, metadata, [place, sequence, since])| WaiterView {
            place,
            sequence,
            session,
            owner,
            mode,
            metadata,
            since: LogTime(since),
        },
    )
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        (lock(), option::of(holder())).prop_map(|(lock, holder)| Refusal::Held { lock, holder: holder.map(Box::new) }),
        (session(), end_reason()).prop_map(|(session, reason)| Refusal::SessionEnded { session, reason }),
        any::<[u64; 2]>().prop_map(|[number, floor]| Refusal::TooOld { number, floor }),
        (session(), lock()).prop_map(|(session, lock)| {
            let owner = Owner::parse("job").expect("legal");
            let link = CircleLink { session, owner, lock, why: WaitsBecause::Holds };
            Refusal::Deadlock { circle: vec![link.clone(), link] }
        }),
        (lock(), session()).prop_map(|(lock, session)| Refusal::NotAccepted { lock, session }),
        Just(Refusal::WrongHandle),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let at = || any::<u64>().prop_map(LogTime);
    prop_oneof![
        (session(), any::<u64>(), at()).prop_map(|(session, ttl_ms, deadline)| Outcome::Opened {
            session,
            ttl_ms,
            deadline
        }),
        (any::<u64>(), at())
            .prop_map(|(number, deadline)| Outcome::Attached { attachment: Attachment(number), deadline }),
        (at(), any::<u64>(), option::of(token())).prop_map(|(deadline, attempt, token)| Outcome::Renewed {
            deadline,
            attempt,
            token
        }),
        (token(), option::of(at()), any::<u64>()).prop_map(|(token, deadline, waited_ms)| Outcome::Granted(Grant {
            token,
            deadline,
            waited_ms
        })),
        some_of(
            (lock_name(), token(), option::of(at()), any::<u64>())
                .prop_map(|(name, token, deadline, waited_ms)| { (name, Grant { token, deadline, waited_ms }) })
        )
        .prop_map(Outcome::GrantedSet),
        (any::<[u64; 2]>(), option::of(holder())).prop_map(|([place, sequence], held_by)| Outcome::Queued(Place {
            place,
            sequence,
            held_by
        })),
        end_reason().prop_map(|reason| Outcome::HoldEnded { reason }),
        refusal().prop_map(Outcome::Refused),
        Just(Outcome::DisconnectNoted),
        Just(Outcome::Closed),
        Just(Outcome::TimedOut),
        Just(Outcome::Withdrawn),
        any::<u32>().prop_map(|left| Outcome::Released { left }),
        Just(Outcome::Downgraded),
        Just(Outcome::Done),
        (any::<bool>(), holder(), option::of(at()), option::of(waiter())).prop_map(
            |(done, holder, last_seen, next)| { Outcome::Broken(Box::new(Breach { done, holder, last_seen, next })) }
        ),
        (token(), session(), any::<u64>())
            .prop_map(|(token, session, number)| Outcome::HandedOver { token, to: RequestId { session, number } }),
        Just(Outcome::Ticked),
    ]
}

fn event_kind() -> impl Strategy<Value = EventKind> {
    let left = prop_oneof![
        Just(LeaveReason::TimedOut),
        Just(LeaveReason::Withdrawn),
        Just(LeaveReason::SessionEnded),
        Just(LeaveReason::HoldEnded),
        Just(LeaveReason::Impossible),
        Just(LeaveReason::Deadlock)
    ];
    prop_oneof![
        (lock(), claim(), any::<u64>()).prop_map(|(lock, claim, sequence)| EventKind::Queued { lock, claim, sequence }),
        (lock(), claim(), token(), mode(), any::<u64>()).prop_map(|(lock, claim, token, mode, waited_ms)| {
            EventKind::Granted { lock, claim, token, mode, waited_ms }
        }),
        (lock(), claim(), any::<u64>(), left).prop_map(|(lock, claim, sequence, why)| EventKind::Left {
            lock,
            claim,
            sequence,
            why
        }),
        (lock(), claim(), token(), any::<u64>()).prop_map(|(lock, claim, token, held_ms)| EventKind::Released {
            lock,
            claim,
            token,
            held_ms
        }),
        (lock(), claim(), token(), end_reason(), any::<u64>()).prop_map(|(lock, claim, token, reason, held_ms)| {
            EventKind::Expired { lock, claim, token, reason, held_ms }
        }),
        (lock(), claim(), token(), token(), any::<u64>()).prop_map(|(lock, claim, from, token, waited_ms)| {
            EventKind::Upgraded { lock, claim, from, token, waited_ms }
        }),
        (lock(), claim(), token()).prop_map(|(lock, claim, token)| EventKind::Downgraded { lock, claim, token }),
        (lock(), claim(), token(), token(), mode()).prop_map(|(lock, claim, from, token, mode)| EventKind::Resumed {
            lock,
            claim,
            from,
            token,
            mode
        }),
        (lock(), token()).prop_map(|(lock, token)| EventKind::Reopened { lock, token }),
        managed_event(),
        session().prop_map(|session| EventKind::SessionOpened { session }),
        (session(), end_reason()).prop_map(|(session, reason)| EventKind::SessionEnded { session, reason }),
        any::<u64>().prop_map(|gap_ms| EventKind::LeaderlessGap { gap_ms }),
    ]
}

/// Events of what is done from outside.
fn managed_event() -> impl Strategy<Value = EventKind> {
    let why = || "[a-zé ]{1,60}".prop_map(|text| Reason::parse(&text).expect("legal"));
    let by = || "[a-z]{1,60}".prop_map(|text| Principal::parse(&text).expect("legal"));
    prop_oneof![
        (lock(), claim(), token(), by(), why(), any::<u64>()).prop_map(|(lock, claim, token, by, why, held_ms)| {
            EventKind::Broken { lock, claim, token, by, why, held_ms }
        }),
        (lock(), claim(), token(), token(), mode(), by()).prop_map(|(lock, claim, from, token, mode, by)| {
            EventKind::HandedOver { lock, claim, from, token, mode, by }
        }),
        (lock(), claim(), token(), by(), why()).prop_map(|(lock, claim, token, by, why)| EventKind::RevokeRequested {
            lock,
            claim,
            token,
            by,
            why
        }),
        (lock(), claim(), token()).prop_map(|(lock, claim, token)| EventKind::ValueChanged { lock, claim, token }),
        (lock(), option::of(any::<u32>())).prop_map(|(lock, limit)| EventKind::LimitChanged { lock, limit }),
    ]
}

/// Answers of every kind; rows carry their request's namespace, which the reply names once.
fn answer() -> impl Strategy<Value = Answer> {
    let kind = || prop_oneof![Just(Kind::Lock), Just(Kind::Semaphore)];
    let state = prop_oneof![Just(TokenState::Valid), Just(TokenState::Stale), Just(TokenState::UnknownEpoch)];
    let row = (lock_name(), kind(), option::of(any::<u32>()), any::<[u64; 2]>(), option::of(holder())).prop_map(
        |(name, kind, limit, [holders, waiters], oldest)| LockSummary {
            lock: LockKey { namespace: Namespace::default(), name },
            kind,
            limit,
            holders,
            waiters,
            oldest,
        },
    );
    let session_row = (session(), metadata(), any::<[u64; 5]>(), any::<bool>()).prop_map(
        |(session, metadata, [ttl_ms, opened, deadline, holds, waits], disconnected)| SessionView {
            session,
            namespace: Namespace::default(),
            metadata,
            ttl_ms,
            opened: LogTime(opened),
            deadline: LogTime(deadline),
            disconnected,
            holds,
            waits,
        },
    );
    let view = (lock(), option::of(kind()), option::of(any::<u32>()), some_of(holder()), some_of(waiter())).prop_map(
        |(lock, kind, limit, holders, waiters)| {
            let delay_ms = limit.map(u64::from);
            let value = limit.map(|limit| LockValue::parse(&limit.to_string()).expect("legal"));
            LockView { lock, kind, limit, holders, waiters, delay_ms, value }
        },
    );
    prop_oneof![
        (state, token()).prop_map(|(state, lowest_valid)| Answer::Checked(Checked { state, lowest_valid })),
        view.prop_map(Answer::Lock),
        (some_of(row), any::<bool>()).prop_map(|(rows, more)| Answer::Locks { rows, more }),
        (some_of(session_row), any::<bool>()).prop_map(|(rows, more)| Answer::Sessions { rows, more }),
        option::of(outcome()).prop_map(Answer::Claim),
        any::<u64>().prop_map(|grants| Answer::Totals(Totals { grants, ..Totals::default() })),
    ]
}

fn some_of<S: Strategy>(one: S) -> impl Strategy<Value = Vec<S::Value>> {
    proptest::collection::vec(one, 0..3)
}

fn over_the_wire(answered: Answered) -> Result<Answered, ServiceError> {
    let back = match &answered.answer {
        Answer::Checked(_) => pb::CheckReply::try_from(answered)?.try_into(),
        Answer::Lock(_) => pb::InspectReply::try_from(answered)?.try_into(),
        Answer::Locks { .. } => pb::ListReply::try_from(answered)?.try_into(),
        Answer::Sessions { .. } => pb::SessionsReply::try_from(answered)?.try_into(),
        Answer::Claim(_) => pb::ClaimReply::try_from(answered)?.try_into(),
        Answer::Totals(_) => pb::TotalsReply::try_from(answered)?.try_into(),
    };
    back.map_err(ServiceError::Invalid)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// A reply reads back as it was written, refusals included.
    #[test]
    fn replies_read_back(index in any::<u64>(), stamp in any::<u64>(), outcome in outcome()) {
        let reply = Reply { index, stamp: LogTime(stamp), outcome };
        prop_assert_eq!(Reply::try_from(pb::Reply::from(&reply)), Ok(reply));
    }

    /// A refusal as the status of a call reads back with the place where it was decided.
    #[test]
    fn refusals_read_back_from_a_status(index in any::<u64>(), stamp in any::<u64>(), refusal in refusal()) {
        let reply = Reply { index, stamp: LogTime(stamp), outcome: Outcome::Refused(refusal) };
        let status = reply_to_answer("default", &reply).expect_err("a refusal is an error of its call");
        prop_assert_eq!(decided(&status), Some(reply));
    }

    /// An event reads back as it was written.
    #[test]
    fn events_read_back(index in any::<u64>(), n in any::<u32>(), at in any::<u64>(), kind in event_kind()) {
        let namespace = kind.lock().map(|lock| lock.namespace.clone());
        let event = Event { position: Position { index, n }, at: LogTime(at), wall: WallTime(at), namespace, kind };
        prop_assert_eq!(Event::try_from(pb::Event::from(&event)), Ok(event));
    }

    /// An answer reads back as it was written.
    #[test]
    fn answers_read_back(index in any::<u64>(), now in any::<u64>(), answer in answer()) {
        let answered = Answered { index, now: LogTime(now), answer };
        prop_assert_eq!(over_the_wire(answered.clone()), Ok(answered));
    }

    /// What a caller asks for arrives as it was asked, on a stream and as a call.
    #[test]
    fn commands_read_back(
        (session, number, below, token) in (session(), any::<u64>(), any::<u64>(), token()),
        (lock, mode, owner, patience, metadata) in (lock(), mode(), owner(), patience(), metadata()),
        handle in "[a-z]{1,128}",
        extras in option::of(extras().prop_map(Box::new)),
    ) {
        let handle = Handle::parse(&handle).expect("legal");
        let request = RequestId { session, number };
        let (name, answered_below) = (lock.name.clone(), below);
        let acquire =
            Acquire { request, answered_below, name: name.clone(), mode, owner, patience, metadata: metadata.clone(), extras };
        prop_assert_eq!(super::stream_acquire(session, (&acquire).into()), Ok(acquire));
        let release = Release { request, answered_below, name, token };
        prop_assert_eq!(super::stream_release(session, (&release).into()), Ok(release));

        let (instance, disconnect_grace_ms) = (Instance(u128::from(number) << 64), Some(below));
        let namespace = lock.namespace.clone();
        let opened = OpenSession {
            namespace: namespace.clone(), handle: handle.clone(), instance, ttl_ms: number, disconnect_grace_ms,
            accepts_hand_over: number % 2 == 0,
            metadata: metadata.clone(),
        };
        prop_assert_eq!(super::open_session(namespace, super::stream_open(&opened)), Ok(opened));

        let take = TakeLease { lock, take: TakeId(7), handle, mode, lease_ms: number, patience, metadata };
        let call = Call::try_from(pb::AcquireRequest::from((&take, below))).expect("legal");
        prop_assert_eq!(call, Call { age_ms: below, ..Call::new(Command::TakeLease(take)) });
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
        assert_eq!((wire.word.as_str(), wire.advice.as_str()), (row.text, row.advice.word()));
        assert_eq!(error_from_wire(&wire), error);
    }
}

/// Every row of the table has a gRPC code that is an error, and a word alone still carries its advice.
#[test]
fn every_word_survives_without_its_detail() {
    for row in TABLE {
        assert_ne!(tonic::Code::from(i32::from(row.grpc)), tonic::Code::Ok, "{}", row.text);
        let wire = pb::Error { word: row.text.to_owned(), detail: "newer".to_owned(), ..Default::default() };
        assert_eq!(error_from_wire(&wire).advice(), row.advice, "{}", row.text);
    }
    let unheard = pb::Error { word: "of-tomorrow".to_owned(), ..Default::default() };
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
    let permits = |count, limit| pb::Mode { how: Some(pb::mode::How::Permits(pb::Permits { count, limit })) };
    assert_eq!(field(permits(0, None).try_into()), "permits");
    assert_eq!(field(permits(1 << 31, None).try_into()), "permits");
    assert_eq!(field(permits(1, Some(0)).try_into()), "limit");

    let session = SessionId::new(0, 1);
    for end in [0, 99] {
        assert_eq!(super::stream_close(session, end).expect_err("refused").field, "end");
    }
    let week = pb::Patience { how: Some(pb::patience::How::ForMs(crate::limits::PATIENCE_MS_MAX + 1)) };
    assert_eq!(Patience::try_from(week).expect_err("refused").field, "patience");
    assert_eq!(super::rows(0), Ok(crate::limits::PAGE_ROWS_MAX as u32));
    assert_eq!(super::rows(1 << 20).expect_err("refused").field, "rows");
    let take = pb::AcquireRequest { lock: "x".to_owned(), handle: "h".to_owned(), ..Default::default() };
    assert_eq!(Call::try_from(take).expect_err("refused").field, "take");
    assert_eq!(super::known::<pb::Freshness>("freshness", 9).expect_err("refused").field, "freshness");
}

/// The cluster's status reads back as it was written.
#[test]
fn status_reads_back() {
    let node = |id, role| crate::service::NodeStatus {
        id,
        role,
        client: "a:1".to_owned(),
        peer: "a:2".to_owned(),
        http: String::new(),
        applied: (id > 1).then_some(5),
        healthy: id > 1,
    };
    let status = Status {
        cluster: "harbour".to_owned(),
        cluster_id: 0x0102 << 100,
        node: 1,
        leader: Some(2),
        term: 3,
        log_time: LogTime(4),
        applied: 5,
        nodes: vec![node(1, Role::Follower), node(2, Role::Leader), node(3, Role::Learner)],
        totals: Totals { sessions: 1, ..Totals::default() },
        ttl_ms_min: 3_000,
        ttl_ms_max: 600_000,
    };
    assert_eq!(Status::try_from(pb::StatusReply::from(&status)), Ok(status));
}
