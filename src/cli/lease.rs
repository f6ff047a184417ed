//! Leases by handle, and what one asks about a name: `acquire refresh release check wait`.

use std::time::Duration;

use super::failure::Failure;
use super::lock::by_signal;
use super::lock::signals::Signals;
use super::options::{AcquireOptions, CheckOptions, LeaseMode, NameOptions, RefreshOptions, ReleaseOptions};
use super::output::Output;
use super::shapes::{self, milliseconds};
use super::{NO, YES};
use crate::client::{Client, ClientError, Lease};
use crate::model::{Mode, Namespace, TokenState};
use crate::service::{LockService, Word};

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
        request = request.handle(handle);
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
            client.withdrawn().await;
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
    let refreshed = client.refresh(options.name.as_str(), &options.handle, options.duration).await?;
    if output.json {
        output.object(&shapes::Leased {
            namespace: namespace.to_string(),
            lock: options.name.to_string(),
            token: refreshed.token.map(|token| token.to_string()),
            handle: options.handle.reveal().to_owned(),
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
    let released = client.release(options.name.as_str(), &options.handle).await;
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

/// Says whether a token is the current one: by its exit code, and on a line for whoever watches.
pub(super) async fn check<S: LockService>(
    client: &Client<S>,
    options: CheckOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let checked = client.check(options.name.as_str(), options.token).await?;
    let valid = checked.state == TokenState::Valid;
    let state = shapes::state_word(checked.state);
    let answer = shapes::Checked { state, valid, lowest_valid: checked.lowest_valid.to_string() };
    output.answer(&answer, || state.replace('_', " "))?;
    Ok(if valid { YES } else { NO })
}

/// Returns when a name is free.
pub(super) async fn wait<S: LockService>(
    client: &Client<S>,
    namespace: &Namespace,
    options: NameOptions,
    output: &Output,
) -> Result<u8, Failure> {
    client.wait_free(options.name.as_str()).await?;
    if output.json {
        let lock = options.name.to_string();
        output.object(&shapes::Free { namespace: namespace.to_string(), lock, free: true })?;
    }
    Ok(YES)
}
