//! Calls of clients that ask for a change, with every field set.

use super::*;

/// Calls that ask for a change, without a session and with one.
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
    };
    let cancelled = pb::CancelTake { lock: lock.clone(), take, handle: handle.clone(), age_ms, since_ms };
    let dropped = pb::DropLease { lock: lock.clone(), handle, age_ms, since_ms };
    let session = proof();
    let acquire = pb::Acquire { session: session.clone(), ..full_acquire() };
    let set = pb::Acquire { session: session.clone(), ..full_set() };
    let (request, name) = (13, LOCK.to_owned());
    let release = pb::Release { session: session.clone(), request, answered_below: 12, lock: name, token: 77 };
    let close = pb::CloseSession { session: session.clone(), end: pb::SessionClose::Lost.into() };
    let mut samples = vec![
        whole("Acquire", acquire.clone()),
        whole("Release", release.clone()),
        whole("OpenSession", full_open()),
        whole("CloseSession", close.clone()),
        whole("TakeLease", taken.clone()),
        whole("DropLease", dropped.clone()),
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
    samples.extend(alterations.map(|alter| command(Asked::Alter(pb::Alter { session: session.clone(), ..alter }))));
    samples
}
