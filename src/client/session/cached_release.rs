//! Releases cached holds that no guard uses: those that were recalled, and those that were idle for too long.

use std::future::pending;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::client::session::commands::{SessionCommand, SessionCommands};
use crate::client::session::state::SessionState;

/// Releases the cached holds that left the session's table while they were idle, until the session ends.
pub(crate) async fn run(service: Arc<dyn SessionCommands>, session: Arc<SessionState>) {
    let mut releases = FuturesUnordered::new();
    loop {
        let now = session.clock.now();
        let (holds, look_again) = session.holds.cached_to_release(now);
        for hold in holds {
            hold.release();
            let command = SessionCommand::Release(hold, session.draw());
            releases.push(service.run(session.clone(), command, None));
        }
        let overdue = async {
            match look_again {
                Some(at) => tokio::time::sleep(at.since(now)).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(answer) = releases.next(), if !releases.is_empty() => if let Err(error) = answer {
                tracing::warn!(session = %session.id, %error, "a cached lock stays until its session ends");
            },
            () = session.holds.cached_changed.notified() => {}
            () = overdue => {}
        }
    }
}
