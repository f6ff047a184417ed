//! What a wrapper is to run and how, and how it ended.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Signal;

/// What to do with the command when the hold is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum OnLost {
    /// Ask it to end, and kill it when it does not.
    #[default]
    Term,
    /// Kill it at once.
    Kill,
    /// Let it run.
    Ignore,
}

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Orders {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Set in its environment, or taken out of it.
    pub environment: Vec<(String, Option<OsString>)>,
    /// What loss means for it.
    pub on_lost: OnLost,
    /// Between asking the group to end, at a loss, and killing it.
    pub kill_after: Duration,
    /// The same when this process is asked to end; never by default.
    pub stop_after: Option<Duration>,
    /// For the group when another client asks for the hold.
    pub on_ask: Option<Signal>,
    /// Whether processes that the command leaves in its group are waited for.
    pub whole_group: bool,
    /// The program, and first arguments, that start the guardian.
    pub guardian: Vec<OsString>,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl Ended {
    /// As a shell says it: the code, or 128 and the signal.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Ended::Code(code) => code,
            Ended::Signal(number) => number.saturating_add(128),
        }
    }
}
