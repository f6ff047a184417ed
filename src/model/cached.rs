//! Cached holds: which other choices of an acquire conflict with *cached*.

use super::{Acquire, Extras, Fairness, Mode};

impl Acquire {
    /// Whether the acquire asks for a cached hold, and none of its other choices conflicts with that.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.choices().cached && self.conflict_with_cached().is_none()
    }

    /// The first choice that a cached hold cannot have: its field and its value.
    pub(super) fn conflict_with_cached(&self) -> Option<(&'static str, String)> {
        let Extras { reentry: _, fairness, delay_ms, value, parent, deadlock: _, at_least_ms, at_most_ms, cached } =
            self.choices();
        let mode = self.locks.only().map(|(_, access)| access.mode);
        let ms = |ms: u64| format!("{ms} ms");
        let conflicts = [
            ("locks", mode.is_none().then(|| self.locks.len().to_string())),
            ("mode", mode.filter(|mode| *mode != Mode::Exclusive).map(|mode| format!("{mode:?}"))),
            ("owner", self.owner.as_ref().map(ToString::to_string)),
            ("parent", parent.as_ref().map(|parent| parent.owner.to_string())),
            ("lease", self.lease_ms.map(ms)),
            ("value", value.as_ref().map(ToString::to_string)),
            ("delay", (*delay_ms != 0).then(|| ms(*delay_ms))),
            ("at_least", at_least_ms.map(ms)),
            ("at_most", at_most_ms.map(ms)),
            ("unfair", (*fairness == Fairness::Barging).then(|| "chosen".to_owned())),
        ];
        let mut found = conflicts.into_iter().filter(|_| *cached);
        found.find_map(|(field, value)| Some((field, value?)))
    }
}
