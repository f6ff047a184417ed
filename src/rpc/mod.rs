//! The gRPC wire: parses protobuf into model types, serves any [`LockService`](crate::service::LockService) over it,
//! and is a [`LockService`](crate::service::LockService) over it itself.
//!
//! Knows: limits, model, service, and client for its connect. Never: machine, storage, raft, node.

pub mod pb;

mod background;
mod client;
mod connect;
mod convert;
#[cfg(test)]
mod fake;
mod naming;
mod server;
mod tls;

pub use client::{RemoteService, RemoteSettings};
pub use server::{Routes, ServeError, routes, serve, serve_incoming};
pub use tls::TlsSettings;

/// The Raft group that serves every namespace: there is one.
const GROUP: u32 = 0;
/// Oldest protocol of session streams that this version speaks.
pub const PROTOCOL_MIN: u32 = 1;
/// Newest protocol of session streams that this version speaks.
pub const PROTOCOL_MAX: u32 = 1;
