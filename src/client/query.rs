//! Queries: linearizable reads of the cluster's state.

use std::time::Duration;

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use crate::clock::millis;
use crate::limits::PAGE_ROWS_MAX;
use crate::model::{
    About, Checked, Explanation, FencingToken, ListFilter, ListShow, LockName, LockSummary, LockView, Page, Query,
    SessionId, SessionView, Totals, page_rows,
};
use crate::service::{LockService, NotSent, ServiceError, Status};

impl<S: LockService> Client<S> {
    /// Checks whether this token of the lock is valid, for resources that cannot compare tokens themselves.
    pub async fn check(&self, name: &str, token: FencingToken) -> Result<Checked, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        Ok(read!(self, Query::Check { lock, token }, Checked).value)
    }

    /// Returns the complete state of one lock. An unused name has no kind, holders or waiters.
    pub async fn inspect(&self, name: &str) -> Result<ReadAt<LockView>, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        Ok(read!(self, Query::Inspect { lock }, Lock))
    }

    /// Lists the locks in use whose names have this prefix.
    pub fn list(&self, prefix: &str) -> ListRequest<'_, S> {
        let filter = ListFilter {
            namespace: self.settings.namespace.clone(),
            prefix: prefix.to_owned(),
            show: ListShow::All,
            older_than_ms: 0,
            after: None,
            rows: PAGE_ROWS_MAX as u32,
        };
        ListRequest { client: self, filter }
    }

    /// Returns one page of the namespace's sessions, after the given session. `rows` is limited to a page; 0 means a
    /// whole one.
    pub async fn sessions(
        &self,
        after: Option<SessionId>,
        rows: u32,
    ) -> Result<ReadAt<Page<SessionView>>, ClientError> {
        let (mut after, wanted, mut found) = (after, page_rows(rows), Vec::new());
        loop {
            let (namespace, rows) = (self.settings.namespace.clone(), (wanted - found.len()) as u32);
            let ReadAt { index, now, value } = read!(self, Query::Sessions { namespace, after, rows }, Sessions);
            found.extend(value.rows);
            let more = value.next.is_some();
            if !more || found.len() == wanted {
                return Ok(ReadAt { index, now, value: Page { rows: found, more } });
            }
            after = value.next;
        }
    }

    /// Returns all sessions of the namespace, read page by page. Sessions that open or end meanwhile may be missing.
    pub async fn all_sessions(&self) -> Result<ReadAt<Vec<SessionView>>, ClientError> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|row: &SessionView| row.session);
            let ReadAt { index, now, value } = self.sessions(after, PAGE_ROWS_MAX as u32).await?;
            let more = value.more && !value.rows.is_empty();
            all.extend(value.rows);
            if !more {
                return Ok(ReadAt { index, now, value: all });
            }
        }
    }

    /// Returns a lock of this client's namespace as the subject of [`explain`](Self::explain).
    pub fn about(&self, name: &str) -> Result<About, ClientError> {
        Ok(About::Lock(self.key(LockName::parse(name)?)))
    }

    /// Explains the waits for a lock or a session: which client waits for which, why, since when, and what would end
    /// the wait. The answer is bounded and reports what it omits.
    pub async fn explain(&self, about: About) -> Result<ReadAt<Explanation>, ClientError> {
        Ok(read!(self, Query::Explain(about), Explained))
    }

    /// Returns the sizes of the cluster's whole state.
    pub async fn totals(&self) -> Result<ReadAt<Totals>, ClientError> {
        Ok(read!(self, Query::Totals, Totals))
    }

    /// Returns the state of the cluster as its leader sees it. If no leader is reachable, the contacted node answers
    /// with its own view.
    pub async fn status(&self) -> Result<Status, ClientError> {
        Ok(self.retry().until_read(|| self.service.status()).await?)
    }

    /// Returns the cluster's id. A cluster that is being founded has no id yet, which is treated as having no leader
    /// yet.
    pub async fn cluster_id(&self) -> Result<u128, ClientError> {
        let attempt = || async {
            let named = self.service.status().await?.cluster_id;
            named.ok_or_else(|| ServiceError::not_sent(NotSent::NoLeader))
        };
        Ok(self.retry().until_read(attempt).await?)
    }
}

/// Selects the locks to list.
#[derive(Debug)]
#[must_use = "nothing is read before page() or all()"]
pub struct ListRequest<'a, S: LockService> {
    client: &'a Client<S>,
    filter: ListFilter,
}

impl<S: LockService> ListRequest<'_, S> {
    /// Lists only held locks, only awaited ones, or both.
    pub fn show(mut self, show: ListShow) -> Self {
        self.filter.show = show;
        self
    }

    /// Lists only locks with a holder that has held for at least this duration.
    pub fn older_than(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.filter.older_than_ms = age.into().map_or(0, millis);
        self
    }

    /// Lists only names after this one.
    pub fn after(mut self, name: LockName) -> Self {
        self.filter.after = Some(name);
        self
    }

    /// Sets the largest number of rows on a page, at most 1,000; 0 means 1,000.
    pub fn rows(mut self, rows: u32) -> Self {
        self.filter.rows = rows;
        self
    }

    /// Reads one page.
    pub async fn page(&self) -> Result<ReadAt<Page<LockSummary>>, ClientError> {
        let (mut filter, wanted, mut found) = (self.filter.clone(), page_rows(self.filter.rows), Vec::new());
        loop {
            filter.rows = (wanted - found.len()) as u32;
            let ReadAt { index, now, value } = read!(self.client, Query::List(filter.clone()), Locks);
            found.extend(value.rows);
            let more = value.next.is_some();
            if !more || found.len() == wanted {
                return Ok(ReadAt { index, now, value: Page { rows: found, more } });
            }
            filter.after = value.next;
        }
    }

    /// Reads all pages. Locks that are acquired or released meanwhile may be missing.
    pub async fn all(mut self) -> Result<ReadAt<Vec<LockSummary>>, ClientError> {
        let mut all: Vec<LockSummary> = Vec::new();
        loop {
            let ReadAt { index, now, value } = self.page().await?;
            all.extend(value.rows);
            let last = all.last().map(|row| row.lock.name.clone());
            if !value.more || last == self.filter.after {
                return Ok(ReadAt { index, now, value: all });
            }
            self.filter.after = last;
        }
    }
}
