//! Planted bugs, which prove that the crash test's checker can see: each switches one promise off, in a whole process.
//!
//! Knows: nothing. Never: a build without debug assertions, where all of them are off and cost nothing.

/// A bug that can be planted. It sits where a careless change could put it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The last to come is served first.
    LifoQueue,
    /// A restarted node knows no holders of the time before its checkpoint.
    ForgottenHolders,
    /// A restarted node counts tokens from its checkpoint again, at one.
    TokensOfThisProcess,
    /// A repeated acquire is executed again although the first one waits or holds.
    RetriesRunAgain,
    /// A session ends before the deadline that its client was told, between two renewals.
    EarlyExpiry,
    /// A node's state is not what its log says, in a place that no client sees.
    OtherState,
}

impl Fault {
    /// Every one.
    pub const ALL: [Fault; 6] = [
        Fault::LifoQueue,
        Fault::ForgottenHolders,
        Fault::TokensOfThisProcess,
        Fault::RetriesRunAgain,
        Fault::EarlyExpiry,
        Fault::OtherState,
    ];

    /// Its word in the environment variable [`VARIABLE`].
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Fault::LifoQueue => "lifo-queue",
            Fault::ForgottenHolders => "forgotten-holders",
            Fault::TokensOfThisProcess => "tokens-of-this-process",
            Fault::RetriesRunAgain => "retries-run-again",
            Fault::EarlyExpiry => "early-expiry",
            Fault::OtherState => "other-state",
        }
    }
}

/// The environment variable that names the planted bug.
pub const VARIABLE: &str = "LOCKKEEPER_FAULT";

/// Whether this bug is planted in this process. The environment is read once, so that it cannot change in between.
#[cfg(debug_assertions)]
pub(crate) fn on(fault: Fault) -> bool {
    static PLANTED: std::sync::OnceLock<Option<Fault>> = std::sync::OnceLock::new();
    let planted = PLANTED.get_or_init(|| {
        let word = std::env::var(VARIABLE).ok()?;
        Fault::ALL.into_iter().find(|fault| fault.word() == word)
    });
    *planted == Some(fault)
}

/// No bug is ever planted here.
#[cfg(not(debug_assertions))]
pub(crate) const fn on(_fault: Fault) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each bug has a word of its own, and none is planted where nobody asked for one.
    #[test]
    fn each_has_its_word_and_none_is_on_by_itself() {
        let words: std::collections::BTreeSet<_> = Fault::ALL.into_iter().map(Fault::word).collect();
        assert_eq!(words.len(), Fault::ALL.len());
        assert!(std::env::var(VARIABLE).is_ok() || Fault::ALL.into_iter().all(|fault| !on(fault)));
    }
}
