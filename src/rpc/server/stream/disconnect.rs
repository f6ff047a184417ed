//! The end of a stream that broke: the service gets a `Disconnected` command for its session.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant as TokioInstant, sleep, timeout};

use super::{Bound, Done, SessionStream};
use crate::limits;
use crate::model::Command;
use crate::service::{Advice, Call, LockService};

impl<S: LockService> SessionStream<S> {
    /// Reports to the service that the session's stream broke. Waits for an open or attach in progress first: it would
    /// leave an attachment whose end is never reported.
    pub(super) async fn disconnected(&mut self) {
        let longest = Duration::from_millis(limits::COMMIT_WAIT_MS_MAX);
        let _ = timeout(longest, async {
            while self.binding
                && let Some(done) = self.running.next().await
            {
                if let Done::Bound { attaching, result, .. } = done {
                    self.bind(attaching, result.as_ref().ok());
                }
            }
        })
        .await;
        if let Some(bound) = self.bound.take() {
            self.note_break(bound).await;
        }
    }

    /// Puts a `Disconnected` command for this attachment into the log. Retries while there is no leader: otherwise the
    /// session would last for its whole TTL although its client is gone. Each retry is the same command, which has no
    /// effect on a newer attachment. After a TTL the session has ended anyway.
    async fn note_break(&mut self, Bound { session, attachment, ttl_ms }: Bound) {
        let ends = TokioInstant::now() + Duration::from_millis(ttl_ms);
        let mut pause = Duration::from_millis(limits::RETRY_MS_MIN);
        loop {
            let call = Call::new(Command::Disconnected { session, attachment });
            let Err(error) = self.service.submit(call).await else { return };
            if error.advice() == Advice::GiveUp || ends <= TokioInstant::now() {
                tracing::debug!(%session, %error, "a broken stream could not be reported; the session lasts for its TTL");
                return;
            }
            tokio::select! {
                () = sleep(pause) => {}
                _ = self.stop.wait_for(|stopped| *stopped) => return,
            }
            pause = (2 * pause).min(Duration::from_millis(limits::RETRY_MS_MAX));
        }
    }
}
