//! The gRPC wire: parses protobuf into model types, serves any [`LockService`](crate::service::LockService) over it,
//! and is a [`LockService`](crate::service::LockService) over it itself.
//!
//! Knows: limits, model, service. Never: machine, storage, raft, node.

pub mod pb;

mod convert;
