//! Events of every kind.

use proptest::prelude::*;

use super::*;

pub(in crate::rpc::convert::tests) fn event_kind() -> impl Strategy<Value = EventKind> {
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
        (lock(), claim(), token(), any::<u32>()).prop_map(|(lock, claim, token, count)| EventKind::PermitsReturned {
            lock,
            claim,
            token,
            count
        }),
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
        (session(), end_reason(), option::of(reason())).prop_map(|(session, reason, why)| EventKind::SessionEnded {
            session,
            reason,
            why
        }),
        any::<u64>().prop_map(|gap_ms| EventKind::LeaderlessGap { gap_ms }),
    ]
}

/// Events of what is done from outside.
pub(in crate::rpc::convert::tests) fn managed_event() -> impl Strategy<Value = EventKind> {
    let why = reason;
    let by = || "[a-z]{1,60}".prop_map(|text| Principal::parse(&text).expect("legal"));
    prop_oneof![
        (lock(), claim(), token(), by(), why(), any::<u64>()).prop_map(|(lock, claim, token, by, why, held_ms)| {
            EventKind::Broken { lock, claim, token, by, why, held_ms }
        }),
        (lock(), claim(), claim(), token(), token(), mode(), by()).prop_map(
            |(lock, claim, was, from, token, mode, by)| EventKind::HandedOver {
                lock,
                claim,
                was,
                from,
                token,
                mode,
                by
            }
        ),
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
