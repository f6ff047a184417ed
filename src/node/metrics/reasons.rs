//! The labels `reason` of ended holds, waits and sessions. Each counter exists from the start, so that its first
//! increase shows.

use metrics::Counter;

use crate::model::{EndReason, WaitEndReason};
use crate::telemetry::{Named, Series};

/// Counters of ended holds, in the order of [`HoldsEnded::REASONS`].
pub(super) struct HoldsEnded([Counter; 7]);

/// Counters of ended waits, in the order of [`WaitsEnded::REASONS`].
pub(super) struct WaitsEnded([Counter; 7]);

/// Counters of ended sessions, in the order of [`SessionsEnded::REASONS`].
pub(super) struct SessionsEnded([Counter; 4]);

fn counters<const N: usize>(
    series: &Series,
    [name, help]: [&'static str; 2],
    further: Option<Named<'_>>,
    reasons: [&'static str; N],
) -> [Counter; N] {
    reasons.map(|reason| {
        let labels: Vec<_> = further.into_iter().chain([("reason", reason)]).collect();
        series.counter(name, help, &labels)
    })
}

impl HoldsEnded {
    const REASONS: [&str; 7] = ["released", "expired", "lost", "broken", "handed_over", "overtaken", "time_over"];

    pub(super) fn new(series: &Series, namespace: &str) -> Self {
        let names = ["lockkeeper_holds_ended_total", "Holds that have ended, by namespace and reason"];
        Self(counters(series, names, Some(("namespace", namespace)), Self::REASONS))
    }

    pub(super) fn count(&self, reason: EndReason) {
        let place = match reason {
            EndReason::Released | EndReason::Cancelled => 0,
            EndReason::Expired => 1,
            EndReason::Lost => 2,
            EndReason::Broken => 3,
            EndReason::HandedOver => 4,
            EndReason::Overtaken => 5,
            EndReason::TimeOver => 6,
        };
        self.0[place].increment(1);
    }
}

impl WaitsEnded {
    const REASONS: [&str; 7] =
        ["granted", "timed_out", "withdrawn", "session_ended", "hold_ended", "impossible", "deadlock"];

    pub(super) fn new(series: &Series, namespace: &str) -> Self {
        let names = ["lockkeeper_waits_ended_total", "Requests that have left a queue, by namespace and reason"];
        Self(counters(series, names, Some(("namespace", namespace)), Self::REASONS))
    }

    /// Counts a wait that ended with a grant.
    pub(super) fn granted(&self) {
        self.0[0].increment(1);
    }

    /// Counts a wait that ended without a grant.
    pub(super) fn count(&self, reason: WaitEndReason) {
        let place = match reason {
            WaitEndReason::TimedOut => 1,
            WaitEndReason::Withdrawn => 2,
            WaitEndReason::SessionEnded => 3,
            WaitEndReason::HoldEnded => 4,
            WaitEndReason::Impossible => 5,
            WaitEndReason::Deadlock => 6,
        };
        self.0[place].increment(1);
    }
}

impl SessionsEnded {
    const REASONS: [&str; 4] = ["released", "expired", "lost", "broken"];

    pub(super) fn new(series: &Series) -> Self {
        let names = ["lockkeeper_sessions_ended_total", "Sessions that have ended, by reason"];
        Self(counters(series, names, None, Self::REASONS))
    }

    pub(super) fn count(&self, reason: EndReason) {
        let place = match reason {
            EndReason::Released | EndReason::Cancelled => 0,
            EndReason::Expired => 1,
            EndReason::Lost => 2,
            EndReason::Broken | EndReason::HandedOver | EndReason::Overtaken | EndReason::TimeOver => 3,
        };
        self.0[place].increment(1);
    }
}
