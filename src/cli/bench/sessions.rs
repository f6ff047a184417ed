//! The clients of a run: one session each, distributed over the connections.

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::counters::Errors;
use super::options::BenchOptions;
use crate::client::{Client, ClientError, HoldState, Session};
use crate::limits::BENCH_OPENING_MAX;
use crate::service::LockService;

/// Opens this number of sessions, many at a time. All use the TTL of the first one, so that only one request asks the
/// cluster for it.
pub(super) async fn open<S: LockService>(
    clients: &[Client<S>],
    count: u32,
    options: &BenchOptions,
) -> Result<Vec<Session<S>>, ClientError> {
    let first = clients[0].session().ttl(options.ttl).open().await?;
    let ttl = first.ttl();
    let others = (1..count as usize).map(|number| clients[number % clients.len()].session().ttl(ttl).open());
    let mut sessions = vec![first];
    let mut opened = stream::iter(others).buffered(BENCH_OPENING_MAX);
    while let Some(session) = opened.try_next().await? {
        sessions.push(session);
    }
    Ok(sessions)
}

pub(super) fn lost<S: LockService>(sessions: &[Session<S>]) -> u64 {
    sessions.iter().filter(|session| session.state() == HoldState::Lost).count() as u64
}

/// Closes the sessions that are still alive, and with them everything that they hold.
pub(super) async fn close<S: LockService>(sessions: Vec<Session<S>>) -> Errors {
    let alive = sessions.into_iter().filter(|session| session.state() != HoldState::Lost);
    let mut closed = stream::iter(alive.map(Session::close)).buffer_unordered(BENCH_OPENING_MAX);
    let mut errors = Errors::default();
    while let Some(answer) = closed.next().await {
        if let Err(error) = answer {
            errors.count(&error);
        }
    }
    errors
}
