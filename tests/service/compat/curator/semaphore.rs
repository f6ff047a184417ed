//! Tests of Curator's semaphore.

use lockkeeper::client::HoldState;
use lockkeeper::compat::curator::{InterProcessSemaphoreV2, Revoker, SharedCount};
use lockkeeper::service::{ErrorCode, LockService};

use super::{code, curator};
use crate::suite::{LONG, SHORT, in_use};

recipe_tests! {
    r_sem_01_more_than_there_are_is_refused_at_once
    r_sem_02_leases_are_granted_together_or_not_at_all
    r_sem_03_the_limit_changes_while_it_is_used
    r_sem_04_the_clusters_limit_counts
    leases_are_returned_once
    leases_acquired_together_are_free_one_by_one
}

/// R-SEM-01: a request for four leases of three, or for none, is refused at once.
async fn r_sem_01_more_than_there_are_is_refused_at_once<S: LockService>(service: S) {
    let curator = curator(service, "sem-01").await;
    let semaphore = InterProcessSemaphoreV2::new(&curator, "s", 3);
    let refused = semaphore.acquire_many(4).await.expect_err("there are three");
    assert_eq!(code(&refused), Some(ErrorCode::LimitExceeded));
    let none = semaphore.acquire_many(0).await.expect_err("at least one");
    assert_eq!(code(&none), Some(ErrorCode::Invalid));
    in_use(curator.client(), "s", 0, 0).await;
}

/// R-SEM-02: two clients want three of four leases each: one gets three, the other waits. If leases were acquired one
/// by one, both would get two and wait permanently.
async fn r_sem_02_leases_are_granted_together_or_not_at_all<S: LockService>(service: S) {
    let (mut free, mut has) = (4, [0, 0]);
    while 0 < free {
        for acquired in has.iter_mut().filter(|acquired| **acquired < 3).take(free) {
            (*acquired, free) = (*acquired + 1, free - 1);
        }
    }
    assert_eq!(has, [2, 2], "neither has three, and neither releases");

    let (one, two) = (curator(service.clone(), "sem-02").await, curator(service, "sem-02").await);
    let (a, b) = (InterProcessSemaphoreV2::new(&one, "s", 4), InterProcessSemaphoreV2::new(&two, "s", 4));
    let (mut first, mut second) = (Box::pin(a.acquire_many(3)), Box::pin(b.acquire_many(3)));
    let first_won = tokio::select! {
        leases = &mut first => { assert_eq!(leases.as_ref().map(Vec::len), Ok(3)); (leases, true) }
        leases = &mut second => { assert_eq!(leases.as_ref().map(Vec::len), Ok(3)); (leases, false) }
    };
    let (leases, first_won) = (first_won.0.expect("three"), first_won.1);
    let loser = if first_won { &mut second } else { &mut first };
    tokio::select! {
        _ = &mut *loser => panic!("only one lease is left"),
        () = in_use(one.client(), "s", 1, 1) => {}
    }
    assert!(a.acquire_within(SHORT).await.expect("answered").is_none(), "no request passes the waiter");
    a.return_all(leases).await.expect("held");
    let leases = loser.await.expect("its turn");
    assert_eq!(leases.len(), 3);
    drop(leases);
    in_use(one.client(), "s", 0, 0).await;
    let left = a.acquire_many_within(3, LONG).await.expect("answered").expect("free");
    assert!(b.acquire_many_within(3, SHORT).await.expect("answered").is_none());
    in_use(one.client(), "s", 1, 0).await;
    a.return_all(left).await.expect("held");
}

/// R-SEM-03: a raised limit grants waiters; a lowered one evicts no holder, and nothing is granted until enough leases
/// are returned.
async fn r_sem_03_the_limit_changes_while_it_is_used<S: LockService>(service: S) {
    let curator = curator(service, "sem-03").await;
    let count = SharedCount::new(&curator, "s");
    count.set_count(1).await.expect("set");
    let semaphore = InterProcessSemaphoreV2::with_count(&count);
    let one = semaphore.acquire().await.expect("free");
    let (two, raised) = tokio::join!(semaphore.acquire_within(LONG), async {
        in_use(curator.client(), "s", 1, 1).await;
        count.set_count(2).await
    });
    raised.expect("raised");
    let two = two.expect("answered").expect("let in");
    count.set_count(1).await.expect("lowered");
    in_use(curator.client(), "s", 2, 0).await;
    assert_eq!(count.count().await.expect("asked"), Some(1));
    semaphore.return_lease(one).await.expect("held");
    assert!(
        semaphore.acquire_within(SHORT).await.expect("answered").is_none(),
        "one lease is taken, and the limit is one"
    );
    semaphore.return_lease(two).await.expect("held");
    drop(semaphore.acquire_within(LONG).await.expect("answered").expect("free"));
}

/// R-SEM-04: a client with another limit than the cluster's is refused. In Curator each client uses its own limit, and
/// the highest of them decides how many leases there are.
async fn r_sem_04_the_clusters_limit_counts<S: LockService>(service: S) {
    let (mut leases, mut grants) = (0, 0);
    for limit in [1, 1, 3, 3, 3] {
        if leases < limit {
            (leases, grants) = (leases + 1, grants + 1);
        }
    }
    assert_eq!(grants, 3, "although two clients expect a limit of one");

    let curator = curator(service, "sem-04").await;
    let (one, three) = (InterProcessSemaphoreV2::new(&curator, "s", 1), InterProcessSemaphoreV2::new(&curator, "s", 3));
    let lease = one.acquire().await.expect("free");
    let refused = three.acquire_within(LONG).await.expect_err("the limit is one");
    assert_eq!(code(&refused), Some(ErrorCode::LimitMismatch));
    assert!(one.acquire_within(SHORT).await.expect("answered").is_none());
    one.return_lease(lease).await.expect("held");
    let lease = three.acquire().await.expect("an unused semaphore takes the limit of the next client");
    three.return_lease(lease).await.expect("held");
}

/// A lease is returned once, even if it is closed several times. It shows its data and can be revoked.
async fn leases_are_returned_once<S: LockService>(service: S) {
    let curator = curator(service, "sem-lease").await;
    let semaphore = InterProcessSemaphoreV2::new(&curator, "s", 2);
    semaphore.set_node_data("worker 7").expect("short");
    let (mut one, two) = (semaphore.acquire().await.expect("free"), semaphore.acquire().await.expect("free"));
    assert!(one.token() < two.token());
    assert_eq!((one.data(), one.state()), (Some("worker 7"), HoldState::Held));
    one.close().await.expect("held");
    one.close().await.expect("harmless");
    assert!(one.watch().is_none());
    drop(one);
    let nodes = semaphore.participant_nodes().await.expect("asked");
    assert_eq!(nodes.iter().map(|node| node.token).collect::<Vec<_>>(), [Some(two.token())]);
    let watch = two.watch().expect("held");
    let asks = async {
        loop {
            Revoker::attempt_revoke(&curator, "s", &nodes[0], "please").await.expect("held");
            tokio::time::sleep(SHORT).await;
        }
    };
    let asked = tokio::select! {
        asked = watch.revoke_requested() => asked.expect("held"),
        () = asks => unreachable!("it never ends"),
    };
    assert_eq!(asked.why.as_str(), "please");
    drop(two);
    assert!(watch.revoke_requested().await.is_none());
    in_use(curator.client(), "s", 0, 0).await;
}

/// Leases that were acquired together are freed one by one, by a return or a drop, in any order. A waiter is granted
/// when enough of them are free.
async fn leases_acquired_together_are_free_one_by_one<S: LockService>(service: S) {
    let curator = curator(service, "sem-one-by-one").await;
    let semaphore = InterProcessSemaphoreV2::new(&curator, "s", 3);
    let mut leases = semaphore.acquire_many(3).await.expect("free");
    let (mut one, two) = (leases.remove(1), leases.remove(0));
    assert_eq!(one.token(), two.token(), "one grant");
    let (waiter, returned) = tokio::join!(semaphore.acquire_many_within(2, LONG), async {
        in_use(curator.client(), "s", 1, 1).await;
        one.close().await.expect("held");
        one.close().await.expect("harmless");
        let early = semaphore.acquire_within(SHORT).await.expect("answered");
        assert!(early.is_none(), "one is free, but no request passes the waiter for two");
        drop(two);
    });
    let (newcomers, ()) = (waiter.expect("answered").expect("two of the three are free"), returned);
    assert_eq!((leases[0].state(), one.state()), (HoldState::Held, HoldState::Lost));
    assert!(leases[0].token() < newcomers[0].token());
    assert!(semaphore.acquire_within(SHORT).await.expect("answered").is_none(), "three leases are taken");
    semaphore.return_all(leases).await.expect("held");
    let last = semaphore.acquire_within(LONG).await.expect("answered").expect("one was returned");
    semaphore.return_all(newcomers).await.expect("held");
    semaphore.return_lease(last).await.expect("held");
    in_use(curator.client(), "s", 0, 0).await;
}
