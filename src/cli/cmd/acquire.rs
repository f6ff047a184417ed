//! `acquire`: takes a lease without a session, and prints its token and its handle.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::args::{duration, given_handle};
use crate::cli::blocker::with_blocker;
use crate::cli::connect::{Client, Lease};
use crate::cli::error::{Failure, YES};
use crate::cli::lock::signals::{self, Signals};
use crate::cli::output::{Output, is_closed};
use crate::clock::millis;
use crate::limits::PATIENCE_MS_MAX;
use crate::model::{Handle, LockName, Mode};
use crate::shapes::Leased;

#[derive(Debug, Args)]
pub(in crate::cli) struct AcquireOptions {
    /// Name of the lock
    #[arg(value_parser = LockName::parse)]
    name: LockName,
    /// Length of the lease, such as 30s; at most the setting ttl_max of the cluster, which is 10m by default
    #[arg(long = "for", value_parser = duration, value_name = "DURATION")]
    duration: Duration,
    /// Secret that refreshes and releases the lease; `-` reads it from standard input [default: random]
    #[arg(long, value_parser = Handle::parse, env = "LOCKKEEPER_HANDLE", hide_env_values = true, value_name = "HANDLE")]
    handle: Option<Handle>,
    /// Do not wait
    #[arg(short = 'n', long = "try", conflicts_with = "wait")]
    try_once: bool,
    /// Longest wait, such as 30s; 0s does not wait [default: 7d]
    #[arg(short, long, value_parser = duration, value_name = "DURATION")]
    wait: Option<Duration>,
    /// Hold alone, or together with other shared holders
    #[arg(long, value_enum, default_value = "exclusive")]
    mode: LeaseMode,
    /// Purpose, shown with the lock [default: none]
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
}

/// Modes of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LeaseMode {
    /// Hold the lock alone.
    Exclusive,
    /// Share the lock with other shared holders.
    Shared,
}

/// Acquires a lease and prints `TOKEN HANDLE`. Without `-w` it waits as long as a request without a session may wait.
pub(in crate::cli) async fn run(client: &Client, options: AcquireOptions, output: &Output) -> Result<u8, Failure> {
    let mode = match options.mode {
        LeaseMode::Exclusive => Mode::Exclusive,
        LeaseMode::Shared => Mode::Shared,
    };
    let mut request = client.lease(options.name.as_str()).duration(options.duration).mode(mode);
    match options.handle {
        Some(handle) => request = request.handle(given_handle(handle).map_err(|failure| failure.of_field("--handle"))?),
        None if is_closed() => return Err(Failure::usage("--handle", NO_OUTPUT)),
        None => {}
    }
    if let Some(why) = &options.why {
        request = request.why(why);
    }
    let longest = Duration::from_millis(PATIENCE_MS_MAX);
    let wait = if options.try_once { Duration::ZERO } else { options.wait.unwrap_or(longest) };
    let request = if wait.is_zero() { request.try_once() } else { request.wait(wait) };
    let mut signals = Signals::listen()?;
    let lease = tokio::select! {
        biased;
        signal = signals.next_ending() => {
            // The dropped request withdraws itself, so that neither a waiter nor a lease outlives this process.
            client.cancelled().await;
            return Ok(signals::exit_code(signal));
        }
        taken = request.take() => match taken {
            Ok(lease) => lease,
            Err(error) => return Err(with_blocker(client, error).await.into()),
        },
    };
    let answer = Leased {
        namespace: client.settings.namespace.to_string(),
        lock: lease.name().to_string(),
        token: Some(lease.token().to_string()),
        handle: lease.handle().reveal().to_owned(),
        remaining_ms: millis(lease.valid_for()),
    };
    let line = output.one_line(&answer, || format!("{} {}", lease.token(), lease.handle().reveal()));
    // On another thread, because a reader that stops must not keep a signal from ending the command.
    let output = *output;
    let print = tokio::task::spawn_blocking(move || line.and_then(|line| output.as_it_is(&line)));
    let printed = tokio::select! {
        biased;
        signal = signals.next_ending() => {
            give_back(lease).await;
            return Ok(signals::exit_code(signal));
        }
        printed = print => printed.unwrap_or_else(|error| Err(Failure::stopped(error.to_string()))),
    };
    let Err(unprinted) = printed else { return Ok(YES) };
    // Without its handle, no process could release the lease.
    give_back(lease).await;
    Err(unprinted.unprinted())
}

const NO_OUTPUT: &str = "standard output is closed or discarded, so no process would get the handle, and none could release the \
                         lease: open it, or choose a handle with --handle";

/// Releases the lease. If the cluster does not answer, the lease ends at its deadline.
async fn give_back(lease: Lease) {
    if let Err(error) = lease.release().await {
        tracing::warn!(%error, "the lease could not be released; it ends at its deadline");
    }
}
