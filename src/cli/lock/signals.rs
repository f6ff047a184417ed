//! The signals that a wrapper passes on, as one stream.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use futures_util::FutureExt as _;
use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Signals that are passed on to the command's group. Before the command starts, they end the wait.
const PASSED: [Signal; 6] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Signals that stop a process. Terminals and shells send them.
pub(super) const STOPS: [Signal; 3] = [Signal::TSTP, Signal::TTIN, Signal::TTOU];

/// The signals that this process receives. Signals that were ignored when it was started (for example by `nohup`) stay
/// ignored, here and in the command.
#[derive(Debug)]
pub struct Signals {
    passed: Vec<(Signal, Stream)>,
    /// Empty while the system stops this process.
    stops: Vec<(Signal, Stream)>,
    pub(super) continued: Stream,
}

impl Signals {
    /// Starts to listen. After this, these signals no longer end the process.
    pub fn listen() -> io::Result<Self> {
        let continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        Ok(Self { passed: caught(&PASSED)?, stops: Vec::new(), continued })
    }

    /// Waits for the next signal to pass on. Dropping the future loses none.
    pub async fn next(&mut self) -> Signal {
        next_of(&mut self.passed).await
    }

    /// Waits for the next signal that asks this process to end.
    pub(in crate::cli) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if signal != Signal::USR1 && signal != Signal::USR2 {
                return signal;
            }
        }
    }

    /// Starts to catch the stop signals. After this, they no longer stop the process.
    pub(super) fn catch_stops(&mut self) -> io::Result<()> {
        self.stops = caught(&STOPS)?;
        Ok(())
    }

    /// Drops stop signals that came before the process was continued, as the system does with pending ones.
    pub(super) fn forget_stops(&mut self) {
        for (_, stream) in &mut self.stops {
            // No signal may be there.
            let _ = stream.recv().now_or_never();
        }
    }

    /// Waits for the next signal to pass on, including CONT, or for a stop signal.
    pub(super) async fn next_for_wrapper(&mut self) -> Signal {
        tokio::select! {
            biased;
            passed = next_of(&mut self.passed) => passed,
            stop = next_of(&mut self.stops) => stop,
            _ = self.continued.recv() => Signal::CONT,
        }
    }
}

/// The exit code of a run that a signal has ended.
pub(in crate::cli) fn exit_code(signal: Signal) -> u8 {
    u8::try_from(signal.as_raw()).unwrap_or(0).saturating_add(128)
}

/// Makes signals that are passed on and stop signals have no effect on this process. They are caught instead of
/// ignored, because a child would inherit ignored signals.
pub(super) fn swallow_all() -> io::Result<impl Sized> {
    Ok((caught(&PASSED)?, caught(&STOPS)?))
}

/// Catches these signals, except those that were ignored when this process was started.
fn caught(wanted: &[Signal]) -> io::Result<Vec<(Signal, Stream)>> {
    let ignored = ignored();
    let is_ignored = |wanted: &Signal| ignored & (1 << (wanted.as_raw() - 1)) != 0;
    let wanted = wanted.iter().copied().filter(|wanted| !is_ignored(wanted));
    wanted.map(|wanted| Ok((wanted, signal(SignalKind::from_raw(wanted.as_raw()))?))).collect()
}

async fn next_of(streams: &mut [(Signal, Stream)]) -> Signal {
    poll_fn(|context| {
        for (wanted, stream) in streams.iter_mut() {
            if stream.poll_recv(context).is_ready() {
                return Poll::Ready(*wanted);
            }
        }
        Poll::Pending
    })
    .await
}

/// Returns the set of ignored signals, bit `n - 1` for signal `n`. The set is empty if the system does not report it.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
