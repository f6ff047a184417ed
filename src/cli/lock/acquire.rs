//! Acquires the locks of a run: opens a session, waits in the queue, and withdraws on a signal.

use std::time::Duration;

use indicatif::ProgressBar;
use rustix::process::Signal;

use super::options::{Order, RunOptions};
use super::signals::Signals;
use crate::cli::blocker::with_blocker;
use crate::cli::connect::led;
use crate::cli::error::Failure;
use crate::cli::output::{Output, plain};
use crate::cli::text::{called, short};
use crate::client::{Client, ClientError, Session, SetGuard};
use crate::clock::{Clock, SystemClock, millis};
use crate::limits;
use crate::model::{Parent, Place};
use crate::service::{ErrorCode, LockService};

/// The locks of a run, and the session that holds them.
#[derive(Debug)]
pub(super) struct Held<S: LockService> {
    pub(super) session: Session<S>,
    pub(super) guard: SetGuard,
}

/// What a run acquires, and for which line of execution.
pub(super) struct Asking<'a> {
    pub(super) order: &'a Order,
    pub(super) owner: &'a str,
    /// The enclosing run, which waits for this one to end.
    pub(super) parent: Option<Parent>,
}

/// Why the lock is not held.
#[derive(Debug)]
pub(super) enum NotHeld {
    Failed(Failure),
    /// This signal ended the wait.
    Withdrawn(Signal),
}

impl From<Failure> for NotHeld {
    fn from(failure: Failure) -> Self {
        NotHeld::Failed(failure)
    }
}

/// Sets the options of the command line on a request, for one lock or for a set.
macro_rules! as_asked {
    ($request:expr, $asking:expr, $wait:expr) => {{
        let Asking { owner, parent, order } = $asking;
        let options = &order.run;
        let mut request = $request.owner(owner).delay(options.delay);
        request = request.at_least(options.at_least).at_most(options.at_most);
        if let Some(parent) = parent {
            request = request.parent(parent.session, parent.owner.as_str());
        }
        if let Some(why) = &options.why {
            request = request.why(why);
        }
        if let Some(value) = &order.value {
            request = request.value(value.as_str());
        }
        match $wait {
            Some(Duration::ZERO) => request.try_once(),
            Some(wait) => request.wait(wait),
            None => request,
        }
    }};
}

/// Opens a session and acquires the locks. The wait counts from the call. A signal ends it, and no waiter stays in the
/// queue.
pub(super) async fn acquire<S: LockService>(
    client: &Client<S>,
    asking: &Asking<'_>,
    signals: &mut Signals,
    output: &Output,
) -> Result<Held<S>, NotHeld> {
    let (clock, options) = (SystemClock::new(), &asking.order.run);
    // A try does not wait in a queue, and has no deadline for connecting.
    let deadline = options.wait().filter(|wait| !wait.is_zero()).map(|wait| clock.now().after(wait));
    let left = || deadline.map(|deadline| deadline.since(clock.now()));
    // If this future is dropped while the session opens, an empty session may remain. It ends at its TTL.
    let session = tokio::select! {
        signal = signals.next_ending() => return Err(NotHeld::Withdrawn(signal)),
        session = open(client, options, left()) => session?,
    };
    let kill_after = kill_after(options, session.ttl());
    let longest = longest_validity(options, session.ttl());
    if kill_after > longest / 2 {
        let detail = format!(
            "--kill-after {kill_after:?} is more than half of the TTL, disconnect grace or --at-most, {longest:?}; \
             give at most {:?}, or a longer --ttl",
            longest / 2
        );
        close(session, signals).await;
        return Err(Failure::usage("--kill-after", detail).into());
    }
    let progress = output.progress("{msg} ({elapsed})");
    let wait = options.wait().map(|_| left().unwrap_or_default());
    let asked = async {
        match ask(&session, asking, wait, &progress).await {
            Ok(guard) => Ok(guard),
            Err(error) => Err(unreached(with_blocker(client, error).await)),
        }
    };
    let acquired = tokio::select! {
        signal = signals.next_ending() => Err(NotHeld::Withdrawn(signal)),
        guard = asked => guard.map_err(NotHeld::Failed),
    };
    progress.finish_and_clear();
    match acquired {
        Ok(guard) => Ok(Held { session, guard }),
        Err(why) => {
            close(session, signals).await;
            Err(why)
        }
    }
}

async fn ask<S: LockService>(
    session: &Session<S>,
    asking: &Asking<'_>,
    wait: Option<Duration>,
    progress: &ProgressBar,
) -> Result<SetGuard, ClientError> {
    let (shown, Order { names, access, run, .. }) = (progress.clone(), asking.order);
    if let [name] = names.as_slice() {
        let mut request = as_asked!(session.lock(name.as_str()).mode(*access), asking, wait);
        if run.unfair {
            request = request.unfair();
        }
        return request.on_queued(move |place| show_place(&shown, place)).acquire().await.map(SetGuard::from);
    }
    let members = names.iter().map(|name| (name.as_str(), *access));
    as_asked!(session.locks(members), asking, wait).on_queued(move |place| show_place(&shown, place)).acquire().await
}

/// The time that the command gets to end after TERM. The default is a quarter of the longest validity of the hold: a
/// hold that is never valid that long would count as lost from the beginning.
pub(super) fn kill_after(options: &RunOptions, ttl: Duration) -> Duration {
    options.kill_after.unwrap_or(longest_validity(options, ttl) / 4)
}

/// How long the hold is valid after an answer: the TTL, or the disconnect grace or `--at-most` if one of these is
/// shorter.
fn longest_validity(options: &RunOptions, ttl: Duration) -> Duration {
    [options.disconnect_grace, options.at_most].into_iter().flatten().fold(ttl, Duration::min)
}

/// Closes the session, and with it all its holds and waits. If no node answers in time, or soon after a signal, the
/// session ends at its TTL.
pub(super) async fn close<S: LockService>(session: Session<S>, signals: &mut Signals) {
    let interrupted = async {
        signals.next_ending().await;
        // A signal that has ended the command may arrive here later, and must not prevent the release.
        tokio::time::sleep(Duration::from_millis(limits::CLOSE_ENDS_MS)).await;
    };
    tokio::select! {
        closed = session.close() => {
            if let Err(error) = closed {
                tracing::warn!(%error, "the session could not be closed; it ends at its deadline");
            }
        }
        () = interrupted => tracing::warn!("a signal ended the wait for the release; the session ends at its deadline"),
    }
}

async fn open<S: LockService>(
    client: &Client<S>,
    options: &RunOptions,
    wait: Option<Duration>,
) -> Result<Session<S>, Failure> {
    let session = client.session().ttl(options.ttl).disconnect_grace(options.disconnect_grace);
    let Some(wait) = wait else { return Ok(session.open().await?) };
    tokio::select! {
        biased;
        opened = session.open() => Ok(opened?),
        failure = unopened(client, wait) => Err(failure),
    }
}

/// Waits this long, and returns why the cluster opened no session within the wait. In the third quarter of the wait, it
/// looks for the reason.
async fn unopened<S: LockService>(client: &Client<S>, wait: Duration) -> Failure {
    let end = tokio::time::Instant::now() + wait;
    tokio::time::sleep(wait / 2).await;
    let looking = async { led(&client.clone().request_wait(wait / 4).status().await?) };
    let seen = tokio::time::timeout_at(end, looking).await;
    tokio::time::sleep_until(end).await;
    let late = || {
        Failure::new(ErrorCode::Unreachable, format!("the cluster opened no session within {}", short(millis(wait))))
    };
    seen.ok().and_then(Result::err).unwrap_or_else(late)
}

/// Returns the error of the wait. If the session expired, no node answered for a whole TTL.
fn unreached(error: ClientError) -> Failure {
    if let ClientError::SessionLost { reason: None, .. } = error {
        let detail = "no node answered until the session expired, so the place in the queue is lost";
        return Failure::new(ErrorCode::Unreachable, detail);
    }
    error.into()
}

fn show_place(bar: &ProgressBar, place: &Place) {
    let message = waiting(place);
    tracing::info!("{message}");
    bar.set_message(plain(&message).into_owned());
    bar.enable_steady_tick(Duration::from_millis(limits::PROGRESS_TICK_MS));
}

fn waiting(place: &Place) -> String {
    let by = place.held_by.as_ref().map_or(String::new(), |holder| {
        let why = if holder.metadata.why.is_empty() { String::new() } else { format!(": {}", holder.metadata.why) };
        format!(", held by {}{why}", called(&holder.metadata))
    });
    format!("waiting for {}: place {}{by}", place.lock, place.place)
}
