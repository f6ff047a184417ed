//! Runs a command while a lock is held. Handles the command's process group, the terminal and signals, and ends the
//! command when the hold ends.
//!
//! - The hold counts as in use until no process of the group is left, even after the end of the command itself.
//! - The group is asked to end early enough that it can be killed before the hold expires on this machine's clock.
//! - The command is the child of a guardian. When this process is killed, the guardian kills the command and all
//!   processes that it started. When the guardian is killed, this process does the same.

use std::io::{self, IsTerminal};
use std::mem;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_current_process_group, kill_process_group, test_kill_process_group};
use tokio::time::sleep;

use super::link::{Guardian, GuardianReport};
use super::processes::{adopt_orphans, end_all, is_orphaned, is_stopped, of_group};
use super::signals::{STOPS, Signals};
use super::terminal::Terminal;
use crate::client::wait_until;
use crate::clock::{Clock, Instant, SystemClock};
use crate::limits;

pub use super::orders::{Ended, OnLost, Orders};

/// The longest wait before the clock is read again, because timers do not count suspend.
const LOOK: Duration = Duration::from_millis(limits::CLOCK_LOOK_MS_MAX);

/// The lock, or another hold, that lasts while the command runs.
pub trait Hold {
    /// How long the hold is certainly still valid, on the clock of this machine; zero after a loss.
    fn valid_for(&self) -> Duration;
    /// Waits for a loss. It may be called repeatedly.
    fn lost(&self) -> impl Future<Output = ()>;
    /// Waits for the next request of another client, and notifies the user of it.
    fn asked(&self) -> impl Future<Output = ()>;
    /// Notifies the user that the command has ended, and that these of its processes, by id and name, still run and are
    /// waited for.
    fn waits_for(&self, processes: &[(u32, String)]);
}

/// How the command ended, and whether the hold was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// How the command ended.
    pub ended: Ended,
    /// Whether the hold was lost while it ran.
    pub lost: bool,
}

/// Runs the command to its end. Returns `None` if the hold had already expired, so that the command was not started.
///
/// # Errors
/// An error if the command was not started, or its guardian was killed. In both cases no process of the command is
/// left.
pub async fn run(orders: &Orders, hold: &impl Hold, signals: &mut Signals) -> io::Result<Option<Report>> {
    // If the system stopped this process, the hold would expire while the command runs.
    signals.catch_stops()?;
    // It may have expired while this process was stopped in the queue.
    if orders.on_lost != OnLost::Ignore && hold.valid_for().is_zero() {
        return Ok(None);
    }
    let terminal = Terminal::open();
    // If the guardian is killed, its children become children of this process.
    adopt_orphans();
    // In a pipeline another program, such as a pager, may need the foreground. A job that a script runs in the
    // background is in the script's own group, and does not read from the terminal.
    let interactive = io::stdin().is_terminal() && !is_piped(io::stdout()) && !is_piped(io::stderr());
    let started = Guardian::start(orders, interactive && terminal.as_ref().is_some_and(Terminal::is_ours)).await;
    let (guardian, leader) = started.inspect_err(|_| end_all(None))?;
    // After the start, because the command would inherit this.
    if let Err(error) = Terminal::write_from_background() {
        tracing::debug!(%error, "notices may stop the command");
    }
    let mut wrapper = Wrapper {
        orders,
        hold,
        guardian,
        leader,
        terminal,
        interactive,
        ordered: false,
        ended: None,
        lost: false,
        clock: SystemClock::new(),
        kill_at: None,
        notice_at: None,
    };
    let report = wrapper.watch(signals).await;
    if report.is_err() {
        end_all(Some(leader));
        wrapper.leave_terminal(true);
    } else {
        wrapper.guardian.dismiss().await;
    }
    report.map(Some)
}

/// Whether the other end of this stream may be a program of the same pipeline.
fn is_piped(stream: impl AsFd) -> bool {
    let kind = fstat(stream).map(|found| FileType::from_raw_mode(found.st_mode));
    kind.is_ok_and(|kind| matches!(kind, FileType::Fifo | FileType::Socket))
}

struct Wrapper<'a, H> {
    orders: &'a Orders,
    hold: &'a H,
    guardian: Guardian,
    /// The command's process, which leads its group.
    leader: Pid,
    terminal: Option<Terminal>,
    /// Whether the command gets the foreground without a request for it.
    interactive: bool,
    /// Whether this process has stopped the command. Otherwise a nested run may have stopped it, for the terminal.
    ordered: bool,
    ended: Option<Ended>,
    lost: bool,
    clock: SystemClock,
    /// When to kill the group.
    kill_at: Option<Instant>,
    /// When to notify the user of processes that are still waited for.
    notice_at: Option<Instant>,
}

impl<H: Hold> Wrapper<'_, H> {
    async fn watch(&mut self, signals: &mut Signals) -> io::Result<Report> {
        let mut pause = Duration::from_millis(limits::GROUP_POLL_MS_MIN);
        loop {
            if let Some(ended) = self.ended
                && (!self.orders.whole_group || self.group_is_gone())
            {
                // While this process was stopped, the hold may have expired before the command ended.
                let lost = self.lost || self.hold.valid_for().is_zero();
                return Ok(Report { ended, lost });
            }
            let poll = self.ended.map(|_| pause);
            if poll.is_some() {
                pause = (pause * 2).min(Duration::from_millis(limits::GROUP_POLL_MS_MAX));
            }
            if let Some(stopped_by) = self.next(signals, poll).await? {
                self.stopped(stopped_by, signals).await;
            }
        }
    }

    /// Waits for the next event, and acts on it. Returns the signal if the command was stopped.
    async fn next(&mut self, signals: &mut Signals, poll: Option<Duration>) -> io::Result<Option<Signal>> {
        let watched = !self.lost && self.orders.on_lost != OnLost::Ignore;
        let until_loss = self.hold.valid_for().saturating_sub(self.needed());
        let hold = self.hold;
        tokio::select! {
            // A CONT comes before the report of the stop that it ends.
            biased;
            signal = signals.next_for_wrapper() => return Ok(self.on_signal(signal)),
            report = self.guardian.next_report() => return Ok(self.on_report(report?)),
            () = hold.lost(), if !self.lost => self.lose(),
            () = sleep(until_loss.min(LOOK)), if watched => {
                // The hold may have been renewed meanwhile.
                if self.hold.valid_for() <= self.needed() {
                    self.lose();
                }
            }
            () = wait_until(&self.clock, self.kill_at) => {
                self.kill_at = None;
                self.signal(Signal::KILL);
            }
            () = wait_until(&self.clock, self.notice_at) => {
                self.notice_at = None;
                let left = of_group(self.leader).into_iter();
                let left = left.map(|process| (process.pid.as_raw_nonzero().get().unsigned_abs(), process.name));
                self.hold.waits_for(&left.collect::<Vec<_>>());
            }
            () = hold.asked() => {
                if let Some(signal) = self.orders.on_ask {
                    self.signal(signal);
                }
            }
            // A group has no event for its end: kill(2) with signal 0 is the only check. The guardian reports the end
            // of each process that it adopted. Others are polled, with growing pauses.
            () = sleep(poll.unwrap_or_default()), if poll.is_some() => {}
        }
        Ok(None)
    }

    fn on_report(&mut self, report: GuardianReport) -> Option<Signal> {
        match report {
            GuardianReport::Stopped(by) => return Some(Signal::from_named_raw(by).unwrap_or(Signal::STOP)),
            GuardianReport::Ended(ended) => {
                self.ended = Some(ended);
                self.notice_at = Some(self.clock.now().after(Duration::from_millis(limits::LEFT_BEHIND_NOTICE_MS)));
                self.leave_terminal(matches!(ended, Ended::Signal(_)));
            }
            GuardianReport::Started(_) | GuardianReport::OrphanEnded | GuardianReport::Failed(_) => {}
        }
        None
    }

    /// Acts on a signal to this process. A stop signal stops the command first: the report of its stop then stops this
    /// process. After the end of the command no report comes, so this process stops at once.
    fn on_signal(&mut self, signal: Signal) -> Option<Signal> {
        if !STOPS.contains(&signal) {
            self.pass(signal);
            return None;
        }
        self.ordered = true;
        self.signal(Signal::STOP);
        self.ended.map(|_| Signal::STOP)
    }

    /// The validity that the hold must still have so that the group can be ended in order.
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
        match self.orders.on_lost {
            OnLost::Term => {
                self.signal(Signal::TERM);
                self.signal(Signal::CONT);
                // A hold that is about to expire lasts for less than this if the command was started late.
                let left = self.hold.valid_for();
                let longest = if left.is_zero() { Duration::MAX } else { left };
                self.kill_within(self.orders.kill_after.min(longest));
            }
            OnLost::Kill => self.signal(Signal::KILL),
            OnLost::Ignore => {}
        }
    }

    /// Passes a signal on to the group. After TERM, the group is killed only with `--stop-after`, because the hold is
    /// valid.
    fn pass(&mut self, signal: Signal) {
        if signal == Signal::CONT {
            // The shell may have put the job into the foreground.
            self.enter_terminal(false);
            self.ordered = false;
        }
        self.signal(signal);
        if signal != Signal::TERM {
            return;
        }
        // A stopped group would not act on the signal.
        self.signal(Signal::CONT);
        if let Some(after) = self.orders.stop_after {
            // A second TERM only shortens the time.
            let is_second = self.kill_at.is_some();
            self.kill_within(if is_second { after / limits::SECOND_TERM_DIVISOR } else { after });
        }
    }

    /// Kills the group after this time, unless an earlier kill is already scheduled.
    fn kill_within(&mut self, after: Duration) {
        let at = self.clock.now().after(after);
        self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
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

    /// Puts the command into the terminal's foreground if this process's group is there, and if the command is
    /// interactive or was stopped because it needs the terminal.
    fn enter_terminal(&self, needed: bool) {
        if let Some(terminal) = &self.terminal
            && (needed || self.interactive)
            && self.ended.is_none()
            && terminal.is_ours()
            && let Err(error) = terminal.give_to(self.leader)
        {
            tracing::warn!(%error, "the terminal could not be given to the command");
        }
    }

    /// Puts this process's group into the terminal's foreground again. A command that was killed may have left the
    /// terminal in another mode.
    fn leave_terminal(&self, killed: bool) {
        let Some(terminal) = &self.terminal else { return };
        if let Err(error) = terminal.take_back_from(self.leader) {
            tracing::warn!(%error, "the terminal could not be taken back");
        }
        if killed {
            terminal.restore_modes();
        }
    }

    /// Handles a stop of the command. On a terminal this process stops, too, so that the shell prompts again. Without
    /// one, the process that stopped the command has to continue it.
    async fn stopped(&mut self, by: Signal, signals: &mut Signals) {
        let ordered = mem::take(&mut self.ordered);
        // The command may have been continued while the report of its stop was on its way.
        if self.ended.is_none() && !is_stopped(self.leader) {
            return;
        }
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = by == Signal::TTIN || by == Signal::TTOU;
        if !(wants_terminal && terminal.is_ours()) {
            if let Err(error) = terminal.take_back_from(self.leader) {
                tracing::warn!(%error, "the terminal could not be taken back");
            }
            stop_own_job(signals).await;
        }
        if self.hold.valid_for().is_zero() && !self.lost && self.orders.on_lost != OnLost::Ignore {
            // The hold expired while the command was stopped. If the command was continued, it would run without the
            // hold until a signal arrives.
            self.lost = true;
            self.signal(Signal::KILL);
            return;
        }
        self.enter_terminal(wants_terminal || (by == Signal::STOP && !ordered));
        self.signal(Signal::CONT);
    }
}

/// Stops this process's own job, and returns when the job is continued. If no shell could continue it, the job is not
/// stopped, and the command continues.
async fn stop_own_job(signals: &mut Signals) {
    // This process catches the other stop signals.
    if !is_orphaned()
        && let Err(error) = kill_current_process_group(Signal::STOP)
    {
        tracing::warn!(%error, "the wrapper could not stop itself");
    }
    // The stop may take effect later, on another thread. Without it, a command that is stopped again and again waits.
    tokio::select! {
        // A CONT that stays would later be passed on to the command.
        biased;
        _ = signals.continued.recv() => {}
        () = sleep(Duration::from_millis(limits::STOP_SETTLES_MS)) => {}
    }
    signals.forget_stops();
}
