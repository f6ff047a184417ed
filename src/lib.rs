//! lockkeeper: a replicated lock service. Three nodes, one Raft group, and one question: who holds this lock?
//!
//! The rooms, from the ground up; each knows only those above it in this list:

#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod client;
pub mod clock;
pub mod limits;
pub mod model;
pub mod machine;
pub mod codec;
pub mod service;
