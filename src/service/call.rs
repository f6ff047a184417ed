//! What a caller asks of the service: commands, renewals, claims to wait for, reads and subscriptions.

use serde::{Deserialize, Serialize};

use crate::model::{
    Claim, Command, Handle, LockKey, LogTime, Namespace, Position, Principal, RenewalTarget, SessionId,
};

/// A command and who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Who the cluster says that the caller is.
    pub principal: Principal,
    /// What shows that the caller may act for the session that the command names.
    pub proof: Proof,
    /// For sessionless commands: how long ago the caller first sent it, in milliseconds of its own clock.
    pub age_ms: u64,
    /// For sessionless commands: log time as the caller knew it before it first sent it. With it no copy can come so late
    /// that it is executed anew, wherever it was held up; without it the leader goes by `age_ms`, which does not count
    /// how long a copy was on its way.
    pub since: Option<LogTime>,
    /// What is asked.
    pub command: Command,
}

impl Call {
    /// A first try by the caller itself.
    #[must_use]
    pub fn new(command: Command) -> Self {
        Self { principal: Principal::default(), proof: Proof::Trusted, age_ms: 0, since: None, command }
    }
}

/// What shows that a caller may act for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// The way to the service has proved it: a stream that was opened or attached with the handle, or an application
    /// that embeds the node.
    Trusted,
    /// The caller shows the session's handle with the call.
    Handle {
        /// The session's own.
        handle: Handle,
        /// Where the caller takes the session to live. The call is refused if the session lives in another namespace.
        namespace: Namespace,
    },
}

/// One renewal as its caller asks for it; the leader adds when it received it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalCall {
    /// What to prolong.
    pub target: RenewalTarget,
    /// As in [`Call::proof`]. A token lease has its handle in the target and needs no other proof.
    pub proof: Proof,
    /// The caller's own count, echoed in the answer.
    pub attempt: u64,
}

/// Which claim to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClaimRef {
    /// Which lock.
    pub lock: LockKey,
    /// Whose claim on it.
    pub claim: Claim,
}

/// How true a read has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Freshness {
    /// It reflects everything that was answered before it was asked.
    #[default]
    Linearizable,
    /// Whatever the asked node has applied; the answer names the index.
    Stale,
}

/// Which events, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// What to tell.
    pub scope: Scope,
    /// Go on after this position; `None` begins with what happens next.
    pub after: Option<Position>,
    /// Of which cluster that position is, where its caller knows: another one refuses it. A restored cluster is another one:
    /// there the same position may stand for something else.
    pub cluster_id: Option<u128>,
}

/// See [`Subscription`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Locks of a namespace whose names begin so, and what concerns its sessions and the whole cluster.
    Namespace {
        /// Which namespace.
        namespace: Namespace,
        /// Beginning of the names; empty for all.
        prefix: String,
    },
    /// What concerns one session.
    Session(SessionId),
    /// Only the end of one session, from now on; a position to resume from means nothing here. Costs nothing while the
    /// session lives, however much happens to others.
    SessionEnd(SessionId),
    /// What becomes of one session's holds by others or by the end of a lease, from now on: expired, broken, handed over,
    /// asked for. Where it ends with an error, subscribe anew and look at the holds: something may have been missed. As
    /// cheap as [`SessionEnd`](Self::SessionEnd).
    Holds(SessionId),
}
