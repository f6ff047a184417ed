//! The workload `drain`: all clients wait in the queue of one lock, which then passes through all of them.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::context::Bench;
use super::counters::{Errors, Latencies};
use super::figures::DrainFigures;
use super::report::{Figures, Report};
use super::sessions;
use super::usage::Look;
use crate::cli::error::Failure;
use crate::client::{ClientError, Session};
use crate::clock::{Clock, Instant, SystemClock};
use crate::model::FencingToken;
use crate::service::{ErrorCode, LockService};

/// The grant and the release of one waiter.
struct DrainedWait {
    /// The waiter's number in the queue.
    sequence: u64,
    token: FencingToken,
    granted: Instant,
    released: Instant,
}

/// One round: the queue is filled and drained.
struct Round {
    queueing: Duration,
    draining: Duration,
    looks: [Look; 3],
    turns: Vec<DrainedWait>,
    /// When the first release was called.
    released_at: Instant,
}

/// Fills and drains a queue until the time is over, with at least one round after the warm-up.
pub(super) async fn measure<S: LockService>(bench: &Bench<'_, S>) -> Result<Report, Failure> {
    let options = bench.options;
    let mut waiters = sessions::open(bench, options.clients + 1).await?;
    let holder = waiters.split_off(options.clients as usize);
    let span = bench.span();
    let done = Cell::new(0);
    let progress = || format!("{} rounds", done.get());
    let work = async {
        let mut rounds = Vec::new();
        let clock = SystemClock::new();
        while rounds.is_empty() || clock.now() < span.end {
            let began = clock.now();
            let round = one_round(bench, &holder[0], &waiters).await?;
            if span.counts_from <= began || span.end <= clock.now() {
                rounds.push(round);
                done.set(rounds.len());
            }
        }
        Ok::<_, Failure>(rounds)
    };
    let (rounds, (first, last)) = tokio::join!(work, bench.watch(span, progress));
    let (rounds, usage) = (rounds?, bench.servers.between(&first, &last));
    let figures = summed(bench, options.clients, &rounds);
    let lost_sessions = sessions::lost(&waiters);
    sessions::close(waiters.into_iter().chain(holder).collect()).await;
    let figures = Figures { drain: Some(figures), ..Figures::default() };
    Ok(Report::new(bench, figures, usage, lost_sessions, Errors::default()))
}

async fn one_round<S: LockService>(
    bench: &Bench<'_, S>,
    holder: &Session<S>,
    waiters: &[Session<S>],
) -> Result<Round, Failure> {
    let (clock, before) = (SystemClock::new(), bench.servers.look());
    let held = holder.lock(&bench.name).acquire().await?;
    let (queued, mut turns) = (Arc::new(Semaphore::new(0)), JoinSet::new());
    let began = clock.now();
    for waiter in waiters {
        turns.spawn(turn(waiter.clone(), bench.name.clone(), Arc::clone(&queued)));
    }
    let all = u32::try_from(waiters.len()).unwrap_or(u32::MAX);
    tokio::select! {
        // The semaphore is never closed.
        _ = queued.acquire_many(all) => {}
        Some(ended) = turns.join_next() => {
            ended.map_err(io::Error::from)??;
            return Err(Failure::new(ErrorCode::Internal, "a waiter was granted a lock that another held"));
        }
    }
    let (queueing, full, released_at) = (clock.now().since(began), bench.servers.look(), clock.now());
    held.release().await?;
    let mut seen = Vec::new();
    while let Some(ended) = turns.join_next().await {
        seen.push(ended.map_err(io::Error::from)??);
    }
    let last = seen.iter().map(|turn| turn.released).max().unwrap_or(released_at);
    let looks = [before, full, bench.servers.look()];
    Ok(Round { queueing, draining: last.since(released_at), looks, turns: seen, released_at })
}

/// Waits in the queue, and releases at once.
async fn turn<S: LockService>(
    session: Session<S>,
    name: String,
    queued: Arc<Semaphore>,
) -> Result<DrainedWait, ClientError> {
    let (clock, mut reported) = (SystemClock::new(), false);
    let (place, sequence) = std::sync::mpsc::channel();
    let request = session.lock(&name).on_queued(move |at| {
        if !std::mem::replace(&mut reported, true) {
            // The receiver still exists.
            let _ = place.send(at.sequence);
            queued.add_permits(1);
        }
    });
    let guard = request.acquire().await?;
    let (granted, token) = (clock.now(), guard.token());
    guard.release().await?;
    Ok(DrainedWait { sequence: sequence.try_recv().unwrap_or_default(), token, granted, released: clock.now() })
}

fn summed<S: LockService>(bench: &Bench<'_, S>, waiters: u32, rounds: &[Round]) -> DrainFigures {
    let mut gaps = Latencies::default();
    let (mut out_of_order, mut cpu_ms) = (0, [Some(0), Some(0)]);
    for round in rounds {
        let mut turns: Vec<_> = round.turns.iter().collect();
        turns.sort_unstable_by_key(|turn| turn.sequence);
        out_of_order += turns.windows(2).filter(|two| two[1].token <= two[0].token).count() as u64;
        turns.sort_unstable_by_key(|turn| turn.granted);
        let before = std::iter::once(round.released_at).chain(turns.iter().map(|turn| turn.granted));
        before.zip(&turns).for_each(|(before, turn)| gaps.record(turn.granted.since(before)));
        for (sum, two) in cpu_ms.iter_mut().zip(round.looks.windows(2)) {
            let used = bench.servers.between(&two[0], &two[1]).server_cpu_ms;
            *sum = sum.zip(used).map(|(sum, used)| sum + used);
        }
    }
    let sum = |of: fn(&Round) -> Duration| rounds.iter().map(of).sum();
    let times = (sum(|round| round.queueing), sum(|round| round.draining));
    DrainFigures::new(u64::from(waiters), rounds.len() as u64, times, &gaps, out_of_order, cpu_ms)
}
