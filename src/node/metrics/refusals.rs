//! What this node answered to its own callers in place of a result. A call that another node forwards counts there.

use metrics::Counter;

use crate::model::{Outcome, Reply};
use crate::service::{ErrorCode, REFUSALS, ServiceError, TABLE};
use crate::telemetry::Series;

/// Counters of refusals, one for each row of the table of errors.
pub(in crate::node) struct Refusals {
    by_code: Vec<Counter>,
    unauthenticated: Counter,
    forbidden: Counter,
}

impl Refusals {
    pub(super) fn new(series: &Series) -> Self {
        let counter = |text| {
            let [name, help] = REFUSALS;
            series.counter(name, help, &[("word", text)])
        };
        let failure = |reason| {
            let help = "Refused callers: they proved no principal, lacked the right, or were a web page";
            series.counter("lockkeeper_auth_failures_total", help, &[("reason", reason)])
        };
        Self {
            by_code: TABLE.iter().map(|row| counter(row.text)).collect(),
            unauthenticated: failure("unauthenticated"),
            forbidden: failure("forbidden"),
        }
    }

    /// Counts the answer to a command, if it is a refusal.
    pub(in crate::node) fn of_reply(&self, reply: &Result<Reply, ServiceError>) {
        self.of_answer(reply);
        reply.iter().for_each(|reply| self.of_outcome(&reply.outcome));
    }

    /// Counts the answers to renewals that are refusals.
    pub(in crate::node) fn of_replies(&self, replies: &Result<Vec<Reply>, ServiceError>) {
        self.of_answer(replies);
        replies.iter().flatten().for_each(|reply| self.of_outcome(&reply.outcome));
    }

    pub(in crate::node) fn of_answer<T>(&self, answer: &Result<T, ServiceError>) {
        if let Err(error) = answer {
            self.count(error.code());
        }
    }

    /// Counts a caller that was refused.
    pub(in crate::node) fn of_caller(&self, error: &ServiceError) {
        let unknown = matches!(error, ServiceError::Unauthenticated { .. });
        let counter = if unknown { &self.unauthenticated } else { &self.forbidden };
        counter.increment(1);
    }

    fn of_outcome(&self, outcome: &Outcome) {
        if let Outcome::Refused(refusal) = outcome {
            self.count(ErrorCode::of_refusal(refusal));
        }
    }

    fn count(&self, code: ErrorCode) {
        self.by_code[code as usize].increment(1);
    }
}
