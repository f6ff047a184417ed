//! The workload `held`: measures how fast many locks are taken, their memory, and their effect on pairs.

use std::io;
use std::time::Duration;

use tokio::task::JoinSet;

use super::context::Bench;
use super::counters::Latencies;
use super::figures::{HeldFigures, a_second};
use super::pairs::Ran;
use super::report::{Figures, Report};
use super::sessions;
use crate::cli::error::Failure;
use crate::client::{ClientError, LockGuard, Session};
use crate::clock::{Clock, SystemClock};
use crate::service::LockService;

/// Takes the locks, makes pairs meanwhile, and releases the locks by closing the sessions.
pub(super) async fn measure<S: LockService>(bench: &Bench<'_, S>) -> Result<Report, Failure> {
    let (options, clock) = (bench.options, SystemClock::new());
    let sessions = sessions::open(bench, options.clients).await?;
    let (before, began) = (bench.servers.look(), clock.now());
    bench.output.remark(&format!("taking {} locks", options.held));
    let (guards, latencies) = take(bench, &sessions).await?;
    let (taking, after) = (clock.now().since(began), bench.servers.look());
    let grown = bench.servers.between(&before, &after);
    let Ran { figures, usage, mut errors } = bench.pairs(&sessions).await;
    let lost_sessions = sessions::lost(&sessions);
    let began = clock.now();
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
    let figures = Figures { held: Some(held), ..figures };
    Ok(Report::new(bench, figures, usage, lost_sessions, errors))
}

/// Takes the locks with all sessions at once, and measures how long each acquire takes.
async fn take<S: LockService>(
    bench: &Bench<'_, S>,
    sessions: &[Session<S>],
) -> Result<(Vec<LockGuard>, Latencies), Failure> {
    let (clients, in_flight) = (bench.options.clients, bench.options.in_flight);
    let mut takers = JoinSet::new();
    for (session, client) in sessions.iter().zip(0..) {
        for lane in 0..in_flight {
            // Equal shares, because the number of locks of a session is limited.
            let numbers = (lane * clients + client..bench.options.held).step_by((clients * in_flight) as usize);
            takers.spawn(take_in_turn(session.clone(), bench.name.clone(), numbers));
        }
    }
    let (mut guards, mut latencies) = (Vec::new(), Latencies::default());
    while let Some(taken) = takers.join_next().await {
        for (guard, took) in taken.map_err(io::Error::from)?? {
            latencies.record(took);
            guards.push(guard);
        }
    }
    Ok((guards, latencies))
}

/// Takes the locks with these numbers, one after the other.
async fn take_in_turn<S: LockService>(
    session: Session<S>,
    name: String,
    numbers: impl Iterator<Item = u32>,
) -> Result<Vec<(LockGuard, Duration)>, ClientError> {
    let (clock, mut taken) = (SystemClock::new(), Vec::new());
    for number in numbers {
        let began = clock.now();
        let guard = session.lock(&format!("{name}/held/{number}")).acquire().await?;
        taken.push((guard, clock.now().since(began)));
    }
    Ok(taken)
}
