//! gRPC: converts between protobuf and model types, serves any [`LockService`](crate::service::LockService) over gRPC,
//! and implements [`LockService`](crate::service::LockService) as a gRPC client.
//!
//! Knows: limits, model, service, and client for `Client::connect`. Never: machine, storage, raft, node.

pub mod pb;

mod background;
pub(crate) mod claims;
mod client;
mod convert;
mod middleware;
mod naming;
mod server;
#[cfg(test)]
mod tests;

#[cfg(feature = "cli")]
pub(crate) use background::{Tasks, stopped};
#[cfg(feature = "cli")]
pub(crate) use client::settings::{stays_here, token_header};
pub use client::{RemoteService, RemoteSettings};
pub use server::{Routes, ServeError, routes, serve, serve_incoming};
#[cfg(test)]
use tests::fake;

/// The Raft group that serves every namespace: there is only one.
const GROUP: u32 = 0;
/// Oldest protocol version of session streams that this build supports.
pub const PROTOCOL_MIN: u32 = 1;
/// Newest protocol version of session streams that this build supports.
pub const PROTOCOL_MAX: u32 = 1;
