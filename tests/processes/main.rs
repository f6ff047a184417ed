//! Three real processes: what happens when they are killed, stopped and restarted while clients work.

mod cluster;
mod http;
mod jobs;
mod lock_command;
mod restarts;
