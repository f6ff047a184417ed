//! Calls of clients that change the state, with every field set.

use super::*;

/// Calls that change the state, with and without a session.
pub(super) fn samples() -> Vec<Sample> {
    use pb::command::Command as Asked;
    let (take, handle) = ("0123456789abcdef0123456789abcdef".to_owned(), HANDLE.to_owned());
    let (lock, age_ms, since_ms) = (key(), 5, Some(1_200));
    let taken = pb::TakeLease {
        lock: lock.clone(),
        take: take.clone(),
        handle: handle.clone(),
        mode: permits(),
        limit: Some(5),
        lease_ms: 70_000,
        wait_ms: patient(),
        metadata: described(),
        age_ms,
        since_ms,
        claim_ms: Some(15_000),
    };
    let cancelled = pb::CancelTake { lock: lock.clone(), take, handle: handle.clone(), age_ms, since_ms };
    let dropped = pb::DropLease { lock: lock.clone(), handle, age_ms, since_ms };
    let session = proof();
    let acquire = pb::Acquire { session: session.clone(), ..full_acquire() };
    let set = pb::Acquire { session: session.clone(), ..full_set() };
    let (request, name) = (13, LOCK.to_owned());
    let release =
        pb::Release { session: session.clone(), request, answered_below: 12, lock: name, token: 77, acquire: 0 };
    let close = pb::CloseSession { session: session.clone(), end: pb::SessionClose::Lost.into() };
    let mut samples = vec![
        whole("KeepAliveRequest", pb::KeepAliveRequest { session: session.clone(), attempt: 5 }),
        whole("OpenSession", full_open()),
        whole("CloseSession", close.clone()),
        whole("WaitOutcomeRequest", pb::WaitOutcomeRequest { lock, claim: claim() }),
    ];
    let alterations = full_alterations().into_iter();
    let commands = [
        Asked::Acquire(acquire),
        Asked::Acquire(set),
        Asked::Release(release),
        Asked::Cancel(pb::Cancel { session: session.clone(), request: 12 }),
        Asked::CloseSession(close),
        Asked::OpenSession(full_open()),
        Asked::TakeLease(taken),
        Asked::CancelTake(cancelled),
        Asked::DropLease(dropped),
    ];
    samples.extend(commands.map(command));
    samples.extend(calls_of_holders());
    samples.extend(alterations.map(|alter| command(Asked::Alter(pb::Alter { session: session.clone(), ..alter }))));
    samples
}

/// Returns the calls of programs without a stream, each for a session and for a lease.
fn calls_of_holders() -> Vec<Sample> {
    use pb::{acquire_request, refresh_request, release_request};
    let session = || proof().expect("a proof");
    let (namespace, lock, handle) = ("default".to_owned(), LOCK.to_owned(), HANDLE.to_owned());
    let acquire = pb::AcquireRequest {
        namespace: namespace.clone(),
        lock: lock.clone(),
        request: "12".to_owned(),
        mode: permits(),
        limit: Some(5),
        wait_ms: patient(),
        lease_ms: Some(5_000),
        metadata: described(),
        ..Default::default()
    };
    let in_session = pb::AcquireRequest {
        holder: Some(acquire_request::Holder::Session(session())),
        owner: Some("job".to_owned()),
        extras: full_extras(),
        ..acquire.clone()
    };
    let as_lease = pb::AcquireRequest {
        holder: Some(acquire_request::Holder::Handle(handle.clone())),
        request: "01234567-89ab-cdef-0123-456789abcdef".to_owned(),
        age_ms: 5,
        since_ms: Some(1_200),
        ..acquire
    };
    let refresh = |holder, token| {
        let (namespace, lock) = (namespace.clone(), lock.clone());
        pb::RefreshRequest { holder: Some(holder), namespace, lock, token, lease_ms: 5_000, attempt: 5 }
    };
    let release = |holder, token, request: &str, since_ms: Option<u64>| {
        let (namespace, lock, request) = (namespace.clone(), lock.clone(), request.to_owned());
        let age_ms = u64::from(since_ms.is_some());
        pb::ReleaseRequest { holder: Some(holder), namespace, lock, token, request, age_ms, since_ms }
    };
    vec![
        whole("AcquireRequest", in_session),
        whole("AcquireRequest", as_lease),
        whole("RefreshRequest", refresh(refresh_request::Holder::Session(session()), 77)),
        whole("RefreshRequest", refresh(refresh_request::Holder::Handle(handle.clone()), 0)),
        whole("ReleaseRequest", release(release_request::Holder::Session(session()), 77, "13", None)),
        whole("ReleaseRequest", release(release_request::Holder::Handle(handle), 0, "", Some(1_200))),
    ]
}
