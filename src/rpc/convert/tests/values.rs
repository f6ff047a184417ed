//! Random values of every kind.

mod events;
mod history;
mod refusals;

use proptest::option;
use proptest::prelude::*;

pub(super) use events::happening;
pub(super) use refusals::refusal;

use crate::model::{
    Access, Alteration, Arrival, Attachment, BoundAdvice, BreakReport, ChainHash, Checked, Claim, Closing,
    DeadlockLink, DurationField, EndReason, Event, EventKind, ExplainedWait, Explanation, Extras, Fairness,
    FencingToken, Grant, GrantFacts, Handle, Health, HistoryPage, HistoryRecord, HolderView, Kind, LeaseRequestId,
    LockKey, LockName, LockSummary, LockValue, LockView, LogTime, Managing, Metadata, Mode, Namespace, Obstacle,
    OnDeadlock, Outcome, Owner, Page, Parent, Part, Participant, Patience, Place, Position, Principal, QueryResult,
    QuotaKind, Reason, Reentry, Refusal, RequestId, SessionId, SessionView, Subject, TokenState, Totals, ValidTokens,
    WaitEndReason, WaitReason, WaiterView, WallTime,
};

pub(super) fn session() -> impl Strategy<Value = SessionId> {
    (1..1u64 << 63).prop_map(|number| SessionId::from_u64(number).expect("within 63 bits"))
}

pub(super) fn token() -> impl Strategy<Value = FencingToken> {
    (1..1u64 << 63).prop_map(|number| FencingToken::from_u64(number).expect("within 63 bits"))
}

fn lock_name() -> impl Strategy<Value = LockName> {
    "[a-zäß/ ]{1,40}".prop_map(|name| LockName::parse(&name).expect("legal"))
}

pub(super) fn lock() -> impl Strategy<Value = LockKey> {
    ("[a-z0-9._-]{1,64}", lock_name())
        .prop_map(|(namespace, name)| LockKey { namespace: Namespace::parse(&namespace).expect("legal"), name })
}

fn at() -> impl Strategy<Value = LogTime> {
    any::<u64>().prop_map(LogTime)
}

pub(super) fn access() -> impl Strategy<Value = Access> {
    let permits = || 1..=crate::limits::PERMITS_MAX;
    prop_oneof![
        Just(Mode::Exclusive.into()),
        Just(Mode::Shared.into()),
        (permits(), option::of(permits())).prop_map(|(count, limit)| Access::permits(count, limit)),
    ]
}

pub(super) fn mode() -> impl Strategy<Value = Mode> {
    access().prop_map(|access| access.mode)
}

pub(super) fn patience() -> impl Strategy<Value = Patience> {
    prop_oneof![
        Just(Patience::Try),
        Just(Patience::Session),
        (1..=crate::limits::PATIENCE_MS_MAX).prop_map(|ms| Patience::For { ms }),
    ]
}

pub(super) fn metadata() -> impl Strategy<Value = Metadata> {
    ("[a-zé \n\t\"]{0,60}", "[a-z]{0,60}", any::<u32>()).prop_map(|(why, host, pid)| Metadata {
        who: "captain".into(),
        why: why.into(),
        host: host.into(),
        pid,
        process: "h:1:2:3".into(),
        trace: "".into(),
    })
}

pub(super) fn owner() -> impl Strategy<Value = Option<Owner>> {
    option::of("[a-z]{1,128}".prop_map(|owner| Owner::parse(&owner).expect("legal")))
}

pub(super) fn extras() -> impl Strategy<Value = Extras> {
    let reentry = prop_oneof![Just(Reentry::Refuse), Just(Reentry::Count), Just(Reentry::Wait)];
    let fairness = prop_oneof![Just(Fairness::Fair), Just(Fairness::Barging)];
    let deadlock = prop_oneof![Just(OnDeadlock::Refuse), Just(OnDeadlock::Wait)];
    let value = option::of("[a-zé\n]{0,60}".prop_map(|text| LockValue::parse(&text).expect("legal")));
    let parent = option::of((session(), owner()))
        .prop_map(|parent| parent.and_then(|(session, owner)| owner.map(|owner| Parent { session, owner })));
    let later = (option::of(any::<u64>()), option::of(any::<u64>()), any::<bool>());
    (reentry, fairness, any::<u64>(), value, parent, deadlock, later).prop_map(
        |(reentry, fairness, delay_ms, value, parent, deadlock, (at_least_ms, at_most_ms, cached))| Extras {
            reentry,
            fairness,
            delay_ms,
            value,
            parent,
            deadlock,
            at_least_ms,
            at_most_ms,
            cached,
        },
    )
}

fn handle() -> impl Strategy<Value = Handle> {
    "[a-z]{1,128}".prop_map(|handle| Handle::parse(&handle).expect("legal"))
}

fn reason() -> impl Strategy<Value = Reason> {
    "[a-zé ]{1,60}".prop_map(|text| Reason::parse(&text).expect("legal"))
}

pub(super) fn alteration() -> impl Strategy<Value = Alteration> {
    let value = option::of("[a-zé\n]{0,60}".prop_map(|text| LockValue::parse(&text).expect("legal")));
    prop_oneof![
        token().prop_map(|token| Alteration::Downgrade { token }),
        (token(), patience()).prop_map(|(token, patience)| Alteration::Upgrade { token, patience }),
        (token(), handle(), option::of(any::<u64>())).prop_map(|(token, handle, lease_ms)| Alteration::Resume {
            token,
            handle,
            lease_ms
        }),
        (token(), value).prop_map(|(token, value)| Alteration::SetValue { token, value }),
        (token(), any::<u32>()).prop_map(|(token, count)| Alteration::ReturnPermits { token, count }),
    ]
}

pub(super) fn managing() -> impl Strategy<Value = Managing> {
    prop_oneof![
        any::<u32>().prop_map(|limit| Managing::SetLimit { limit }),
        Just(Managing::RemoveLimit),
        (token(), reason()).prop_map(|(token, why)| Managing::BreakHold { token, why }),
        (token(), reason()).prop_map(|(token, why)| Managing::Ask { token, why }),
        (token(), session()).prop_map(|(token, to)| Managing::HandOver { token, to }),
    ]
}

fn claim() -> impl Strategy<Value = Claim> {
    prop_oneof![
        (session(), any::<u64>()).prop_map(|(session, number)| Claim::Request(RequestId { session, number })),
        any::<u128>().prop_map(|take| Claim::Lease(LeaseRequestId(take))),
    ]
}

fn end_reason() -> impl Strategy<Value = EndReason> {
    use EndReason::{Broken, Cancelled, Expired, HandedOver, Lost, Overtaken, Released, TimeOver};
    prop_oneof![
        Just(HandedOver),
        Just(Released),
        Just(Expired),
        Just(Lost),
        Just(Cancelled),
        Just(Broken),
        Just(Overtaken),
        Just(TimeOver)
    ]
}

fn holder() -> impl Strategy<Value = HolderView> {
    (option::of(session()), owner(), token(), mode(), metadata(), any::<u64>(), any::<[bool; 2]>()).prop_map(
        |(session, owner, token, mode, metadata, at, [cached, recalled])| HolderView {
            session,
            owner,
            principal: Principal::default(),
            token,
            mode,
            metadata,
            since: LogTime(at),
            deadline: (at % 3 != 0).then_some(LogTime(at ^ 1)),
            cached,
            recalled,
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

fn grant() -> impl Strategy<Value = Grant> {
    let ends = || option::of(any::<u64>().prop_map(LogTime));
    let parts = (token(), ends(), ends(), any::<u64>());
    parts.prop_map(|(token, deadline, ends, waited_ms)| Grant { token, deadline, ends, waited_ms })
}

fn closing() -> impl Strategy<Value = Closing> {
    (token(), "[a-zé]{0,20}", any::<u64>()).prop_map(|(token, who, until)| Closing {
        token,
        who: who.as_str().into(),
        until: LogTime(until),
        left_ms: until / 2,
    })
}

pub(super) fn outcome() -> impl Strategy<Value = Outcome> {
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
        grant().prop_map(Outcome::Granted),
        some_of((lock_name(), grant())).prop_map(Outcome::GrantedSet),
        (lock_name(), any::<[u64; 2]>(), option::of(holder())).prop_map(|(lock, [place, sequence], held_by)| {
            Outcome::Queued(Place { lock, place, sequence, held_by: held_by.map(Box::new) })
        }),
        end_reason().prop_map(|reason| Outcome::HoldEnded { reason }),
        refusal().prop_map(Outcome::Refused),
        Just(Outcome::Closed),
        Just(Outcome::TimedOut),
        Just(Outcome::Withdrawn),
        any::<u32>().prop_map(|left| Outcome::Released { left }),
        Just(Outcome::Downgraded),
        Just(Outcome::Done),
        (any::<bool>(), holder(), option::of(at()), option::of(waiter())).prop_map(
            |(done, holder, last_seen, next)| {
                Outcome::Broken(Box::new(BreakReport { done, holder, last_seen, next }))
            }
        ),
        (token(), session(), any::<u64>())
            .prop_map(|(token, session, number)| Outcome::HandedOver { token, to: RequestId { session, number } }),
        any::<u64>().prop_map(|locks| Outcome::Freed { locks }),
    ]
}

fn participant() -> impl Strategy<Value = Participant> {
    let health = prop_oneof![
        Just(Health::Live),
        Just(Health::Overdue),
        Just(Health::Disconnected),
        Just(Health::Lease),
        Just(Health::Gone)
    ];
    (option::of(session()), owner(), metadata(), option::of(token()), mode(), (health, any::<bool>()), at()).prop_map(
        |(session, owner, metadata, token, mode, (health, recalled), since)| Participant {
            session,
            owner,
            metadata,
            token,
            mode,
            since,
            health,
            ends: (since.0 % 3 != 0).then_some(since),
            recalled,
        },
    )
}

fn obstacle() -> impl Strategy<Value = Obstacle> {
    let why = prop_oneof![
        Just(WaitReason::Holds),
        Just(WaitReason::StandsAhead),
        Just(WaitReason::Nested),
        Just(WaitReason::Closed)
    ];
    (lock(), why, option::of(any::<u64>()), participant()).prop_map(|(lock, why, sequence, who)| Obstacle {
        lock,
        why,
        sequence,
        who,
    })
}

fn explained_wait() -> impl Strategy<Value = ExplainedWait> {
    let parent = (session(), owner()).prop_map(|(session, owner)| owner.map(|owner| Parent { session, owner }));
    (lock(), any::<[u64; 2]>(), participant(), parent, option::of(at()), some_of(obstacle())).prop_map(
        |(lock, [place, sequence], waiter, parent, until, waits_for)| ExplainedWait {
            lock,
            place,
            sequence,
            waiter,
            parent,
            until,
            waits_for,
        },
    )
}

/// Answers of every kind; rows have the namespace of their request, which the reply names once.
pub(super) fn answer() -> impl Strategy<Value = QueryResult> {
    let kind = || prop_oneof![Just(Kind::Lock), Just(Kind::Semaphore)];
    let state = prop_oneof![Just(TokenState::Valid), Just(TokenState::Stale), Just(TokenState::UnknownEpoch)];
    let value = || option::of("[a-zé]{0,40}".prop_map(|text| LockValue::parse(&text).expect("legal")));
    let numbers = (option::of(any::<u32>()), any::<[u64; 2]>(), option::of(any::<u64>()));
    let row = (lock_name(), kind(), numbers, option::of(holder()), value()).prop_map(
        |(name, kind, (limit, [holders, waiters], delay_ms), oldest, value)| LockSummary {
            lock: LockKey { namespace: Namespace::parse("team-a").expect("legal"), name },
            kind,
            limit,
            holders,
            waiters,
            oldest,
            delay_ms,
            value,
        },
    );
    let session_row = (session(), metadata(), any::<[u64; 6]>(), any::<bool>()).prop_map(
        |(session, metadata, [ttl_ms, opened, deadline, leaderless_ms, holds, waits], disconnected)| SessionView {
            session,
            namespace: Namespace::parse("team-a").expect("legal"),
            metadata,
            ttl_ms,
            opened: LogTime(opened),
            deadline: LogTime(deadline),
            disconnected,
            leaderless_ms,
            holds,
            waits,
        },
    );
    let closed = some_of(closing());
    let view = (lock(), option::of(kind()), option::of(any::<u32>()), some_of(holder()), some_of(waiter()), closed)
        .prop_map(|(lock, kind, limit, holders, waiters, closed)| {
            let delay_ms = limit.map(u64::from);
            let value = limit.map(|limit| LockValue::parse(&limit.to_string()).expect("legal"));
            let free = holders.is_empty();
            LockView { lock, kind, limit, holders, waiters, delay_ms, closed, value, free }
        });
    prop_oneof![
        (state, token(), option::of(at()), option::of(at())).prop_map(|(state, lowest_valid, since, deadline)| {
            QueryResult::Checked(Checked { state, lowest_valid, since, deadline })
        }),
        view.prop_map(QueryResult::Lock),
        outcome().prop_map(QueryResult::WouldBreak),
        (some_of(row), option::of(lock_name())).prop_map(|(rows, next)| QueryResult::Locks(Part { rows, next })),
        (some_of(session_row), option::of(session()))
            .prop_map(|(rows, next)| QueryResult::Sessions(Part { rows, next })),
        option::of((outcome(), some_of(token()))).prop_map(|claim| {
            let (outcome, recalled) = claim.unzip();
            QueryResult::Claim { outcome, recalled: recalled.unwrap_or_default() }
        }),
        (some_of(super::documents::document()), option::of(lock_name()))
            .prop_map(|(rows, next)| QueryResult::Documents(Part { rows, next })),
        (some_of(super::documents::ping()), any::<bool>())
            .prop_map(|(rows, more)| QueryResult::Pings(Page { rows, more })),
        any::<u64>().prop_map(|grants| QueryResult::Totals(Totals { grants, ..Totals::default() })),
        (some_of(explained_wait()), some_of(obstacle()), any::<bool>())
            .prop_map(|(chain, freed_by, more)| QueryResult::Explained(Explanation { chain, freed_by, more })),
        history::page().prop_map(QueryResult::History),
        (lock(), any::<(u64, u32)>(), some_of(token()), token()).prop_map(|(lock, (index, n), tokens, next)| {
            let seen = Position { index, n };
            QueryResult::Tokens(ValidTokens { lock, seen, tokens: tokens.into_iter().collect(), next })
        }),
    ]
}

pub(super) fn some_of<S: Strategy>(one: S) -> impl Strategy<Value = Vec<S::Value>> {
    proptest::collection::vec(one, 0..3)
}
