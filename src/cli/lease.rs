//! Leases by handle, and what one asks about a name: `acquire refresh release check wait`.

use std::io::BufRead;
use std::time::Duration;

use clap::Args;

use super::failure::Failure;
use super::lock::by_signal;
use super::lock::signals::Signals;
use super::options::{AcquireOptions, CheckOptions, LeaseMode, RefreshOptions, ReleaseOptions, WaitOptions};
use super::output::Output;
use super::parse::handle;
use super::shapes::{self, milliseconds};
use super::{NO, YES};
use crate::client::{Client, ClientError, Lease};
use crate::limits::HANDLE_BYTES_MAX;
use crate::model::{Handle, LockView, Mode, Namespace, Refusal, TokenState};
use crate::service::{ErrorCode as Word, LockService};

/// The secret of a lease.
#[derive(Debug, Args)]
pub(super) struct HandleOption {
    /// Secret of the lease, as `acquire` printed it; `-` reads it from standard input. Other users of this machine can see
    /// arguments, but neither the variable nor standard input
    #[arg(value_parser = handle, env = "LOCKKEEPER_HANDLE", hide_env_values = true)]
    handle: Handle,
}

impl HandleOption {
    /// The secret, from wherever it is given.
    pub(super) fn read(self) -> Result<Handle, Failure> {
        given(self.handle)
    }
}

/// The handle itself, or for `-` the one on standard input.
fn given(handle: Handle) -> Result<Handle, Failure> {
    if handle.reveal() != "-" { Ok(handle) } else { read_handle(std::io::stdin().lock()) }
}

/// The handle on the first line of a text.
fn read_handle(from: impl BufRead) -> Result<Handle, Failure> {
    let mut line = String::new();
    let most = u64::try_from(HANDLE_BYTES_MAX + "\r\n".len()).unwrap_or(u64::MAX);
    from.take(most).read_line(&mut line)?;
    Ok(Handle::parse(line.trim_end_matches(['\r', '\n']))?)
}

/// Takes a lease and prints `TOKEN HANDLE`. Without `-w` it waits as long as a wait without a session may last.
pub(super) async fn acquire<S: LockService>(
    client: &Client<S>,
    namespace: &Namespace,
    options: AcquireOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let mode = match options.mode {
        LeaseMode::Exclusive => Mode::Exclusive,
        LeaseMode::Shared => Mode::Shared,
    };
    let mut request = client.lease(options.name.as_str()).duration(options.duration).mode(mode);
    if let Some(handle) = options.handle {
        request = request.handle(given(handle)?);
    }
    if let Some(why) = &options.why {
        request = request.why(why);
    }
    let longest = Duration::from_millis(crate::limits::PATIENCE_MS_MAX);
    let wait = if options.try_once { Duration::ZERO } else { options.wait.unwrap_or(longest) };
    let request = if wait.is_zero() { request.try_once() } else { request.wait(wait) };
    let mut signals = Signals::listen()?;
    let take = request.take();
    let taken = tokio::select! {
        biased;
        signal = signals.next_ending() => Err(signal),
        lease = take => Ok(lease?),
    };
    let lease = match taken {
        Ok(lease) => lease,
        Err(signal) => {
            // Dropped, the take withdraws itself: neither a waiter nor a lease may outlive this process.
            client.cancelled().await;
            return Ok(by_signal(signal));
        }
    };
    let answer = shapes::Leased {
        namespace: namespace.to_string(),
        lock: lease.name().to_string(),
        token: Some(lease.token().to_string()),
        handle: lease.handle().reveal().to_owned(),
        remaining_ms: milliseconds(lease.valid_for()),
    };
    let print = async { output.answer(&answer, || format!("{} {}", lease.token(), lease.handle().reveal())) };
    let printed = tokio::select! {
        biased;
        signal = signals.next_ending() => Err(signal),
        printed = print => Ok(printed),
    };
    // No process has read the handle of a lease that was not printed, so none could release it.
    match printed {
        Ok(Ok(())) => Ok(YES),
        Ok(Err(unprinted)) => {
            give_back(lease).await;
            Err(unprinted.unprinted())
        }
        Err(signal) => {
            give_back(lease).await;
            Ok(by_signal(signal))
        }
    }
}

/// Releases it; where the cluster does not answer, it ends at its own time.
async fn give_back<S: LockService>(lease: Lease<S>) {
    if let Err(error) = lease.release().await {
        tracing::warn!(%error, "the lease could not be released; it ends at its own time");
    }
}

/// Prolongs a lease. Without JSON there is nothing to say.
pub(super) async fn refresh<S: LockService>(
    client: &Client<S>,
    namespace: &Namespace,
    options: RefreshOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let handle = options.handle.read()?;
    let refreshed = client.refresh(options.name.as_str(), &handle, options.duration).await?;
    if output.json {
        output.object(&shapes::Leased {
            namespace: namespace.to_string(),
            lock: options.name.to_string(),
            token: refreshed.token.map(|token| token.to_string()),
            handle: handle.reveal().to_owned(),
            remaining_ms: milliseconds(refreshed.valid_for),
        })?;
    }
    Ok(YES)
}

/// Gives a lease back. A lease that is not held (any more) is no success.
pub(super) async fn release<S: LockService>(
    client: &Client<S>,
    options: ReleaseOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let released = client.release(options.name.as_str(), &options.handle.read()?).await;
    if output.json
        && let Some(answer) = release_answer(&released)
    {
        output.object(&answer)?;
    }
    released?;
    Ok(YES)
}

fn release_answer<T>(released: &Result<T, ClientError>) -> Option<shapes::Released> {
    match released {
        Ok(_) => Some(shapes::Released { released: true, reason: None }),
        Err(ClientError::Refused(refusal)) => {
            let reason = Some(Word::of_refusal(refusal).row().text.to_owned());
            Some(shapes::Released { released: false, reason })
        }
        Err(
            ClientError::NotAcquired { .. }
            | ClientError::SessionLost { .. }
            | ClientError::HoldEnded { .. }
            | ClientError::Service(_)
            | ClientError::Invalid(_),
        ) => None,
    }
}

/// Says whether a token is the current one, by its exit code and in a word. A token that this cluster has not granted, be
/// it of a later epoch or above every grant, is unknown: it is not known to be stale.
pub(super) async fn check<S: LockService>(
    client: &Client<S>,
    options: CheckOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let checked = client.check(options.name.as_str(), options.token).await?;
    let valid = checked.state == TokenState::Valid;
    let state = shapes::state_word(checked.state);
    let answer = shapes::Checked { state, valid, lowest_valid: checked.lowest_valid.to_string() };
    output.answer(&answer, || known_word(checked.state).to_owned())?;
    Ok(if valid { YES } else { NO })
}

/// Returns when a name is free. A wait of 0 looks once.
pub(super) async fn wait<S: LockService>(
    client: &Client<S>,
    namespace: &Namespace,
    options: WaitOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let (client, name) = (options.retry.of(client), options.name.as_str());
    if let Some(wait) = options.wait {
        if !client.wait_free_within(name, wait).await? {
            let why = if wait.is_zero() { "is not free" } else { "did not become free in time" };
            let detail = format!("{name} {why}{}", in_the_way(&client, name).await);
            return Err(Failure::new(Word::NotAcquired, detail));
        }
    } else {
        client.wait_free(name).await?;
    }
    if output.json {
        let lock = options.name.to_string();
        output.object(&shapes::Free { namespace: namespace.to_string(), lock, free: true })?;
    }
    Ok(YES)
}

/// What is in the way of a name that is not free: a holder, or else what opens first. Nothing where the cluster does not answer.
async fn in_the_way<S: LockService>(client: &Client<S>, name: &str) -> String {
    let Ok(seen) = client.inspect(name).await else { return String::new() };
    let LockView { lock, holders, closed, .. } = seen.value;
    let holder = holders.into_iter().next().map(Box::new);
    let closed = closed.into_iter().min_by_key(|closing| closing.until).map(Box::new);
    if holder.is_none() && closed.is_none() {
        return String::new();
    }
    format!(": {}", Refusal::Held { lock, holder, closed })
}

fn known_word(state: TokenState) -> &'static str {
    match state {
        TokenState::Valid => "valid",
        TokenState::Stale => "stale",
        TokenState::UnknownEpoch => "unknown: this cluster has not granted it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handle from standard input is its first line, with or without a line end; more than a handle may have is refused,
    /// and not read to its end.
    #[test]
    fn a_handle_is_read_from_standard_input() {
        let read = |text: &[u8]| read_handle(text).map(|handle| handle.reveal().to_owned());
        assert_eq!(read(b"secret\nmore\n").expect("a handle"), "secret");
        assert_eq!(read(b"secret\r\n").expect("a handle"), "secret");
        let longest = "x".repeat(HANDLE_BYTES_MAX);
        assert_eq!(read(format!("{longest}\n").as_bytes()).expect("a handle"), longest);
        let mut endless = std::io::BufReader::new(std::io::repeat(b'x'));
        for refused in [read(b""), read(b"\n"), read_handle(&mut endless).map(|_| String::new())] {
            assert_eq!(refused.expect_err("no handle").exit(), 64);
        }
    }
}
