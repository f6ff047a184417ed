//! A counted reference to a session, and the queue of work for the session's task.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::client::error::ClientError;
use crate::client::hold::ChangeGuard;
use crate::client::on_drop::OnDrop;
use crate::client::session::commands::{SessionCommand, SessionCommands};
use crate::client::session::state::SessionState;
use crate::model::{Outcome, Refusal, Reply};
use crate::service::{Advice, ServiceError};

/// Work that the session's task runs.
pub(crate) enum BackgroundTask {
    /// Run this future until the session ends.
    Run(BoxFuture<'static, ()>),
    /// End the session now and send the answer.
    Close(oneshot::Sender<Result<(), ServiceError>>),
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

    /// Repeats a command in the session's task until it is answered. `guard` is the right to change the hold, if the
    /// caller has it already.
    pub(crate) fn finish_in_background(&self, command: SessionCommand, guard: Option<ChangeGuard>) {
        let (service, session) = (self.service.clone(), self.state.clone());
        self.run_in_background(Box::pin(async move {
            let id = session.id;
            let _guard = if guard.is_some() { guard } else { command.change_guard().await };
            let error: ClientError = match service.run(session, command, None).await {
                Ok(Reply { outcome: Outcome::Refused(refusal @ Refusal::TooOld { .. }), .. }) => refusal.into(),
                Ok(_) => return,
                Err(error) => error.into(),
            };
            tracing::warn!(session = %id, %error, "a dropped lock stays until its session ends");
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
        let mut unfinished = OnDrop::new((self, command.clone(), None), |(session, command, guard)| {
            session.finish_in_background(command.clone(), guard.take());
        });
        let answered = async {
            unfinished.2 = command.change_guard_within(self.request_wait).await?;
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
