//! The lock service trait: the calls that every lock service answers, and the errors that it returns.
//!
//! Knows: limits, model, auth, and how net describes a connection. Never: implementations of the trait, wire formats,
//! disks.
//!
//! An embedded [node](crate::node) implements [`LockService`] in-process, and the gRPC client implements it over the
//! network. Sessions, guards and commands are written once, on top of the trait.

mod call;
mod caller;
mod download;
mod error;
mod error_table;
mod events;
mod server_info;
mod source_count;
mod status;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;

use crate::auth::{ClusterRight, Who};
use crate::model::{Principal, Query, QueryReply, Reply, SessionId};

pub(crate) use call::only_reply;
pub use call::{Call, ClaimRef, Freshness, MemberChange, Operation, Proof, RenewalCall, Scope, Source, Subscription};
pub use caller::who_calls;
pub use download::Download;
pub use error::{LeaderHint, NotSent, ServiceError};
pub(crate) use error_table::REFUSALS;
pub use error_table::{Advice, ErrorCode, ErrorRow, TABLE};
pub use events::{EventSender, Events};
pub use server_info::ServerInfo;
pub(crate) use source_count::{Counted, Places, SourceCount, TakenPlace};
pub use status::{NodeStatus, Role, STATES_DIFFER, Status};

/// A lock service. Cloning gives another handle on the same service.
///
/// - Every method answers from the leader, no matter which node or endpoint receives the call.
/// - A new kind of call is a variant of what a method takes, such as [`Command`](crate::model::Command), [`Query`] or
///   [`Operation`], because it does not compile before a node names the right that it needs. No method that reads or
///   changes something has a default.
/// - Dropping a returned future discards the answer, not the command: it may still be applied.
pub trait LockService: Clone + Debug + Send + Sync + 'static {
    /// Puts a command through the log and returns its outcome. An acquire that has to wait returns
    /// [`Queued`](crate::model::Outcome::Queued) at once; [`wait_outcome`](Self::wait_outcome) returns its final
    /// outcome.
    fn submit(&self, call: Call) -> impl Future<Output = Result<Reply, ServiceError>> + Send;

    /// Returns a handle on the same service for the calls of one caller, which come from one source. `from` is the
    /// address of the caller. A service that treats all callers alike returns a clone, and does not ask who calls.
    ///
    /// # Errors
    /// [`ServiceError::Unauthenticated`] if the service knows its callers, and this one does not prove who it is.
    fn for_caller(
        &self,
        _source: Source,
        _from: Option<SocketAddr>,
        _who: impl FnOnce() -> Result<Who, ServiceError>,
    ) -> Result<Self, ServiceError> {
        Ok(self.clone())
    }

    /// Records that a port refused a request from this source before it determined the caller, because a web page sent
    /// the request. A service without records ignores that.
    fn page_refused(&self, _source: Source, _from: Option<SocketAddr>, _refusal: &ServiceError) {}

    /// Returns the principal of this handle's caller; `anonymous` if the service does not know its callers.
    fn whoami(&self) -> impl Future<Output = Result<Principal, ServiceError>> + Send {
        async { Ok(Principal::default()) }
    }

    /// Returns the source to which the limits of this handle's caller apply.
    fn caller_source(&self) -> Source {
        Source::default()
    }

    /// Whether the service knows its callers. If so, others get as little as possible.
    fn knows_callers(&self) -> bool {
        false
    }

    /// Refuses a caller of this handle that lacks this right on the whole cluster.
    ///
    /// # Errors
    /// [`ServiceError::Forbidden`].
    fn permits(&self, _right: ClusterRight) -> Result<(), ServiceError> {
        Ok(())
    }

    /// Whether the caller of this handle has this right on the whole cluster. Unlike [`permits`](Self::permits), the
    /// answer `false` is not recorded as a refusal.
    fn has(&self, _right: ClusterRight) -> bool {
        true
    }

    /// Returns the longest time that [`submit`](Self::submit) takes until it returns an answer or an error. `None` if
    /// the service sets no bound: then each caller sets one, which costs a timer for each call.
    fn answers_within(&self) -> Option<Duration> {
        None
    }

    /// Whether the session still has the stream over which it was last opened or attached. A broken stream shows the
    /// cluster that the client is gone. Without a stream the session's commands are still answered, each by the node
    /// that receives it; the client should attach the session again soon. Each attach opens a new stream with a new
    /// receiver. A service without streams returns a closed channel that holds `true`.
    fn attachment(&self, _session: SessionId) -> watch::Receiver<bool> {
        watch::channel(true).1
    }

    /// Renews sessions and leases, and returns one reply for each, in the order of the calls. A renewal is never
    /// deduplicated and never answered from memory.
    fn renew(&self, renewals: Vec<RenewalCall>) -> impl Future<Output = Result<Vec<Reply>, ServiceError>> + Send;

    /// Waits until an acquire or take is granted, withdrawn, timed out or ended, and returns that outcome. It reads the
    /// machine's state first, so it may be called at any time, and again after any error.
    fn wait_outcome(&self, claim: ClaimRef) -> impl Future<Output = Result<Reply, ServiceError>> + Send;

    /// Answers a query. A linearizable read is answered after a round to a quorum has confirmed the leader.
    fn query(
        &self,
        query: Query,
        freshness: Freshness,
    ) -> impl Future<Output = Result<QueryReply, ServiceError>> + Send;

    /// Returns the events after a position, in order and without a gap, until the subscription ends with an error that
    /// gives the reason.
    fn subscribe(&self, subscription: Subscription) -> impl Future<Output = Result<Events, ServiceError>> + Send;

    /// Returns the events that end or change the session's holds without a command of the session, see
    /// [`Scope::Holds`]: those of all holds that are granted after this call. If the events come over the session's
    /// stream, the first call also returns the events since the open or attach of that stream, and the call fails
    /// without a stream. After an error some events may be missing: subscribe again, then read the holds.
    fn hold_events(&self, session: SessionId) -> Result<Events, ServiceError>;

    /// Returns the cluster as its leader sees it. If no leader can be reached, it returns what the asked node knows: no
    /// leader, and nothing about the health of the other nodes.
    fn status(&self) -> impl Future<Output = Result<Status, ServiceError>> + Send;

    /// Executes the request of an operator, and returns once it is done.
    fn operate(&self, operation: Operation) -> impl Future<Output = Result<(), ServiceError>> + Send;

    /// Returns a backup of the whole state, made by the asked node, with everything that was acknowledged before the
    /// call.
    fn backup(&self) -> impl Future<Output = Result<Download, ServiceError>> + Send;
}

/// Time limit of a call whose caller sets none.
pub const REQUEST_WAIT: Duration = Duration::from_millis(crate::limits::REQUEST_MS_DEFAULT);
