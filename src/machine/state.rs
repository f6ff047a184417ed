//! What the machine remembers: its counters, locks, sessions and takes. Plain data; the rules are in the other files.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::document_index::Unlocking;
use crate::model::{
    Claim, ClusterSettings, DocumentId, EndReason, Extras, Fairness, FencingToken, Handle, Instance, Kind, LockKey,
    LogTime, Metadata, Mode, Namespace, Outcome, Owner, Position, Principal, Reason, SessionId, SmallMap, WallTime,
};

/// Counters that only grow, log time, and the cluster's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Globals {
    /// Log index of the newest applied entry.
    pub applied: u64,
    /// Log time: the newest stamp.
    pub now: LogTime,
    /// Wall clock of the newest stamp.
    pub wall: WallTime,
    /// Cluster epoch of new tokens and session ids.
    pub epoch: u16,
    /// Counter of the newest fencing token.
    pub tokens: u64,
    /// Counter of the newest session.
    pub sessions: u64,
    /// Newest place number handed out in any queue.
    pub sequences: u64,
    /// Every build that may run supports this level: commands above it are not proposed. 0 where it was never raised.
    pub feature_level: u32,
    /// Agreed on by the cluster's first leader.
    pub settings: Option<ClusterSettings>,
    /// Fixed by the cluster's first leader, or by the restore that founded the cluster. It never changes.
    pub cluster_id: Option<u128>,
    /// Longest TTL and lease as an operator set it; `None` where it is the settings' own.
    pub ttl_ms_max: Option<u64>,
    /// The largest that this ever was: grants of that time may still be believed after a restore.
    pub ttl_ms_max_ever: u64,
    /// The newest record of a namespace whose whole history was forgotten.
    pub history_floor: Position,
    /// Nothing is granted while log time is at most this: the state was restored from a backup.
    pub closed_until: Option<LogTime>,
    /// Real time without a leader that the log has told of, in milliseconds: it is no log time.
    pub leaderless_ms: u64,
    /// Where the newest event stands.
    pub newest_event: Position,
    /// Commands that freed more documents than one command may go through, oldest first.
    pub unlocking: Vec<Unlocking>,
    /// Once `closed_until` has passed: the first lock whose queue was not looked at yet.
    pub opening: Option<LockKey>,
}

/// What was asked for: the same while the request waits and while it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// A session's request, or a take.
    pub claim: Claim,
    /// The line of execution, if named.
    pub owner: Option<Owner>,
    /// How the lock is wanted, or held.
    pub mode: Mode,
    /// Who the cluster says that the caller is.
    pub principal: Principal,
    /// What the caller says of itself.
    pub metadata: Arc<Metadata>,
    /// Tells a repeated request from another one with the same number.
    pub fingerprint: u64,
    /// Choices that few requests make.
    pub extras: Option<Box<Extras>>,
}

/// A holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// What was granted. An upgrade changes its mode; when the first of several requests gives the hold back, the next one takes
    /// its place.
    pub request: Request,
    /// Since when.
    pub since: LogTime,
    /// The same by the leader's wall clock, for people.
    pub when: WallTime,
    /// How long it waited before, in milliseconds.
    pub waited_ms: u64,
    /// An end of its own: always for a take, where asked for otherwise.
    pub lease: Option<Lease>,
    /// What few holds have.
    pub extras: Option<Box<HolderExtras>>,
}

/// An end of a hold besides its session's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The secret that proves it, for a take.
    pub handle: Option<Handle>,
    /// Held while log time is at most this.
    pub deadline: LogTime,
    /// The newest refresh that was applied, by its caller's count; older ones change nothing.
    pub attempt: u64,
}

/// What few holds have; left out where nothing of it is there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HolderExtras {
    /// Requests of the same owner that entered the hold again, oldest first; each needs its release.
    pub reentries: Vec<HoldEntry>,
    /// The request that made it exclusive.
    pub upgrade: Option<HoldEntry>,
    /// Its request asked for other locks together with this one.
    pub set: bool,
    /// It was taken as a document.
    pub document: Option<DocumentMark>,
    /// What it has stays closed while log time is at most this, however it ends (at least).
    pub closed_until: Option<LogTime>,
    /// Held while log time is at most this, whatever is renewed (at most).
    pub ends: Option<LogTime>,
    /// It is cached, and its session is to give it back after the use that is under way.
    pub recalled: bool,
}

/// What a document has besides the fields of every hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMark {
    /// Its `ts`; the claim is the take of that name.
    pub ts: DocumentId,
    /// Its election term.
    pub term: Option<u64>,
    /// Not confirmed yet. Always false in a free document.
    pub prepared: bool,
}

/// The document of a lock that nobody holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeDocument {
    /// `ts` and term.
    pub mark: DocumentMark,
    /// What its last holder said of itself.
    pub metadata: Arc<Metadata>,
    /// When that came to hold it, by the leader's wall clock.
    pub when: WallTime,
    /// Under which token.
    pub token: FencingToken,
}

/// A process that gave signs of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// The last one, by the leader's wall clock.
    pub ping: WallTime,
    /// Forgotten when log time passes this, unless it has locks.
    pub forget_after: LogTime,
}

/// A request by which the owner acquired its hold again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldEntry {
    /// Its number.
    pub number: u64,
    /// As in [`Request`].
    pub fingerprint: u64,
}

/// A waiter in a lock's queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// What it asks for.
    pub request: Request,
    /// Since when.
    pub since: LogTime,
    /// It waits while log time is at most this; `None` waits as long as its session lives.
    pub deadline: Option<LogTime>,
    /// The end of its own that the hold is to have.
    pub lease: Option<LeaseWanted>,
    /// What it is to get.
    pub purpose: Purpose,
    /// It is a try, which waits a moment behind a cached hold and is then told who holds the lock.
    pub tries: bool,
}

/// A lease that begins with the grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseWanted {
    /// The secret that will prove it, for a take.
    pub handle: Option<Handle>,
    /// How long it lasts, in milliseconds.
    pub ms: u64,
}

/// What a waiter is to get. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A hold of its own.
    Hold,
    /// The shared hold with this token made exclusive.
    Upgrade(FencingToken),
    /// A hold of its own, together with those of other locks.
    Set,
}

/// A hold that has ended, for as long as it keeps the name closed; or the permits that it gave back before its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delayed {
    /// As it was, without its lease and the requests that entered it again. Its mode is what is closed.
    pub holder: Holder,
    /// Closed while log time is at most this.
    pub until: LogTime,
    /// What of it was lost, and may be resumed; `None` where nothing was.
    pub lost: Option<LostHold>,
}

/// What may be taken up again after an involuntary end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostHold {
    /// How it was held.
    pub mode: Mode,
    /// It may be resumed while log time is at most this.
    pub until: LogTime,
}

impl Request {
    /// Its choices, made or not.
    pub(super) fn choices(&self) -> &Extras {
        self.extras.as_deref().unwrap_or(Extras::PLAIN)
    }
}

impl Waiter {
    /// Whether it may pass others that barge, and be passed by them.
    pub(super) fn barges(&self) -> bool {
        self.request.choices().fairness == Fairness::Barging
    }
}

/// The kind of lock that a mode asks for.
pub(super) fn kind_of(mode: Mode) -> Kind {
    match mode {
        Mode::Exclusive | Mode::Shared => Kind::Lock,
        Mode::Permits(_) => Kind::Semaphore,
    }
}

/// Permits that a mode uses up; 0 for a lock.
pub(super) fn permits_of(mode: Mode) -> u64 {
    match mode {
        Mode::Exclusive | Mode::Shared => 0,
        Mode::Permits(count) => u64::from(count),
    }
}

/// One live session, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Where it lives.
    pub namespace: Namespace,
    /// Its secret.
    pub handle: Handle,
    /// The run of the client that opened it.
    pub instance: Instance,
    /// Who the cluster says that it is.
    pub principal: Principal,
    /// What it says of itself.
    pub metadata: Arc<Metadata>,
    /// It ends this long after a renewal.
    pub ttl_ms: u64,
    /// It ends this long after its stream broke, where that is sooner.
    pub disconnect_grace_ms: Option<u64>,
    /// When it was opened.
    pub opened: LogTime,
    /// It lives while log time is at most this.
    pub deadline: LogTime,
    /// How often it was attached.
    pub attachment: u64,
    /// The client's newest attempt at attaching.
    pub attempt: u64,
    /// The newest renewal that was applied, by the client's count; older ones change nothing.
    pub renewal: u64,
    /// Its stream broke and it has not come back.
    pub disconnected: bool,
    /// Its last sign of life: opened, attached or renewed.
    pub renewed: LogTime,
    /// The same by the leader's wall clock, for people.
    pub renewed_wall: WallTime,
    /// What the log had told of leaderless time by then: what came since lengthens its life.
    pub leaderless_ms: u64,
    /// It takes holds that are handed over to it without having asked.
    pub accepts_hand_over: bool,
    /// Request numbers below are never executed any more.
    pub window_floor: u64,
}

/// One live session and what belongs to it.
///
/// - A request number is active or finished, never both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// What is stored of the session itself.
    pub record: SessionRecord,
    /// Its requests that wait or hold, each with its lock or the locks of its set; derived from locks.
    pub(super) active: SmallMap<u64, SmallMap<LockKey, ClaimState>>,
    /// How many locks stand there in all.
    pub(super) locks: usize,
    /// Its finished requests that may be repeated.
    pub(super) finished: SmallMap<u64, Finished>,
}

/// Whether a claim waits for its lock or holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimState {
    /// In the queue, under this place number.
    Waiting(u64),
    /// Holds it, with this token.
    Holding(FencingToken),
}

/// The remembered answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// What it asked for; `None` where a cancel burnt an unseen number.
    pub fingerprint: Option<u64>,
    /// The answer.
    pub outcome: Outcome,
}

/// What is remembered of an ended session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Where it lived.
    pub namespace: Namespace,
    /// Its secret, so that a late open is told.
    pub handle: Handle,
    /// How it ended.
    pub reason: EndReason,
    /// What the operator said that ended it, if an operator did.
    pub why: Option<Reason>,
    /// Forgotten when log time passes this.
    pub deadline: LogTime,
}

/// What is remembered of a finished take without a session. A live one has no record of its own: its hold or wait has all
/// of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedLease {
    /// Its secret.
    pub handle: Handle,
    /// As in [`Request`]; `None` where a cancel burnt an unseen take.
    pub fingerprint: Option<u64>,
    /// The answer to a repeated take.
    pub outcome: Outcome,
    /// Forgotten when log time passes this.
    pub forget: LogTime,
}

/// How much of a namespace's quotas is used; derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Live sessions and tombstones.
    pub sessions: u64,
    /// Locks in use.
    pub locks: u64,
    /// Takes that wait or hold, and remembered ones.
    pub takes: u64,
    /// Waiters.
    pub waiters: u64,
    /// Processes that gave signs of life.
    pub processes: u64,
}

/// The session's id behind a claim's request, for lookups.
pub(super) fn request_of(claim: Claim) -> Option<(SessionId, u64)> {
    match claim {
        Claim::Request(request) => Some((request.session, request.number)),
        Claim::Lease(_) => None,
    }
}
