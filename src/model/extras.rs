//! Choices of an acquire that most callers never make.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Invalid, Mode, Owner, SessionId, text};
use crate::limits;

/// What an acquire asks for beyond name, mode, patience and lease. An acquire without any of these choices leaves it
/// out, which costs no memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Extras {
    /// What happens if the same session and owner hold the lock already.
    pub reentry: Reentry,
    /// Whether the acquire may overtake others.
    pub fairness: Fairness,
    /// After an involuntary end the name stays closed for this long, in milliseconds; 0 for none, at most a minute.
    pub delay_ms: u64,
    /// A text that is kept with the hold and shown to every client that asks for the lock.
    pub value: Option<LockValue>,
    /// The line of execution that waits for the asking run to finish.
    pub parent: Option<Parent>,
    /// What happens if the wait would close a cycle of owners that wait for each other.
    pub deadlock: OnDeadlock,
    /// The minimum time between starts, in milliseconds, at most a day: what the hold had stays closed for this long
    /// from the grant on, even if the hold ends earlier. Only for exclusive locks and permits. Only a break of the hold
    /// opens it before.
    pub at_least_ms: Option<u64>,
    /// The hold ends this long after the grant, in milliseconds, even while its session lives; at most a day.
    pub at_most_ms: Option<u64>,
    /// The session keeps the hold between uses until it is recalled. Only for one exclusive lock, without an owner and
    /// without any choice that distinguishes one use from the next.
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

    /// Refuses a reentry without a named owner, a lock-delay of more than a minute, and an at-least or at-most of no
    /// time or of more than a day.
    pub fn checked(&self, owner: Option<&Owner>) -> Result<(), Invalid> {
        if self.reentry != Reentry::Refuse && owner.is_none() {
            return Err(Invalid::new("owner", "named where a lock may be entered again", "nothing"));
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

    /// Refuses an at-least for a shared lock.
    pub fn checked_for(&self, mut modes: impl Iterator<Item = Mode>) -> Result<(), Invalid> {
        if self.at_least_ms.is_some() && modes.any(|mode| mode == Mode::Shared) {
            return Err(Invalid::new("at_least", "for an exclusive lock or permits", "a shared lock"));
        }
        Ok(())
    }
}

/// What happens if the same session and named owner hold the lock already. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Reentry {
    /// The acquire is refused.
    #[default]
    Refuse,
    /// The depth of the hold grows by one, under the same token; each acquire needs its own release. Only in a mode
    /// that the hold covers.
    Count,
    /// The acquire waits like that of another owner, until a timeout, a cancel or a release by its own session.
    Wait,
}

/// Whether a request may pass others in the queue. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Fairness {
    /// Granted in the order of arrival.
    #[default]
    Fair,
    /// It may overtake other barging requests and be overtaken by them, but never overtakes a fair one. It may starve.
    Barging,
}

/// What happens to a wait that closes a cycle. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OnDeadlock {
    /// The request is refused, and the refusal contains the cycle.
    #[default]
    Refuse,
    /// The request waits in spite of the cycle.
    Wait,
}

/// A line of execution that waits for the asking run to finish. Used only for deadlock detection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Parent {
    /// The session of the parent.
    pub session: SessionId,
    /// The owner within that session.
    pub owner: Owner,
}

/// A text kept with a hold: at most 4 KiB of UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockValue(#[serde(deserialize_with = "text::shared")] Arc<str>);

impl LockValue {
    /// Refuses what is longer than 4 KiB.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if limits::LOCK_VALUE_BYTES_MAX < text.len() {
            let bound = format!("at most {} bytes", limits::LOCK_VALUE_BYTES_MAX);
            return Err(Invalid::new("value", bound, format!("{} bytes", text.len())));
        }
        Ok(Self(text.into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The constant for no choice equals the default value.
    #[test]
    fn plain_is_the_default() {
        assert_eq!(*Extras::PLAIN, Extras::default());
    }

    /// Extras at their bounds are accepted; beyond them the refusal names the field.
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

    /// Only what has a single holder can stay closed after a hold: a shared lock is refused, also as part of a set.
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
