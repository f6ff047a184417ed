//! The narrow waist: what a lock service can do, whoever implements it.
//!
//! Knows: limits, model. Never: who implements it, wire formats, disks.
//!
//! An embedded [node](crate::node) implements [`LockService`] in-process, the gRPC client implements it over the
//! network, and everything pleasant (sessions, guards, commands) is written once above it.

mod call;
mod download;
mod error;
mod error_table;
mod events;
mod member_change;
mod server_info;
mod status;

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;

use crate::model::{Query, QueryReply, Reply, SessionId};

pub use call::{Call, ClaimRef, Freshness, Proof, RenewalCall, Scope, Subscription};
pub use download::Download;
pub use error::{LeaderHint, NotSent, ServiceError};
pub use error_table::{Advice, ErrorCode, ErrorRow, TABLE};
pub use events::{EventSender, Events};
pub use member_change::MemberChange;
pub use server_info::ServerInfo;
pub use status::{NodeStatus, Role, Status};

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

/// How long a call may take when its caller set nothing else.
pub const REQUEST_WAIT: Duration = Duration::from_millis(crate::limits::REQUEST_MS_DEFAULT);
