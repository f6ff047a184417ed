//! Holds locks without a command, and notifies the user of a loss, of a request of another client, and of processes
//! that are still waited for.

use std::io::{self, IsTerminal, Read};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as MaskedSignal};
use rustix::io::Errno;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};

use super::child::Hold;
use super::result::RunResult;
use super::signals::Signals;
use super::terminal::Terminal;
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::client::{RevokeRequest, SetGuard};
use crate::clock::millis;
use crate::limits;
use crate::model::{LockName, Namespace, Principal};
use crate::service::ErrorCode;

/// The JSON line of a grant, or of its loss, without a command.
#[derive(Debug, Serialize)]
struct Holding {
    event: &'static str,
    namespace: String,
    lock: String,
    token: String,
    session: String,
    remaining_ms: u64,
}

/// The JSON line of a request of another client.
#[derive(Debug, Serialize)]
struct AskedFor {
    event: &'static str,
    namespace: String,
    lock: String,
    token: Option<String>,
    session: String,
    by: String,
    why: String,
}

/// The JSON line after the end of the command: these of its processes still run and are waited for.
#[derive(Debug, Serialize)]
struct LeftBehind {
    event: &'static str,
    processes: Vec<LeftProcess>,
}

/// One process of [`LeftBehind`].
#[derive(Debug, Serialize)]
struct LeftProcess {
    pid: u32,
    name: String,
}

/// A hold, and the output for notices about it.
pub(super) struct Notified<'a> {
    pub(super) guard: &'a SetGuard,
    pub(super) namespace: &'a Namespace,
    pub(super) output: &'a Output,
}

impl Hold for Notified<'_> {
    fn valid_for(&self) -> Duration {
        self.guard.valid_for()
    }

    async fn lost(&self) {
        self.guard.lost().await;
    }

    async fn asked(&self) {
        let (name, asked) = self.guard.revoke_requested().await;
        let line = self.asked_for(&name, &asked);
        self.output.notice(&line, || format!("{} asks for {name}: {}", line.by, line.why));
    }

    fn waits_for(&self, processes: &[(u32, String)]) {
        let named = |(pid, name): &(u32, String)| LeftProcess { pid: *pid, name: name.clone() };
        let left = LeftBehind { event: "left-behind", processes: processes.iter().map(named).collect() };
        self.output.notice(&left, || {
            let names: Vec<_> = processes.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
            let names = if names.is_empty() { "its process group".to_owned() } else { names.join(", ") };
            format!("the command has ended; the lock is held until these have ended, too: {names}")
        });
    }
}

impl Notified<'_> {
    fn holding(&self, event: &'static str, name: &LockName, token: String) -> Holding {
        Holding {
            event,
            namespace: self.namespace.to_string(),
            lock: name.to_string(),
            token,
            session: self.guard.session().to_string(),
            remaining_ms: millis(self.guard.valid_for()),
        }
    }

    fn asked_for(&self, name: &LockName, asked: &RevokeRequest) -> AskedFor {
        let unnamed = asked.by == Principal::default();
        AskedFor {
            event: "asked",
            namespace: self.namespace.to_string(),
            lock: name.to_string(),
            token: self.guard.token(name.as_str()).map(|token| token.to_string()),
            session: self.guard.session().to_string(),
            by: if unnamed { "another client".to_owned() } else { asked.by.to_string() },
            why: asked.why.as_str().to_owned(),
        }
    }
}

/// The tokens of these locks, in their order.
pub(super) fn tokens(names: &[LockName], guard: &SetGuard) -> Vec<String> {
    names.iter().filter_map(|name| guard.token(name.as_str())).map(|token| token.to_string()).collect()
}

/// Prints lines on another thread, because a reader that stops must not keep a signal from ending the hold.
struct Printer {
    lines: mpsc::Sender<String>,
    printing: JoinHandle<Result<(), Failure>>,
}

impl Printer {
    fn start(output: Output) -> Self {
        let (lines, mut waiting) = mpsc::channel::<String>(limits::NOTICES_WAITING_MAX);
        let printing = spawn_blocking(move || {
            while let Some(line) = waiting.blocking_recv() {
                output.as_it_is(&line)?;
            }
            Ok(())
        });
        Self { lines, printing }
    }

    /// Prints a line later. If the reader stopped, lines are lost.
    fn print(&self, line: String) {
        self.lines.try_send(line).ok();
    }

    /// Waits until a line cannot be printed. Must not be called again after it has returned.
    async fn failed(&mut self) -> Failure {
        let ended = (&mut self.printing).await;
        let printed = ended.unwrap_or_else(|error| Err(Failure::stopped(error.to_string())));
        printed.err().unwrap_or_else(|| Failure::stopped("no line is printed any more"))
    }

    /// Waits until all lines are printed, but not for a reader that stopped.
    async fn finish(self) -> Result<(), Failure> {
        drop(self.lines);
        let longest = Duration::from_millis(limits::NOTICES_MS_MAX);
        let ended = tokio::time::timeout(longest, self.printing).await;
        ended.map_or(Ok(()), |ended| ended.unwrap_or_else(|error| Err(Failure::stopped(error.to_string()))))
    }
}

/// Prints one line for each lock, and holds until standard input is closed, a signal arrives or a lock is lost. Prints
/// a further line for a loss and for each request of another client.
pub(super) async fn hold(
    names: &[LockName],
    held: &Notified<'_>,
    signals: &mut Signals,
    result: &mut RunResult,
) -> Result<u8, Failure> {
    let Notified { guard, output, .. } = held;
    let mut printer = Printer::start(**output);
    let grants = names.iter().zip(tokens(names, guard)).map(|(name, token)| {
        let grant = held.holding("held", name, token.clone());
        output.one_line(&grant, || format!("held {name} {token}"))
    });
    printer.print(grants.collect::<Result<Vec<_>, _>>()?.join("\n"));
    let mut input = input_closed()?;
    loop {
        tokio::select! {
            _ = guard.lost() => break,
            failure = printer.failed() => return Err(failure.unprinted()),
            (name, asked) = guard.revoke_requested() => {
                let line = held.asked_for(&name, &asked);
                let token = line.token.clone().unwrap_or_default();
                let text = || format!("asked {name} {token} {}: {}", line.by, line.why);
                printer.print(output.one_line(&line, text)?);
            }
            signal = signals.next_ending() => {
                result.signal = u8::try_from(signal.as_raw()).ok();
                break;
            }
            closed = &mut input => {
                closed.map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))??;
                break;
            }
        }
    }
    // While this process was stopped, the hold may have expired before the signal or the end of the input.
    if !guard.valid_for().is_zero() {
        return printer.finish().await.map(|()| YES).map_err(Failure::unprinted);
    }
    let lost = guard.lost().await;
    result.lost = true;
    let gone = held.holding("lost", &lost.lock, lost.token.to_string());
    printer.print(output.one_line(&gone, || format!("lost {} {}", lost.lock, lost.token))?);
    // The loss is reported as the failure, even if its line cannot be printed.
    printer.finish().await.ok();
    Err(lost.into())
}

/// Reads standard input to its end, on a thread that runs until then or until the process ends.
fn input_closed() -> Result<oneshot::Receiver<io::Result<()>>, Failure> {
    let (closed, end) = oneshot::channel();
    thread::Builder::new().name("input".to_owned()).spawn(move || {
        // If the receiver was dropped, the hold has already ended.
        let _ = closed.send(read_to_end());
    })?;
    Ok(end)
}

/// Reads to the end of standard input. If a background job reads from the terminal, the system stops the whole job,
/// unless the reading thread blocks SIGTTIN. With the signal blocked the read fails, and is repeated until the job is
/// in the foreground.
fn read_to_end() -> io::Result<()> {
    SigSet::from(MaskedSignal::SIGTTIN).thread_block()?;
    let mut input = io::stdin().lock();
    let mut bytes = [0; 4096];
    loop {
        match input.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) && in_background() => {
                thread::sleep(Duration::from_millis(limits::TERMINAL_RETRY_MS));
            }
            Err(error) => return Err(error),
        }
    }
}

fn in_background() -> bool {
    io::stdin().is_terminal() && Terminal::open().is_some_and(|terminal| !terminal.is_ours())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Notices have every promised field.
    #[test]
    fn a_holder_is_notified_in_json() {
        let asked = AskedFor {
            event: "asked",
            namespace: "default".into(),
            lock: "nightly".into(),
            token: Some("7".into()),
            session: "3".into(),
            by: "another client".into(),
            why: "ana@web1 ask (12): please finish".into(),
        };
        let expected = json!({
            "event": "asked", "namespace": "default", "lock": "nightly", "token": "7", "session": "3",
            "by": "another client", "why": "ana@web1 ask (12): please finish",
        });
        assert_eq!(serde_json::to_value(asked).unwrap(), expected);
        let left = LeftBehind { event: "left-behind", processes: vec![LeftProcess { pid: 9, name: "sleep".into() }] };
        let expected = json!({"event": "left-behind", "processes": [{"pid": 9, "name": "sleep"}]});
        assert_eq!(serde_json::to_value(left).unwrap(), expected);
    }
}
