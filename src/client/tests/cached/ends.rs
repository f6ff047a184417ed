//! When a cached hold is not kept or ends.

use super::*;

/// N-CAC-26: A break ends the use that runs and the caching. A broken idle hold is not taken again, and one that
/// another client asks for is released.
#[tokio::test(start_paused = true)]
async fn n_cac_26_a_broken_hold_is_not_taken_again() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let why = || Reason::parse("mine").expect("a reason");
    let broken = || EventKind::Broken { by: Principal::default(), why: why(), held_ms: 1 };
    let guard = take(&session).await;
    drop(guard);
    let guard = take(&session).await;
    fake.publish(Ok(event(&fake, 1, broken()))).await;
    assert!(guard.lost().await.alone);
    drop(guard);
    drop(take(&session).await);
    assert_eq!(sent(&fake).await.0, 2);
    fake.publish(Ok(event(&fake, 2, broken()))).await;
    tokio::time::sleep(TICK).await;
    drop(take(&session).await);
    let (acquires, releases) = sent(&fake).await;
    assert_eq!(acquires, 3);
    fake.publish(Ok(event(&fake, 3, EventKind::RevokeRequested { by: Principal::default(), why: why() }))).await;
    assert_eq!(sent(&fake).await, (3, releases + 1));
}

/// N-CAC-26: A hold that was broken before its grant arrived is not kept.
#[tokio::test(start_paused = true)]
async fn n_cac_26_a_hold_that_was_broken_early_is_not_kept() {
    let fake = Fake::new();
    let session = session(&fake).await;
    fake.ways(TICK, 100 * TICK);
    let (guard, ()) = tokio::join!(take(&session), async {
        tokio::time::sleep(50 * TICK).await;
        let why = Reason::parse("mine").expect("a reason");
        fake.publish(Ok(event(&fake, 1, EventKind::Broken { by: Principal::default(), why, held_ms: 1 }))).await;
    });
    assert_eq!(guard.state(), HoldState::Lost);
    drop(guard);
    assert_eq!(take(&session).await.token(), token(2));
}

/// N-CAC-27: A change of the hold makes it an ordinary one, which its guard releases. So do single permits.
#[tokio::test(start_paused = true)]
async fn n_cac_27_a_changed_hold_is_not_kept() {
    let fake = Fake::new();
    let session = session(&fake).await;
    fake.rule(|asked| match asked {
        Asked::Submit(Command::Alter(_)) => Reaction::Outcome(Outcome::Downgraded),
        Asked::Submit(_) | Asked::Renew(_) | Asked::Settled | Asked::Query(_) | Asked::Subscribe | Asked::Status => {
            Reaction::Serve
        }
    });
    let mut guard = take(&session).await;
    guard.downgrade().await.expect("downgraded");
    drop(guard);
    assert_eq!(sent(&fake).await, (1, 1));
    take(&session).await.into_permits().for_each(drop);
    assert_eq!(sent(&fake).await, (2, 2));
    drop(take(&session).await);
    assert_eq!(sent(&fake).await, (3, 2));
}

/// N-CAC-28: A hold that is idle for 30 s is released, not earlier and not one that is used meanwhile.
#[tokio::test(start_paused = true)]
async fn n_cac_28_an_idle_hold_is_released_after_a_time() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let longest = Duration::from_millis(CACHED_IDLE_MS_MAX);
    drop(take(&session).await);
    for _ in 0..3 {
        tokio::time::sleep(longest - SECOND).await;
        drop(take(&session).await);
    }
    tokio::time::sleep(longest - SECOND).await;
    assert_eq!(sent(&fake).await, (1, 0));
    tokio::time::sleep(SECOND).await;
    assert_eq!(sent(&fake).await, (1, 1));
    let guard = take(&session).await;
    tokio::time::sleep(2 * longest).await;
    drop(guard);
    assert_eq!(sent(&fake).await, (2, 1));
}

/// N-CAC-28: A session keeps a bounded number of idle holds. The longest idle one is released first.
#[tokio::test(start_paused = true)]
async fn n_cac_28_idle_holds_are_bounded() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let use_once = async |number: usize| {
        drop(session.lock(&format!("a{number}")).cached().acquire().await.expect("free"));
    };
    for number in 0..CACHED_IDLE_MAX {
        use_once(number).await;
    }
    use_once(0).await;
    assert_eq!(sent(&fake).await, (CACHED_IDLE_MAX, 0));
    use_once(CACHED_IDLE_MAX).await;
    assert_eq!(sent(&fake).await, (CACHED_IDLE_MAX + 1, 1));
    // The hold with the first token was used again, so the second one was idle for the longest time.
    let oldest = |asked: &Asked| matches!(asked, Asked::Submit(Command::Release(release)) if release.token == token(2));
    assert_eq!(fake.count(oldest), 1);
}

/// N-CAC-29: The end of the session ends the use that runs, and no hold of it is taken again. Idle holds do not keep a
/// session open.
#[tokio::test(start_paused = true)]
async fn n_cac_29_the_end_of_the_session_ends_its_cached_holds() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let guard = take(&session).await;
    let waits = tokio::spawn({
        let request = cached(&session);
        async move { request.acquire().await }
    });
    tokio::time::sleep(TICK).await;
    session.clone().close().await.expect("closed");
    assert_eq!(guard.lost().await.code(), ErrorCode::Lost);
    let error = waits.await.expect("not cancelled").expect_err("the session has ended");
    assert_eq!(error.code(), ErrorCode::SessionEnded);
    drop(guard);
    let error = cached(&session).acquire().await.expect_err("the session has ended");
    assert_eq!(error.code(), ErrorCode::SessionEnded);

    let fake = Fake::new();
    let session = self::session(&fake).await;
    drop(take(&session).await);
    drop(session);
    until(|| fake.count(|asked| matches!(asked, Asked::Submit(Command::CloseSession { .. }))) == 1).await;
    assert_eq!(sent(&fake).await, (1, 0));
}

/// N-CAC-29: A session whose renewals fail loses the use that runs, like any other hold.
#[tokio::test(start_paused = true)]
async fn n_cac_29_a_lost_session_loses_the_use_that_runs() {
    let fake = Fake::new();
    let session = session(&fake).await;
    drop(take(&session).await);
    let guard = take(&session).await;
    fake.rule(|_| Reaction::Fail(ServiceError::unknown("cut off")));
    assert!(!guard.lost().await.alone);
    assert!(guard.valid_for().is_zero());
}

/// N-CAC-26: A hold that may have been recalled or broken in a gap of the events, before its grant arrived, is not
/// kept.
#[tokio::test(start_paused = true)]
async fn n_cac_26_a_hold_that_was_granted_before_a_gap_is_not_kept() {
    let fake = Fake::new();
    let session = session(&fake).await;
    fake.ways(TICK, 100 * TICK);
    let (guard, ()) = tokio::join!(take(&session), async {
        tokio::time::sleep(10 * TICK).await;
        fake.cut();
    });
    drop(guard);
    assert_eq!(sent(&fake).await, (1, 1));
    assert_eq!(take(&session).await.token(), token(2));
    assert_eq!(take(&session).await.token(), token(2), "a hold that was requested after the gap is kept");
}
