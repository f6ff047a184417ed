//! The workload `sessions`: many idle sessions that are kept alive.

use std::time::Duration;

use super::context::Bench;
use super::figures::{SessionFigures, a_second};
use super::pace::Span;
use super::report::{Figures, Report};
use super::sessions;
use crate::cli::error::Failure;
use crate::clock::{Clock, SystemClock, micros};
use crate::service::LockService;

/// Opens the sessions, waits for the time of the run, and closes them.
pub(super) async fn measure<S: LockService>(bench: &Bench<'_, S>) -> Result<Report, Failure> {
    let (options, clock) = (bench.options, SystemClock::new());
    let (empty, began) = (bench.servers.look(), clock.now());
    let sessions = sessions::open(&bench.clients, options.clients, options).await?;
    let opening = clock.now().since(began);
    let span = Span::from_now(options.warm_up, Duration::from_secs(u64::from(options.secs)));
    let progress = || format!("{} alive", sessions.len() as u64 - sessions::lost(&sessions));
    let (first, last) = bench.watch(span, progress).await;
    let (lost_sessions, ttl) = (sessions::lost(&sessions), sessions[0].ttl());
    let grown = bench.servers.between(&empty, &last);
    let began = clock.now();
    let errors = sessions::close(sessions).await;
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
