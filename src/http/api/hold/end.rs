//! The end of a `hold`: its last event, what becomes of its session, and the error of one that is refused before its
//! first event.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;

use super::events::{HoldEnd, HoldEvent, HoldMove};
use super::{Departure, Hold};
use crate::client::{ClientError, Session};
use crate::http::api::problem::{Decided, Failed};
use crate::http::api::stream::sent;
use crate::limits;
use crate::model::{EndReason, Query, Refusal};
use crate::service::{LockService, ServiceError};

impl<S: LockService> Hold<S> {
    /// Stops renewing the session, so that another stream can continue the hold, and otherwise it lasts until its
    /// deadline. If the stream broke and the client may not return, the session ends after its grace.
    pub(super) fn leave(&self, session: &Session<S>, departure: &Departure) {
        match departure {
            // A client whose certificate is refused keeps its session for the TTL.
            Departure::Broken if self.terms.grace.is_some() && !self.context.certificate.is_refused() => {
                // The kernel reports that a client is unreachable when it has been silent for this long.
                let noticed = Duration::from_millis(limits::HTTP_SILENCE_MS_MAX.into());
                session.leave_broken(self.pace.belief().saturating_sub(noticed));
            }
            // The last event may never arrive, so the client may believe in what it held for almost a TTL. This is also
            // why the other locks of a set that lost one are not released.
            Departure::Broken
            | Departure::Over
            | Departure::Stopping
            | Departure::Moved
            | Departure::Refused(_)
            | Departure::Ended { .. } => session.leave(),
        }
    }

    /// Sends the last event.
    pub(super) async fn depart(self, session: Session<S>, departure: Departure) {
        let last = match departure {
            Departure::Broken => return,
            Departure::Stopping if self.refusal.is_some() => return self.refuse(Self::unanswered()),
            Departure::Stopping => HoldEvent::Move(HoldMove { endpoints: self.others().await }),
            Departure::Moved => HoldEvent::Moved(HoldEnd::because("moved")),
            Departure::Over => HoldEvent::Released(HoldEnd::because("max_ms")),
            Departure::Refused(error) => {
                let reason = error.code().row().text;
                // Then nothing is held, and a stream that continues the request gets the same answer, so the session is
                // of no use. Its task closes it.
                if gets_nothing(&error) {
                    drop(session.clone().close().now_or_never());
                }
                if self.refusal.is_some() {
                    let failed = self.failed(error).await;
                    return self.refuse(failed);
                }
                HoldEvent::Lost(HoldEnd::because(reason))
            }
            Departure::Ended { lock, reason, why } if self.refusal.is_some() => {
                let error = match lock {
                    Some(lock) => ClientError::HoldEnded { lock, reason: reason.unwrap_or(EndReason::Expired) },
                    None => ClientError::SessionLost { session: session.id(), reason, why },
                };
                let failed = self.failed(error).await;
                return self.refuse(failed);
            }
            Departure::Ended { lock, reason, why } => {
                let (lock, why) = (lock.map(|lock| lock.to_string()), why.map(|why| why.as_str().to_owned()));
                let text = reason.map_or_else(|| "deadline".to_owned(), |reason| reason.to_string());
                let end = HoldEnd { reason: text, lock, why };
                if reason == Some(EndReason::Released) { HoldEvent::Released(end) } else { HoldEvent::Lost(end) }
            }
        };
        tokio::select! {
            biased;
            _ = sent(&self.sender, Ok(last), self.pace.silence()) => {}
            () = self.context.last_taken() => {}
        }
    }

    /// Returns the HTTP addresses of the other nodes. The first stream that asks for them looks for all.
    async fn others(&self) -> Vec<String> {
        let look = async {
            let longest = Duration::from_millis(limits::MOVE_WAIT_MS_MAX);
            let status = timeout(longest, self.context.service.status()).await.ok().and_then(Result::ok);
            let nodes = status.into_iter().flat_map(|status| status.nodes);
            let others = nodes.filter(|node| node.id != self.context.api.info.node && !node.http.is_empty());
            others.map(|node| node.http).collect()
        };
        self.context.api.others.get_or_init(|| look).await.clone()
    }

    /// Answers the caller with this error.
    pub(super) fn refuse(self, failed: Failed) {
        // The caller may be gone.
        self.refusal.and_then(|refusal| refusal.send(failed).err());
    }

    /// Makes an error of the client the answer to the caller.
    pub(super) async fn checked<T>(&self, result: Result<T, ClientError>) -> Result<T, Failed> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.failed(error).await),
        }
    }

    /// The answer to the caller for an error of the client.
    pub(super) async fn failed(&self, error: ClientError) -> Failed {
        let at = match &error {
            ClientError::Service(_) | ClientError::Invalid(_) => Decided::default(),
            ClientError::NotAcquired { .. }
            | ClientError::Refused(_)
            | ClientError::SessionLost { .. }
            | ClientError::HoldEnded { .. } => self.decided().await,
        };
        if let ClientError::NotAcquired { lock, holder: None, closed: None } = &error
            && self.waits
        {
            // This copy had no place: an earlier one had the whole wait, and the lock may be free now.
            return Failed::WaitOver { lock: lock.to_string(), decided: at };
        }
        Failed::of_client(error, &self.context.namespace, at)
    }

    /// The point of the log up to which the cluster has decided. The client does not report the point of one answer.
    async fn decided(&self) -> Decided {
        tokio::select! {
            biased;
            _ = self.context.stopped() => Decided::default(),
            read = self.context.query(Query::Totals, None) => {
                read.map_or_else(|_| Decided::default(), |read| Decided::at(read.index, read.now))
            }
        }
    }

    /// The error of a hold that the node leaves without an answer when it stops. The lock may have been granted.
    pub(super) fn unanswered() -> Failed {
        ServiceError::unknown("the node stopped before the hold was answered").into()
    }
}

/// Whether the request gets nothing, in no stream. After any other error another stream may hold what was requested,
/// or the set lacks one lock only.
fn gets_nothing(error: &ClientError) -> bool {
    match error {
        ClientError::NotAcquired { .. } | ClientError::Invalid(_) => true,
        ClientError::Refused(refusal) => !matches!(refusal, Refusal::RequestReused { .. }),
        ClientError::SessionLost { .. } | ClientError::HoldEnded { .. } | ClientError::Service(_) => false,
    }
}
