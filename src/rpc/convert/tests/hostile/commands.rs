//! Calls of clients that ask for a change, with every field set.

use super::*;

fn proof() -> pb::SessionProof {
    pb::SessionProof { id: SESSION, handle: HANDLE.to_owned() }
}

fn lease() -> pb::LeaseProof {
    pb::LeaseProof { handle: HANDLE.to_owned() }
}

/// Calls that ask for a change, without a session and with one.
pub(super) fn samples() -> Vec<Sample> {
    use pb::command_request::Command as What;
    let (namespace, lock, _) = texts();
    let (uuid, age_ms, since_ms) = ("01234567-89ab-cdef-0123-456789abcdef".to_owned(), 5, Some(1_200));
    let asked = pb::AcquireRequest {
        namespace: namespace.clone(),
        lock: lock.clone(),
        mode: permits(),
        wait_ms: patient(),
        metadata: described(),
        lease_ms: Some(70_000),
        age_ms,
        since_ms,
        ..Default::default()
    };
    let leased = Some(pb::acquire_request::Holder::Lease(lease()));
    let leased = pb::AcquireRequest { holder: leased, request: uuid.clone(), ..asked.clone() };
    let held = Some(pb::acquire_request::Holder::Session(proof()));
    let pb::StreamAcquire { owner, extras, .. } = full_acquire();
    let pb::Extras { reentry, unfair, delay_ms, value, parent, wait_in_cycles, at_least_ms, at_most_ms, .. } =
        extras.expect("all of them");
    let held = pb::AcquireRequest {
        holder: held,
        request: "12".to_owned(),
        owner,
        reentry,
        unfair,
        delay_ms,
        value,
        parent,
        wait_in_cycles,
        at_least_ms,
        at_most_ms,
        answered_below: 11,
        ..asked
    };
    let named = || (namespace.clone(), lock.clone());
    let refresh = |holder, token| {
        let (namespace, lock) = named();
        pb::RefreshRequest { namespace, lock, holder: Some(holder), token, lease_ms: 70_000, attempt: 9 }
    };
    let release = |holder, token, request: &str| {
        let (namespace, lock) = named();
        let (request, answered_below) = (request.to_owned(), 12);
        pb::ReleaseRequest { namespace, lock, holder: Some(holder), token, request, answered_below, age_ms, since_ms }
    };
    let withdraw = |holder, request: &str| {
        let (namespace, lock) = named();
        pb::WithdrawRequest { namespace, lock, holder: Some(holder), request: request.to_owned(), age_ms, since_ms }
    };
    let pb::StreamOpen { handle, instance, ttl_ms, metadata, accepts_hand_over, .. } = full_open();
    let open =
        pb::OpenSessionRequest { namespace: namespace.clone(), handle, instance, ttl_ms, metadata, accepts_hand_over };
    let session = Some(proof());
    let closed = pb::CloseSessionRequest { namespace: namespace.clone(), session: session.clone(), lost: true };
    let renewed = pb::KeepAliveRequest { namespace: namespace.clone(), session: session.clone(), attempt: 4 };
    let key = Some(pb::LockKey { namespace: namespace.clone(), name: lock.clone() });
    let settled = pb::WaitOutcomeRequest { lock: key, claim: claim() };
    let mut samples = vec![
        whole("AcquireRequest", leased),
        whole("AcquireRequest", held),
        whole("RefreshRequest", refresh(pb::refresh_request::Holder::Lease(lease()), 0)),
        whole("RefreshRequest", refresh(pb::refresh_request::Holder::Session(proof()), 77)),
        whole("ReleaseRequest", release(pb::release_request::Holder::Lease(lease()), 0, "")),
        whole("ReleaseRequest", release(pb::release_request::Holder::Session(proof()), 77, "13")),
        whole("WithdrawRequest", withdraw(pb::withdraw_request::Holder::Lease(lease()), &uuid)),
        whole("WithdrawRequest", withdraw(pb::withdraw_request::Holder::Session(proof()), "12")),
        whole("OpenSessionRequest", open),
        whole("CloseSessionRequest", closed),
        whole("KeepAliveRequest", renewed),
        whole("WaitOutcomeRequest", settled),
    ];
    let mut alone = vec![
        What::Acquire(full_acquire()),
        What::AcquireSet(full_set()),
        What::Release(pb::StreamRelease { request: 13, answered_below: 12, lock: lock.clone(), token: 77 }),
        What::Cancel(pb::StreamCancel { request: 12 }),
        What::Close(pb::StreamClose { end: pb::SessionClose::Done.into() }),
    ];
    alone.extend(full_alterations().into_iter().map(What::Alter));
    for command in alone {
        let (namespace, session, command) = (namespace.clone(), session.clone(), Some(command));
        samples.push(whole("CommandRequest", pb::CommandRequest { namespace, session, command }));
    }
    samples
}
