//! Ends an open connection when the certificate of the other side is not accepted any more: it has expired, or the node
//! has read a list that refuses it, or authorities that did not sign it.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::Error;
use rustls::pki_types::UnixTime;
use tokio::sync::watch;
use tokio::time::sleep;

use super::verify::end_of;
use crate::limits::{RECHECK_APART_MS, RECHECKS_APART, WALL_CLOCK_LOOK_MS};

/// Returns a future that completes when a certificate is not accepted any more. It checks the certificate when that
/// expires, and after each change of the settings. `check` verifies it with some settings at some time. The caller has
/// checked it with those that `settings` has seen.
pub(super) async fn not_accepted<T: Send + Sync>(
    mut settings: watch::Receiver<Arc<T>>,
    check: impl Fn(&T, UnixTime) -> Result<(), Error> + Send,
) -> Error {
    // Connections check one after another, so that not all clients dial again at the same time.
    static TURN: AtomicU64 = AtomicU64::new(0);
    let turn = Duration::from_millis(TURN.fetch_add(1, Ordering::Relaxed) % RECHECKS_APART * RECHECK_APART_MS);
    loop {
        let current = Arc::clone(&settings.borrow());
        let end = end_of(|time| check(&current, time));
        tokio::select! {
            changed = settings.changed() => match changed {
                Ok(()) => sleep(turn).await,
                // The port is gone, and nothing changes its settings any more.
                Err(_) => after(end).await,
            },
            () = after(end) => {}
        }
        let current = Arc::clone(&settings.borrow_and_update());
        if let Err(error) = check(&current, UnixTime::now()) {
            return error;
        }
    }
}

/// Waits until this time of the wall clock is over. The clock may be set meanwhile.
async fn after(end: Option<UnixTime>) {
    let Some(end) = end else { return pending().await };
    while let Some(left) = (end.as_secs() + 1).checked_sub(UnixTime::now().as_secs()).filter(|left| *left != 0) {
        sleep(Duration::from_secs(left).min(Duration::from_millis(WALL_CLOCK_LOOK_MS))).await;
    }
}
