//! Cached holds: which other choices of an acquire conflict with *cached*.

use super::{Access, Acquire, Extras, Fairness, Invalid, LockName, Mode, Owner, SmallMap};

impl Acquire {
    /// Whether the acquire asks for a cached hold, and none of its other choices conflicts with that.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        let choices = self.choices();
        choices.cached && choices.checked_cached(&self.locks, self.owner.as_ref(), self.lease_ms).is_ok()
    }
}

impl Extras {
    /// Returns an error for the first choice of a cached acquire that a cached hold cannot have.
    pub(crate) fn checked_cached(
        &self,
        locks: &SmallMap<LockName, Access>,
        owner: Option<&Owner>,
        lease_ms: Option<u64>,
    ) -> Result<(), Invalid> {
        let Extras { reentry: _, fairness, delay_ms, value, parent, deadlock: _, at_least_ms, at_most_ms, cached } =
            self;
        if !cached {
            return Ok(());
        }
        let mode = locks.only().map(|(_, access)| access.mode);
        let ms = |ms: u64| format!("{ms} ms");
        let conflicts = [
            ("locks", mode.is_none().then(|| locks.len().to_string())),
            ("mode", mode.filter(|mode| *mode != Mode::Exclusive).map(|mode| format!("{mode:?}"))),
            ("owner", owner.map(ToString::to_string)),
            ("parent", parent.as_ref().map(|parent| parent.owner.to_string())),
            ("lease", lease_ms.map(ms)),
            ("value", value.as_ref().map(ToString::to_string)),
            ("delay", (*delay_ms != 0).then(|| ms(*delay_ms))),
            ("at_least", at_least_ms.map(ms)),
            ("at_most", at_most_ms.map(ms)),
            ("unfair", (*fairness == Fairness::Barging).then(|| "chosen".to_owned())),
        ];
        for (field, value) in conflicts {
            if let Some(value) = value {
                return Err(Invalid::new(field, "left out where the hold is cached", value));
            }
        }
        Ok(())
    }
}
