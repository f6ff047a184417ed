//! Runs a command while something is held: its process group, the terminal, signals, and its end when the hold ends.
//!
//! - The hold counts as in use until no process of the group is left, whatever became of the command itself.
//! - The group is told to end early enough that it can be killed before the hold runs out on this machine's clock.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_current_process_group, kill_process_group,
    test_kill_process_group, waitpgid,
};
use tokio::time::{Sleep, sleep};

use super::signals::{Notice, Signals};
use super::terminal::Terminal;
use crate::limits;

/// Something that is held while the command runs.
pub trait Hold {
    /// For how long it is certainly still held, on this machine's clock; zero once it is lost.
    fn valid_for(&self) -> Duration;
    /// Ends when it is lost. It may be asked for again and again.
    fn lost(&self) -> impl Future<Output = ()>;
}

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
    /// Between asking the group to end and killing it.
    pub kill_after: Duration,
    /// The program, and first arguments, that start the shim.
    pub shim: Vec<OsString>,
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

/// What became of the command and of the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// How the command ended.
    pub ended: Ended,
    /// Whether the hold was lost while it ran.
    pub lost: bool,
}

/// This program as its own shim. Through `/proc` it is found even after the file was replaced.
#[must_use]
pub fn own_shim() -> Vec<OsString> {
    let linux = cfg!(target_os = "linux").then(|| OsString::from("/proc/self/exe"));
    let program = linux.or_else(|| std::env::current_exe().ok().map(Into::into)).unwrap_or_else(|| "lockkeeper".into());
    vec![program, super::SHIM_COMMAND.into()]
}

/// Runs the command to its end. Must be called on the process's main thread: the command is bound to the life of
/// the thread that starts it. An error means that it was not started, or could not be watched and was killed.
pub async fn run(orders: &Orders, hold: &impl Hold, signals: &mut Signals) -> io::Result<Report> {
    let terminal = Terminal::open();
    adopt_orphans();
    let leader = start(orders, terminal.as_ref())?;
    let mut wrapper = Wrapper { orders, hold, leader, terminal, ended: None, lost: false, kill_timer: None };
    let report = wrapper.watch(signals).await;
    if report.is_err() {
        wrapper.signal(Signal::KILL);
    }
    report
}

fn start(orders: &Orders, terminal: Option<&Terminal>) -> io::Result<Pid> {
    let Some((program, first)) = orders.shim.split_first() else {
        return Err(io::Error::other("no shim was named"));
    };
    let mut command = Command::new(program);
    command.args(first).arg("--parent").arg(getpid().to_string());
    if terminal.is_some_and(Terminal::is_ours) {
        command.arg("--foreground");
    }
    command.arg("--").args(&orders.command);
    for (name, value) in &orders.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let child = command.process_group(0).spawn()?;
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)).ok_or_else(|| io::Error::other("the child has no process id"))
}

/// Makes this process the parent of its grandchildren once they are orphans, so that it hears of their end.
fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(getpid())) {
        tracing::debug!(%error, "orphans of the command will not be adopted");
    }
}

struct Wrapper<'a, H> {
    orders: &'a Orders,
    hold: &'a H,
    /// The command's process, which leads its group.
    leader: Pid,
    terminal: Option<Terminal>,
    ended: Option<Ended>,
    lost: bool,
    kill_timer: Option<Pin<Box<Sleep>>>,
}

impl<H: Hold> Wrapper<'_, H> {
    async fn watch(&mut self, signals: &mut Signals) -> io::Result<Report> {
        let mut pause = Duration::from_millis(limits::GROUP_POLL_MS_MIN);
        loop {
            while let Some(stopped_by) = self.reap()? {
                self.stopped(stopped_by, signals).await;
            }
            if let Some(ended) = self.ended
                && self.group_is_gone()
            {
                return Ok(Report { ended, lost: self.lost });
            }
            let poll = self.ended.map(|_| pause);
            pause = (pause * 2).min(Duration::from_millis(limits::GROUP_POLL_MS_MAX));
            self.next(signals, poll).await;
        }
    }

    /// Waits for whatever comes first, and acts on it.
    async fn next(&mut self, signals: &mut Signals, poll: Option<Duration>) {
        let watched = !self.lost && self.orders.on_lost != OnLost::Ignore;
        let until_loss = self.hold.valid_for().saturating_sub(self.needed());
        let hold = self.hold;
        tokio::select! {
            notice = signals.next_for_wrapper() => match notice {
                Notice::Pass(signal) => self.pass(signal),
                Notice::Child => {}
            },
            () = hold.lost(), if !self.lost => self.lose(),
            () = sleep(until_loss), if watched => {
                // It may have been renewed since.
                if self.hold.valid_for() <= self.needed() {
                    self.lose();
                }
            }
            () = fires(&mut self.kill_timer) => {
                self.kill_timer = None;
                self.signal(Signal::KILL);
            }
            // A group has no event for its end: kill(2) with signal 0 is the only way to ask. Members that were
            // adopted are heard of at once; the others are asked for at growing distances.
            () = sleep(poll.unwrap_or_default()), if poll.is_some() => {}
        }
    }

    /// So much validity is needed to end the group in order.
    fn needed(&self) -> Duration {
        let margin = Duration::from_millis(limits::LOSS_MARGIN_MS);
        match self.orders.on_lost {
            OnLost::Term => self.orders.kill_after + margin,
            OnLost::Kill => margin,
            OnLost::Ignore => Duration::ZERO,
        }
    }

    fn lose(&mut self) {
        self.lost = true;
        tracing::warn!(on_lost = ?self.orders.on_lost, "the lock is lost while the command runs");
        match self.orders.on_lost {
            OnLost::Term => {
                self.signal(Signal::TERM);
                self.signal(Signal::CONT);
                self.kill_timer = Some(Box::pin(sleep(self.orders.kill_after)));
            }
            OnLost::Kill => self.signal(Signal::KILL),
            OnLost::Ignore => {}
        }
    }

    fn pass(&mut self, signal: Signal) {
        self.signal(signal);
        if signal == Signal::TERM {
            // A stopped group could not hear it. The first asks; a second one only leaves less time for the answer.
            self.signal(Signal::CONT);
            let hurried = self.kill_timer.is_some();
            let after = if hurried { self.orders.kill_after / limits::HURRY_FACTOR } else { self.orders.kill_after };
            self.kill_timer = Some(Box::pin(sleep(after)));
        }
    }

    fn signal(&self, signal: Signal) {
        match kill_process_group(self.leader, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => tracing::warn!(%error, ?signal, "the command's group could not be signalled"),
        }
    }

    fn group_is_gone(&self) -> bool {
        test_kill_process_group(self.leader) == Err(Errno::SRCH)
    }

    /// Takes note of every child of the group that ended; answers the signal if the leader was stopped.
    fn reap(&mut self) -> io::Result<Option<Signal>> {
        loop {
            match waitpgid(self.leader, WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.leader => {
                    if let Some(stopped_by) = status.stopping_signal() {
                        return Ok(Some(Signal::from_named_raw(stopped_by).unwrap_or(Signal::STOP)));
                    }
                    self.ended = Some(ended(status));
                    self.leave_terminal();
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(Errno::CHILD) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn leave_terminal(&self) {
        let Some(terminal) = &self.terminal else { return };
        if let Err(error) = terminal.take_back_from(self.leader) {
            tracing::warn!(%error, "the terminal could not be taken back");
        }
        if matches!(self.ended, Some(Ended::Signal(_))) {
            terminal.restore_modes();
        }
    }

    /// The command was stopped. On a terminal the wrapper stops too, so that the shell comes back; elsewhere
    /// whoever stopped the command will continue it.
    async fn stopped(&mut self, by: Signal, signals: &mut Signals) {
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = by == Signal::TTIN || by == Signal::TTOU;
        if !(wants_terminal && terminal.is_ours()) {
            if let Err(error) = terminal.take_back_from(self.leader) {
                tracing::warn!(%error, "the terminal could not be taken back");
            }
            stop_own_job(signals).await;
        }
        if self.hold.valid_for().is_zero() && !self.lost && self.orders.on_lost != OnLost::Ignore {
            // It stands still since before the hold ran out. Continued, it would act without it, were it only for
            // as long as it takes to see a signal.
            self.lost = true;
            self.signal(Signal::KILL);
            return;
        }
        if terminal.is_ours()
            && let Err(error) = terminal.give_to(self.leader)
        {
            tracing::warn!(%error, "the terminal could not be given to the command");
        }
        self.signal(Signal::CONT);
    }
}

/// Stops this process's own job, as Ctrl-Z would have done, and returns when it is continued.
async fn stop_own_job(signals: &mut Signals) {
    if let Err(error) = kill_current_process_group(Signal::TSTP) {
        tracing::warn!(%error, "the wrapper could not stop itself");
    }
    // The stop may take effect a moment later on another thread. Where no shell could continue it, the system
    // ignores it: then the command goes on.
    tokio::select! {
        _ = signals.continued.recv() => {}
        () = sleep(Duration::from_millis(limits::STOP_SETTLES_MS)) => {}
    }
}

async fn fires(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.as_mut().await,
        None => std::future::pending().await,
    }
}

fn ended(status: WaitStatus) -> Ended {
    let number = |raw: i32| u8::try_from(raw).unwrap_or(u8::MAX);
    match status.terminating_signal() {
        Some(signal) => Ended::Signal(number(signal)),
        None => Ended::Code(status.exit_status().map_or(u8::MAX, number)),
    }
}
