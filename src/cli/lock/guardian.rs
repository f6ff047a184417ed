//! The guardian of a command: a process between the wrapper and the command, in a separate group. When the wrapper is
//! killed, the guardian kills all processes that the command has started.
//!
//! - The guardian is the parent of the command, and reports how the command ends. Orphaned processes of the command
//!   become its children, in any group or session, so it finds all of them.
//! - The guardian has none of the command's streams, and only KILL and STOP have an effect on it.
//! - When the guardian is killed, the kernel kills the command, and the wrapper adopts and kills the remaining
//!   processes.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, wait};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use super::link::{GOODBYE, GuardianReport, receive_streams};
use super::orders::Ended;
use super::processes::{adopt_orphans, end_all, own_program};
use super::shim::SHIM_COMMAND;
use super::signals;
use crate::service::ErrorCode;

/// Name of the hidden command that is the guardian.
pub const GUARDIAN_COMMAND: &str = "__guardian";

/// Returns the command line that starts this program as a guardian. With `json`, the guardian prints the error for a
/// command that cannot be started as JSON.
pub(super) fn own_guardian(json: bool) -> Vec<OsString> {
    let mut words = vec![own_program(), GUARDIAN_COMMAND.into()];
    words.extend(json.then(|| "--json".into()));
    words
}

/// What the wrapper passes to the guardian.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct GuardianOptions {
    /// The command takes the terminal's foreground.
    #[arg(long)]
    foreground: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Starts the command and guards it until its end. Standard input is the socket to the wrapper. With `json`, the error
/// for a command that cannot be run is printed as JSON.
#[must_use]
pub fn guard(options: &GuardianOptions, json: bool) -> u8 {
    let input = io::stdin();
    let guarded = input.as_fd().try_clone_to_owned().and_then(|socket| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(watch(options, json, UnixStream::from(socket)))
    });
    // No process reads the guardian's standard error. The wrapper detects that the socket is closed.
    if guarded.is_ok() { 0 } else { ErrorCode::Internal.row().exit }
}

async fn watch(options: &GuardianOptions, json: bool, wrapper: UnixStream) -> io::Result<()> {
    // A kill by program name (`killall`) then spares the guardian. Nothing else depends on its name.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"lk-guardian");
    adopt_orphans();
    let _signals = signals::swallow_all()?;
    let children = signal(SignalKind::child())?;
    let Some(streams) = receive_streams(&wrapper)? else { return Ok(()) };
    let started = start(options, json, streams);
    wrapper.set_nonblocking(true)?;
    let (reader, mut writer) = tokio::net::UnixStream::from_std(wrapper)?.into_split();
    let leader = match started {
        Ok(leader) => leader,
        Err(error) => return send_report(&mut writer, GuardianReport::Failed(error.to_string())).await,
    };
    let mut words = BufReader::new(reader).lines();
    let goodbye = tokio::select! {
        biased;
        line = words.next_line() => line.is_ok_and(|word| word.as_deref() == Some(GOODBYE)),
        // The wrapper cannot be reached any more.
        _ = follow(leader, writer, children) => false,
    };
    if !goodbye {
        end_all(Some(leader));
    }
    Ok(())
}

/// Starts the shim, which becomes the command. The guardian's copies of the streams are closed on return.
fn start(options: &GuardianOptions, json: bool, streams: [OwnedFd; 3]) -> io::Result<Pid> {
    let [input, output, errors] = streams;
    let mut command = Command::new(own_program());
    command.args([SHIM_COMMAND, "--parent"]).arg(getpid().to_string());
    for (flag, given) in [("--foreground", options.foreground), ("--json", json)] {
        command.args(given.then_some(flag));
    }
    command.arg("--").args(&options.command);
    let shim = command.stdin(input).stdout(output).stderr(errors).process_group(0).spawn()?;
    Pid::from_raw(i32::try_from(shim.id()).unwrap_or(0)).ok_or_else(|| io::Error::other("the child has no process id"))
}

/// Reports what happens to the command. Returns when the wrapper cannot be reached.
async fn follow(leader: Pid, mut writer: OwnedWriteHalf, mut children: Stream) -> io::Result<()> {
    send_report(&mut writer, GuardianReport::Started(Pid::as_raw(Some(leader)))).await?;
    loop {
        while let Some(report) = reap(leader)? {
            send_report(&mut writer, report).await?;
        }
        children.recv().await;
    }
}

async fn send_report(writer: &mut OwnedWriteHalf, report: GuardianReport) -> io::Result<()> {
    writer.write_all(format!("{}\n", serde_json::to_string(&report)?).as_bytes()).await
}

/// Returns the end of a child or the stop of the command, if there is one to report.
fn reap(leader: Pid) -> io::Result<Option<GuardianReport>> {
    loop {
        return match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => match (pid == leader, status.stopping_signal()) {
                (true, Some(by)) => Ok(Some(GuardianReport::Stopped(by))),
                (true, None) => Ok(Some(GuardianReport::Ended(ended(status)))),
                (false, Some(_)) => continue,
                (false, None) => Ok(Some(GuardianReport::OrphanEnded)),
            },
            Err(Errno::INTR) => continue,
            Ok(None) | Err(Errno::CHILD) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
}

fn ended(status: WaitStatus) -> Ended {
    let number = |raw: i32| u8::try_from(raw).unwrap_or(u8::MAX);
    match status.terminating_signal() {
        Some(signal) => Ended::Signal(number(signal)),
        None => Ended::Code(status.exit_status().map_or(u8::MAX, number)),
    }
}
