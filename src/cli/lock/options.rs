//! The options of `lock` and `elect`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::process::Signal;

use super::orders::OnLost;
use crate::cli::args::{at_least, at_most, delay, duration, signal};
use crate::cli::error::Failure;
use crate::cli::who::OWN_PROGRAM;
use crate::model::{Access, LockName, LockValue, Mode, Owner};

/// The usage of `lock`. clap would print the parts in another order.
pub const LOCK_USAGE: &str = "lockkeeper lock [OPTIONS] NAME [--and NAME]... [--] CMD ARG...
       lockkeeper lock [OPTIONS] NAME [--and NAME]... -c STRING
       lockkeeper lock [OPTIONS] --hold NAME [--and NAME]...";
/// The usage of `elect`.
pub const ELECT_USAGE: &str = "lockkeeper elect [OPTIONS] NAME --value TEXT [--] CMD ARG...
       lockkeeper elect [OPTIONS] NAME --value TEXT -c STRING";

/// The value of the command line that is the command.
pub(super) const COMMAND: &str = "<CMD>";

/// The name of the lock, as a word or as an option.
#[derive(Debug, Args)]
struct Named {
    /// Name of the lock. The next word begins the command
    #[arg(value_parser = LockName::parse, value_name = "NAME", required_unless_present = "named")]
    name: Option<LockName>,
    /// Name of the lock, where it begins with a dash [default: the first word]
    #[arg(long = "name", id = "named", value_parser = LockName::parse, value_name = "NAME", conflicts_with = "name")]
    named: Option<LockName>,
}

/// The options of `lock`.
#[derive(Debug, Args)]
pub struct LockOptions {
    #[command(flatten)]
    named: Named,
    /// Another lock of a set, which is held together or not at all [default: one lock]
    #[arg(long = "and", value_parser = LockName::parse, value_name = "NAME")]
    and: Vec<LockName>,
    /// Hold the lock alone (default)
    #[arg(short = 'x', long, conflicts_with_all = ["shared", "permits"])]
    exclusive: bool,
    /// Hold together with other shared holders
    #[arg(short, long, conflicts_with = "permits")]
    shared: bool,
    /// Hold this many permits of a semaphore [default: the whole lock]
    #[arg(long, value_name = "PERMITS", value_parser = clap::value_parser!(u32).range(1..=i64::from(crate::limits::PERMITS_MAX)))]
    permits: Option<u32>,
    /// Number of permits of the semaphore [default: its current limit]
    #[arg(long, value_name = "PERMITS", requires = "permits", value_parser = clap::value_parser!(u32).range(1..=i64::from(crate::limits::PERMITS_MAX)))]
    limit: Option<u32>,
    /// Text kept with the lock while it is held, and shown with it [default: none]
    #[arg(long, value_parser = LockValue::parse, value_name = "TEXT")]
    value: Option<LockValue>,
    /// Run no command: print the grant, and hold until standard input is closed or a signal comes. A pipe or file at
    /// its end (cron, systemd) ends the hold at once, with 0. Without this, and without a command, standard input has
    /// to be a terminal
    #[arg(long, conflicts_with_all = ["shell", "command"])]
    hold: bool,
    #[command(flatten)]
    pub(super) run: RunOptions,
}

/// The options of `elect`.
#[derive(Debug, Args)]
pub struct ElectOptions {
    #[command(flatten)]
    named: Named,
    /// Text that the leader shows, such as its address; `leader NAME` prints it
    #[arg(long, value_parser = LockValue::parse, value_name = "TEXT")]
    value: LockValue,
    #[command(flatten)]
    pub(super) run: RunOptions,
}

/// Common to `lock` and `elect`.
#[derive(Debug, Args)]
pub(super) struct RunOptions {
    /// Do not wait
    #[arg(short = 'n', long = "try", conflicts_with = "wait")]
    try_once: bool,
    /// Longest wait, connecting included, such as 30s; 0s does not wait [default: no end]
    #[arg(short, long, value_parser = duration, value_name = "DURATION")]
    wait: Option<Duration>,
    /// Wait without a place in the queue. Unfair waiters have no order, and one can starve
    #[arg(long)]
    pub(super) unfair: bool,
    /// Time to live of the session after its last renewal [default: 10s, or twice the shortest TTL of the cluster, if
    /// that is longer]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(super) ttl: Option<Duration>,
    /// Time to live of the session after its connection broke, such as 2s [default: the TTL]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(super) disconnect_grace: Option<Duration>,
    /// Lock-delay: how long the name stays closed after a loss, at most 1m [default: 0s]
    #[arg(long, value_parser = delay, value_name = "DURATION")]
    pub(super) delay: Option<Duration>,
    /// Keep the lock or the permits closed for this time after the grant, even if they are released earlier, at most
    /// 24h; not for a shared lock [default: 0s]
    #[arg(long, value_parser = at_least, value_name = "DURATION")]
    pub(super) at_least: Option<Duration>,
    /// End the hold this time after the grant, as if it were lost, at most 24h [default: no end]
    #[arg(long, value_parser = at_most, value_name = "DURATION")]
    pub(super) at_most: Option<Duration>,
    /// Owner name for the detection of deadlocks [default: random, or that of the enclosing run]
    #[arg(long, value_parser = Owner::parse, env = "LOCKKEEPER_OWNER", hide_env_values = true, value_name = "TEXT")]
    pub(super) owner: Option<Owner>,
    /// Purpose, shown with the lock [default: none]
    #[arg(long, value_name = "TEXT")]
    pub(super) why: Option<String>,
    /// What to do with the command when the lock is lost
    #[arg(long, value_enum, default_value = "term")]
    pub(super) on_lost: OnLost,
    /// Time from TERM to KILL when the lock is lost, such as 2s [default: a quarter of the TTL, of the disconnect grace
    /// or of --at-most, whichever is shortest]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(super) kill_after: Option<Duration>,
    /// Time from TERM to KILL when this program gets TERM, such as 10s; a second TERM shortens it [default: no KILL]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(super) stop_after: Option<Duration>,
    /// Signal for the command's process group when another client asks for the lock, such as USR1 [default: none]
    #[arg(long, value_parser = signal, value_name = "SIGNAL")]
    pub(super) on_ask: Option<Signal>,
    /// When to release: at the end of the command itself, or of every process of its group
    #[arg(long, value_enum, default_value = "group")]
    pub(super) release_when: ReleaseWhen,
    /// Exit code if the lock is not acquired in time [default: 75]
    #[arg(short = 'E', long = "conflict-exit-code", value_name = "CODE")]
    pub(super) conflict_exit_code: Option<u8>,
    /// Write the outcome to this file, as JSON [default: to no file]
    #[arg(long, value_name = "FILE")]
    pub(super) result: Option<PathBuf>,
    /// Run this text with sh instead of a command [default: the words after the name]
    #[arg(short = 'c', long = "shell-command", value_name = "STRING", conflicts_with = "command")]
    shell: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD ARG")]
    command: Vec<OsString>,
}

/// The end that releases the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum ReleaseWhen {
    /// Of the command itself
    Command,
    /// Of its process group, background processes included
    #[default]
    Group,
}

/// The checked options: the locks to hold, and the command to run.
#[derive(Debug)]
pub(super) struct Order {
    /// One lock, or several as a set.
    pub(super) names: Vec<LockName>,
    pub(super) access: Access,
    pub(super) value: Option<LockValue>,
    /// The command and its arguments; `None` to hold without a command.
    pub(super) command: Option<Vec<OsString>>,
    pub(super) run: RunOptions,
}

impl Order {
    /// Returns the name of the command's program, which other clients see.
    pub(super) fn program(&self) -> String {
        let Some(command) = &self.command else { return OWN_PROGRAM.to_owned() };
        // For a shell command its text is used instead of `sh`.
        let first = if self.run.shell.is_some() { command.last() } else { command.first() };
        let path = PathBuf::from(first.cloned().unwrap_or_default());
        let name = path.file_name().filter(|_| self.run.shell.is_none()).unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    }
}

impl Named {
    /// Returns all names. Exactly one of the two fields is `Some`.
    fn names(self, more: Vec<LockName>) -> Vec<LockName> {
        self.name.or(self.named).into_iter().chain(more).collect()
    }
}

impl LockOptions {
    /// Checks the relations between options. `terminal` says whether standard input is a terminal; it matters only
    /// without a command and without `--hold`.
    pub(super) fn order(self, terminal: bool) -> Result<Order, Failure> {
        let access = self.access();
        let Self { named, and, value, hold, run, .. } = self;
        let command = run.command()?;
        if command.is_none() && !hold && !terminal {
            return Err(Failure::usage(
                COMMAND,
                "there is no command, and standard input is not a terminal: name a command after the lock, or use --hold",
            ));
        }
        let names = named.names(and);
        if run.unfair && names.len() != 1 {
            return Err(Failure::usage("--unfair", "--unfair is for one lock: a set waits in the queue of each lock"));
        }
        if run.at_least.is_some() && access.mode == Mode::Shared {
            return Err(Failure::usage(
                "--at-least",
                "--at-least is for an exclusive lock or permits, not for --shared",
            ));
        }
        Ok(Order { names, access, value, command, run })
    }

    fn access(&self) -> Access {
        match (self.permits, self.shared && !self.exclusive) {
            (Some(count), _) => Access::permits(count, self.limit),
            (None, true) => Mode::Shared.into(),
            (None, false) => Mode::Exclusive.into(),
        }
    }
}

impl ElectOptions {
    /// Checks the relations between options.
    pub(super) fn order(self) -> Result<Order, Failure> {
        let Self { named, value, run } = self;
        let command = run.command()?;
        if command.is_none() {
            return Err(Failure::usage(COMMAND, "elect runs a command while it leads: name a command, or use -c"));
        }
        Ok(Order { names: named.names(Vec::new()), access: Mode::Exclusive.into(), value: Some(value), command, run })
    }
}

impl RunOptions {
    /// How long to wait; `None` for no limit.
    pub(super) fn wait(&self) -> Option<Duration> {
        if self.try_once { Some(Duration::ZERO) } else { self.wait }
    }

    /// The command to run; `None` if there is none.
    fn command(&self) -> Result<Option<Vec<OsString>>, Failure> {
        let command = match &self.shell {
            Some(text) => vec!["sh".into(), "-c".into(), text.clone()],
            None => self.command.clone(),
        };
        let first = self.shell.as_ref().or(self.command.first());
        if first.is_some_and(|word| word.is_empty()) {
            let field = if self.shell.is_some() { "--shell-command" } else { COMMAND };
            return Err(Failure::usage(field, "the command is empty; name a program, or leave it out"));
        }
        Ok(Some(command).filter(|command| !command.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::options::{Command, Options};

    fn parsed(line: &[&str]) -> Result<Command, clap::Error> {
        Ok(Options::try_parse_from(["lockkeeper"].iter().chain(line))?.command)
    }

    fn locked(arguments: &[&str]) -> Result<Order, String> {
        let all: Vec<_> = ["lock"].iter().chain(arguments).copied().collect();
        let Command::Lock(options) = parsed(&all).map_err(|error| error.to_string())? else { unreachable!() };
        options.order(false).map_err(|failure| failure.detail)
    }

    /// Everything after `--` belongs to the command. Options may be anywhere before it.
    #[test]
    fn the_command_keeps_its_own_options() {
        let order = locked(&["nightly", "-w", "10s", "--", "echo", "-n", "--json"]).unwrap();
        assert_eq!(order.command.unwrap(), ["echo", "-n", "--json"]);
        assert_eq!(order.run.wait(), Some(Duration::from_secs(10)));
        for line in [["-c", "echo /hi", "a"], ["a", "-c", "echo /hi"]] {
            let order = locked(&line).unwrap();
            assert_eq!(order.program(), "echo /hi");
            assert_eq!(order.command.unwrap(), ["sh", "-c", "echo /hi"]);
        }
        assert_eq!(locked(&["a", "--", "/usr/bin/rsync", "-a"]).unwrap().program(), "rsync");
    }

    /// A set is one name and further ones after `--and`. A name that begins with a dash is given with `--name`.
    #[test]
    fn names_are_words_or_behind_their_options() {
        let names = |line: &[&str]| locked(line).unwrap().names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(&["a", "--and", "b", "--and=-c", "--", "true"]), ["a", "b", "-c"]);
        assert_eq!(names(&["--name=-x", "--", "true"]), ["-x"]);
        for wrong in
            [&["--", "true"][..], &["a", "--name", "b", "--", "true"], &["a", "b", "--", "true"], &["a", "--and"]]
        {
            assert!(locked(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Without a command, the lock is held only with `--hold` or at a terminal. An empty command is an error.
    #[test]
    fn a_missing_command_is_a_usage_error() {
        assert_eq!(locked(&["a", "--hold"]).unwrap().command, None);
        assert!(locked(&["a"]).unwrap_err().contains("--hold"));
        let Ok(Command::Lock(options)) = parsed(&["lock", "a"]) else { unreachable!() };
        assert_eq!(options.order(true).unwrap().command, None);
        for empty in [&["a", "--", ""][..], &["a", "-c", ""], &["a", "--", "", "x"]] {
            assert!(locked(empty).unwrap_err().contains("empty"), "{empty:?}");
        }
        assert!(locked(&["a", "--hold", "--", "true"]).is_err());
    }

    /// The mode follows from -x, -s and --permits, and they exclude each other.
    #[test]
    fn modes_exclude_each_other() {
        let mode = |line: &[&str]| locked(&[line, &["--", "true"]].concat()).unwrap().access;
        assert_eq!(mode(&["a"]), Mode::Exclusive.into());
        assert_eq!(mode(&["a", "-x"]), Mode::Exclusive.into());
        assert_eq!(mode(&["a", "-s"]), Mode::Shared.into());
        assert_eq!(mode(&["a", "--permits", "2", "--limit", "5"]), Access::permits(2, 5));
        for wrong in
            [&["a", "-x", "-s"][..], &["a", "-s", "--permits", "2"], &["a", "--limit", "5"], &["a", "--permits", "0"]]
        {
            assert!(locked(wrong).is_err(), "{wrong:?}");
        }
    }

    /// `--try` and `--wait` exclude each other, and so do two commands. A wait of 0 s is a try.
    #[test]
    fn contradictions_are_usage_errors() {
        for wrong in [&["a", "-n", "-w", "1s"][..], &["a", "-c", "x", "--", "y"], &["a", "-w", "10"], &[]] {
            assert!(locked(wrong).is_err(), "{wrong:?}");
        }
        for line in [["a", "-n", "-c", "x"], ["a", "-w0s", "-c", "x"]] {
            assert_eq!(locked(&line).unwrap().run.wait(), Some(Duration::ZERO));
        }
    }

    /// A leader holds alone: `elect` neither accepts nor shows the other modes of `lock`.
    #[test]
    fn elect_has_its_own_options() {
        for wrong in [&["-s"][..], &["--permits", "2"], &["--and", "b"], &["-x"], &["--hold"]] {
            let line = [&["elect", "a", "--value", "me"], wrong, &["--", "true"]].concat();
            assert!(parsed(&line).is_err(), "{wrong:?}");
        }
        let help = parsed(&["elect", "--help"]).unwrap_err().to_string();
        for word in ["--shared", "--permits", "--limit", "--and", "--hold"] {
            assert!(!help.contains(word), "{word} in {help}");
        }
        let Ok(Command::Elect(options)) = parsed(&["elect", "a", "--value", "me"]) else { unreachable!() };
        assert!(options.order().unwrap_err().detail.contains("command"));
    }

    /// The help of every duration names its default.
    #[test]
    fn durations_have_a_default_in_the_help() {
        use clap::CommandFactory;
        let program = Options::command();
        for name in ["lock", "elect", "acquire"] {
            let command = program.find_subcommand(name).unwrap();
            let is_duration = |argument: &&clap::Arg| {
                argument.get_value_names().is_some_and(|names| names.iter().any(|name| name == "DURATION"))
            };
            let mut count = 0;
            for argument in command.get_arguments().filter(is_duration).filter(|argument| !argument.is_required_set()) {
                let help = argument.get_help().unwrap().to_string();
                assert!(help.contains("[default: "), "{name} {}: {help}", argument.get_id());
                count += 1;
            }
            assert!(count > 0, "{name}");
        }
    }
}
