//! Limits on the commands per second of a namespace.

use futures_util::future::join_all;
use lockkeeper::config::Rates;
use lockkeeper::model::{
    Command, Handle, LeaseRequestId, LockKey, LockName, Metadata, Mode, Namespace, Patience, TakeLease,
};
use lockkeeper::service::{Call, LockService, NotSent, ServiceError};

use super::{BACKEND, client};

fn take(namespace: &Namespace, number: u128) -> Call {
    Call::new(Command::TakeLease(TakeLease {
        lock: LockKey { namespace: namespace.clone(), name: LockName::parse("a").expect("legal") },
        take: LeaseRequestId(number),
        handle: Handle::from_random(number),
        access: Mode::Shared.into(),
        lease_ms: 60_000,
        patience: Patience::Try,
        metadata: Metadata::default(),
        claim_ms: None,
    }))
}

/// A namespace that exceeds its rate is refused with the limit and a pause, and other namespaces are not affected. A
/// client that honours the pauses completes its work.
pub(crate) async fn a_namespace_at_its_rate_slows_no_other<S: LockService>(service: S) {
    let named = |what: &str, backend: &str| Namespace::parse(&format!("{what}.{backend}")).expect("legal");
    let of = ["leader", "follower", "remote"]
        .iter()
        .flat_map(|backend| [(named("rate", backend), 2), (named("steady", backend), 10)]);
    for node in crate::shared().cluster.nodes() {
        node.set_rates(Rates { a_second: None, of: of.clone().collect() });
    }
    let free = named("free", BACKEND.get());
    service.submit(take(&free, 1_000)).await.expect("the service answers");
    let ours = named("rate", BACKEND.get());
    let answers = join_all((1..=40).map(|number| service.submit(take(&ours, number)))).await;
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    let bounds: Vec<_> = refused
        .map(|error| {
            let ServiceError::NotSent { why: NotSent::RateExceeded { a_second, pause_ms }, .. } = error else {
                panic!("another error: {error}")
            };
            (*a_second, *pause_ms)
        })
        .collect();
    assert!(!bounds.is_empty() && bounds.len() < 40, "{} of 40 were refused", bounds.len());
    assert!(bounds.iter().all(|(a_second, pause_ms)| *a_second == 2 && (1..=1_000).contains(pause_ms)), "{bounds:?}");
    for answer in join_all((1..=40).map(|number| service.submit(take(&free, number)))).await {
        answer.expect("a namespace without a limit");
    }
    let steady = client(service, "steady");
    for _ in 0..15 {
        steady.lock("a").acquire().await.expect("after a pause").release().await.expect("a release is never refused");
    }
}
