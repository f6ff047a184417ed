//! The machine's answers. A refusal is an answer too: the same on every node, and final.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Attachment, FencingToken, LockKey, LogTime, Metadata, Mode, Owner, Principal, SessionId};

/// An outcome with the place in time and log at which it was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Log index of the entry that decided it.
    pub index: u64,
    /// That entry's stamp: a deadline `E` in the outcome is worth `E - stamp` to the client, counted from before it asked.
    pub stamp: LogTime,
    /// The answer.
    pub outcome: Outcome,
}

/// What became of a command or renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The session is open.
    Opened {
        /// Its public id.
        session: SessionId,
        /// Its TTL as the cluster keeps it.
        ttl_ms: u64,
        /// It ends after this, unless renewed.
        deadline: LogTime,
    },
    /// The session is bound to the stream that asked.
    Attached {
        /// Number of this attachment.
        attachment: Attachment,
        /// It ends after this, unless renewed.
        deadline: LogTime,
    },
    /// The disconnect was noted, or the attachment was no longer current.
    DisconnectNoted,
    /// The session is closed; also when it had already ended.
    Closed,
    /// Prolonged.
    Renewed {
        /// New end.
        deadline: LogTime,
        /// The client's count, echoed.
        attempt: u64,
        /// The grant's token, where a lease was prolonged.
        token: Option<FencingToken>,
    },
    /// The lock is held by the caller now (or still, when a finished acquire is repeated while held).
    Granted(Grant),
    /// The caller stands in the queue.
    Queued(Place),
    /// The acquire waited as long as it was asked to.
    TimedOut,
    /// The acquire was cancelled; it holds nothing and waits for nothing.
    Withdrawn,
    /// The hold that this acquire had got has ended since.
    HoldEnded {
        /// How.
        reason: EndReason,
    },
    /// The lock was given back, or once less entered.
    Released {
        /// How often it is still entered by the same owner; 0 where it is no longer held.
        left: u32,
    },
    /// Nothing passed but time.
    Ticked,
    /// Not done, and why.
    Refused(Refusal),
}

/// A grant, as its holder is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The fencing token.
    pub token: FencingToken,
    /// The hold's own end, where it has one besides its session's (token leases).
    pub deadline: Option<LogTime>,
    /// How long it waited in the queue, in milliseconds of log time.
    pub waited_ms: u64,
}

/// A place in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// 1 is next.
    pub place: u64,
    /// Number that the machine handed out; the queue is in its order.
    pub sequence: u64,
    /// One of those who hold the lock, or who stand ahead.
    pub held_by: Option<HolderView>,
}

/// Why something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndReason {
    /// Its holder gave it back, or closed its session.
    Released,
    /// Its session or lease ran out.
    Expired,
    /// Its client found its own deadline passed and said so.
    Lost,
    /// It was cancelled.
    Cancelled,
    /// An administrator ended it.
    Broken,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndReason::Released => "released",
            EndReason::Expired => "expired",
            EndReason::Lost => "lost",
            EndReason::Cancelled => "cancelled",
            EndReason::Broken => "broken",
        })
    }
}

/// What others may know of a holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderView {
    /// Whose session; `None` for a token lease.
    pub session: Option<SessionId>,
    /// Which line of execution.
    pub owner: Option<Owner>,
    /// Who the cluster says that it is.
    pub principal: Principal,
    /// The grant's public number.
    pub token: FencingToken,
    /// How it holds.
    pub mode: Mode,
    /// What it says of itself.
    pub metadata: Metadata,
    /// Since when.
    pub since: LogTime,
    /// When it ends if nobody renews it.
    pub deadline: LogTime,
}

/// Why a command was refused. Each names what stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A try met a holder or a queue.
    #[error("{} is held{}", .lock.name, by(.holder))]
    Held {
        /// Which lock.
        lock: LockKey,
        /// One of the holders; `None` where only waiters stand in the way.
        holder: Option<Box<HolderView>>,
    },
    /// The same session and owner hold it or wait for it already.
    #[error("{} is already held or awaited by the same owner of session {session} (token {})", .lock.name, .token.map_or("none yet".to_owned(), |token| token.to_string()))]
    AlreadyHeld {
        /// Which lock.
        lock: LockKey,
        /// Whose.
        session: SessionId,
        /// The token of that hold; `None` while it waits.
        token: Option<FencingToken>,
    },
    /// The name is in use as the other kind.
    #[error("{} is in use as a {kind}; it becomes free for another use once nobody holds it or waits for it", .lock.name)]
    KindMismatch {
        /// Which lock.
        lock: LockKey,
        /// What it is.
        kind: Kind,
    },
    /// The caller's limit is not the semaphore's.
    #[error("{} has a limit of {limit} permits, not {asked}", .lock.name)]
    LimitMismatch {
        /// Which semaphore.
        lock: LockKey,
        /// Its limit.
        limit: u32,
        /// The caller's.
        asked: u32,
    },
    /// More permits than the semaphore has, or will ever have.
    #[error("{} permits of {} can never be granted: the limit is {limit}", .asked, .lock.name)]
    LimitExceeded {
        /// Which semaphore.
        lock: LockKey,
        /// Its limit.
        limit: u32,
        /// The caller's count.
        asked: u32,
    },
    /// Nobody said how many permits there are.
    #[error("{} has no limit yet: the first to ask must name it", .lock.name)]
    LimitUnknown {
        /// Which semaphore.
        lock: LockKey,
    },
    /// A bound of the namespace, lock or session is reached.
    #[error("{what} reached its limit of {limit}")]
    Quota {
        /// What is full.
        what: QuotaKind,
        /// The bound.
        limit: u64,
    },
    /// Nothing of the caller's is held under that name.
    #[error("{} is not held with that proof", .lock.name)]
    NotHeld {
        /// Which lock.
        lock: LockKey,
    },
    /// Somebody else holds it.
    #[error("{} is held by somebody else (token {})", .lock.name, .holder.token)]
    HeldByOther {
        /// Which lock.
        lock: LockKey,
        /// Who.
        holder: Box<HolderView>,
    },
    /// The session is gone; its successor is new and inherits nothing.
    #[error("session {session} has ended: {reason}")]
    SessionEnded {
        /// Which.
        session: SessionId,
        /// How; [`EndReason::Expired`] where its tombstone is gone too.
        reason: EndReason,
    },
    /// Another instance of the client has a session with this handle.
    #[error("another instance has opened a session with this handle (session {session})")]
    AlreadyOpen {
        /// Its public id.
        session: SessionId,
    },
    /// A session with this handle ended a short while ago: open the next one with a new handle.
    #[error("a session with this handle has ended ({reason}); open a new one with a new handle")]
    Tombstoned {
        /// How it ended.
        reason: EndReason,
    },
    /// The handle does not prove what it was shown for.
    #[error("the handle does not belong to it")]
    WrongHandle,
    /// An attach older than one that was applied.
    #[error("a newer attach was applied (attempt {newest})")]
    StaleAttempt {
        /// The newest one.
        newest: u64,
    },
    /// The request number is below what is remembered: it is refused, never executed again.
    #[error("request {number} is too old: only numbers from {floor} are remembered")]
    TooOld {
        /// The request's number.
        number: u64,
        /// The lowest that is remembered.
        floor: u64,
    },
    /// The number was used for another request.
    #[error("request {number} was used before for something else")]
    RequestReused {
        /// The request's number.
        number: u64,
    },
    /// A value that only the machine could judge was out of bounds.
    #[error("{field} must be {low} to {high} ms, got {value}: {advice}")]
    OutOfBounds {
        /// Which field.
        field: DurationField,
        /// Smallest allowed, in milliseconds.
        low: u64,
        /// Largest allowed, in milliseconds.
        high: u64,
        /// What was asked for.
        value: u64,
        /// What to do.
        advice: BoundAdvice,
    },
}

fn by(holder: &Option<Box<HolderView>>) -> String {
    let Some(holder) = holder else {
        return " or awaited by others".to_owned();
    };
    let who = if holder.metadata.who.is_empty() { "somebody" } else { &holder.metadata.who };
    let session = holder.session.map_or("a token lease".to_owned(), |session| format!("session {session}"));
    format!(" by {who} ({session}, token {})", holder.token)
}

/// What a name is in use as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A lock: exclusive and shared.
    Lock,
    /// A semaphore with a limit.
    Semaphore,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Lock => "lock",
            Kind::Semaphore => "semaphore",
        })
    }
}

/// Which bound was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QuotaKind {
    /// Sessions of a namespace.
    Sessions,
    /// Locks of a namespace.
    Locks,
    /// Waiters of a namespace.
    Waiters,
    /// Waiters of one lock.
    WaitersOfLock,
    /// Holders of one lock.
    HoldersOfLock,
    /// Locks of one session.
    LocksOfSession,
    /// How often one hold is entered.
    DepthOfHold,
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuotaKind::Sessions => "the number of sessions in this namespace",
            QuotaKind::Locks => "the number of locks in this namespace",
            QuotaKind::Waiters => "the number of waiters in this namespace",
            QuotaKind::WaitersOfLock => "the number of waiters for this lock",
            QuotaKind::HoldersOfLock => "the number of holders of this lock",
            QuotaKind::LocksOfSession => "the number of locks of this session",
            QuotaKind::DepthOfHold => "the number of times that this hold is entered",
        })
    }
}

/// A duration that the machine judges by the cluster's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DurationField {
    /// A session's TTL.
    Ttl,
    /// A session's disconnect grace.
    DisconnectGrace,
    /// A lease.
    Lease,
    /// A wait without a session.
    Patience,
}

impl fmt::Display for DurationField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DurationField::Ttl => "ttl",
            DurationField::DisconnectGrace => "disconnect_grace",
            DurationField::Lease => "lease",
            DurationField::Patience => "patience",
        })
    }
}

/// The next step for somebody whose duration was out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BoundAdvice {
    /// The floor follows from the timing profile: a shorter TTL would lose sessions at every failover.
    RaiseToFloor,
    /// Long work holds a session, which is renewed; the setting `ttl_max` of the cluster bounds it.
    HoldASession,
}

impl fmt::Display for BoundAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BoundAdvice::RaiseToFloor => "a shorter one would not outlive a failover with this timing profile",
            BoundAdvice::HoldASession => {
                "the cluster's setting ttl_max bounds it; long work holds a session, which is renewed"
            }
        })
    }
}
