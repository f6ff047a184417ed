//! The narrow waist: what a lock service can do, whoever implements it.
//!
//! Knows: limits, model. Never: who implements it, wire formats, disks.
//!
//! An embedded [node](crate::node) implements [`LockService`] in-process, the gRPC client implements it over the
//! network, and everything pleasant (sessions, guards, commands) is written once above it.

mod download;
mod error;
mod events;
mod info;
mod members;
mod table;

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::model::{
    Claim, Command, Handle, LockKey, LogTime, Namespace, Position, Principal, Query, QueryReply, RenewalTarget, Reply,
    SessionId,
};

pub use download::Download;
pub use error::{LeaderHint, NotSent, ServiceError};
pub use events::{EventSender, Events};
pub use info::ServerInfo;
pub use members::MemberChange;
pub use table::{Advice, ErrorRow, TABLE, Word};

/// A lock service. Cloning gives another handle on the same one.
///
/// - Every method answers from the leader, whichever node or endpoint was asked.
/// - Dropping a returned future abandons the answer, not the command: it may still be applied.
pub trait LockService: Clone + Send + Sync + 'static {
    /// Puts a command through the log and returns its outcome. An acquire that has to wait returns
    /// [`Queued`](crate::model::Outcome::Queued) at once; [`wait_outcome`](Self::wait_outcome) returns the final outcome.
    fn submit(&self, call: Call) -> impl Future<Output = Result<Reply, ServiceError>> + Send;

    /// The longest that [`submit`](Self::submit) may take, be its answer an error. `None` where it sets no bound of its own:
    /// then each caller sets one, which costs a timer each time.
    fn answers_within(&self) -> Option<Duration> {
        None
    }

    /// Whether a session still has the stream over which it was last opened or attached: a stream shows the cluster when its
    /// client is gone. Without it the session's commands are answered all the same, each by whichever node it comes to; so the
    /// session should be attached again at once, which is another stream with another receiver. A closed channel with `true`
    /// where there is nothing that could break.
    fn attachment(&self, _session: SessionId) -> watch::Receiver<bool> {
        watch::channel(true).1
    }

    /// Renews many sessions and leases, each answered in its place. Never deduplicated, never from memory.
    fn renew(&self, renewals: Vec<RenewalCall>) -> impl Future<Output = Result<Vec<Reply>, ServiceError>> + Send;

    /// Waits until an acquire or take is granted, withdrawn, timed out or ended, and returns that outcome. It reads the
    /// machine's state first, so it may be called at any time and again after any error.
    fn wait_outcome(&self, claim: ClaimRef) -> impl Future<Output = Result<Reply, ServiceError>> + Send;

    /// Answers a question, by default as true as a read can be: after a round that proves the leader.
    fn query(
        &self,
        query: Query,
        freshness: Freshness,
    ) -> impl Future<Output = Result<QueryReply, ServiceError>> + Send;

    /// Events from a position on, in order and without a gap, until the subscription is cut with a reason.
    fn subscribe(&self, subscription: Subscription) -> impl Future<Output = Result<Events, ServiceError>> + Send;

    /// What becomes of one session's holds by others or by the end of a lease, as [`Scope::Holds`] says: of every hold that is
    /// granted after this call. Where the events come over the session's stream, the first call has them from the open or
    /// attach of that stream on, and without a stream there is an error. Where the events end with an error, some may be missing:
    /// call it again, then read the holds.
    fn hold_events(&self, session: SessionId) -> Result<Events, ServiceError>;

    /// The cluster as its leader sees it. Where no leader can be reached it answers all the same, as the asked node
    /// sees it: nobody leads then, and how the other nodes are is not known.
    fn status(&self) -> impl Future<Output = Result<Status, ServiceError>> + Send;

    /// Hands leadership to another node. Answers once that node leads.
    fn transfer(&self, to: u64) -> impl Future<Output = Result<(), ServiceError>> + Send;

    /// Raises the cluster's feature level, which never falls again. Refused where a voter does not support it.
    fn raise_features(&self, to: u32) -> impl Future<Output = Result<(), ServiceError>> + Send;

    /// Changes who belongs to the cluster. Answers once it is so. Refused where it would cost the quorum.
    fn change_members(&self, change: MemberChange) -> impl Future<Output = Result<(), ServiceError>> + Send {
        async move { Err(ServiceError::Forbidden { why: format!("this service has no members: {change:?}") }) }
    }

    /// A backup of the whole state, made by the asked node, with everything that was acknowledged before the call.
    fn backup(&self) -> impl Future<Output = Result<Download, ServiceError>> + Send {
        async { Err(ServiceError::Forbidden { why: "this service makes no backups".to_owned() }) }
    }
}

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

/// The cluster as its leader sees it, or as the asked node does where no leader can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The cluster's name.
    pub cluster: String,
    /// Its id: drawn when the cluster was founded or restored. `None` before the answering node has applied it.
    pub cluster_id: Option<u128>,
    /// What its nodes know each other by: a node that joins has it in its config.
    pub peers_id: u128,
    /// Which node was asked.
    pub node: u64,
    /// Who leads, with a quorum behind it; `None` where no leader could be reached.
    pub leader: Option<u64>,
    /// Raft term.
    pub term: u64,
    /// Log time of the newest applied entry.
    pub log_time: LogTime,
    /// Newest applied log index.
    pub applied: u64,
    /// Every member.
    pub nodes: Vec<NodeStatus>,
    /// Sizes of the state there.
    pub totals: crate::model::Totals,
    /// Shortest TTL that the timing profile allows.
    pub ttl_ms_min: u64,
    /// Longest TTL and lease that the cluster allows.
    pub ttl_ms_max: u64,
    /// The cluster's feature level.
    pub features: u32,
    /// Heartbeat, shortest and longest election timeout, in milliseconds: the same on every node.
    pub timing_ms: [u64; 3],
    /// For how long nothing is granted, in milliseconds of log time: after a restore. 0 otherwise.
    pub closed_ms: u64,
}

/// One member, as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id.
    pub id: u64,
    /// Leader, follower, learner; as far as is known.
    pub role: Role,
    /// Where clients reach it.
    pub client: String,
    /// Where peers reach it.
    pub peer: String,
    /// Where its HTTP port is; empty where it has none, or before the cluster has learnt it.
    pub http: String,
    /// How far it has the log, as far as is known.
    pub applied: Option<u64>,
    /// Whether the leader heard from it within an election timeout; `None` where nobody leads who could know.
    pub healthy: Option<bool>,
    /// Version of its build; `None` before the cluster has learnt it.
    pub version: Option<String>,
    /// Highest feature level that its build supports; `None` before the cluster has learnt it.
    pub features: Option<u32>,
}

/// A member's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Leads.
    Leader,
    /// Votes and follows.
    Follower,
    /// Follows without a vote.
    Learner,
}

/// How long a call may take when its caller set nothing else.
pub const REQUEST_WAIT: Duration = Duration::from_millis(crate::limits::REQUEST_MS_DEFAULT);
