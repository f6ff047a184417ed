//! Leases by handle, and what one asks about a name: `acquire refresh release check wait`.

use std::time::Duration;

use super::failure::Failure;
use super::options::{AcquireOptions, CheckOptions, LeaseMode, NameOptions, RefreshOptions, ReleaseOptions};
use super::output::Output;
use super::shapes::{self, milliseconds};
use super::{NO, YES};
use crate::client::{Client, ClientError};
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
    let for_ever = Duration::from_millis(crate::limits::PATIENCE_MS_MAX);
    request = if options.try_once { request.try_once() } else { request.wait(options.wait.unwrap_or(for_ever)) };
    let lease = request.take().await?;
    let answer = shapes::Leased {
        namespace: namespace.to_string(),
        lock: lease.name().to_string(),
        token: Some(lease.token().to_string()),
        handle: lease.handle().reveal().to_owned(),
        remaining_ms: milliseconds(lease.valid_for()),
    };
    output.answer(&answer, || format!("{} {}", lease.token(), lease.handle().reveal()))?;
    Ok(YES)
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
