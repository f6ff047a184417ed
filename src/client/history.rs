//! Reads the history of the holders of locks, page by page.

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use crate::limits::PAGE_ROWS_MAX;
use crate::model::{HistoryPage, HistoryRecord, LockName, Position, Query};
use crate::service::{LockService, ServiceError};

/// Reads history from a position to its current end.
#[derive(Debug)]
#[must_use = "nothing is read before next_page() or all()"]
pub struct HistoryReader<'a, S: LockService> {
    client: &'a Client<S>,
    lock: Option<LockName>,
    /// Position after which the next page begins.
    after: Option<Position>,
    /// Position up to which records are no longer kept.
    floor: Position,
    over: bool,
}

impl<S: LockService> Client<S> {
    /// Returns a reader of the history of this lock, or of all locks of the namespace. The reader begins after `from`,
    /// or with the oldest record that is kept.
    pub fn history(&self, lock: Option<&str>, from: Option<Position>) -> Result<HistoryReader<'_, S>, ClientError> {
        let lock = lock.map(LockName::parse).transpose()?;
        Ok(HistoryReader { client: self, lock, after: from, floor: Position::default(), over: false })
    }
}

/// Refuses a position after the last entry, as of a log that was lost: events would be missed without notice. The error
/// names `resume`.
pub(super) fn within(after: Position, last: u64, resume: Position) -> Result<(), ClientError> {
    if after.index <= last {
        return Ok(());
    }
    let why = format!("the position is after entry {last}, the last one of this cluster");
    Err(ServiceError::EventsMissed { why, resume }.into())
}

impl<S: LockService> HistoryReader<'_, S> {
    /// Returns the next records, which may be none; `None` at the end.
    ///
    /// # Errors
    /// Returns [`EventsMissed`](ServiceError::EventsMissed) if records after the reader's position are no longer kept,
    /// or if the log does not reach that position.
    pub async fn next_page(&mut self) -> Result<Option<Vec<HistoryRecord>>, ClientError> {
        if self.over {
            return Ok(None);
        }
        let query = Query::History {
            namespace: self.client.settings.namespace.clone(),
            lock: self.lock.clone(),
            after: self.after,
            rows: PAGE_ROWS_MAX as u32,
        };
        let ReadAt { index, value: HistoryPage { records, next, floor }, .. } = read!(self.client, query, History);
        if let Some(after) = self.after {
            within(after, index, floor)?;
            if after < floor {
                let why = format!("history up to {floor} is no longer kept");
                return Err(ServiceError::EventsMissed { why, resume: floor }.into());
            }
        }
        self.floor = floor;
        let stuck = next.is_some() && next == self.after;
        self.over = next.is_none() || stuck;
        self.after = next.or(self.after);
        Ok(Some(records))
    }

    /// Returns the position up to which records are no longer kept, as of the last page; the smallest position if all
    /// are kept.
    #[must_use]
    pub fn floor(&self) -> Position {
        self.floor
    }

    /// Reads all records up to the end.
    pub async fn all(mut self) -> Result<Vec<HistoryRecord>, ClientError> {
        let mut all = Vec::new();
        while let Some(page) = self.next_page().await? {
            all.extend(page);
        }
        Ok(all)
    }
}
