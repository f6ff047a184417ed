//! Settings that a client passes to its sessions, locks and leases.

use std::sync::Arc;
use std::time::Duration;

use super::retry::Retry;
use crate::clock::{Clock, Instant, SystemClock};
use crate::model::{LockKey, LockName, Metadata, Namespace};
use crate::service::REQUEST_WAIT;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) namespace: Namespace,
    pub(crate) clock: Arc<dyn Clock>,
    /// Start of the renewal schedule of the client's sessions.
    pub(crate) begun: Instant,
    pub(crate) metadata: Metadata,
    /// TTL of the client's sessions; `None` for the default.
    pub(crate) ttl: Option<Duration>,
    /// Longest outage of the service before a call returns its error.
    pub(crate) request_wait: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let clock = SystemClock::new();
        Self {
            namespace: Namespace::default(),
            begun: clock.now(),
            clock: Arc::new(clock),
            metadata: Metadata { pid: std::process::id(), ..Metadata::default() },
            ttl: None,
            request_wait: REQUEST_WAIT,
        }
    }
}

impl Settings {
    /// Returns the retries of one call, for at most the request wait.
    pub(crate) fn retry(&self) -> Retry {
        Retry::new(self.clock.clone(), self.request_wait)
    }

    /// Returns the lock of this name in the client's namespace.
    pub(crate) fn key(&self, name: LockName) -> LockKey {
        LockKey { namespace: self.namespace.clone(), name }
    }
}
