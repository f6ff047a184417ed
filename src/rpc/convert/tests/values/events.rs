//! Events of every kind.

use proptest::prelude::*;

use super::*;

/// Generates kinds of events, each with its subject.
pub(in crate::rpc::convert::tests) fn happening() -> impl Strategy<Value = (Subject, EventKind)> {
    let of_a_lock = (lock(), option::of(token())).prop_map(|(lock, token)| {
        let kind = if token.is_some() { EventKind::Reopened } else { EventKind::LimitChanged { limit: None } };
        (Subject::Lock { lock, claim: None, token }, kind)
    });
    let limited = (lock(), any::<u32>()).prop_map(|(lock, limit)| {
        (Subject::Lock { lock, claim: None, token: None }, EventKind::LimitChanged { limit: Some(limit) })
    });
    prop_oneof![
        (lock(), claim(), of_a_wait()).prop_map(|(lock, claim, kind)| (Subject::wait(&lock, claim), kind)),
        (lock(), claim(), token(), of_a_hold())
            .prop_map(|(lock, claim, token, kind)| (Subject::hold(&lock, claim, token), kind)),
        (lock(), claim(), token(), from_outside())
            .prop_map(|(lock, claim, token, kind)| (Subject::hold(&lock, claim, token), kind)),
        of_a_lock,
        limited,
        session().prop_map(|session| (Subject::Session(session), EventKind::SessionOpened)),
        (session(), end_reason(), option::of(reason()))
            .prop_map(|(session, reason, why)| (Subject::Session(session), EventKind::SessionEnded { reason, why })),
        any::<u64>().prop_map(|gap_ms| (Subject::Cluster, EventKind::LeaderlessGap { gap_ms })),
    ]
}

fn of_a_wait() -> impl Strategy<Value = EventKind> {
    let left = prop_oneof![
        Just(WaitEndReason::TimedOut),
        Just(WaitEndReason::Withdrawn),
        Just(WaitEndReason::SessionEnded),
        Just(WaitEndReason::HoldEnded),
        Just(WaitEndReason::Impossible),
        Just(WaitEndReason::Deadlock)
    ];
    prop_oneof![
        any::<u64>().prop_map(|sequence| EventKind::Queued { sequence }),
        (any::<u64>(), left).prop_map(|(sequence, why)| EventKind::WaitEnded { sequence, why }),
    ]
}

fn of_a_hold() -> impl Strategy<Value = EventKind> {
    prop_oneof![
        (mode(), any::<u64>()).prop_map(|(mode, waited_ms)| EventKind::Granted { mode, waited_ms }),
        any::<u64>().prop_map(|held_ms| EventKind::Released { held_ms }),
        (end_reason(), any::<u64>()).prop_map(|(reason, held_ms)| EventKind::Expired { reason, held_ms }),
        (token(), any::<u64>()).prop_map(|(from, waited_ms)| EventKind::Upgraded { from, waited_ms }),
        Just(EventKind::Downgraded),
        any::<u32>().prop_map(|count| EventKind::PermitsReturned { count }),
        (token(), mode()).prop_map(|(from, mode)| EventKind::Resumed { from, mode }),
        Just(EventKind::ValueChanged),
        Just(EventKind::Recalled),
    ]
}

/// Generates events that a caller other than the holder causes for a hold.
fn from_outside() -> impl Strategy<Value = EventKind> {
    let by = || "[a-z]{1,60}".prop_map(|text| Principal::parse(&text).expect("legal"));
    prop_oneof![
        (by(), reason(), any::<u64>()).prop_map(|(by, why, held_ms)| EventKind::Broken { by, why, held_ms }),
        (claim(), token(), mode(), by()).prop_map(|(was, from, mode, by)| EventKind::HandedOver {
            was,
            from,
            mode,
            by
        }),
        (by(), reason()).prop_map(|(by, why)| EventKind::RevokeRequested { by, why }),
    ]
}
