//! The client, above any [`LockService`](crate::service::LockService): sessions that renew themselves, guards that report their
//! loss, leases, and queries.
//!
//! Knows: limits, model, clock, service. Never: wire formats, node internals.
//!
//! - A [`Client`] is a service, a namespace and a clock. `client.lock("nightly").acquire().await?` is the shortest way.
//! - A [`Session`] is kept alive by one task of its own, which ends when the last reference to the session (a `Session` or a
//!   [`LockGuard`]) is dropped, or when the session is lost.
//! - What is dropped is cleaned up: an acquire leaves no waiter, a guard leaves no lock. The session's task repeats that work
//!   until it is answered or the session ends, and with the session everything ends.
//! - Validity is counted on the client's own clock from before each request was sent, so that the client knows of a
//!   loss before another can be granted.
//!
//! A file here imports only from files that stand above it in the list of `tests/tidy.rs`.

mod admin;
#[allow(clippy::module_inception, reason = "the file of the type `Client`")]
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

pub(crate) use retry::Retry;
pub(crate) use session::default_ttl_ms;
pub(crate) use wait::submit_and_wait;
