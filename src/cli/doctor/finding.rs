//! The result of one check.

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Nothing needs to change.
    Ok,
    /// It works, with less reserve than it should have.
    Warn,
    /// It does not work, or the next fault ends the service.
    Fail,
}

/// What a check found, and what the operator should do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) check: &'static str,
    pub(super) detail: String,
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { level: Level::Ok, check, detail: detail.into(), advice: None }
    }

    pub(super) fn warn(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Warn, check, detail: detail.into(), advice: Some(advice.into()) }
    }

    pub(super) fn fail(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Fail, check, detail: detail.into(), advice: Some(advice.into()) }
    }

    /// The finding about a number that should stay below two bounds.
    pub(super) fn below<T: PartialOrd>(
        check: &'static str,
        value: T,
        [warn, fail]: [Option<T>; 2],
        detail: String,
        advice: &str,
    ) -> Self {
        if fail.is_some_and(|fail| fail < value) {
            return Self::fail(check, detail, advice);
        }
        if warn.is_some_and(|warn| warn < value) {
            return Self::warn(check, detail, advice);
        }
        Self::ok(check, detail)
    }

    /// The lines of the text: the finding, and the advice below it.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        let first = format!("{level:<5} {:<13} {}", self.check, self.detail);
        let advice = self.advice.as_ref().map(|advice| format!("{:20}{advice}", ""));
        std::iter::once(first).chain(advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value counts as bad from its bound on, and the advice stands below the text.
    #[test]
    fn bounds_decide_the_level() {
        let level = |value| Finding::below("disk", value, [Some(10), Some(30)], String::new(), "buy one").level;
        assert_eq!([10, 11, 30, 31].map(level), [Level::Ok, Level::Warn, Level::Warn, Level::Fail]);
        let lines: Vec<_> = Finding::fail("disk", "full", "free some").lines().collect();
        assert_eq!(lines, ["FAIL  disk          full", "                    free some"]);
    }
}
