//! The workload `affinity`: every client uses its own lock again and again, with cached holds and without, in turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::context::Bench;
use super::counters::{Errors, Latencies};
use super::figures::{AffinityFigures, UseFigures};
use super::pace::Span;
use super::report::{Figures, Report};
use super::sessions;
use crate::cli::error::Failure;
use crate::client::{ClientError, HoldState, Session};
use crate::clock::{Clock, Instant, SystemClock};
use crate::limits::{BENCH_TURNS, RETRY_MS_MIN};
use crate::service::LockService;

/// Whether the clients let their sessions keep the holds of their own locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Cached,
    Uncached,
}

/// The uses of one client or of all clients.
struct Tally {
    /// Uses that ended between the warm-up and the end.
    uses: u64,
    /// Time from the call of an acquire to the answer of the release.
    latencies: Latencies,
    /// Uses of a lock while another client used it.
    violations: u64,
    /// Number of entries that were added to the log meanwhile; `None` if no node reported it.
    log_entries: Option<u64>,
    errors: Errors,
}

impl Tally {
    fn new() -> Self {
        let (latencies, errors) = (Latencies::default(), Errors::default());
        Self { uses: 0, latencies, violations: 0, log_entries: Some(0), errors }
    }

    fn add(&mut self, other: Self) {
        self.uses += other.uses;
        self.latencies.add(&other.latencies);
        self.violations += other.violations;
        self.log_entries = self.log_entries.zip(other.log_entries).map(|(own, more)| own + more);
        self.errors.add(other.errors);
    }
}

/// The locks of all clients: their names, and whether each is used.
type Locks = Arc<[(String, AtomicBool)]>;

/// Uses the locks with cached holds and without, in turns, each for the requested time in all.
pub(super) async fn measure<S: LockService>(bench: &Bench<'_, S>) -> Result<Report, Failure> {
    let options = bench.options;
    let sessions = sessions::open(bench, options.clients).await?;
    let lock = |number| (format!("{}/{number}", bench.name), AtomicBool::new(false));
    let locks: Locks = (0..options.clients).map(lock).collect();
    let length = Duration::from_secs(u64::from(options.secs)) / BENCH_TURNS;
    let began = bench.look().await;
    let (mut cached, mut uncached) = (Tally::new(), Tally::new());
    for _ in 0..BENCH_TURNS {
        for (holds, tally) in [(Holds::Uncached, &mut uncached), (Holds::Cached, &mut cached)] {
            tally.add(one_turn(bench, &sessions, &locks, holds, length).await);
        }
    }
    let usage = bench.servers.between(&began, &bench.look().await);
    let lost_sessions = sessions::lost(&sessions);
    let violations = cached.violations + uncached.violations;
    let of = |tally: &Tally| UseFigures::new(tally.uses, &tally.latencies, length * BENCH_TURNS, tally.log_entries);
    let affinity = AffinityFigures::new(options.foreign, [of(&cached), of(&uncached)], violations);
    let mut errors = cached.errors;
    errors.add(uncached.errors);
    errors.add(sessions::close(sessions).await);
    let figures = Figures { affinity: Some(affinity), ..Figures::default() };
    Ok(Report::new(bench, figures, usage, lost_sessions, errors))
}

/// Lets all clients use locks in one way.
async fn one_turn<S: LockService>(
    bench: &Bench<'_, S>,
    sessions: &[Session<S>],
    locks: &Locks,
    holds: Holds,
    length: Duration,
) -> Tally {
    let span = Span::from_now(bench.options.warm_up, length);
    let (done, mut clients) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
    for (number, session) in sessions.iter().enumerate() {
        let (session, locks, done) = (session.clone(), Arc::clone(locks), Arc::clone(&done));
        let client = User { number, session, locks, holds, foreign: u64::from(bench.options.foreign), done };
        clients.spawn(client.run(span));
    }
    let progress = || format!("{holds:?}: {} done", done.load(Ordering::Relaxed));
    let (first, last) = bench.watch(span, progress).await;
    let mut all = Tally::new();
    clients.join_all().await.into_iter().for_each(|tally| all.add(tally));
    all.log_entries = bench.servers.between(&first, &last).log_entries;
    all
}

/// One client, which uses one lock after another.
struct User<S: LockService> {
    number: usize,
    session: Session<S>,
    locks: Locks,
    holds: Holds,
    /// Percentage of uses of another client's lock.
    foreign: u64,
    done: Arc<AtomicU64>,
}

impl<S: LockService> User<S> {
    async fn run(self, span: Span) -> Tally {
        let (clock, mut tally) = (SystemClock::new(), Tally::new());
        for nth in 0.. {
            let began = clock.now();
            if span.end <= began {
                break;
            }
            match self.use_once(nth, span.end.since(began)).await {
                Ok(None) => break,
                Ok(Some(overlapped)) => {
                    tally.violations += u64::from(overlapped);
                    self.count(&mut tally, span, began, clock.now());
                }
                Err(error) => {
                    tally.errors.count(&error);
                    if self.session.state() == HoldState::Lost {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(RETRY_MS_MIN)).await;
                }
            }
        }
        tally
    }

    fn count(&self, tally: &mut Tally, span: Span, began: Instant, ended: Instant) {
        if span.counts_from <= ended {
            tally.latencies.record(ended.since(began));
            tally.uses += u64::from(ended <= span.end);
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Uses a lock. Returns whether another client used it at the same time; `None` if the run ended during the wait.
    async fn use_once(&self, nth: u64, left: Duration) -> Result<Option<bool>, ClientError> {
        let (own, count) = (self.number, self.locks.len());
        let lock = if is_foreign(nth, self.foreign) { other(own, nth, count) } else { own };
        let (name, used) = &self.locks[lock];
        let request = self.session.lock(name).wait(left);
        let request = if lock == own && self.holds == Holds::Cached { request.cached() } else { request };
        let guard = match request.acquire().await {
            Ok(guard) => guard,
            Err(ClientError::NotAcquired { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let overlapped = used.swap(true, Ordering::SeqCst);
        used.store(false, Ordering::SeqCst);
        guard.release().await?;
        Ok(Some(overlapped))
    }
}

/// Whether the use with this number is one of another client's lock, so that `percent` of all uses are, evenly.
fn is_foreign(nth: u64, percent: u64) -> bool {
    nth * percent / 100 != (nth + 1) * percent / 100
}

/// The lock of another client: each one in turn.
fn other(own: usize, nth: u64, count: usize) -> usize {
    let step = usize::try_from(nth % (count as u64 - 1)).unwrap_or(0) + 1;
    (own + step) % count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Foreign uses are spread evenly, and are never uses of the own lock.
    #[test]
    fn foreign_uses_are_a_share_of_all() {
        for percent in [0, 1, 10, 50, 100] {
            let foreign = (0..1_000).filter(|nth| is_foreign(*nth, percent)).count() as u64;
            assert_eq!(foreign, percent * 10);
        }
        for own in 0..4 {
            let others: std::collections::BTreeSet<_> = (0..100).map(|nth| other(own, nth, 4)).collect();
            assert_eq!(others.into_iter().collect::<Vec<_>>(), (0..4).filter(|lock| *lock != own).collect::<Vec<_>>());
        }
    }
}
