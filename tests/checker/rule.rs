//! The promises that the checker checks, and how it reports a broken one.

/// A promise of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A node reports its events once and in order.
    PositionsGrow,
    /// Two nodes report the same event at the same position.
    NodesAgree,
    /// Together the nodes report all events.
    NothingMissing,
    /// An exclusive holder is the only holder; shared holders are together only with shared holders.
    OneHolder,
    /// Waiters are granted in the order of the queue.
    FirstComeFirstServed,
    /// A token is larger than all earlier ones.
    TokensGrow,
    /// A request waits once and holds once, even if it was repeated.
    OnceARequest,
    /// A hold or wait that ends existed, with the same claim.
    EndsWhatWas,
    /// Only live sessions wait or hold.
    LiveSessions,
    /// Everything that was acknowledged to a client is in the log.
    AcknowledgedHappened,
    /// Two clients never believe at the same time that they have holds that exclude each other.
    BeliefsDisjoint,
    /// The operations on each lock are linearizable.
    Linearizable,
}

/// A broken promise and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}
