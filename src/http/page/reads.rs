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
    let mut newest = Newest { records: Vec::new(), more: true };
    loop {
        let begin = Position { index: applied.saturating_sub(span), n: 0 };
        let (mut after, mut found) = (begin, VecDeque::new());
        let floor = loop {
            if queries == limits::NEWEST_RECORDS_QUERIES_MAX {
                // The end of this part was not read, so the records that were found in it are not the newest.
                return Ok(newest);
            }
            queries += 1;
            let (namespace, lock) = (namespace.clone(), lock.cloned());
            let query = Query::History { namespace, lock, after: Some(after), rows: 0 };
            let QueryResult::History(HistoryPage { records, next, floor }) = read(service, query).await?.answer else {
                return Err(unexpected());
            };
            found.extend(records);
            found.drain(..found.len().saturating_sub(rows));
            match next {
                Some(next) if after < next => after = next,
                Some(_) | None => break floor,
            }
            tokio::task::yield_now().await;
        };
        let whole = begin <= floor || begin.index == 0;
        newest = Newest { more: !whole || found.len() == rows, records: found.into() };
        if newest.records.len() == rows || whole {
            return Ok(newest);
        }
        span *= 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ChainHash, Event, EventKind, Reply, Subject, Totals, WallTime};
    use crate::service::{Call, ClaimRef, Download, Events, Operation, RenewalCall, Status, Subscription};

    /// Entries of the log that one query looks at.
    const ENTRIES_A_PAGE: u64 = 400;

    /// A service with the history of a busy namespace: each entry of the log is the record of a lock.
    #[derive(Debug, Clone)]
    struct Busy {
        last: u64,
        /// The entries of the lock that is asked for.
        own: Vec<u64>,
    }

    impl LockService for Busy {
        async fn query(&self, query: Query, _: Freshness) -> Result<QueryReply, ServiceError> {
            let answer = if let Query::History { after, .. } = query {
                let after = after.unwrap_or_default().index;
                let seen = self.last.min(after + ENTRIES_A_PAGE);
                let own = self.own.iter().filter(|index| after < **index && **index <= seen);
                let next = (seen < self.last).then_some(Position { index: seen, n: 0 });
                let records = own.map(|index| record(*index)).collect();
                QueryResult::History(HistoryPage { records, next, floor: Position::default() })
            } else {
                QueryResult::Totals(Totals::default())
            };
            Ok(QueryReply { index: self.last, now: LogTime(0), answer })
        }

        async fn submit(&self, _: Call) -> Result<Reply, ServiceError> {
            Err(ServiceError::Stopping)
        }

        async fn renew(&self, _: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
            Err(ServiceError::Stopping)
        }

        async fn wait_outcome(&self, _: ClaimRef) -> Result<Reply, ServiceError> {
            Err(ServiceError::Stopping)
        }

        async fn subscribe(&self, _: Subscription) -> Result<Events, ServiceError> {
            Err(ServiceError::Stopping)
        }

        fn hold_events(&self, _: SessionId) -> Result<Events, ServiceError> {
            Err(ServiceError::Stopping)
        }

        async fn status(&self) -> Result<Status, ServiceError> {
            Err(ServiceError::Stopping)
        }

        async fn operate(&self, _: Operation) -> Result<(), ServiceError> {
            Err(ServiceError::Stopping)
        }

        async fn backup(&self) -> Result<Download, ServiceError> {
            Err(ServiceError::Stopping)
        }
    }

    /// Returns the record of an entry of the log.
    fn record(index: u64) -> HistoryRecord {
        let (position, none) = (Position { index, n: 0 }, ChainHash::BEGINNING);
        let (at, wall, subject, kind) = (LogTime(index), WallTime(0), Subject::Cluster, EventKind::Reopened);
        let event = Event { position, at, wall, namespace: None, subject, kind };
        HistoryRecord { event, mode: None, limit: None, grant: None, previous: none, before: none, hash: none }
    }

    /// In a busy namespace the queries do not reach the oldest records of a lock. Its newest ones are shown, without
    /// older ones that were found on the way, and the screen says that more may exist.
    #[tokio::test]
    async fn older_records_do_not_replace_the_newest() {
        let lock = LockName::parse("nightly").expect("legal");
        // The queries end in the part that begins at the first entry, and in one that begins later.
        for (last, old) in [(30_000, 1_000), (100_000, 70_000)] {
            let service = Busy { last, own: vec![old, last - 3_000, last - 5] };
            let found = newest(&service, &Namespace::default(), Some(&lock), 30).await.expect("an answer");
            let shown: Vec<_> = found.records.iter().map(|record| record.event.position.index).collect();
            assert_eq!((shown, found.more), (vec![last - 3_000, last - 5], true), "of {last} entries");
        }
    }

    /// A short history is read to its beginning: no older record exists.
    #[tokio::test]
    async fn a_short_history_is_whole() {
        let service = Busy { last: 3_000, own: vec![1, 2_000] };
        let found = newest(&service, &Namespace::default(), None, 30).await.expect("an answer");
        assert_eq!((found.records.len(), found.more), (2, false));
    }
}
