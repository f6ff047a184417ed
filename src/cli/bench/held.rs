//! The workload `held`: measures how fast many locks are taken, their memory, and their effect on pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::context::Bench;
use super::counters::Latencies;
use super::figures::{HeldFigures, a_second};
use super::report::{Figures, Report};
use super::sessions;
use crate::cli::error::Failure;
use crate::client::{ClientError, LockGuard, Session};
use crate::clock::{Clock, SystemClock};
use crate::service::{ErrorCode, LockService};

/// Takes the locks, makes pairs meanwhile, and releases the locks by closing the sessions.
pub(super) async fn measure<S: LockService>(bench: &Bench<'_, S>) -> Result<Report, Failure> {
    let (options, clock) = (bench.options, SystemClock::new());
    let sessions = sessions::open(&bench.clients, options.clients, options).await?;
    let (before, began) = (bench.servers.look(), clock.now());
    bench.output.remark(&format!("taking {} locks", options.held));
    let (guards, latencies) = take(bench, &sessions).await?;
    let (taking, after) = (clock.now().since(began), bench.servers.look());
    let grown = bench.servers.between(&before, &after);
    let ran = bench.pairs(&sessions).await;
    let lost_sessions = sessions::lost(&sessions);
    let began = clock.now();
    let mut errors = ran.sample.errors.clone();
    errors.add(sessions::close(sessions).await);
    // The guards are no longer valid, because their sessions are closed.
    drop(guards);
    let held = HeldFigures {
        held: options.held,
        taken_per_second: a_second(options.held.into(), taking),
        take_p50_us: latencies.us(50.0),
        take_p99_us: latencies.us(99.0),
        memory_a_lock_bytes: grown.grown_for_each(u64::from(options.held)),
        released_per_second: a_second(options.held.into(), clock.now().since(began)),
    };
    let figures = Figures { pairs: Some(ran.pairs), held: Some(held), ..Figures::default() };
    Ok(Report::new(bench, figures, ran.usage, lost_sessions, errors))
}

async fn take<S: LockService>(
    bench: &Bench<'_, S>,
    sessions: &[Session<S>],
) -> Result<(Vec<LockGuard>, Latencies), Failure> {
    let next = Arc::new(AtomicU32::new(0));
    let mut takers = JoinSet::new();
    for session in sessions {
        for _ in 0..bench.options.in_flight {
            let names = (bench.name.clone(), Arc::clone(&next), share(bench));
            takers.spawn(taker(session.clone(), names, bench.options.held));
        }
    }
    let (mut guards, mut latencies) = (Vec::new(), Latencies::default());
    while let Some(taken) = takers.join_next().await {
        for (guard, took) in taken.map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?? {
            latencies.record(took);
            guards.push(guard);
        }
    }
    Ok((guards, latencies))
}

/// The largest number of locks that one client takes, so that all sessions hold about the same number.
fn share<S: LockService>(bench: &Bench<'_, S>) -> usize {
    let takers = bench.options.clients * bench.options.in_flight;
    bench.options.held.div_ceil(takers) as usize
}

async fn taker<S: LockService>(
    session: Session<S>,
    (name, next, share): (String, Arc<AtomicU32>, usize),
    held: u32,
) -> Result<Vec<(LockGuard, Duration)>, ClientError> {
    let clock = SystemClock::new();
    let mut taken = Vec::with_capacity(share);
    while taken.len() < share {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if held <= number {
            break;
        }
        let began = clock.now();
        let guard = session.lock(&format!("{name}/held/{number}")).acquire().await?;
        taken.push((guard, clock.now().since(began)));
    }
    Ok(taken)
}
