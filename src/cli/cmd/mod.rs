//! The commands. Each file has the options, the call, the text and the JSON of one command and its subcommands. A new
//! command also needs a variant of `options::Command` and an arm of `cli::run`.

pub(super) mod acquire;
pub(super) mod ask;
pub(super) mod audit;
pub(super) mod auth;
pub(super) mod backup;
pub(super) mod break_hold;
pub(super) mod certs;
pub(super) mod check;
pub(super) mod completions;
pub(super) mod config;
pub(super) mod dev;
pub(super) mod explain;
pub(super) mod features;
pub(super) mod hand_over;
pub(super) mod history;
pub(super) mod leader;
pub(super) mod ls;
pub(super) mod member;
pub(super) mod refresh;
pub(super) mod release;
pub(super) mod restore;
pub(super) mod semaphore;
pub(super) mod serve;
pub(super) mod session;
pub(super) mod sessions;
pub(super) mod settings;
pub(super) mod show;
pub(super) mod status;
pub(super) mod transfer;
pub(super) mod verify;
pub(super) mod version;
pub(super) mod wait;
pub(super) mod watch;
