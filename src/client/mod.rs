//! The client on top of any [`LockService`](crate::service::LockService): sessions that are renewed automatically,
//! guards that report the loss of their lock, leases, and queries.
//!
//! Knows: limits, model, clock, service. Never: wire formats, node internals.
//!
//! - A [`Client`] consists of a service, a namespace and a clock. The shortest use is
//!   `client.lock("nightly").acquire().await?`.
//! - One task keeps a [`Session`] alive. The task ends when the last reference to the session (a `Session` or a
//!   [`LockGuard`]) is dropped, or when the session is lost.
//! - Dropped values are cleaned up: an acquire leaves no waiter, a guard leaves no lock. The session's task repeats the
//!   clean-up until it is answered or the session ends; the end of the session ends all its holds and waits.
//! - Validity is counted on the client's own clock, from before each request was sent, so that the client detects a
//!   loss before another client can be granted the lock. Only a break, a hand-over and the operator's end of a session
//!   grant the lock to the next client at once.
//!
//! A file of this module imports only from files above it in the list of `tests/tidy/client_files.rs`.

mod admin;
#[allow(clippy::module_inception, reason = "this file has the type `Client`")]
mod client;
mod documents;
mod election;
mod error;
mod guard;
mod history;
mod hold;
mod lease;
mod on_drop;
mod options;
mod query;
mod request;
mod retry;
mod session;
mod settings;
mod token_filter;
mod validity;
mod wait;
mod watch;

#[cfg(test)]
mod tests;

pub use client::{Client, ReadAt};
pub use documents::{Grabbed, NewDocument};
pub use election::{Campaign, Election, Leader, Leadership, Observer};
pub use error::{ClientError, Lost};
pub use guard::LockGuard;
pub use guard::permit::Permit;
pub use guard::set::SetGuard;
pub use guard::watch::HoldWatch;
pub use history::HistoryReader;
pub use hold::{HoldState, Released, RevokeRequest};
pub use lease::request::LeaseRequest;
pub use lease::{Lease, Refreshed};
pub use query::ListRequest;
pub use request::acquire::LockRequest;
pub use request::set::{SetMember, SetRequest};
pub use session::{Session, SessionBuilder};
pub use token_filter::TokenFilter;
pub use watch::Watch;

#[cfg(feature = "cli")]
pub(crate) use request::pending::acquire_in;
pub(crate) use retry::{Retry, is_answer, remembered};
#[cfg(feature = "cli")]
pub(crate) use retry::{operated, repeated};
pub(crate) use session::default_ttl_ms;
#[cfg(feature = "cli")]
pub(crate) use session::takeover::{TakenOver, Takeover, Unattached};
pub(crate) use wait::{submit_and_wait, wait_until};
