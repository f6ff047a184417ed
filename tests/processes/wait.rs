//! Waits for what nodes and clients do: a condition is checked until it is met, and a test fails if that takes too
//! long.

use std::fmt::{Debug, Display};
use std::time::{Duration, Instant};

use crate::cluster::PATIENCE;

/// The pause between two checks.
const POLL: Duration = Duration::from_millis(20);

/// Waits until a condition is met. Fails after [`PATIENCE`] with the text of the condition.
pub(crate) async fn wait_until(what: impl Display, mut is_met: impl AsyncFnMut() -> bool) {
    wait_for(what, async || is_met().await.then_some(()).ok_or("it is not so")).await;
}

/// Waits until a check returns a value. Fails after [`PATIENCE`] with the last error.
pub(crate) async fn wait_for<T, E: Debug>(what: impl Display, mut check: impl AsyncFnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match check().await {
            Ok(value) => return value,
            Err(error) => assert!(began.elapsed() < PATIENCE, "timed out: {what}: {error:?}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Like [`wait_until`], for tests that block their thread. It waits longer than any step takes on a slow machine; a
/// step may include the expiry of a TTL.
pub(crate) fn block_until(what: impl Display, mut is_met: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_met() {
        assert!(began.elapsed() < 3 * PATIENCE, "timed out: {what}");
        std::thread::sleep(POLL);
    }
}
