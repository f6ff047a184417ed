//! Refusals with random fields.

use super::*;

pub(in crate::rpc::convert::tests) fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        (lock(), option::of(holder()), option::of(closing())).prop_map(|(lock, holder, closed)| {
            let (holder, closed) = (holder.map(Box::new), closed.map(Box::new));
            Refusal::Held { lock, holder, closed }
        }),
        (session(), lock(), lock()).prop_map(|(session, own, other)| {
            Refusal::OtherNamespace { session, namespace: own.namespace, asked: other.namespace }
        }),
        (session(), end_reason(), option::of(reason())).prop_map(|(session, reason, why)| Refusal::SessionEnded {
            session,
            reason,
            why
        }),
        any::<[u64; 2]>().prop_map(|[number, floor]| Refusal::TooOld { number, floor }),
        (session(), lock()).prop_map(|(session, lock)| {
            let owner = Owner::parse("job").expect("legal");
            let metadata = Metadata { who: "ann".into(), why: "ä".into(), ..Metadata::default() };
            let link = DeadlockLink::new((session, owner), &metadata, lock, WaitReason::Holds);
            Refusal::Deadlock { cycle: vec![link.clone(), link] }
        }),
        (lock(), session()).prop_map(|(lock, session)| Refusal::NotAccepted { lock, session }),
        (lock(), option::of("[a-z]{0,9}")).prop_map(|(lock, text)| {
            let value = text.map(|text| LockValue::parse(&text).expect("legal"));
            Refusal::Changed { lock, value }
        }),
        refusal_of_a_lock(),
        refusal_of_a_request(),
        Just(Refusal::WrongHandle),
        any::<u64>().prop_map(|left_ms| Refusal::Closed { left_ms }),
        "[a-z ]{1,9}".prop_map(|why| Refusal::MembersUnfit { why }),
    ]
}

fn refusal_of_a_lock() -> impl Strategy<Value = Refusal> {
    let kind = prop_oneof![Just(Kind::Lock), Just(Kind::Semaphore)];
    let numbers = || (lock(), any::<[u32; 2]>());
    prop_oneof![
        (lock(), session(), option::of(token())).prop_map(|(lock, session, token)| Refusal::AlreadyHeld {
            lock,
            session,
            token
        }),
        (lock(), kind).prop_map(|(lock, kind)| Refusal::KindMismatch { lock, kind }),
        numbers().prop_map(|(lock, [limit, asked])| Refusal::LimitMismatch { lock, limit, asked }),
        numbers().prop_map(|(lock, [limit, asked])| Refusal::LimitExceeded { lock, limit, asked }),
        numbers().prop_map(|(lock, [held, asked])| Refusal::PermitsNotHeld { lock, held, asked }),
        numbers().prop_map(|(lock, [depth, _])| Refusal::Reentered { lock, depth }),
        lock().prop_map(|lock| Refusal::LimitUnknown { lock }),
        lock().prop_map(|lock| Refusal::NotHeld { lock }),
        (lock(), holder()).prop_map(|(lock, holder)| Refusal::HeldByOther { lock, holder: Box::new(holder) }),
    ]
}

fn refusal_of_a_request() -> impl Strategy<Value = Refusal> {
    let quota = prop_oneof![Just(QuotaKind::Sessions), Just(QuotaKind::WaitersOfLock), Just(QuotaKind::Processes)];
    let field = prop_oneof![Just(DurationField::Ttl), Just(DurationField::Lease), Just(DurationField::TtlMax)];
    let advice = prop_oneof![Just(BoundAdvice::RaiseToFloor), Just(BoundAdvice::RestoresWait)];
    prop_oneof![
        (quota, any::<u64>()).prop_map(|(what, limit)| Refusal::Quota { what, limit }),
        session().prop_map(|session| Refusal::AlreadyOpen { session }),
        end_reason().prop_map(|reason| Refusal::Tombstoned { reason }),
        any::<u64>().prop_map(|newest| Refusal::StaleAttempt { newest }),
        claim().prop_map(|claim| Refusal::RequestReused { claim }),
        any::<u64>().prop_map(|node| Refusal::OtherDisk { node }),
        (field, advice, any::<[u64; 3]>()).prop_map(|(field, advice, [low, high, value])| Refusal::OutOfBounds {
            field,
            low,
            high,
            value,
            advice
        }),
        (any::<u32>(), any::<u64>(), option::of(any::<u32>()))
            .prop_map(|(to, node, supports)| Refusal::FeaturesUnsupported { to, node, supports }),
        any::<[u32; 2]>().prop_map(|[needed, active]| Refusal::FeatureLevel { needed, active }),
    ]
}
