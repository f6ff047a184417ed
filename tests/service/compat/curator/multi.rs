//! Several locks acquired as one, and what all kinds of locks have in common.

use lockkeeper::compat::curator::{
    InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, Revoker,
};
use lockkeeper::service::{ErrorCode, LockService};
use tokio::time::{Instant, timeout};

use super::{code, curator, is_state};
use crate::suite::{LONG, SHORT, in_use};

recipe_tests! {
    r_mul_01_all_or_none_within_one_wait
    holders_of_every_kind_are_asked_to_release
}

/// R-MUL-01: if the third of three locks is held, none of them is acquired after one wait. If the locks were acquired
/// one by one, each would have its own wait, and the first ones would be closed to others meanwhile.
async fn r_mul_01_all_or_none_within_one_wait<S: LockService>(service: S) {
    let (free, wait) = ([false, false, false], 30);
    let (mut waited, mut kept) = (0, 0);
    for is_free in [true, true, free[2]] {
        (waited, kept) = if is_free { (waited + wait - 1, kept + 1) } else { (waited + wait, kept) };
    }
    assert_eq!((waited, kept), (88, 2), "three waits instead of one, with two locks held meanwhile");

    let (one, two) = (curator(service.clone(), "mul-01").await, curator(service, "mul-01").await);
    let (third, task, other) = (InterProcessMutex::new(&two, "c"), two.task(), two.task());
    third.acquire(&task).await.expect("free");
    let all = InterProcessMultiLock::new(&one, ["a", "b", "c"]);
    assert!(all.release().await.is_err_and(|error| is_state(&error)));
    let (began, wait) = (Instant::now(), SHORT * 4);
    let first = InterProcessMutex::new(&two, "a");
    assert!(!all.acquire_within(wait).await.expect("answered") && wait <= began.elapsed());
    for name in ["a", "b"] {
        in_use(one.client(), name, 0, 0).await;
    }
    let mut waits = Box::pin(all.acquire());
    tokio::select! {
        _ = &mut waits => panic!("one is held"),
        () = in_use(one.client(), "c", 1, 1) => {}
    }
    in_use(one.client(), "a", 0, 1).await;
    drop(waits);
    for name in ["a", "b"] {
        in_use(one.client(), name, 0, 0).await;
    }
    assert!(!all.is_acquired_in_this_process() && all.token("a").is_none());
    assert!(first.acquire_within(&other, LONG).await.expect("free"));
    first.release(&other).await.expect("held");
    let (acquired, ()) = tokio::join!(all.acquire_within(LONG), async {
        in_use(one.client(), "c", 1, 1).await;
        third.release(&task).await.expect("held");
    });
    assert!(acquired.expect("answered") && all.is_acquired_in_this_process());
    assert!(["a", "b", "c"].iter().all(|path| all.token(path).is_some()));
    assert_eq!(all.acquire().await.err().as_ref().and_then(code), Some(ErrorCode::AlreadyHeld));
    all.release().await.expect("held");
    for name in ["a", "b", "c"] {
        in_use(one.client(), name, 0, 0).await;
    }
}

/// The holder of each kind of lock receives the request of another client to release it, with the reason.
async fn holders_of_every_kind_are_asked_to_release<S: LockService>(service: S) {
    let (here, there) = (curator(service.clone(), "revoke-all").await, curator(service, "revoke-all").await);
    let (mutex, task) = (InterProcessMutex::new(&here, "mutex"), here.task());
    let plain = InterProcessSemaphoreMutex::new(&here, "plain");
    let read = InterProcessReadWriteLock::new(&here, "read").read_lock();
    let write = InterProcessReadWriteLock::new(&here, "write").write_lock();
    let multi = InterProcessMultiLock::new(&here, ["multi/a", "multi/b"]);
    assert!(multi.watch("multi/a").is_none(), "not held");
    mutex.acquire(&task).await.expect("free");
    plain.acquire().await.expect("free");
    read.acquire(&task).await.expect("free");
    write.acquire(&task).await.expect("free");
    let lease = InterProcessSemaphoreV2::new(&here, "lease", 1).acquire().await.expect("free");
    multi.acquire().await.expect("free");
    assert!(multi.watch("another").is_none(), "not one of its paths");
    for (path, watch) in [
        ("mutex", mutex.watch(&task)),
        ("plain", plain.watch()),
        ("read", read.watch(&task)),
        ("write", write.watch(&task)),
        ("lease", lease.watch()),
        ("multi/a", multi.watch("multi/a")),
        ("multi/b", multi.watch("multi/b")),
    ] {
        let watch = watch.expect("held");
        let nodes = InterProcessMutex::new(&there, path).participant_nodes().await.expect("asked");
        assert_eq!(nodes[0].token, Some(watch.token()), "{path}");
        // A request before the holder subscribed can be missed, so it is repeated until it is received.
        let asked = async {
            loop {
                Revoker::attempt_revoke(&there, path, &nodes[0], path).await.expect("held");
                if let Ok(asked) = timeout(SHORT, watch.revoke_requested()).await {
                    break asked.expect("held");
                }
            }
        };
        let asked = timeout(LONG, asked).await.expect("the request is received");
        assert_eq!(asked.why.as_str(), path);
    }
    multi.release().await.expect("held");
    assert!(multi.watch("multi/a").is_none(), "released");
}
