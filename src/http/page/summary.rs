//! The summary of a namespace for the overview: counts, the longest waits, and holders that may be gone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::reads::{all_locks, each_lock, each_session, read, unexpected};
use super::scans::Scans;
use super::text::{Client, Link, span};
use crate::limits;
use crate::model::{
    About, HolderView, LockKey, LockSummary, LogTime, Namespace, Query, QueryResult, SessionId, SessionView,
};
use crate::service::{LockService, ServiceError};

/// What the overview shows of a namespace.
#[derive(Debug, Clone, Default)]
pub(super) struct Summary {
    /// Locks with a holder.
    pub(super) held: u64,
    /// Requests that wait.
    pub(super) waiting: u64,
    /// Locks for which requests wait.
    pub(super) awaited: u64,
    pub(super) sessions: u64,
    /// The longest waits, the longest first.
    pub(super) waits: Vec<LongWait>,
    /// Whether the longest waits are those of all locks, not only of those with the most waiters and the oldest holds.
    pub(super) all_waits: bool,
    /// Locks whose holder may be gone, those with the most waiters first.
    pub(super) doubtful: Vec<Doubtful>,
    pub(super) doubtful_count: u64,
}

/// The longest wait for a lock.
#[derive(Debug, Clone)]
pub(super) struct LongWait {
    pub(super) lock: String,
    pub(super) link: String,
    pub(super) waiting: u64,
    pub(super) since_ms: u64,
    pub(super) since: String,
    /// The oldest holder, if any.
    pub(super) holder: Option<Client>,
}

/// A lock whose holder is not renewed in time.
#[derive(Debug, Clone)]
pub(super) struct Doubtful {
    pub(super) lock: String,
    pub(super) link: String,
    pub(super) holder: Client,
    pub(super) held: String,
    /// The problem in one word, as in `explain`.
    pub(super) problem: &'static str,
    pub(super) waiting: u64,
}

/// Returns the problem of a session in one word; `None` if it is renewed in time.
pub(super) fn problem(session: &SessionView, now: LogTime) -> Option<&'static str> {
    let overdue = session.deadline.ms_since(now) < session.ttl_ms / 2;
    session.disconnected.then_some("disconnected").or(overdue.then_some("overdue"))
}

/// The number of sessions of a namespace, and the problems of those that have one.
pub(super) async fn problems<S: LockService>(
    service: &S,
    scans: &Scans,
    namespace: &Namespace,
) -> Result<(u64, BTreeMap<SessionId, &'static str>), ServiceError> {
    let (mut count, mut found) = (0, BTreeMap::new());
    let look = |session: &SessionView, now| {
        count += 1;
        if let Some(problem) = problem(session, now) {
            found.insert(session.session, problem);
        }
        ControlFlow::Continue(())
    };
    match each_session(service, scans, namespace, None, look).await {
        // A caller that may read only some names may not know the sessions.
        Ok(_) | Err(ServiceError::Forbidden { .. }) => Ok((count, found)),
        Err(error) => Err(error),
    }
}

/// Reads all locks and sessions of a namespace.
pub(super) async fn summary<S: LockService>(
    service: &S,
    scans: &Scans,
    namespace: &Namespace,
) -> Result<Summary, ServiceError> {
    let (sessions, problems) = problems(service, scans, namespace).await?;
    let mut summary = Summary { sessions, all_waits: true, ..Summary::default() };
    let mut awaited = Vec::new();
    each_lock(service, scans, all_locks(namespace), |row, now| {
        summary.held += u64::from(row.holders != 0);
        summary.waiting += row.waiters;
        let holder = row.oldest.as_ref();
        if row.waiters != 0 {
            summary.awaited += 1;
            let held_ms = holder.map_or(0, |holder| now.ms_since(holder.since));
            awaited.push((row.waiters, held_ms, row.lock.clone(), holder.map(|holder| Client::new(&holder.metadata))));
        }
        let problem = holder.and_then(|holder| Some((holder, *problems.get(&holder.session?)?)));
        if let Some((holder, problem)) = problem {
            summary.doubtful_count += 1;
            summary.add_doubtful(doubtful(row, holder, problem, now));
        }
        ControlFlow::Continue(())
    })
    .await?;
    summary.all_waits = awaited.len() <= limits::EXPLAINED_LOCKS_MAX;
    for (waiting, _, lock, holder) in likely(awaited) {
        if let Some(since_ms) = longest_wait(service, &lock).await? {
            let link = Link::lock(namespace, &lock.name).text();
            let (lock, since) = (lock.name.to_string(), span(since_ms));
            summary.waits.push(LongWait { lock, link, waiting, since_ms, since, holder });
        }
    }
    summary.waits.sort_by_key(|wait| std::cmp::Reverse(wait.since_ms));
    Ok(summary)
}

impl Summary {
    fn add_doubtful(&mut self, row: Doubtful) {
        let at = self.doubtful.partition_point(|known| row.waiting <= known.waiting);
        self.doubtful.insert(at, row);
        self.doubtful.truncate(limits::SCREEN_SHORT_ROWS);
    }

    /// The locks whose holders may be gone that the list leaves out.
    pub(super) fn more_doubtful(&self) -> u64 {
        self.doubtful_count - self.doubtful.len() as u64
    }
}

/// A lock with its waiters, the age of its oldest hold, and its oldest holder.
type Awaited = (u64, u64, LockKey, Option<Client>);

/// The locks that are likely to have the longest waits: half of them by their waiters, half by the age of their holds.
fn likely(mut awaited: Vec<Awaited>) -> Vec<Awaited> {
    if awaited.len() <= limits::EXPLAINED_LOCKS_MAX {
        return awaited;
    }
    let half = limits::EXPLAINED_LOCKS_MAX / 2;
    awaited.sort_by_key(|(waiting, ..)| std::cmp::Reverse(*waiting));
    let mut others = awaited.split_off(half);
    others.sort_by_key(|(_, held_ms, ..)| std::cmp::Reverse(*held_ms));
    others.truncate(half);
    awaited.extend(others);
    awaited
}

/// Returns how long the first waiter of a lock has waited.
async fn longest_wait<S: LockService>(service: &S, lock: &LockKey) -> Result<Option<u64>, ServiceError> {
    let reply = read(service, Query::Explain(About::Lock(lock.clone()))).await?;
    let QueryResult::Explained(explanation) = reply.answer else { return Err(unexpected()) };
    let own = explanation.chain.iter().filter(|wait| wait.lock == *lock);
    Ok(own.map(|wait| reply.now.ms_since(wait.waiter.since)).max())
}

fn doubtful(row: &LockSummary, holder: &HolderView, problem: &'static str, now: LogTime) -> Doubtful {
    Doubtful {
        lock: row.lock.name.to_string(),
        link: Link::lock(&row.lock.namespace, &row.lock.name).text(),
        holder: Client::new(&holder.metadata),
        held: span(now.ms_since(holder.since)),
        problem,
        waiting: row.waiters,
    }
}
