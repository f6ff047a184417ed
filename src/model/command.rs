//! Commands of the lock machine. The log decides each of them, so that every node gets the same result.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    Alter, Announcement, Attachment, DocumentCommand, Extras, Fairness, FencingToken, Handle, Instance, Invalid,
    LeaseRequestId, LockKey, LockName, Manage, Metadata, Namespace, Owner, Reason, Reentry, RequestId, SessionId,
    SmallMap, small_map,
};
use crate::limits;

/// A command. New variants are added at the end only, because stored entries contain the variant's number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Opens a session. A repetition with the same handle and instance returns the same session.
    OpenSession(OpenSession),
    /// Binds a session to a stream: raises its attachment number and renews it.
    Attach(Attach),
    /// Sent by a node after a session's stream broke: starts the disconnect grace, if the session has one.
    Disconnected {
        /// The session whose stream broke.
        session: SessionId,
        /// The attachment that ended. A number other than the current one changes nothing.
        attachment: Attachment,
    },
    /// Ends a session: releases everything that it holds and removes its waiters.
    CloseSession {
        /// The session to end.
        session: SessionId,
        /// Whether the client no longer needs the session or found it expired.
        end: SessionClose,
    },
    /// Requests a lock, or several that are granted together.
    Acquire(Acquire),
    /// Withdraws an acquire: removes it from the queue, or releases it if it was granted. If the acquire has not
    /// arrived yet, its number is used up, so that it is refused later.
    Cancel {
        /// The request of the acquire.
        request: RequestId,
    },
    /// Releases a lock.
    Release(Release),
    /// Takes a token lease: a lock without a session.
    TakeLease(TakeLease),
    /// Withdraws a take that waits, or releases it if it was granted. If the take has not arrived yet, its id is used
    /// up, so that it is refused later.
    CancelTake {
        /// The lock's full name.
        lock: LockKey,
        /// The id of the take.
        take: LeaseRequestId,
        /// Proves that the take is the caller's.
        handle: Handle,
    },
    /// Releases a token lease.
    DropLease {
        /// The lock's full name.
        lock: LockKey,
        /// Proves the lease.
        handle: Handle,
    },
    /// Carries only the entry's stamp, so that log time passes.
    Tick,
    /// Sent by a new leader at the start of its term: how long the cluster had no leader, by the new leader's clock.
    LeaderlessGap {
        /// Milliseconds without a leader, as the new leader observed them.
        gap_ms: u64,
    },
    /// Sent by a cluster's first leader: settings that every node must share. Applied once. Later ones change nothing.
    Configure {
        /// The settings of the cluster.
        settings: ClusterSettings,
        /// A random number from the proposing leader. It becomes the cluster's id if the cluster has none yet.
        cluster_id: u128,
    },
    /// Sent by a leader: the announcement of a voter. Refused if the cluster knows the node by another disk.
    Announce(Announcement),
    /// Sent by a leader at an operator's request: raises the cluster's feature level if every voter supports it.
    RaiseFeatures(RaiseFeatures),
    /// Changes a hold: upgrade, downgrade, resume, set the value, or return some permits.
    Alter(Alter),
    /// Acts on a lock without being its holder: break, ask, hand over, set a limit.
    Manage(Manage),
    /// Changes something on condition that it still is as the caller saw it.
    Document(DocumentCommand),
    /// Sent by an operator: ends a session of another client.
    EndSession(EndSession),
    /// Sent by an operator: changes a setting of the whole cluster.
    ChangeSetting(Setting),
}

impl Command {
    /// Whether the command acts without a session. The end of a session then does not end its effects.
    #[must_use]
    pub fn is_sessionless(&self) -> bool {
        matches!(
            self,
            Command::TakeLease(_) | Command::CancelTake { .. } | Command::DropLease { .. } | Command::Document(_)
        )
    }

    /// Whether only a node may send the command. Nodes refuse it to callers.
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

    /// The session for which the command acts.
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

    /// The request of the session if it may have to wait, with the name of the first lock that it wants.
    #[must_use]
    pub fn may_wait(&self) -> Option<(&LockName, RequestId)> {
        if let Command::Acquire(acquire) = self {
            return acquire.locks.keys().next().map(|name| (name, acquire.request));
        }
        let Command::Alter(alter) = self else { return None };
        Some((&alter.name, alter.request))
    }

    /// The feature level that the command needs. Below it, some voter may run a build that cannot decode the command.
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

/// The content of [`Command::RaiseFeatures`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseFeatures {
    /// The new level. A level that is not above the current one changes nothing, because a level is never lowered.
    pub to: u32,
    /// The voters, as the proposing leader knows them. Each must have announced that it supports the level.
    pub voters: BTreeSet<u64>,
}

/// The content of [`Command::EndSession`]. Everything that the session holds is released as by a break: without
/// lock-delay, and without the possibility of a resume. Its waiters leave their queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSession {
    /// The namespace of the session.
    pub namespace: Namespace,
    /// The session to end.
    pub session: SessionId,
    /// The reason, which the client of the session receives.
    pub why: Reason,
}

/// The content of [`Command::OpenSession`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    /// The namespace of the session.
    pub namespace: Namespace,
    /// The secret that proves the session in later calls.
    pub handle: Handle,
    /// The run of the client that opens the session.
    pub instance: Instance,
    /// The session ends this long after its last renewal, in milliseconds of log time.
    pub ttl_ms: u64,
    /// The session ends this long after its stream broke, in milliseconds, if that is earlier. At most the TTL. At
    /// least a third of the shortest TTL, because a failover may take that long.
    pub disconnect_grace_ms: Option<u64>,
    /// What the client states about itself.
    pub metadata: Metadata,
    /// Whether the session accepts holds that are handed over to it although it did not ask for them.
    pub accepts_hand_over: bool,
}

/// The content of [`Command::Attach`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The namespace in which the caller expects the session. The attach is refused if the session has another one.
    pub namespace: Namespace,
    /// The session to attach.
    pub session: SessionId,
    /// Proves the session.
    pub handle: Handle,
    /// The client's count of its attempts. A number that is not above the last applied one is refused.
    pub attempt: u64,
}

/// Why a client closes its session. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionClose {
    /// The client no longer needs the session.
    Done,
    /// The client found that its own deadline had passed: an involuntary end.
    Lost,
}

/// The content of [`Command::Acquire`]. Several locks are granted together or not at all, and wait in all their queues
/// under one sequence number. A set of one lock behaves like a single lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// The number of the request. A repetition with the same number gets the first answer.
    pub request: RequestId,
    /// All requests of the session with smaller numbers have been answered and will not be repeated.
    pub answered_below: u64,
    /// The locks, in the session's namespace, and the mode for each: 1 to 64.
    #[serde(deserialize_with = "small_map::at_most::<{ limits::LOCKS_A_SET_MAX }, _, _, _>")]
    pub locks: SmallMap<LockName, Access>,
    /// The line of execution that wants the locks. Without one, this acquire is its own owner.
    pub owner: Option<Owner>,
    /// How long the acquire waits in the queue.
    pub patience: Patience,
    /// What the client states about itself.
    pub metadata: Metadata,
    /// The hold also ends this long after its grant or last renewal, in milliseconds of log time.
    pub lease_ms: Option<u64>,
    /// Choices that few callers make. `None` if none is made. A set of several locks never barges, and its owner cannot
    /// acquire its holds again.
    pub extras: Option<Box<Extras>>,
}

impl Acquire {
    /// The choices of this acquire. The defaults if it makes none.
    #[must_use]
    pub fn choices(&self) -> &Extras {
        self.extras.as_deref().unwrap_or(Extras::PLAIN)
    }

    /// Whether the acquire wants several locks.
    #[must_use]
    pub fn is_set(&self) -> bool {
        1 < self.locks.len()
    }

    /// Returns an error for no lock, more than 64, and choices that a set or a cached hold cannot have.
    pub fn checked(&self) -> Result<(), Invalid> {
        let (count, max) = (self.locks.len(), limits::LOCKS_A_SET_MAX);
        if count == 0 || max < count {
            return Err(Invalid::new("locks", format!("1 to {max} in one set"), count));
        }
        let Some(extras) = &self.extras else { return Ok(()) };
        extras.checked_cached(&self.locks, self.owner.as_ref(), self.lease_ms)?;
        if self.is_set() && (extras.reentry != Reentry::Refuse || extras.fairness != Fairness::Fair) {
            return Err(Invalid::new("locks", "one, for a reentrant acquire or one that barges", count));
        }
        extras.checked_for(self.locks.values().map(|access| access.mode))?;
        extras.checked(self.owner.as_ref())
    }
}

/// How a lock is held. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Mode {
    /// Held by one holder at a time.
    #[default]
    Exclusive,
    /// Held together with other shared holders.
    Shared,
    /// This number of permits of a semaphore, at least 1.
    Permits(u32),
}

/// How an acquire wants one lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    /// How the lock is to be held.
    pub mode: Mode,
    /// The limit of the semaphore as the caller knows it. The first acquire of a free name sets the limit, and a
    /// different limit is refused later. `None` accepts any limit, and is the only choice for a lock.
    pub limit: Option<u32>,
}

impl Access {
    /// Access to this number of permits of a semaphore with this limit.
    pub fn permits(count: u32, limit: impl Into<Option<u32>>) -> Self {
        Self { mode: Mode::Permits(count), limit: limit.into() }
    }
}

impl From<Mode> for Access {
    fn from(mode: Mode) -> Self {
        Self { mode, limit: None }
    }
}

/// How long an acquire waits in the queue. Log time bounds the wait on the server; the client also cancels by its own
/// clock. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Patience {
    /// Does not wait.
    Try,
    /// Waits at most this long.
    For {
        /// Milliseconds after the entry in which the request was queued.
        ms: u64,
    },
    /// Waits as long as the session lives.
    Session,
}

/// The content of [`Command::Release`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The number of the request. A repetition with the same number gets the first answer.
    pub request: RequestId,
    /// All requests of the session with smaller numbers have been answered and will not be repeated.
    pub answered_below: u64,
    /// The lock's name, in the session's namespace.
    pub name: LockName,
    /// The token of the grant.
    pub token: FencingToken,
    /// The acquire that this undoes, if it is not undone already; 0 for the newest acquire of the hold.
    pub acquire: u64,
}

/// The content of [`Command::TakeLease`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeLease {
    /// The lock's full name.
    pub lock: LockKey,
    /// The id of the take. A repetition with the same id gets the first answer.
    pub take: LeaseRequestId,
    /// The secret that refreshes and drops the lease.
    pub handle: Handle,
    /// How the lock is to be held.
    pub access: Access,
    /// The lease ends this long after its grant or last refresh, in milliseconds of log time.
    pub lease_ms: u64,
    /// How long the take waits in the queue. The wait has an upper bound, because no session ends it.
    pub patience: Patience,
    /// What the client states about itself.
    pub metadata: Metadata,
    /// The claim lease of a queued take: its grant lasts for this long at most, in milliseconds, until a refresh.
    pub claim_ms: Option<u64>,
}

/// A setting of the whole cluster that operators change while it runs. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// Longest TTL and lease, in milliseconds. Applies to sessions and leases that begin after the change.
    TtlMax(u64),
}

/// Settings of the whole cluster, kept in the replicated state so that every node makes the same decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSettings {
    /// Heartbeat interval, shortest and longest election timeout, in milliseconds.
    pub timing_ms: [u64; 3],
    /// Shortest TTL of a session in milliseconds, about three times the failover bound of that timing.
    pub ttl_ms_min: u64,
    /// Longest TTL and lease in milliseconds, until an operator changes it with [`Setting::TtlMax`].
    pub ttl_ms_max: u64,
}
