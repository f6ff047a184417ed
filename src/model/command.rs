//! What can be asked of the lock machine. Every command is decided in the log, the same on every node.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    Alter, Announcement, Attachment, DocumentCommand, Extras, Fairness, FencingToken, Handle, Instance, Invalid,
    LeaseRequestId, LockKey, LockName, Manage, Metadata, Namespace, Owner, Reason, Reentry, RequestId, SessionId,
    SmallMap, small_map,
};
use crate::limits;

/// One command. New variants are added at the end only: stored entries hold the number of the variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Open a session. Repeated with the same handle and instance it answers the same session.
    OpenSession(OpenSession),
    /// Bind a session to a stream; raises its attachment number and renews it.
    Attach(Attach),
    /// Made by a node when a session's stream broke: starts the disconnect grace, if the session has one.
    Disconnected {
        /// Whose stream broke.
        session: SessionId,
        /// Which attachment; a number that is no longer current changes nothing.
        attachment: Attachment,
    },
    /// End a session: everything that it held is released and its waiters are gone.
    CloseSession {
        /// Which.
        session: SessionId,
        /// Whether the client is done with the session or found it expired.
        end: SessionClose,
    },
    /// Ask for a lock, or for several that are granted together.
    Acquire(Acquire),
    /// Withdraw an acquire: from the queue, or released if already granted; an unseen number is burnt.
    Cancel {
        /// The acquire's request.
        request: RequestId,
    },
    /// Give a lock back.
    Release(Release),
    /// Take a token lease: a lock without a session.
    TakeLease(TakeLease),
    /// Withdraw a take that waits; release it if already granted; an unseen take id is burnt.
    CancelTake {
        /// Which lock.
        lock: LockKey,
        /// Which take.
        take: LeaseRequestId,
        /// Proof that the take was the caller's.
        handle: Handle,
    },
    /// Give a token lease back.
    DropLease {
        /// Which lock.
        lock: LockKey,
        /// Proof of the lease.
        handle: Handle,
    },
    /// Nothing but the entry's stamp: lets log time pass.
    Tick,
    /// Made by a new leader at the start of its term: how long nobody led, by its own clock.
    LeaderlessGap {
        /// Milliseconds without a leader, as far as the new one could see.
        gap_ms: u64,
    },
    /// Made by a cluster's first leader: settings that every node must share. Applied once; later ones change nothing.
    Configure {
        /// Of the cluster.
        settings: ClusterSettings,
        /// Drawn by the leader that proposes it: it becomes the cluster's id where that has none yet.
        cluster_id: u128,
    },
    /// Made by a leader: what a voter says of itself. Another disk than the one known for that node is refused.
    Announce(Announcement),
    /// Made by a leader whose operator asked for it: raises the cluster's feature level, where every voter supports it.
    RaiseFeatures(RaiseFeatures),
    /// Change a hold: upgrade, downgrade, resume, set a value, give some permits back.
    Alter(Alter),
    /// Act on a lock from outside: break, ask, hand over, set a limit.
    Manage(Manage),
    /// Change something only if it is as it was seen.
    Document(DocumentCommand),
    /// Made by an operator: end a session that is not the caller's.
    EndSession(EndSession),
    /// Made by an operator: change a setting of the whole cluster.
    ChangeSetting(Setting),
}

impl Command {
    /// Whether it acts without a session, so that no session's end ends what it may still do.
    #[must_use]
    pub fn is_sessionless(&self) -> bool {
        matches!(
            self,
            Command::TakeLease(_) | Command::CancelTake { .. } | Command::DropLease { .. } | Command::Document(_)
        )
    }

    /// Whether only a node may make it; callers are refused.
    #[must_use]
    pub fn is_node_made(&self) -> bool {
        matches!(
            self,
            Command::Disconnected { .. }
                | Command::Tick
                | Command::LeaderlessGap { .. }
                | Command::Configure { .. }
                | Command::Announce(_)
                | Command::RaiseFeatures(_)
        )
    }

    /// The session that it acts for.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Command::Attach(attach) => Some(attach.session),
            Command::Disconnected { session, .. } | Command::CloseSession { session, .. } => Some(*session),
            Command::Acquire(acquire) => Some(acquire.request.session),
            Command::Cancel { request } => Some(request.session),
            Command::Release(release) => Some(release.request.session),
            Command::Alter(alter) => Some(alter.request.session),
            Command::OpenSession(_)
            | Command::TakeLease(_)
            | Command::CancelTake { .. }
            | Command::DropLease { .. }
            | Command::Manage(_)
            | Command::Document(_)
            | Command::EndSession(_)
            | Command::ChangeSetting(_)
            | Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_) => None,
        }
    }

    /// The session's request that may have to wait for a lock, with the name of the first lock that it asks for.
    #[must_use]
    pub fn may_wait(&self) -> Option<(&LockName, RequestId)> {
        if let Command::Acquire(acquire) = self {
            return acquire.locks.keys().next().map(|name| (name, acquire.request));
        }
        let Command::Alter(alter) = self else { return None };
        Some((&alter.name, alter.request))
    }

    /// The feature level that it needs: below it, some voter may run a build that cannot decode or apply it.
    #[must_use]
    pub fn feature(&self) -> u32 {
        match self {
            Command::OpenSession(_)
            | Command::Attach(_)
            | Command::Disconnected { .. }
            | Command::CloseSession { .. }
            | Command::Acquire(_)
            | Command::Cancel { .. }
            | Command::Release(_)
            | Command::TakeLease(_)
            | Command::CancelTake { .. }
            | Command::DropLease { .. }
            | Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_)
            | Command::Alter(_)
            | Command::Manage(_)
            | Command::Document(_)
            | Command::EndSession(_)
            | Command::ChangeSetting(_) => 1,
        }
    }
}

/// See [`Command::RaiseFeatures`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseFeatures {
    /// The new level. One that is not above the present one changes nothing: a level is never lowered.
    pub to: u32,
    /// Who votes, as the proposing leader knows it: each must have announced that it supports the level.
    pub voters: BTreeSet<u64>,
}

/// See [`Command::EndSession`]. Everything that the session held is released as by a break: without lock-delay, and it
/// cannot be resumed. Its waiters leave their queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSession {
    /// The namespace in which it lives.
    pub namespace: Namespace,
    /// Which session.
    pub session: SessionId,
    /// Why it is ended; its client sees this.
    pub why: Reason,
}

/// See [`Command::OpenSession`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    /// The namespace in which it lives.
    pub namespace: Namespace,
    /// The secret that proves it from now on.
    pub handle: Handle,
    /// Which run of the client asks.
    pub instance: Instance,
    /// It ends this long after its last renewal, in milliseconds of log time.
    pub ttl_ms: u64,
    /// It ends this long after its stream broke, where that is sooner. At most the TTL, and at least a third of the shortest
    /// TTL: what a failover may take.
    pub disconnect_grace_ms: Option<u64>,
    /// What the client says of itself.
    pub metadata: Metadata,
    /// It takes holds that are handed over to it without having asked.
    pub accepts_hand_over: bool,
}

/// See [`Command::Attach`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The namespace in which the caller takes the session to live. Another one than the session's own is refused.
    pub namespace: Namespace,
    /// Which session.
    pub session: SessionId,
    /// Proof.
    pub handle: Handle,
    /// The client's own count of tries, growing: a lower or equal one than the last applied is refused.
    pub attempt: u64,
}

/// Why a client closes its session. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionClose {
    /// It is done with it.
    Done,
    /// It found that its own deadline had passed: an involuntary end.
    Lost,
}

/// See [`Command::Acquire`]. Several locks are granted together or not at all, and wait in all their queues under one
/// number; a set of one is a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// Repeat it with the same number: the first answer counts.
    pub request: RequestId,
    /// All requests of the session with a smaller number have been answered and will not be repeated.
    pub answered_below: u64,
    /// Which locks, in the session's namespace, and how each: 1 to 64.
    #[serde(deserialize_with = "small_map::at_most::<{ limits::LOCKS_A_SET_MAX }, _, _, _>")]
    pub locks: SmallMap<LockName, Access>,
    /// The line of execution that asks; without one this acquire is its own owner.
    pub owner: Option<Owner>,
    /// How long to wait.
    pub patience: Patience,
    /// What the holder will say of itself.
    pub metadata: Metadata,
    /// The hold also ends this long after its grant or last renewal, in milliseconds of log time.
    pub lease_ms: Option<u64>,
    /// Choices that few callers make; `None` where none is made. A set of several locks never barges, and never enters a
    /// hold again.
    pub extras: Option<Box<Extras>>,
}

impl Acquire {
    /// The choices, made or not.
    #[must_use]
    pub fn choices(&self) -> &Extras {
        self.extras.as_deref().unwrap_or(Extras::PLAIN)
    }

    /// Whether it asks for several locks.
    #[must_use]
    pub fn is_set(&self) -> bool {
        1 < self.locks.len()
    }

    /// Refuses no lock and more than 64, choices that a set does not have, and those that a cached hold does not have.
    pub fn checked(&self) -> Result<(), Invalid> {
        let (count, max) = (self.locks.len(), limits::LOCKS_A_SET_MAX);
        if count == 0 || max < count {
            return Err(Invalid::new("locks", format!("1 to {max} in one set"), count));
        }
        let Some(extras) = &self.extras else { return Ok(()) };
        if let Some((field, value)) = self.conflict_with_cached() {
            return Err(Invalid::new(field, "left out where the hold is cached", value));
        }
        if self.is_set() && (extras.reentry != Reentry::Refuse || extras.fairness != Fairness::Fair) {
            return Err(Invalid::new("locks", "one, where it is to be entered again or to barge", count));
        }
        extras.checked_for(self.locks.values().map(|access| access.mode))?;
        extras.checked(self.owner.as_ref())
    }
}

/// How a lock is held. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// So many permits of a semaphore, at least 1.
    Permits(u32),
}

/// How an acquire wants one lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    /// How the lock is to be held.
    pub mode: Mode,
    /// What the caller takes a semaphore's limit to be: the first acquire of a free name sets it, another limit than the
    /// cluster's is refused. `None` where the caller does not care, and for a lock.
    pub limit: Option<u32>,
}

impl Access {
    /// So many permits of a semaphore with this limit.
    pub fn permits(count: u32, limit: impl Into<Option<u32>>) -> Self {
        Self { mode: Mode::Permits(count), limit: limit.into() }
    }
}

impl From<Mode> for Access {
    fn from(mode: Mode) -> Self {
        Self { mode, limit: None }
    }
}

/// How long an acquire waits in the queue. Log time is the backstop; the client cancels by its own clock.
/// New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Patience {
    /// Not at all.
    Try,
    /// At most so many milliseconds.
    For {
        /// From the entry in which it was queued.
        ms: u64,
    },
    /// As long as the session lives.
    Session,
}

/// See [`Command::Release`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Repeat it with the same number: the first answer counts.
    pub request: RequestId,
    /// As in [`Acquire`].
    pub answered_below: u64,
    /// Which lock, in the session's namespace.
    pub name: LockName,
    /// Which grant.
    pub token: FencingToken,
}

/// See [`Command::TakeLease`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeLease {
    /// Which lock.
    pub lock: LockKey,
    /// Repeat it with the same id: the first answer counts.
    pub take: LeaseRequestId,
    /// The secret that refreshes and drops it.
    pub handle: Handle,
    /// How the lock is wanted.
    pub access: Access,
    /// It ends this long after its grant or last refresh, in milliseconds of log time.
    pub lease_ms: u64,
    /// How long to wait in the queue; never longer than a bound, for no session ends it.
    pub patience: Patience,
    /// What the holder will say of itself.
    pub metadata: Metadata,
}

/// A setting of the whole cluster that operators change while it runs. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// Longest TTL and lease, in milliseconds, for sessions and leases from now on.
    TtlMax(u64),
}

/// Settings of the whole cluster, kept in the replicated state so that every node decides alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSettings {
    /// Timing: heartbeat, shortest and longest election timeout, in milliseconds.
    pub timing_ms: [u64; 3],
    /// Shortest TTL of a session, about three times the failover bound of that timing.
    pub ttl_ms_min: u64,
    /// Longest TTL and lease until an operator changes it with [`Setting::TtlMax`].
    pub ttl_ms_max: u64,
}
