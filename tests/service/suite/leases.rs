//! Token leases: locks without a session.

use std::time::Duration;

use lockkeeper::model::{
    Command, Handle, LeaseRequestId, LockKey, Metadata, Mode, Namespace, Outcome, Patience, Refusal, RenewalTarget,
    TakeLease,
};
use lockkeeper::service::{Call, ErrorCode, LockService, Proof, RenewalCall};

use super::{BACKEND, LONG, SHORT, client, in_use};

/// Only the handle of a lease can refresh and release it.
pub(crate) async fn a_lease_belongs_to_its_handle<S: LockService>(service: S) {
    let client = client(service.clone(), "lease");
    let mut lease = client.lease("a").duration(LONG).take().await.expect("free");
    assert!(lease.valid_for() > Duration::ZERO && lease.valid_for() <= LONG);
    let stranger = client.lease("a").take().await.expect_err("held");
    assert_eq!(stranger.code(), ErrorCode::NotAcquired);
    let refreshed = lease.refresh_for(LONG * 2).await.expect("held");
    assert!(LONG < refreshed.valid_for && LONG < lease.valid_for());
    let wrong = lockkeeper::model::Handle::parse("not the handle").expect("a good handle");
    client.refresh("a", &wrong, LONG).await.expect_err("not its handle");
    client.release("a", &wrong).await.expect_err("not its handle");
    client.refresh("a", lease.handle(), LONG).await.expect("its handle");
    client.release("a", lease.handle()).await.expect("its handle");
    assert!(lease.release().await.is_err(), "released already");
    in_use(&client, "a", 0, 0).await;
}

/// A lease that is not refreshed expires, first for its holder and then for the cluster, and the next waiter is
/// granted.
pub(crate) async fn a_lease_expires<S: LockService>(service: S) {
    let client = client(service.clone(), "lease-end");
    let first = client.lease("a").duration(SHORT).take().await.expect("free");
    let second = client.lease("a").duration(LONG).wait(LONG).take().await.expect("the first one ends");
    assert_eq!(first.valid_for(), Duration::ZERO);
    assert!(first.token() < second.token());
    assert!(second.valid_for() > LONG / 2, "{:?}", second.valid_for());
    second.release().await.expect("released");
}

/// A take that times out or is dropped leaves no waiter.
pub(crate) async fn a_take_that_ends_early_leaves_no_waiter<S: LockService>(service: S) {
    let client = client(service.clone(), "lease-wait");
    let holder = client.lease("a").duration(LONG).take().await.expect("free");
    client.lease("a").wait(SHORT).take().await.expect_err("held");
    in_use(&client, "a", 1, 0).await;
    assert!(tokio::time::timeout(SHORT, client.lease("a").wait(LONG).take()).await.is_err());
    in_use(&client, "a", 1, 0).await;
    holder.release().await.expect("released");
}

/// A lease can be shared, and a waiting lease is granted when the holder releases the lock.
pub(crate) async fn a_lease_waits_its_turn<S: LockService>(service: S) {
    let client = client(service, "lease-turn");
    let first = client.lease("a").mode(Mode::Shared).duration(LONG).take().await.expect("free");
    client.lease("a").mode(Mode::Shared).duration(LONG).take().await.expect("shared").release().await.expect("held");
    let waits = client.lease("a").duration(LONG).wait(LONG);
    let (second, released) = tokio::join!(waits.take(), async {
        in_use(&client, "a", 1, 1).await;
        first.release().await
    });
    released.expect("released");
    second.expect("granted").release().await.expect("released");
}

/// A delayed refresh changes nothing once a newer one was applied, and every client with the handle can refresh the
/// lease.
pub(crate) async fn a_delayed_refresh_changes_nothing<S: LockService>(service: S) {
    let client = client(service.clone(), "lease-late");
    let mut lease = client.lease("a").duration(LONG).take().await.expect("free");
    lease.refresh_for(LONG * 2).await.expect("held");
    let lock = LockKey {
        namespace: Namespace::parse(&format!("lease-late.{}", BACKEND.get())).expect("legal"),
        name: lease.name().clone(),
    };
    let target = RenewalTarget::Lease { lock, handle: lease.handle().clone(), lease_ms: 1 };
    let late = service.renew(vec![RenewalCall { target, proof: Proof::Trusted, attempt: 1 }]).await.expect("answered");
    let Outcome::Renewed { deadline, attempt: 1, token } = late[0].outcome else { panic!("{late:?}") };
    assert_eq!((deadline, token), (lease.deadline(), Some(lease.token())));
    client.refresh("a", lease.handle(), LONG * 4).await.expect("its handle");
    let refreshed = lease.refresh_for(LONG * 8).await.expect("held");
    assert!(LONG * 4 < refreshed.valid_for, "{refreshed:?}");
    let refreshed = client.refresh("a", lease.handle(), LONG).await.expect("its handle");
    assert!(refreshed.valid_for <= LONG, "the newest refresh applies, even if it is shorter: {refreshed:?}");
    lease.release().await.expect("released");
}

/// A repeated take that was refused is refused again, even if the lock is free by then.
pub(crate) async fn a_refused_take_stays_refused<S: LockService>(service: S) {
    let client = client(service.clone(), "lease-refused");
    let holder = client.lease("a").duration(LONG).take().await.expect("free");
    let name = holder.name().clone();
    let take = |id| TakeLease {
        lock: LockKey {
            namespace: Namespace::parse(&format!("lease-refused.{}", BACKEND.get())).expect("legal"),
            name: name.clone(),
        },
        take: LeaseRequestId(id),
        handle: Handle::from_random(id),
        access: Mode::Exclusive.into(),
        lease_ms: 1_000,
        patience: Patience::Try,
        metadata: Metadata::default(),
        claim_ms: None,
    };
    let call = |id| Call::new(Command::TakeLease(take(id)));
    let refused = service.submit(call(1)).await.expect("answered").outcome;
    assert!(matches!(refused, Outcome::Refused(Refusal::Held { .. })), "{refused:?}");
    holder.release().await.expect("released");
    let late = service.submit(call(1)).await.expect("answered").outcome;
    assert!(matches!(late, Outcome::Refused(Refusal::Held { .. })), "{late:?}");
    let new_take = service.submit(call(2)).await.expect("answered").outcome;
    assert!(matches!(new_take, Outcome::Granted(_)), "{new_take:?}");
}
