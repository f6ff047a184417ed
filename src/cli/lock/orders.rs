//! The settings of a wrapped command, and how the command ended.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

/// What to do with the command when the hold is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum OnLost {
    /// Send TERM, and KILL if it does not end.
    #[default]
    Term,
    /// Kill it at once.
    Kill,
    /// Let it run.
    Ignore,
}

/// The command to run, and the settings for it.
#[derive(Debug, Clone)]
pub struct Orders {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Variables that are set in the command's environment, or removed from it.
    pub environment: Vec<(String, Option<OsString>)>,
    /// What happens to the command after a loss.
    pub on_lost: OnLost,
    /// Time from TERM to KILL after a loss.
    pub kill_after: Duration,
    /// Time from TERM to KILL when this process gets TERM; `None` for no KILL.
    pub stop_after: Option<Duration>,
    /// Signal for the group when another client asks for the hold.
    pub on_ask: Option<Signal>,
    /// Whether to wait for processes that the command leaves in its group.
    pub whole_group: bool,
    /// The program that starts the guardian, and its first arguments.
    pub guardian: Vec<OsString>,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// The command ended with this exit code.
    Code(u8),
    /// The command was ended by this signal.
    Signal(u8),
}

impl Ended {
    /// Returns the exit code as in a shell: the code, or 128 plus the signal.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Ended::Code(code) => code,
            Ended::Signal(number) => number.saturating_add(128),
        }
    }
}
