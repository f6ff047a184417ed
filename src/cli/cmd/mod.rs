//! The commands. Each file has the options, the call, the text and the JSON of one command, or of a few that belong
//! together.

pub(super) mod auth;
pub(super) mod audit;
pub(super) mod backup;
pub(super) mod certs;
pub(super) mod check;
pub(super) mod cluster;
pub(super) mod config;
pub(super) mod dev;
pub(super) mod explain;
pub(super) mod history;
pub(super) mod leader;
pub(super) mod lease;
pub(super) mod ls;
pub(super) mod member;
pub(super) mod operators;
pub(super) mod program;
pub(super) mod restore;
pub(super) mod serve;
pub(super) mod sessions;
pub(super) mod show;
pub(super) mod verify;
pub(super) mod wait;
pub(super) mod watch;
