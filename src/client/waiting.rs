//! What an acquire and a take have in common: how the lock is wanted, how long it is waited for, and the way from asking
//! to an answer that is final.

use std::future::Future;
use std::time::Duration;

use super::presence::pause_until;
use super::session::millis;
use super::{ClientError, Retry};
use crate::clock::{Clock, Instant};
use crate::limits::PATIENCE_MS_MAX;
use crate::model::{Grant, HolderView, Invalid, LockName, Metadata, Mode, Outcome, Patience, Place, Reply};
use crate::service::{ClaimRef, LockService, ServiceError};

/// What is wanted, as it was written down; checked when it is asked for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) name: Result<LockName, Invalid>,
    pub(super) mode: Mode,
    pub(super) metadata: Option<Metadata>,
    pub(super) why: Option<String>,
    pub(super) wait: Wait,
}

impl Wanted {
    /// A lock of its own, waited for so.
    pub(super) fn new(name: &str, wait: Wait) -> Self {
        Self { name: LockName::parse(name), mode: Mode::Exclusive, metadata: None, why: None, wait }
    }

    /// What the holder will say of itself: what was given or else the client's, with the reason in it.
    pub(super) fn metadata(
        metadata: Option<Metadata>,
        why: Option<String>,
        own: &Metadata,
    ) -> Result<Metadata, Invalid> {
        let mut metadata = metadata.unwrap_or_else(|| own.clone());
        if let Some(why) = why {
            metadata.why = why.into();
        }
        metadata.checked()
    }
}

/// How long to wait, on the client's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Try,
    For(Duration),
    WhileAlive,
}

impl Wait {
    /// When it is over, for a call that began at `began`.
    pub(super) fn until(self, began: Instant) -> Option<Instant> {
        match self {
            Wait::For(wait) => Some(began.after(wait)),
            Wait::Try | Wait::WhileAlive => None,
        }
    }

    /// The same for the cluster, which counts in log time, as a backstop.
    pub(super) fn patience(self) -> Patience {
        match self {
            Wait::Try => Patience::Try,
            Wait::For(wait) if wait.is_zero() => Patience::Try,
            Wait::For(wait) => Patience::For { ms: millis(wait).clamp(1, PATIENCE_MS_MAX) },
            Wait::WhileAlive => Patience::Session,
        }
    }
}

/// Waits until the client's clock has passed `deadline`; for ever where there is none.
pub(super) async fn passed(clock: &dyn Clock, deadline: Option<Instant>) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    while clock.now() < deadline {
        tokio::time::sleep(pause_until(deadline, clock.now())).await;
    }
}

/// An outcome that is not a place in the queue.
pub(super) struct Settled {
    /// When the attempt that it answers was sent; `None` where it was waited for.
    pub(super) sent: Option<Instant>,
    pub(super) reply: Reply,
}

/// Asks until there is an outcome that is not a place in the queue; `queued` is told each place. After an error the request
/// itself is repeated: the machine finds it by its number or id, wherever it stands by now.
pub(super) async fn settled<S, F>(
    service: &S,
    claim: &ClaimRef,
    retry: &mut Retry,
    mut attempt: impl FnMut() -> F,
    mut queued: impl FnMut(&Place),
) -> Result<Settled, ServiceError>
where
    S: LockService,
    F: Future<Output = Result<(Instant, Reply), ServiceError>>,
{
    loop {
        let (sent, reply) = retry.until_answered(&mut attempt).await?;
        let Outcome::Queued(place) = &reply.outcome else { return Ok(Settled { sent: Some(sent), reply }) };
        queued(place);
        match service.settled(claim.clone()).await {
            Ok(Reply { outcome: Outcome::Queued(_), .. }) => {}
            Ok(reply) => return Ok(Settled { sent: None, reply }),
            Err(error) => retry.broke_off(error).await?,
        }
    }
}

/// The grant in a settled outcome, or why there is none.
pub(super) fn granted(outcome: Outcome, name: &LockName, ahead: Option<Box<HolderView>>) -> Result<Grant, ClientError> {
    if let Outcome::Granted(grant) = outcome {
        return Ok(grant);
    }
    if let Outcome::HoldEnded { reason } = outcome {
        return Err(ClientError::HoldEnded { lock: name.clone(), reason });
    }
    if matches!(outcome, Outcome::TimedOut | Outcome::Withdrawn) {
        return Err(ClientError::NotAcquired { lock: name.clone(), holder: ahead });
    }
    Err(ClientError::unexpected(outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cluster is asked to wait as long as the client does, within its bounds; no wait at all is a try.
    #[test]
    fn a_wait_becomes_patience() {
        assert_eq!(Wait::Try.patience(), Patience::Try);
        assert_eq!(Wait::For(Duration::ZERO).patience(), Patience::Try);
        assert_eq!(Wait::For(Duration::from_nanos(1)).patience(), Patience::For { ms: 1 });
        assert_eq!(Wait::For(Duration::MAX).patience(), Patience::For { ms: PATIENCE_MS_MAX });
        assert_eq!(Wait::WhileAlive.patience(), Patience::Session);
        let began = Instant::from_nanos(5);
        assert_eq!(Wait::For(Duration::from_nanos(3)).until(began), Some(Instant::from_nanos(8)));
    }
}
