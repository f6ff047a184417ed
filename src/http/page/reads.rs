//! Reads of the state for the page. They are answered by the asked node from what it has applied, in small parts: so no
//! screen costs the leader a round to the other nodes, and none keeps the state for long.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::scans::Scans;
use crate::limits;
use crate::model::{
    HistoryPage, HistoryRecord, ListFilter, ListShow, LockName, LockSummary, LogTime, Namespace, Part, Position, Query,
    QueryReply, QueryResult, SessionId, SessionView,
};
use crate::service::{Freshness, LockService, ServiceError};

/// Answers a query with the state of the asked node.
pub(super) async fn read<S: LockService>(service: &S, query: Query) -> Result<QueryReply, ServiceError> {
    service.query(query, Freshness::Stale).await
}

/// The error for an answer to another query.
pub(super) fn unexpected() -> ServiceError {
    ServiceError::Internal("the service answered another query".to_owned())
}

/// Shows each lock of a namespace with a prefix to `look`, in the order of their names, until `look` breaks. Returns
/// the point of the log of the last part. After the first part it needs a turn.
pub(super) async fn each_lock<S: LockService>(
    service: &S,
    scans: &Scans,
    mut filter: ListFilter,
    mut look: impl FnMut(&LockSummary, LogTime) -> ControlFlow<()> + Send,
) -> Result<(u64, LogTime), ServiceError> {
    filter.rows = limits::SCAN_ROWS;
    let mut turn = None;
    loop {
        let QueryReply { index, now, answer } = read(service, Query::List(filter.clone())).await?;
        let QueryResult::Locks(Part { rows, next }) = answer else { return Err(unexpected()) };
        let ends = rows.iter().any(|row| look(row, now).is_break());
        if ends || next.is_none() {
            return Ok((index, now));
        }
        filter.after = next;
        // The proposer and other requests proceed between two parts.
        tokio::task::yield_now().await;
        if turn.is_none() {
            turn = Some(scans.turn().await?);
        }
    }
}

/// Selects all locks of a namespace.
pub(super) fn all_locks(namespace: &Namespace) -> ListFilter {
    let (prefix, show, older_than_ms) = (String::new(), ListShow::All, 0);
    ListFilter { namespace: namespace.clone(), prefix, show, older_than_ms, after: None, rows: limits::SCAN_ROWS }
}

/// Shows each session of a namespace after a session to `look`, in the order of their ids, until `look` breaks. Returns
/// the point of the log of the last part. After the first part it needs a turn.
pub(super) async fn each_session<S: LockService>(
    service: &S,
    scans: &Scans,
    namespace: &Namespace,
    mut after: Option<SessionId>,
    mut look: impl FnMut(&SessionView, LogTime) -> ControlFlow<()> + Send,
) -> Result<(u64, LogTime), ServiceError> {
    let mut turn = None;
    loop {
        let query = Query::Sessions { namespace: namespace.clone(), after, rows: limits::SCAN_ROWS };
        let QueryReply { index, now, answer } = read(service, query).await?;
        let QueryResult::Sessions(Part { rows, next }) = answer else { return Err(unexpected()) };
        let ends = rows.iter().any(|row| look(row, now).is_break());
        if ends || next.is_none() {
            return Ok((index, now));
        }
        after = next;
        tokio::task::yield_now().await;
        if turn.is_none() {
            turn = Some(scans.turn().await?);
        }
    }
}

/// Returns one session of a namespace, if it is open, and the point of the log of the answer.
pub(super) async fn one_session<S: LockService>(
    service: &S,
    namespace: &Namespace,
    id: SessionId,
) -> Result<(Option<SessionView>, u64, LogTime), ServiceError> {
    // A page begins after a session, so this one begins after the id before it.
    let before = SessionId::from_u64(id.as_u64().saturating_sub(1)).ok();
    let query = Query::Sessions { namespace: namespace.clone(), after: before, rows: 1 };
    let QueryReply { index, now, answer } = read(service, query).await?;
    let QueryResult::Sessions(Part { rows, .. }) = answer else { return Err(unexpected()) };
    Ok((rows.into_iter().find(|row| row.session == id), index, now))
}

/// The newest records of history.
pub(super) struct Newest {
    /// The records, from the past to now.
    pub(super) records: Vec<HistoryRecord>,
    /// Whether older ones may exist.
    pub(super) more: bool,
}

/// Returns the newest records of a lock, or of all locks of a namespace. History is read from the past to now, so this
/// reads the end of the log, then longer and longer parts of it until enough is found.
pub(super) async fn newest<S: LockService>(
    service: &S,
    namespace: &Namespace,
    lock: Option<&LockName>,
    rows: usize,
) -> Result<Newest, ServiceError> {
    let applied = read(service, Query::Totals).await?.index;
    let (mut span, mut queries) = (8, 0);
    let mut found = VecDeque::new();
    loop {
        let begin = Position { index: applied.saturating_sub(span), n: 0 };
        let mut after = begin;
        found.clear();
        let floor = loop {
            let (namespace, lock) = (namespace.clone(), lock.cloned());
            let query = Query::History { namespace, lock, after: Some(after), rows: 0 };
            let QueryResult::History(HistoryPage { records, next, floor }) = read(service, query).await?.answer else {
                return Err(unexpected());
            };
            queries += 1;
            found.extend(records);
            found.drain(..found.len().saturating_sub(rows));
            match next {
                Some(next) if after < next && queries < limits::NEWEST_RECORDS_QUERIES_MAX => after = next,
                Some(_) | None => break floor,
            }
            tokio::task::yield_now().await;
        };
        let whole = begin <= floor || begin.index == 0;
        if found.len() == rows || whole || limits::NEWEST_RECORDS_QUERIES_MAX <= queries {
            return Ok(Newest { more: !whole || found.len() == rows, records: found.into() });
        }
        span *= 8;
    }
}
