//! Refusals: why a command was not done, and what blocks it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Claim, Closing, DeadlockLink, EndReason, FencingToken, HolderView, Kind, LockKey, LockValue, Namespace, Reason,
    SessionId,
};

/// Why a command was refused. Each variant names what blocks the command. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A try found a holder or a queue, or a name that an ended hold keeps closed.
    #[error("{} is {}", .lock.name, held(.holder.as_deref(), .closed.as_deref()))]
    Held {
        /// The lock's full name.
        lock: LockKey,
        /// One of the holders. `None` if only waiters or an ended hold block the command.
        holder: Option<Box<HolderView>>,
        /// If no holder blocks the command: the ended hold whose name or permits open first.
        closed: Option<Box<Closing>>,
    },
    /// The same session and owner hold the lock or wait for it already.
    #[error("{} is already held or awaited by the same owner of session {session} (token {})", .lock.name, .token.map_or("none yet".to_owned(), |token| token.to_string()))]
    AlreadyHeld {
        /// The lock's full name.
        lock: LockKey,
        /// The session that holds it or waits for it.
        session: SessionId,
        /// The token of the hold. `None` if it still waits.
        token: Option<FencingToken>,
    },
    /// The name is in use as the other kind: as a lock or as a semaphore.
    #[error("{} is in use as a {kind}; it becomes free for another use once it has no holder and no waiter", .lock.name)]
    KindMismatch {
        /// The lock's full name.
        lock: LockKey,
        /// The kind that the name is in use as.
        kind: Kind,
    },
    /// The caller's limit differs from the semaphore's.
    #[error("{} has a limit of {limit} permits, not {asked}", .lock.name)]
    LimitMismatch {
        /// The semaphore's full name.
        lock: LockKey,
        /// The limit of the semaphore.
        limit: u32,
        /// The limit that the caller named.
        asked: u32,
    },
    /// The wait would never end, because it closes a cycle of owners that wait for each other.
    #[error("waiting for {} would never end: {}", .cycle.first().map_or("it", |link| link.lock.name.as_str()), DeadlockLink::sentences(.cycle).join("; "))]
    Deadlock {
        /// Each link waits for the next, and the last for the first, which is the caller. At most the first 8 links.
        cycle: Vec<DeadlockLink>,
    },
    /// The request asks for more permits than the semaphore has.
    #[error("{} permits of {} can never be granted: the limit is {limit}", .asked, .lock.name)]
    LimitExceeded {
        /// The semaphore's full name.
        lock: LockKey,
        /// The limit of the semaphore.
        limit: u32,
        /// The number of permits that the caller asked for.
        asked: u32,
    },
    /// The semaphore is not in use, and the request names no limit.
    #[error("{} has no limit yet: the first request must name it", .lock.name)]
    LimitUnknown {
        /// The semaphore's full name.
        lock: LockKey,
    },
    /// A bound of the namespace, lock or session is reached.
    #[error("{what} reached its limit of {limit}")]
    Quota {
        /// The bound that is reached.
        what: QuotaKind,
        /// The value of the bound.
        limit: u64,
    },
    /// The caller holds nothing under that name.
    #[error("{} is not held by this handle or token", .lock.name)]
    NotHeld {
        /// The lock's full name.
        lock: LockKey,
    },
    /// Another client holds the lock.
    #[error("{} is held by another client (token {})", .lock.name, .holder.token)]
    HeldByOther {
        /// The lock's full name.
        lock: LockKey,
        /// The current holder.
        holder: Box<HolderView>,
    },
    /// The session has ended. A new session of the client inherits nothing.
    #[error("session {session} has ended: {reason}{}", because(.why))]
    SessionEnded {
        /// The session that ended.
        session: SessionId,
        /// How the session ended. [`EndReason::Expired`] if its tombstone has been removed.
        reason: EndReason,
        /// The reason of the operator that ended the session, if an operator did.
        why: Option<Reason>,
    },
    /// Another instance of the client has a session with this handle.
    #[error("another instance has opened a session with this handle (session {session})")]
    AlreadyOpen {
        /// The public id of that session.
        session: SessionId,
    },
    /// A session with this handle ended recently. The client must open its next session with a new handle.
    #[error("a session with this handle has ended ({reason}); open a new one with a new handle")]
    Tombstoned {
        /// How that session ended.
        reason: EndReason,
    },
    /// The handle does not prove the session or lease.
    #[error("the handle does not belong to this session or lease")]
    WrongHandle,
    /// The attach is older than one that was applied.
    #[error("a newer attach was applied (attempt {newest})")]
    StaleAttempt {
        /// The newest attempt that was applied.
        newest: u64,
    },
    /// The request number is below the lowest remembered number, so the request is never executed again.
    #[error("request number {number} is too old: only numbers from {floor} are remembered")]
    TooOld {
        /// The number of the request.
        number: u64,
        /// The lowest number that is remembered.
        floor: u64,
    },
    /// The number of a session's request, or the id of a lease's request, was used for another request.
    #[error("{} was used before for a different request", named(*.claim))]
    RequestReused {
        /// The request, by its session and number, or by its id.
        claim: Claim,
    },
    /// A duration is outside bounds that depend on the cluster's settings.
    #[error("{field} must be {} to {}, got {}{}", short(*.low), short(*.high), short(*.value), advised(*.field, *.value, *.low, *.advice))]
    OutOfBounds {
        /// The field with the value.
        field: DurationField,
        /// Smallest allowed value, in milliseconds.
        low: u64,
        /// Largest allowed value, in milliseconds.
        high: u64,
        /// The requested value, in milliseconds.
        value: u64,
        /// What the caller can do.
        advice: BoundAdvice,
    },
    /// A node announced a different disk from the one that the cluster knows for it.
    #[error("node {node} is known with another disk: a new disk needs a new node id")]
    OtherDisk {
        /// The id of the node.
        node: u64,
    },
    /// A voter does not support the requested feature level.
    #[error("feature level {to} is not supported by node {node}, which {}: install the newer build there first", supported(.supports))]
    FeaturesUnsupported {
        /// The requested level.
        to: u32,
        /// The first voter that does not support it.
        node: u64,
        /// The highest level that this voter supports. `None` if it has announced nothing yet.
        supports: Option<u32>,
    },
    /// The cluster's feature level is too low for the command. Nothing reached the log.
    #[error(
        "this needs feature level {needed}, and the cluster's is {active}: raise it with `lockkeeper features raise {needed}`"
    )]
    FeatureLevel {
        /// The level that the command needs.
        needed: u32,
        /// The cluster's current level.
        active: u32,
    },
    /// The owner acquired the hold more than once, and the outer acquisitions rely on the hold as it is.
    #[error("{} was acquired {depth} times by its owner; release the inner acquisitions first", .lock.name)]
    Reentered {
        /// The lock's full name.
        lock: LockKey,
        /// How many times it was acquired.
        depth: u32,
    },
    /// The session neither waits for this lock alone nor accepts hand-overs.
    #[error("session {session} neither waits for {} nor accepts hand-overs that it did not ask for", .lock.name)]
    NotAccepted {
        /// The lock's full name.
        lock: LockKey,
        /// The session that was to receive the hold.
        session: SessionId,
    },
    /// The lock is no longer as the caller saw it. Nothing was changed.
    #[error("{} has changed since the caller saw it", .lock.name)]
    Changed {
        /// The lock's full name.
        lock: LockKey,
        /// The text that is stored with the lock now, if the command was to change the text.
        value: Option<LockValue>,
    },
    /// The change of the cluster's members would cost the quorum, or is not possible.
    #[error("the members stay as they are: {why}")]
    MembersUnfit {
        /// What the change would cause, and what to do instead.
        why: String,
    },
    /// Nothing is granted yet: the cluster was restored from a backup, and clients may still rely on what was granted
    /// after the backup.
    #[error("the cluster was restored from a backup and grants nothing for another {}", rounded(*.left_ms))]
    Closed {
        /// The time until grants are possible, in milliseconds of log time.
        left_ms: u64,
    },
    /// The caller wants to return more permits than the hold has.
    #[error("{asked} permits of {} cannot be returned: {held} are held", .lock.name)]
    PermitsNotHeld {
        /// The semaphore's full name.
        lock: LockKey,
        /// The number of permits that are held.
        held: u32,
        /// The number of permits to return.
        asked: u32,
    },
    /// The caller named a namespace other than the session's. Nothing was changed.
    #[error("session {session} is in namespace {namespace}, not in {asked}")]
    OtherNamespace {
        /// The id of the session.
        session: SessionId,
        /// The namespace of the session.
        namespace: Namespace,
        /// The namespace that the caller named.
        asked: Namespace,
    },
}

fn because(why: &Option<Reason>) -> String {
    why.as_ref().map_or(String::new(), |why| format!(" ({})", why.as_str()))
}

fn supported(level: &Option<u32>) -> String {
    level.map_or("has not announced itself yet".to_owned(), |level| format!("supports {level} at most"))
}

fn held(holder: Option<&HolderView>, closed: Option<&Closing>) -> String {
    match (holder, closed) {
        (Some(holder), _) => {
            let who = holder.metadata.name();
            let session = holder.session.map_or("a token lease".to_owned(), |session| format!("session {session}"));
            format!("held by {who} ({session}, token {})", holder.token)
        }
        (None, Some(closed)) => closed.to_string(),
        (None, None) => "held or awaited by others".to_owned(),
    }
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Closing { token, who, until: _, left_ms } = self;
        write!(f, "kept closed by {who} (token {token}) for another {}", rounded(*left_ms))
    }
}

/// A bound that was reached. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QuotaKind {
    /// Sessions of a namespace.
    Sessions,
    /// Locks of a namespace.
    Locks,
    /// Takes of a namespace, live and remembered.
    Takes,
    /// Waiters of a namespace.
    Waiters,
    /// Waiters of one lock.
    WaitersOfLock,
    /// Holders of one lock.
    HoldersOfLock,
    /// Locks of one session.
    LocksOfSession,
    /// Acquires of one hold by its owner.
    DepthOfHold,
    /// Locks of one set.
    LocksOfSet,
    /// Processes of a namespace that gave signs of life.
    Processes,
    /// Commands that free more documents than one command frees at once, in a namespace or in all.
    UnlocksOfMany,
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuotaKind::Sessions => "the number of sessions in this namespace",
            QuotaKind::Locks => "the number of locks in this namespace",
            QuotaKind::Takes => "the number of sessionless takes remembered in this namespace",
            QuotaKind::Waiters => "the number of waiters in this namespace",
            QuotaKind::WaitersOfLock => "the number of waiters for this lock",
            QuotaKind::HoldersOfLock => "the number of holders of this lock",
            QuotaKind::LocksOfSession => "the number of locks of this session",
            QuotaKind::DepthOfHold => "the number of times that this hold is acquired",
            QuotaKind::LocksOfSet => "the number of locks of this set",
            QuotaKind::Processes => "the number of processes in this namespace",
            QuotaKind::UnlocksOfMany => "the number of unfinished unlocks of many documents",
        })
    }
}

/// A duration with bounds from the cluster's settings. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DurationField {
    /// A session's TTL.
    Ttl,
    /// A session's disconnect grace.
    DisconnectGrace,
    /// The length of a lease.
    Lease,
    /// The time since a sessionless command was first sent.
    Age,
    /// The cluster's setting `ttl_max`.
    TtlMax,
}

impl fmt::Display for DurationField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DurationField::Ttl => "ttl",
            DurationField::DisconnectGrace => "disconnect_grace",
            DurationField::Lease => "lease",
            DurationField::Age => "age",
            DurationField::TtlMax => "ttl_max",
        })
    }
}

/// The next step for a caller whose duration was out of bounds. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BoundAdvice {
    /// Request at least the lower bound, which follows from the timing profile: less would lose sessions at failovers.
    RaiseToFloor,
    /// Use a session for long work, because a session is renewed. The upper bound is the cluster's setting `ttl_max`.
    HoldASession,
    /// Send a new request. This one may be a late duplicate of a request that is no longer remembered.
    NewRequest,
    /// Choose a value in bounds: a restore grants nothing for this time, and a session needs the shortest TTL.
    RestoresWait,
}

/// A request as a text: the number within its session, or the id of a lease's request.
fn named(claim: Claim) -> String {
    match claim {
        Claim::Request(request) => format!("request number {}", request.number),
        Claim::Lease(request) => format!("request {:032x}", request.0),
    }
}

/// A duration in the largest unit that divides it without a remainder.
fn short(ms: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = UNITS.into_iter().find(|(size, _)| ms != 0 && ms.is_multiple_of(*size));
    unit.map_or_else(|| format!("{ms}ms"), |(size, unit)| format!("{}{unit}", ms / size))
}

/// A duration rounded up to a precision that is enough for a reader.
fn rounded(ms: u64) -> String {
    let unit = match ms {
        0..1_000 => 1,
        1_000..10_000 => 100,
        10_000..600_000 => 1_000,
        600_000.. => 60_000,
    };
    let ms = ms.checked_next_multiple_of(unit).unwrap_or(ms);
    if unit == 100 && !ms.is_multiple_of(1_000) { format!("{}.{}s", ms / 1_000, ms / 100 % 10) } else { short(ms) }
}

/// The next step after a value out of bounds, as the end of the message.
fn advised(field: DurationField, value: u64, low: u64, advice: BoundAdvice) -> &'static str {
    match (advice, field) {
        (BoundAdvice::RaiseToFloor, DurationField::DisconnectGrace) if low <= value => {
            ": it cannot be longer than the session's ttl"
        }
        (BoundAdvice::RaiseToFloor, _) => ": a shorter one would not outlive a failover with this timing profile",
        (BoundAdvice::HoldASession, _) if value < low => "",
        (BoundAdvice::HoldASession, DurationField::Ttl) => {
            ": the most is the cluster's setting ttl_max; a session is renewed while its client lives, so that long work \
             needs no longer ttl"
        }
        (BoundAdvice::HoldASession, _) => {
            ": the most is the cluster's setting ttl_max; for longer work hold a session, which is renewed"
        }
        (BoundAdvice::RestoresWait, _) if value < low => ": no session could be opened with a shorter one",
        (BoundAdvice::RestoresWait, _) => ": a restore from a backup waits this long before it grants",
        (BoundAdvice::NewRequest, _) => ": an older one might be a late duplicate; send a new request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message for the largest time, which no cluster reaches, does not overflow when it is rounded up.
    #[test]
    fn the_longest_time_is_shown() {
        let (token, who) = (FencingToken::new(0, 7), "bob".into());
        let closing = Closing { token, who, until: crate::model::LogTime(0), left_ms: u64::MAX };
        assert!(closing.to_string().starts_with("kept closed by bob (token 7) for another"), "{closing}");
    }

    /// The rest of a wait is rounded up and shows its units.
    #[test]
    fn a_rest_is_rounded_up() {
        let texts = [(999, "999ms"), (1_000, "1s"), (5_767, "5.8s"), (9_999, "10s"), (10_001, "11s"), (600_001, "11m")];
        for (ms, text) in texts {
            assert_eq!(rounded(ms), text);
        }
    }

    /// The message for a value out of bounds shows units, and a next step that fits the bound: one above the largest
    /// TTL, one below the smallest, one for a lease and one for a disconnect grace.
    #[test]
    fn the_next_step_fits_the_bound() {
        let text =
            |field, low, high, value, advice| Refusal::OutOfBounds { field, low, high, value, advice }.to_string();
        let ttl = |value| {
            let advice = if value < 3_000 { BoundAdvice::RaiseToFloor } else { BoundAdvice::HoldASession };
            text(DurationField::Ttl, 3_000, 600_000, value, advice)
        };
        assert!(ttl(2_999).starts_with("ttl must be 3s to 10m, got 2999ms: a shorter one would not outlive"));
        let long = ttl(3_600_000);
        assert!(long.starts_with("ttl must be 3s to 10m, got 1h: ") && long.contains("ttl_max"), "{long}");
        assert!(long.contains("needs no longer ttl") && !long.contains("hold a session"), "{long}");
        let lease = |value| text(DurationField::Lease, 1, 600_000, value, BoundAdvice::HoldASession);
        assert!(
            lease(3_600_000)
                .ends_with("the cluster's setting ttl_max; for longer work hold a session, which is renewed")
        );
        assert_eq!(lease(0), "lease must be 1ms to 10m, got 0ms");
        let grace = |value| text(DurationField::DisconnectGrace, 1_000, 5_000, value, BoundAdvice::RaiseToFloor);
        assert!(grace(5_001).ends_with("longer than the session's ttl"));
        assert!(grace(999).contains("would not outlive a failover"));
    }
}
