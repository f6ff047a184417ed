//! Choices of an acquire that most callers never make.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Invalid, Mode, Owner, SessionId, text};
use crate::limits;

/// The choices of an acquire besides name, mode, patience and lease. An acquire that makes none of them has no extras,
/// which saves memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Extras {
    /// The effect if the same session and owner hold the lock already.
    pub reentry: Reentry,
    /// Whether the acquire may overtake others.
    pub fairness: Fairness,
    /// The lock-delay: how long the name stays closed after an involuntary end, in milliseconds. 0 for none, at most a
    /// minute.
    pub delay_ms: u64,
    /// A text that is stored with the hold and shown to every client that asks for the lock.
    pub value: Option<LockValue>,
    /// The line of execution that waits until this run finishes.
    pub parent: Option<Parent>,
    /// The effect if the wait would close a cycle of owners that wait for each other.
    pub deadlock: OnDeadlock,
    /// At-least: the minimum time between two grants, in milliseconds, at most a day. What was granted stays closed for
    /// this long after the grant, even if the hold ends earlier, unless it ends by a break. Only for exclusive locks
    /// and permits.
    pub at_least_ms: Option<u64>,
    /// At-most: the hold ends this long after the grant, in milliseconds, even while its session lives. At most a day.
    pub at_most_ms: Option<u64>,
    /// Whether the session keeps the hold between uses until it is recalled. Only for one exclusive lock, without an
    /// owner and without any choice that distinguishes one use from the next.
    pub cached: bool,
}

impl Extras {
    /// The extras of an acquire that makes no choice.
    pub const PLAIN: &'static Extras = &Extras {
        reentry: Reentry::Refuse,
        fairness: Fairness::Fair,
        delay_ms: 0,
        value: None,
        parent: None,
        deadlock: OnDeadlock::Refuse,
        at_least_ms: None,
        at_most_ms: None,
        cached: false,
    };

    /// Returns an error for a reentry without a named owner, a lock-delay of more than a minute, and an at-least or
    /// at-most of zero or of more than a day.
    pub fn checked(&self, owner: Option<&Owner>) -> Result<(), Invalid> {
        if self.reentry != Reentry::Refuse && owner.is_none() {
            return Err(Invalid::new("owner", "named for a reentrant acquire", "nothing"));
        }
        if limits::LOCK_DELAY_MS_MAX < self.delay_ms {
            return Err(Invalid::new("delay", format!("at most {} ms", limits::LOCK_DELAY_MS_MAX), self.delay_ms));
        }
        let bounded = |field, ms: Option<u64>, high: u64| match ms.filter(|ms| !(1..=high).contains(ms)) {
            Some(ms) => Err(Invalid::new(field, format!("1 ms to {high} ms"), format!("{ms} ms"))),
            None => Ok(()),
        };
        bounded("at_least", self.at_least_ms, limits::AT_LEAST_MS_MAX)?;
        bounded("at_most", self.at_most_ms, limits::AT_MOST_MS_MAX)
    }

    /// Returns an error for an at-least with a shared mode.
    pub fn checked_for(&self, mut modes: impl Iterator<Item = Mode>) -> Result<(), Invalid> {
        if self.at_least_ms.is_some() && modes.any(|mode| mode == Mode::Shared) {
            return Err(Invalid::new("at_least", "for an exclusive lock or permits", "a shared lock"));
        }
        Ok(())
    }
}

/// The effect of an acquire whose session and named owner hold the lock already. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Reentry {
    /// The acquire is refused.
    #[default]
    Refuse,
    /// The depth of the hold grows by one, under the same token. Each acquire needs its own release. Refused for a mode
    /// that the hold does not cover, and while an upgrade of the hold waits.
    Count,
    /// The acquire waits like that of another owner, until a timeout, a cancel or a release by its own session.
    Wait,
}

/// Whether a request may overtake others in the queue. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Fairness {
    /// The request is granted in the order of arrival.
    #[default]
    Fair,
    /// The request may overtake other barging requests and be overtaken by them. It never overtakes a fair one. It may
    /// starve.
    Barging,
}

/// The effect of a wait that closes a cycle. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OnDeadlock {
    /// The request is refused, and the refusal contains the cycle.
    #[default]
    Refuse,
    /// The request waits although the cycle exists.
    Wait,
}

/// A line of execution that waits until the run of this request finishes. Used only for deadlock detection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Parent {
    /// The session of the parent.
    pub session: SessionId,
    /// The owner within that session.
    pub owner: Owner,
}

/// A text stored with a hold: at most 4 KiB of UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockValue(#[serde(deserialize_with = "text::shared")] Arc<str>);

impl LockValue {
    /// Returns an error for a text longer than 4 KiB.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if limits::LOCK_VALUE_BYTES_MAX < text.len() {
            let bound = format!("at most {} bytes", limits::LOCK_VALUE_BYTES_MAX);
            return Err(Invalid::new("value", bound, format!("{} bytes", text.len())));
        }
        Ok(Self(text.into()))
    }
}

text::shown!(LockValue);

#[cfg(test)]
mod tests {
    use super::*;

    /// The constant for no choice equals the default value.
    #[test]
    fn plain_is_the_default() {
        assert_eq!(*Extras::PLAIN, Extras::default());
    }

    /// Extras at their bounds are accepted. Beyond them, the error names the field.
    #[test]
    fn extras_are_refused_beyond_their_bounds() {
        let owner = Owner::parse("job").expect("legal");
        let delay = |delay_ms| Extras { delay_ms, ..Extras::default() }.checked(None);
        assert!(delay(60_000).is_ok());
        assert_eq!(delay(60_001).expect_err("refused").field, "delay");
        let count = Extras { reentry: Reentry::Count, ..Extras::default() };
        assert!(count.checked(Some(&owner)).is_ok());
        assert_eq!(count.checked(None).expect_err("refused").field, "owner");
        let day_ms = 24 * 60 * 60 * 1000;
        for (legal, ms) in [(false, 0), (true, 1), (true, day_ms), (false, day_ms + 1)] {
            let at_least = Extras { at_least_ms: Some(ms), ..Extras::default() }.checked(None);
            let at_most = Extras { at_most_ms: Some(ms), ..Extras::default() }.checked(None);
            assert_eq!((at_least.is_ok(), at_most.is_ok()), (legal, legal), "{ms} ms");
            let fields = [at_least, at_most].map(|checked| checked.err().map(|invalid| invalid.field));
            assert!(legal || fields == ["at_least", "at_most"].map(|field| Some(field.to_owned())), "{fields:?}");
        }
        assert!(LockValue::parse(&"x".repeat(4096)).is_ok());
        assert_eq!(LockValue::parse(&"x".repeat(4097)).expect_err("refused").field, "value");
    }

    /// At-least is accepted only for modes with exclusive use of what they take: a shared lock is refused, also as part
    /// of a set.
    #[test]
    fn at_least_is_not_for_shared_locks() {
        let at_least = Extras { at_least_ms: Some(1), ..Extras::default() };
        assert!(at_least.checked_for([Mode::Exclusive, Mode::Permits(2)].into_iter()).is_ok());
        let refused = at_least.checked_for([Mode::Exclusive, Mode::Shared].into_iter());
        assert_eq!(refused.expect_err("refused").field, "at_least");
        let at_most = Extras { at_most_ms: Some(1), ..Extras::default() };
        assert!(at_most.checked_for([Mode::Shared].into_iter()).is_ok());
    }
}
