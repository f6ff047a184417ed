//! The signals that a wrapper passes on, as one stream.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Passed on to the child's group, or, while there is none yet, an order to withdraw.
const PASSED: [Signal; 6] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Signals that reach this process. Those that it was told to ignore when it was started (by `nohup`, say) stay
/// ignored, here and in the child.
#[derive(Debug)]
pub struct Signals {
    passed: Vec<(Signal, Stream)>,
    pub(super) children: Stream,
    pub(super) continued: Stream,
}

impl Signals {
    /// Starts to listen. From now on these signals no longer end the process.
    pub fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let is_ignored = |wanted: &Signal| ignored & (1 << (wanted.as_raw() - 1)) != 0;
        let passed = PASSED
            .into_iter()
            .filter(|wanted| !is_ignored(wanted))
            .map(|wanted| Ok((wanted, signal(SignalKind::from_raw(wanted.as_raw()))?)))
            .collect::<io::Result<_>>()?;
        let continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        Ok(Self { passed, children: signal(SignalKind::child())?, continued })
    }

    /// The next signal to pass on. Dropping the future loses none.
    pub async fn next(&mut self) -> Signal {
        next_of(&mut self.passed).await
    }

    /// The next thing that concerns a wrapper of a child.
    pub(super) async fn next_for_wrapper(&mut self) -> Notice {
        tokio::select! {
            passed = next_of(&mut self.passed) => Notice::Pass(passed),
            _ = self.children.recv() => Notice::Child,
            _ = self.continued.recv() => Notice::Pass(Signal::CONT),
        }
    }
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

/// See [`Signals::next_for_wrapper`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// Pass this one on.
    Pass(Signal),
    /// A child changed its state.
    Child,
}

/// The set of ignored signals, bit `n - 1` for signal `n`; empty where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
