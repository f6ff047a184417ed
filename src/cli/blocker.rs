//! Reads what blocks a lock after a wait for it has timed out.

use std::time::Duration;

use crate::client::{Client, ClientError};
use crate::limits;
use crate::model::{LockView, Refusal};
use crate::service::LockService;

/// Returns the refusal that names what blocks a lock: a holder, or else the closed time that ends first. It has neither
/// if nothing blocks the lock. Fails if the cluster does not answer soon.
pub(super) async fn blocker<S: LockService>(client: &Client<S>, name: &str) -> Result<Refusal, ClientError> {
    let longest = Duration::from_millis(limits::BLOCKER_READ_MS_MAX);
    let seen = client.clone().request_wait(longest).inspect(name).await?;
    let LockView { lock, holders, closed, .. } = seen.value;
    let holder = holders.into_iter().next().map(Box::new);
    let closed = closed.into_iter().min_by_key(|closing| closing.until).map(Box::new);
    Ok(Refusal::Held { lock, holder, closed })
}

/// Adds what blocks the lock to the error of a wait that timed out. Returns any other error unchanged. A waiter learns
/// of no holder while an ended hold keeps the lock closed.
pub(super) async fn with_blocker<S: LockService>(client: &Client<S>, error: ClientError) -> ClientError {
    let ClientError::NotAcquired { lock: name, holder: None, closed: None } = &error else { return error };
    match blocker(client, name.as_str()).await {
        Ok(Refusal::Held { holder: None, closed: None, .. }) | Err(_) => error,
        // The wait found no holder in its way, so what closes the lock blocked it.
        Ok(Refusal::Held { lock, closed: closed @ Some(_), .. }) => Refusal::Held { lock, holder: None, closed }.into(),
        Ok(blocked) => blocked.into(),
    }
}
