//! What a caller asks of the service: commands, renewals, claims to wait for, reads, subscriptions, and requests of
//! operators.

use serde::{Deserialize, Serialize};

use super::error::ServiceError;
use crate::model::{
    Claim, Command, Handle, LockKey, LogTime, Namespace, Position, Principal, RenewalTarget, SessionId,
};

/// Where calls come from. Limits that protect callers from each other apply to each source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Source {
    /// The application that embeds the node, and the node itself.
    #[default]
    InProcess,
    /// A client's connection, by its number in the process of the node.
    Connection(u64),
    /// Another node, which forwards the calls of its clients, by its id.
    Node(u64),
    /// A principal of a node with `[auth]`, on any of its connections.
    Principal(Principal),
}

/// A command with its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Identity of the caller, as the cluster has authenticated it.
    pub principal: Principal,
    /// Proof that the caller may act for the session that the command names.
    pub proof: Proof,
    /// For commands without a session: time since the caller first sent the command, in milliseconds of the caller's
    /// clock.
    pub age_ms: u64,
    /// For commands without a session: log time as the caller knew it before it first sent the command. With it, no
    /// late copy of the command is executed a second time, however long it was delayed. Without it, the leader uses
    /// `age_ms`, which does not count the time that a copy spent in transit.
    pub since: Option<LogTime>,
    /// Command to put through the log.
    pub command: Command,
}

impl Call {
    /// Returns the first attempt of a trusted caller.
    #[must_use]
    pub fn new(command: Command) -> Self {
        Self { principal: Principal::default(), proof: Proof::Trusted, age_ms: 0, since: None, command }
    }
}

/// Proof that a caller may act for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// The path to the service is the proof: a stream that was opened or attached with the session's handle, or an
    /// application that embeds the node.
    Trusted,
    /// The caller sends the session's handle with the call.
    Handle {
        /// Secret handle of the session.
        handle: Handle,
        /// Namespace in which the caller believes that the session lives. The call is refused if it lives in another
        /// namespace.
        namespace: Namespace,
    },
}

/// One renewal as its caller sends it. The leader adds the time of receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalCall {
    /// Session, lease or hold to renew.
    pub target: RenewalTarget,
    /// Proof for the session, see [`Call::proof`]. A token lease has its handle in the target and needs no other proof.
    pub proof: Proof,
    /// Counter of the caller, returned in the answer.
    pub attempt: u64,
}

/// Returns the answer to a renewal that was sent alone.
pub(crate) fn only_reply<T>(replies: Vec<T>) -> Result<T, ServiceError> {
    replies.into_iter().next().ok_or_else(|| ServiceError::Internal("a renewal was not answered".to_owned()))
}

/// A claim whose outcome is awaited.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClaimRef {
    /// Lock that the claim is for.
    pub lock: LockKey,
    /// Request or lease that claims the lock.
    pub claim: Claim,
}

/// Consistency of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Freshness {
    /// The answer reflects every command that was answered before the read was sent.
    #[default]
    Linearizable,
    /// The answer reflects what the asked node has applied, and names its index.
    Stale,
}

/// Events to receive, and the position to start from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// Selection of the events.
    pub scope: Scope,
    /// Return the events after this position. `None` starts with the next event that happens.
    pub after: Option<Position>,
    /// Cluster that the position belongs to, if the caller knows it; another cluster refuses the subscription. A
    /// restored cluster is another cluster, in which the same position may mean a different event.
    pub cluster_id: Option<u128>,
}

/// Selects the events of a [`Subscription`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Events of the locks in a namespace whose names start with a prefix, of its sessions, and of the whole cluster.
    Namespace {
        /// Namespace of the locks and sessions.
        namespace: Namespace,
        /// Prefix of the lock names; empty for all locks.
        prefix: String,
    },
    /// Events of one session.
    Session(SessionId),
    /// Only the end of one session, from now on; a position to resume from has no effect. The subscription costs
    /// nothing while the session lives, however many events other sessions cause.
    SessionEnd(SessionId),
    /// Events that end or change the holds of one session without a command of it, from now on: a hold expired, was
    /// broken or handed over, or its release was requested. The end of the session ends the subscription with the
    /// refusal [`SessionEnded`](crate::model::Refusal::SessionEnded). After another error some events may be missing:
    /// subscribe again, then read the holds. The subscription costs as little as [`SessionEnd`](Self::SessionEnd).
    Holds(SessionId),
}

/// A request of an operator. The leader executes it, and answers once it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Transfer leadership to the node with this id. The answer comes once that node leads.
    Transfer(u64),
    /// Raise the cluster's feature level, which can never be lowered. Refused if a voter does not support the level.
    RaiseFeatures(u32),
    /// Change the members of the cluster. Refused if it would cost the quorum.
    ChangeMembers(MemberChange),
}

/// A change of the cluster's members. Repeating it changes nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberChange {
    /// Adds a node that receives the log and has no vote. Its id must never have been used in this cluster.
    Add {
        /// Id of the new node.
        node: u64,
        /// Address of the node for clients: `host:port`.
        client: String,
        /// Address of the node for other nodes: `host:port`.
        peer: String,
    },
    /// Gives a vote to a node that has caught up; another voter can be removed in the same step.
    Promote {
        /// Node that gets the vote.
        node: u64,
        /// Voter that leaves the cluster.
        instead_of: Option<u64>,
    },
    /// Removes a node. Its id can never be used again.
    Remove {
        /// Node that leaves the cluster.
        node: u64,
    },
}
