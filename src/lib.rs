//! lockkeeper: a replicated lock service. Three nodes form one Raft group, which decides who holds each lock.
//!
//! The modules are in order: each one uses only modules above it in this list. The comment at the head of a module says
//! which of them it knows, and what it never does.

mod mutex;
pub mod manual;
pub mod limits;
pub mod model;
pub mod auth;
pub mod history;
#[doc(hidden)]
pub mod faults;
pub mod state;
pub mod machine;
pub mod codec;
pub mod storage;
pub mod clock;
mod telemetry;
pub mod audit;
pub mod net;
mod protobuf;
pub mod raft;
pub mod service;
pub mod config;
pub mod node;
pub mod client;
pub mod compat;
pub mod rpc;
pub mod testing;
#[cfg(feature = "cli")]
mod certs;
#[cfg(feature = "cli")]
mod shapes;
#[cfg(feature = "cli")]
pub mod http;
#[cfg(feature = "cli")]
pub mod cli;
