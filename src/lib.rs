//! lockkeeper: a replicated lock service. Three nodes, one Raft group, and one question: who holds this lock?
//!
//! The modules, from the ground up. Each one uses only those above it in this list:

pub mod manual;
pub mod limits;
pub mod model;
pub mod history;
#[doc(hidden)]
pub mod faults;
pub mod state;
pub mod machine;
pub mod codec;
pub mod storage;
pub mod clock;
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
pub mod http;
#[cfg(feature = "cli")]
pub mod cli;
