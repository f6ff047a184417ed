//! Limits the audited acts of each source: the log keeps only its newest files, so a flood would remove the older acts.

use std::sync::{Mutex, PoisonError};

use super::buckets::Buckets;
use crate::clock::Instant;
use crate::limits::AUDITED_ACTS_A_SECOND;
use crate::service::{NotSent, Source};

/// The acts of all sources in the last second.
#[derive(Debug, Default)]
pub(super) struct ActRate(Mutex<Buckets<Source>>);

impl ActRate {
    /// Counts an act of a source, or refuses it. The error says how long to wait.
    pub(super) fn take(&self, source: &Source, now: Instant) -> Result<(), NotSent> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.check(source, AUDITED_ACTS_A_SECOND, now).map_err(|pause_ms| {
            let limit = format!("a caller may send {AUDITED_ACTS_A_SECOND} acts a second for the audit log");
            NotSent::LimitReached { limit, pause_ms }
        })?;
        buckets.take(source, 1, AUDITED_ACTS_A_SECOND, now);
        Ok(())
    }
}
