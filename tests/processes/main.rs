//! Clusters of real processes: what happens when nodes are killed, stopped and restarted while clients work.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests panic on failure and print what they measured")]

mod acting;
mod backup;
mod bench;
#[path = "../checker/mod.rs"]
mod checker;
mod claims;
mod cluster;
mod closed_output;
mod clusters;
mod crash;
mod descriptors;
mod digests;
mod disconnect;
mod disk_full;
mod doctor;
mod drill;
mod families;
mod hangup;
mod http;
mod http_calls;
mod http_cut;
mod http_hold;
mod http_streams;
mod http_through_kills;
mod jobs;
mod single_node;
mod recipes;
mod redis;
mod lock_command;
mod members;
mod metrics;
mod pages;
mod ports;
mod private_files;
mod python;
#[path = "../sim/random.rs"]
mod random;
mod restarts;
mod security;
mod sign_in;
mod schedulers;
#[path = "../cli_pty/screen.rs"]
mod screen;
mod status;
mod supervised;
mod texts;
mod tokens;
mod top;
mod stops;
mod venv;
mod wait;
mod watching;
mod wiped;
mod with_lock;
