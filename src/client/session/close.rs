//! How a session ends at the cluster: its client closes it, or reports that its stream broke.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::client::retry::Retry;
use crate::client::session::state::SessionState;
#[cfg(feature = "cli")]
use crate::model::Attachment;
use crate::model::{Command, SessionClose};
use crate::mutex::Mutex;
#[cfg(feature = "cli")]
use crate::service::Call;
use crate::service::{Advice, LockService, ServiceError};

/// Reports that the stream with this attachment broke, until that is answered or the session has ended. It has no
/// effect on a later attachment.
#[cfg(feature = "cli")]
pub(crate) async fn report_break<S: LockService>(service: &S, session: &SessionState, attachment: Attachment) {
    let call = Call::new(Command::Disconnected { session: session.id, attachment });
    let retry = Retry::unlimited(session.clock.clone()).pausing_up_to(session.schedule.retry_within());
    let mut retry = retry.persistent();
    let answer = retry.until_answered(|| service.submit(call.clone()));
    if let Ok(Err(error)) = tokio::time::timeout(session.ttl, answer).await {
        tracing::debug!(session = %session.id, %error, "a broken stream could not be reported; the session lasts for its TTL");
    }
}

/// Closes the session. Retries after every error until the close is answered or the session has certainly ended without
/// it, because nothing else releases its locks. `caller` gets the answer, or an error at the end of its wait.
pub(crate) async fn close<S: LockService>(
    service: &S,
    session: &SessionState,
    end: SessionClose,
    caller: Option<(oneshot::Sender<Result<(), ServiceError>>, Duration)>,
) {
    let clock = &session.clock;
    let bound = match end {
        SessionClose::Done => session.validity().left(clock.now()),
        SessionClose::Lost => session.ttl,
    };
    let bound = bound.max(Duration::from_millis(1));
    let call = session.call(Command::CloseSession { session: session.id, end });
    // The last error, and whether an attempt may have been executed. One without an answer may have been.
    let failed = Mutex::new((None::<ServiceError>, false));
    let attempt = || async {
        let in_doubt = std::mem::replace(&mut failed.lock().1, true);
        let answer = service.submit(call.clone()).await.map(drop);
        answer.inspect_err(|error| *failed.lock() = (Some(error.clone()), in_doubt || error.leaves_doubt()))
    };
    let mut retry = Retry::unlimited(clock.clone()).pausing_up_to(session.schedule.retry_within()).persistent();
    let mut attempts = std::pin::pin!(retry.until_answered(attempt));
    let wait = caller.as_ref().map_or(bound, |(_, wait)| bound.min(*wait));
    let answered = tokio::time::timeout(wait, &mut attempts).await;
    let late = answered.is_err();
    if let Some((done, _)) = caller {
        let (last, in_doubt) = failed.lock().clone();
        let certain = last.clone().filter(|error| !in_doubt && error.advice() == Advice::GiveUp);
        let last = last.map_or_else(String::new, |error| format!("; the last error: {error}"));
        let unknown = || ServiceError::unknown(format!("closing the session was not answered in time{last}"));
        drop(done.send(answered.unwrap_or_else(|_| Err(certain.unwrap_or_else(unknown)))));
    }
    if late {
        drop(tokio::time::timeout(bound.saturating_sub(wait), attempts).await);
    }
}
