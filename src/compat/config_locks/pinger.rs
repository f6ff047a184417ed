//! The background task of a process: pings at the start and once in each period, and retries failed unlocks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Client, ClientError};
use crate::limits::CONFIG_SLOW_PING_FACTOR;
use crate::model::{DocumentId, LockName, ProcessId};
use crate::mutex::Mutex;
use crate::service::LockService;

/// The unlocks to send: those without an answer, and those of dropped locks.
#[derive(Debug, Clone, Default)]
pub(super) struct Unlocks {
    waiting: Arc<Mutex<VecDeque<(DocumentId, LockName)>>>,
    more: Arc<tokio::sync::Notify>,
}

impl Unlocks {
    /// Queues an unlock. The background task sends it as soon as possible. A manager without a task sends it with its
    /// next ping.
    pub(super) fn push(&self, ts: DocumentId, name: LockName) {
        self.waiting.lock().push_back((ts, name));
        self.more.notify_one();
    }

    /// The number of queued unlocks.
    pub(super) fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Sends the queued unlocks. The first one that fails becomes the last of the queue and ends the round. Each stays
    /// queued until it is answered, so none is lost if the future is dropped.
    pub(super) async fn send_all<S: LockService>(&self, client: &Client<S>) -> Result<(), ClientError> {
        for _ in 0..self.len() {
            let Some(unlock) = self.waiting.lock().front().cloned() else { break };
            let (ts, name) = &unlock;
            let answer = client.unlock(*ts, Some(name.as_str())).await;
            if let Err(error) = &answer {
                tracing::warn!(lock = %name, %ts, %error, "an unlock failed; it is retried with the next ping");
            }
            let mut waiting = self.waiting.lock();
            waiting.retain(|queued| *queued != unlock);
            if let Err(error) = answer {
                waiting.push_back(unlock);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Whether a process was paused, because much more time than `every` has passed between two of its pings.
fn is_paused(every: Duration, slept: Duration) -> bool {
    every * CONFIG_SLOW_PING_FACTOR < slept
}

/// Pings once in each period, and sends queued unlocks then and whenever one is added. Runs until it is aborted.
pub(super) async fn keep<S: LockService>(client: Client<S>, process: ProcessId, unlocks: Unlocks, every: Duration) {
    let mut last = client.time().now();
    loop {
        if let Err(error) = client.ping(process.clone()).await {
            tracing::warn!(%process, %error, "a ping of the process failed");
        }
        drop(unlocks.send_all(&client).await);
        let ticked = tokio::time::sleep(every);
        tokio::pin!(ticked);
        loop {
            tokio::select! {
                () = &mut ticked => break,
                () = unlocks.more.notified() => drop(unlocks.send_all(&client).await),
            }
        }
        let now = client.time().now();
        let slept = now.since(last);
        if is_paused(every, slept) {
            tracing::warn!(%process, ?slept, "this process was paused for much longer than the time between two pings");
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that slept for ten periods does not warn, and one that slept longer does.
    #[test]
    fn more_than_ten_periods_are_a_pause() {
        let (every, ten) = (Duration::from_secs(30), Duration::from_secs(300));
        assert!(!is_paused(every, ten));
        assert!(is_paused(every, ten + Duration::from_nanos(1)));
    }
}
