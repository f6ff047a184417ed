//! Limits the commands per second of each namespace: one token bucket each, on the leader, before the log.
//!
//! Commands that release or end something are never refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::buckets::Buckets;
use crate::clock::{Clock, Instant};
use crate::config;
use crate::model::{Command, DocumentCommand, Manage, Managing, Namespace, SessionId};
use crate::service::NotSent;

/// All buckets, with the limits that fill them.
#[derive(Debug, Default)]
pub(super) struct RateLimits {
    on: AtomicBool,
    limited: Mutex<Limited>,
}

#[derive(Debug, Default)]
struct Limited {
    rates: config::Rates,
    buckets: Buckets<Namespace>,
}

/// The bucket that a command is taken from.
enum Source<'a> {
    Namespace(&'a Namespace),
    Session(SessionId),
}

impl RateLimits {
    fn limited(&self) -> MutexGuard<'_, Limited> {
        self.limited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the limits. Commands that were already sent still count.
    pub(super) fn set(&self, rates: config::Rates) {
        let mut limited = self.limited();
        self.on.store(!rates.is_off(), Ordering::Relaxed);
        limited.rates = rates;
    }

    /// Takes one command out of a namespace's bucket. The error says how long to wait.
    fn take(&self, namespace: &Namespace, now: Instant) -> Result<(), NotSent> {
        let mut limited = self.limited();
        let Some(a_second) = limited.rates.of(namespace) else { return Ok(()) };
        let checked = limited.buckets.check(namespace, a_second, now);
        checked.map_err(|pause_ms| NotSent::RateExceeded { a_second, pause_ms })?;
        limited.buckets.take(namespace, a_second, now);
        Ok(())
    }

    /// Takes the command out of the bucket of its namespace. `namespace_of` finds the namespace of an open session;
    /// commands of an ended session pass, and the machine refuses them. The error says how long to wait.
    pub(super) fn check(
        &self,
        command: &Command,
        clock: &dyn Clock,
        namespace_of: impl FnOnce(SessionId) -> Option<Namespace>,
    ) -> Result<(), NotSent> {
        if !self.on.load(Ordering::Relaxed) {
            return Ok(());
        }
        let now = clock.now();
        match source(command) {
            None => Ok(()),
            Some(Source::Namespace(namespace)) => self.take(namespace, now),
            Some(Source::Session(session)) => {
                namespace_of(session).map_or(Ok(()), |namespace| self.take(&namespace, now))
            }
        }
    }
}

/// Returns the bucket of a command; `None` for commands that release, end or attach, and for those of nodes and
/// operators.
fn source(command: &Command) -> Option<Source<'_>> {
    match command {
        Command::OpenSession(open) => Some(Source::Namespace(&open.namespace)),
        Command::Acquire(acquire) => Some(Source::Session(acquire.request.session)),
        Command::Alter(alter) => Some(Source::Session(alter.request.session)),
        Command::TakeLease(take) => Some(Source::Namespace(&take.lock.namespace)),
        Command::Manage(Manage { what: Managing::BreakHold { .. }, .. }) => None,
        Command::Manage(manage) => Some(Source::Namespace(&manage.lock.namespace)),
        Command::Document(DocumentCommand::Grab(grab)) => Some(Source::Namespace(&grab.lock.namespace)),
        Command::Attach(_)
        | Command::Disconnected { .. }
        | Command::CloseSession { .. }
        | Command::EndSession(_)
        | Command::ChangeSetting(_)
        | Command::Cancel { .. }
        | Command::Release(_)
        | Command::CancelTake { .. }
        | Command::DropLease { .. }
        | Command::Document(_)
        | Command::Tick
        | Command::LeaderlessGap { .. }
        | Command::Configure { .. }
        | Command::Announce(_)
        | Command::RaiseFeatures(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::RATES_SWEPT_MIN;

    fn rates(a_second: Option<u32>, of: &[(&str, u32)]) -> RateLimits {
        let of = of.iter().map(|(name, rate)| (namespace(name), *rate)).collect();
        let rates = RateLimits::default();
        rates.set(config::Rates { a_second, of });
        rates
    }

    fn namespace(name: &str) -> Namespace {
        Namespace::parse(name).expect("legal")
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(0).after(Duration::from_millis(ms))
    }

    /// The commands of one second may arrive at once, then one at a time; the refusal names the rate and the time to
    /// wait.
    #[test]
    fn a_bucket_holds_one_second() {
        let rates = rates(Some(10), &[]);
        let ours = namespace("ours");
        for _ in 0..10 {
            rates.take(&ours, at(0)).expect("within the burst");
        }
        let refused = rates.take(&ours, at(0)).expect_err("one too many");
        assert_eq!(refused, NotSent::RateExceeded { a_second: 10, pause_ms: 100 });
        assert_eq!(rates.take(&ours, at(99)), Err(NotSent::RateExceeded { a_second: 10, pause_ms: 1 }));
        rates.take(&ours, at(100)).expect("one more");
        assert!(rates.take(&ours, at(100)).is_err());
        for _ in 0..10 {
            rates.take(&ours, at(2_000)).expect("full again, and no fuller");
        }
        assert!(rates.take(&ours, at(2_000)).is_err());
    }

    /// A namespace at its limit takes nothing from another; each has its own limit, and a namespace without one is
    /// unlimited.
    #[test]
    fn one_namespace_does_not_slow_another() {
        let rates = rates(None, &[("slow", 1), ("fast", 100)]);
        rates.take(&namespace("slow"), at(0)).expect("the first");
        assert!(rates.take(&namespace("slow"), at(0)).is_err());
        for _ in 0..100 {
            rates.take(&namespace("fast"), at(0)).expect("its own bound");
        }
        for _ in 0..1_000 {
            rates.take(&namespace("free"), at(0)).expect("no bound");
        }
    }

    /// Namespaces without commands for a second leave no entries.
    #[test]
    fn quiet_namespaces_leave_nothing() {
        let rates = rates(Some(1), &[]);
        for number in 0..10_000_u64 {
            rates.take(&namespace(&format!("n{number}")), at(number * 100)).expect("its first");
        }
        assert!(rates.limited().buckets.len() <= 2 * RATES_SWEPT_MIN);
    }
}
