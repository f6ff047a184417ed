//! The clients of a run: one session each, distributed over the connections. The workload `sessions` keeps many of them
//! idle and alive.

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::context::Bench;
use super::counters::Errors;
use super::figures::{SessionFigures, a_second};
use super::report::{Figures, Report};
use crate::cli::error::Failure;
use crate::client::{ClientError, HoldState, Session};
use crate::clock::{Clock, SystemClock, micros};
use crate::limits::BENCH_OPENING_MAX;
use crate::service::LockService;

/// Opens this number of sessions, many at a time. All use the TTL of the first one, so that only one request asks the
/// cluster for it.
pub(super) async fn open<S: LockService>(bench: &Bench<'_, S>, count: u32) -> Result<Vec<Session<S>>, ClientError> {
    let clients = &bench.clients;
    let first = clients[0].session().ttl(bench.options.ttl).open().await?;
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

/// Opens the sessions, waits for the time of the run, and closes them.
pub(super) async fn measure<S: LockService>(bench: &Bench<'_, S>) -> Result<Report, Failure> {
    let (options, clock) = (bench.options, SystemClock::new());
    let (empty, began) = (bench.servers.look(), clock.now());
    let sessions = open(bench, options.clients).await?;
    let opening = clock.now().since(began);
    let span = bench.span();
    let progress = || format!("{} alive", sessions.len() as u64 - lost(&sessions));
    let (first, last) = bench.watch(span, progress).await;
    let (lost_sessions, ttl) = (lost(&sessions), sessions[0].ttl());
    let grown = bench.servers.between(&empty, &last);
    let began = clock.now();
    let errors = close(sessions).await;
    let closing = clock.now().since(began);
    let figures = SessionFigures {
        ttl_ms: micros(ttl) / 1000,
        opened_per_second: a_second(options.clients.into(), opening),
        closed_per_second: a_second(options.clients.into(), closing),
        memory_a_session_bytes: grown.grown_for_each(u64::from(options.clients)),
    };
    let usage = bench.servers.between(&first, &last);
    let figures = Figures { sessions: Some(figures), ..Figures::default() };
    Ok(Report::new(bench, figures, usage, lost_sessions, errors))
}
