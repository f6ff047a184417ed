//! What may be written after `lock`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::super::parse::{delay, duration, lock_name, owner, value};
use super::child::OnLost;
use crate::model::{LockName, LockValue, Mode, Owner};

/// See the manual's page on `lock`.
#[derive(Debug, Args)]
pub struct LockOptions {
    /// Which lock; several are held together or not at all
    #[arg(value_parser = lock_name, required = true, value_name = "NAME")]
    pub(super) names: Vec<LockName>,
    /// Do not wait
    #[arg(short = 'n', long = "try", conflicts_with = "wait")]
    pub(super) try_once: bool,
    /// Wait at most so long, connecting included
    #[arg(short, long, value_parser = duration, value_name = "D")]
    pub(super) wait: Option<Duration>,
    /// Alone (default)
    #[arg(short = 'x', long, conflicts_with_all = ["shared", "permits"])]
    exclusive: bool,
    /// Together with other shared holders
    #[arg(short, long, conflicts_with = "permits")]
    shared: bool,
    /// So many permits of a semaphore
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(crate::limits::PERMITS_MAX)))]
    permits: Option<u32>,
    /// How many permits the semaphore has
    #[arg(long, value_name = "L", requires = "permits", value_parser = clap::value_parser!(u32).range(1..=i64::from(crate::limits::PERMITS_MAX)))]
    limit: Option<u32>,
    /// May pass others that are unfair, and be passed by them; it may starve
    #[arg(long)]
    pub(super) unfair: bool,
    /// The session ends so long after its last renewal
    #[arg(long, value_parser = duration, value_name = "D")]
    pub(super) ttl: Option<Duration>,
    /// The session ends so long after its connection broke
    #[arg(long, value_parser = duration, value_name = "D")]
    pub(super) disconnect_grace: Option<Duration>,
    /// Lock-delay: the name stays closed for so long after a loss; at most 1m
    #[arg(long, value_parser = delay, value_name = "D")]
    pub(super) delay: Option<Duration>,
    /// A text kept with the lock while it is held; shown to whoever looks
    #[arg(long, value_parser = value, value_name = "TEXT")]
    pub(super) value: Option<LockValue>,
    /// The line of execution that asks, told in deadlocks; random by default
    #[arg(long, value_parser = owner, env = "LOCKKEEPER_OWNER", value_name = "TEXT")]
    pub(super) owner: Option<Owner>,
    /// What for; shown to whoever looks
    #[arg(long, value_name = "TEXT")]
    pub(super) why: Option<String>,
    /// What to do with the command when the lock is lost
    #[arg(long, value_enum, default_value = "term")]
    pub(super) on_lost: OnLost,
    /// Between asking the command to end and killing it; a quarter of the TTL, or of the disconnect grace where that is
    /// shorter, by default
    #[arg(long, value_parser = duration, value_name = "D")]
    pub(super) kill_after: Option<Duration>,
    /// Exit code, instead of 75, when the lock is not acquired in time
    #[arg(short = 'E', long = "conflict-exit-code", value_name = "N")]
    pub(super) conflict_exit_code: Option<u8>,
    /// Write what became of it to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) result: Option<PathBuf>,
    /// A command for sh
    #[arg(short = 'c', long = "shell-command", value_name = "STRING", conflicts_with = "command")]
    shell: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD ARG")]
    command: Vec<OsString>,
}

impl LockOptions {
    /// How the lock is to be held.
    pub(super) fn mode(&self) -> Mode {
        match (self.permits, self.shared && !self.exclusive) {
            (Some(count), _) => Mode::Permits { count, limit: self.limit },
            (None, true) => Mode::Shared,
            (None, false) => Mode::Exclusive,
        }
    }

    /// What to run, if anything.
    pub(super) fn command(&self) -> Option<Vec<OsString>> {
        match &self.shell {
            Some(text) => Some(vec!["sh".into(), "-c".into(), text.clone()]),
            None => (!self.command.is_empty()).then(|| self.command.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::super::options::{Command, Options};
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<LockOptions, clap::Error> {
        let all = ["lockkeeper", "lock"].iter().chain(arguments);
        let Command::Lock(options) = Options::try_parse_from(all)?.command else { unreachable!() };
        Ok(options)
    }

    /// Everything after the dashes belongs to the command, options too.
    #[test]
    fn the_command_keeps_its_own_options() {
        let options = parsed(&["nightly", "-w", "10s", "--", "echo", "-n", "--json"]).unwrap();
        assert_eq!(options.command().unwrap(), ["echo", "-n", "--json"]);
        assert_eq!(options.wait, Some(Duration::from_secs(10)));
        assert_eq!(parsed(&["a", "-c", "echo hi"]).unwrap().command().unwrap(), ["sh", "-c", "echo hi"]);
        assert_eq!(parsed(&["a"]).unwrap().command(), None);
    }

    /// The mode follows from -x, -s and --permits, and they exclude each other.
    #[test]
    fn modes_exclude_each_other() {
        assert_eq!(parsed(&["a"]).unwrap().mode(), Mode::Exclusive);
        assert_eq!(parsed(&["a", "-x"]).unwrap().mode(), Mode::Exclusive);
        assert_eq!(parsed(&["a", "-s"]).unwrap().mode(), Mode::Shared);
        let permits = parsed(&["a", "--permits", "2", "--limit", "5"]).unwrap();
        assert_eq!(permits.mode(), Mode::Permits { count: 2, limit: Some(5) });
        for wrong in
            [&["a", "-x", "-s"][..], &["a", "-s", "--permits", "2"], &["a", "--limit", "5"], &["a", "--permits", "0"]]
        {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Not waiting and waiting contradict each other, and so do two commands.
    #[test]
    fn contradictions_are_usage_errors() {
        for wrong in [&["a", "-n", "-w", "1s"][..], &["a", "-c", "x", "--", "y"], &["a", "-w", "10"], &[]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
