//! The label `reason` of ended holds, waits and sessions. Each counter exists from the start, so that its first
//! increase shows.

use metrics::Counter;

use crate::model::{EndReason, WaitEndReason};
use crate::telemetry::Series;

/// Label of a wait that ended with a grant.
pub(super) const GRANTED: &str = "granted";

/// The counters of one metric, by their label.
pub(super) struct Ended(Vec<(&'static str, Counter)>);

impl Ended {
    pub(super) fn holds(series: &Series, namespace: &str) -> Self {
        let names = ["lockkeeper_holds_ended_total", "Holds that have ended, by namespace and reason"];
        let reasons = ["released", "expired", "lost", "broken", "handed_over", "overtaken", "time_over"];
        Self::new(series, names, Some(namespace), &reasons)
    }

    pub(super) fn waits(series: &Series, namespace: &str) -> Self {
        let names = ["lockkeeper_waits_ended_total", "Requests that have left a queue, by namespace and reason"];
        let reasons = [GRANTED, "timed_out", "withdrawn", "session_ended", "hold_ended", "impossible", "deadlock"];
        Self::new(series, names, Some(namespace), &reasons)
    }

    pub(super) fn sessions(series: &Series) -> Self {
        let names = ["lockkeeper_sessions_ended_total", "Sessions that have ended, by reason"];
        Self::new(series, names, None, &["released", "expired", "lost", "broken"])
    }

    fn new(series: &Series, [name, help]: [&'static str; 2], of: Option<&str>, reasons: &[&'static str]) -> Self {
        let counter = |reason| {
            let labels: Vec<_> = of.map(|namespace| ("namespace", namespace)).into_iter().collect();
            series.counter(name, help, &[&labels[..], &[("reason", reason)]].concat())
        };
        Self(reasons.iter().map(|reason| (*reason, counter(reason))).collect())
    }

    pub(super) fn count(&self, reason: &str) {
        let counter = self.0.iter().find(|(known, _)| *known == reason);
        debug_assert!(counter.is_some(), "no counter for {reason}");
        counter.into_iter().for_each(|(_, counter)| counter.increment(1));
    }
}

/// Returns the label of the end of a hold or session.
pub(super) fn of_end(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Released | EndReason::Cancelled => "released",
        EndReason::Expired => "expired",
        EndReason::Lost => "lost",
        EndReason::Broken => "broken",
        EndReason::HandedOver => "handed_over",
        EndReason::Overtaken => "overtaken",
        EndReason::TimeOver => "time_over",
    }
}

/// Returns the label of a wait that ended without a grant.
pub(super) fn of_wait(reason: WaitEndReason) -> &'static str {
    match reason {
        WaitEndReason::TimedOut => "timed_out",
        WaitEndReason::Withdrawn => "withdrawn",
        WaitEndReason::SessionEnded => "session_ended",
        WaitEndReason::HoldEnded => "hold_ended",
        WaitEndReason::Impossible => "impossible",
        WaitEndReason::Deadlock => "deadlock",
    }
}
