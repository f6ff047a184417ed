//! What one client of a benchmark does, in a closed loop: the next request starts when the last one was answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;

use super::report::Sample;
use crate::client::{Client, ClientError, Session};
use crate::clock::{Clock, Instant, SystemClock};
use crate::limits;
use crate::service::LockService;

/// A session for each client, opened side by side.
pub(super) async fn open_sessions<S: LockService>(
    client: &Client<S>,
    clients: u32,
) -> Result<Vec<Session<S>>, ClientError> {
    try_join_all((0..clients).map(|_| client.session().open())).await
}

/// Acquires and releases until the end, then closes the session.
pub(super) async fn work<S: LockService>(
    session: Session<S>,
    name: String,
    end: Instant,
    done: Arc<AtomicU64>,
) -> Sample {
    let clock = SystemClock::new();
    let mut sample = Sample::default();
    while clock.now() < end {
        let began = clock.now();
        match pair(&session, &name, end.since(began)).await {
            Ok(true) => {
                sample.took(clock.now().since(began));
                done.fetch_add(1, Ordering::Relaxed);
            }
            // The end came while it stood in the queue: neither done nor failed.
            Ok(false) => {}
            Err(error) => {
                tracing::info!(%error, "a request failed");
                sample.errors += 1;
                tokio::time::sleep(Duration::from_millis(limits::RETRY_MS_MIN)).await;
            }
        }
    }
    if let Err(error) = session.close().await {
        tracing::info!(%error, "a session could not be closed");
    }
    sample
}

async fn pair<S: LockService>(session: &Session<S>, name: &str, left: Duration) -> Result<bool, ClientError> {
    match session.lock(name).wait(left).acquire().await {
        Ok(guard) => guard.release().await.map(|_| true),
        Err(ClientError::NotAcquired { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
