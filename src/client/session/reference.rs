//! A counted reference to a session, and the queue of work for the session's task.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::client::error::ClientError;
use crate::client::hold::PendingChange;
use crate::client::on_drop::OnDrop;
use crate::client::session::commands::{HoldChange, SessionCommand, SessionCommands};
use crate::client::session::state::SessionState;
use crate::model::{Outcome, Refusal, Reply};
use crate::service::{Advice, ServiceError};

/// Work that the session's task runs.
pub(crate) enum BackgroundTask {
    /// Run this future until the session ends.
    Run(BoxFuture<'static, ()>),
    /// End the session now and send the answer.
    Close(oneshot::Sender<Result<(), ServiceError>>, Duration),
    /// Renew the session now.
    #[cfg(feature = "cli")]
    Renew,
    /// Stop renewing the session, and leave it open for the client that takes it over. With a duration, report after it
    /// that the session's stream broke.
    #[cfg(feature = "cli")]
    Leave(Option<Duration>),
}

/// A reference to a session. When the last reference of sessions and guards is dropped, the session's task closes the
/// session.
#[derive(Clone)]
pub(crate) struct SessionRef {
    pub(crate) state: Arc<SessionState>,
    pub(crate) queue: mpsc::UnboundedSender<BackgroundTask>,
    pub(crate) service: Arc<dyn SessionCommands>,
    /// Longest outage of the service before a call returns its error.
    pub(crate) request_wait: Duration,
}

impl SessionRef {
    /// Queues work for the session's task. If that task has ended, the work is dropped, because the end of the session
    /// made it unnecessary. The queue needs no bound: each acquire queues one item, each guard a few and one for each
    /// change of its hold.
    pub(crate) fn queue(&self, task: BackgroundTask) {
        let _ = self.queue.send(task);
    }

    /// Runs a future in the session's task.
    pub(crate) fn run_in_background(&self, task: BoxFuture<'static, ()>) {
        self.queue(BackgroundTask::Run(task));
    }

    /// Repeats a command in the session's task until it is answered. `change` is its change of the hold, if the caller
    /// has begun it already.
    pub(crate) fn finish_in_background(&self, command: SessionCommand, change: Option<PendingChange>) {
        let (service, session) = (self.service.clone(), self.state.clone());
        self.run_in_background(Box::pin(async move {
            let _guard = match change.or_else(|| command.change()) {
                Some(change) => Some(change.await),
                None => None,
            };
            let mut answer = service.run(session.clone(), command.clone(), None).await;
            if answer.is_err()
                && let SessionCommand::Change(hold, (number, _), HoldChange::Upgrade(_)) = &command
            {
                // An attempt may have been granted. The release, which waits for this change, needs the new token.
                answer = service.run(session.clone(), SessionCommand::Cancel(*number), None).await;
                if let Ok(Reply { outcome: Outcome::Granted(grant), .. }) = &answer {
                    session.holds.regranted(hold, grant.token);
                }
            }
            // Nothing repeats the command after this. After a final result its number is finished already.
            if !command.is_final(&answer) {
                session.finish(command.number());
            }
            let error: ClientError = match answer {
                Ok(Reply { outcome: Outcome::Refused(refusal @ Refusal::TooOld { .. }), .. }) => refusal.into(),
                Ok(_) => return,
                Err(error) => error.into(),
            };
            let what =
                if command.gives_back() { "a dropped lock stays until its session ends" } else { "a change failed" };
            tracing::warn!(session = %session.id, %error, "{what}");
        }));
    }

    /// Withdraws a request, regardless of its outcome, in the session's task.
    pub(crate) fn cancel_in_background(&self, number: u64) {
        self.finish_in_background(SessionCommand::Cancel(number), None);
    }

    /// Runs a command and waits for its answer. If the caller is dropped, or gets an error that is not final, the
    /// session's task repeats the command under the same number. Such an error never says that the command had no
    /// effect.
    pub(crate) async fn run(&self, command: SessionCommand) -> Result<Reply, ClientError> {
        let mut unfinished = OnDrop::new((self, command.clone(), None), |(session, command, change)| {
            session.finish_in_background(command.clone(), change.take());
        });
        let answered = async {
            command.turn_within(&mut unfinished.2, self.request_wait).await?;
            self.service.run(self.state.clone(), command, Some(self.request_wait)).await
        };
        let answer = tokio::select! {
            biased;
            answer = answered => answer,
            end = self.state.closed() => {
                unfinished.disarm();
                return Err(self.state.lost_error(end));
            }
        };
        if unfinished.1.is_final(&answer) {
            unfinished.disarm();
            return answer.map_err(ClientError::from);
        }
        answer.map_err(|error| match error.advice() {
            Advice::Retry => ServiceError::unknown(format!("the session continues with the request; {error}")).into(),
            Advice::Ask | Advice::GiveUp => error.into(),
        })
    }
}

impl fmt::Debug for SessionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionRef").field(&self.state.id).finish()
    }
}
