//! Queries: linearizable reads, which change nothing.

use std::time::Duration;

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use crate::clock::millis;
use crate::limits::PAGE_ROWS_MAX;
use crate::model::{
    About, Checked, Explanation, FencingToken, ListFilter, ListShow, LockName, LockSummary, LockView, Page, Query,
    SessionId, SessionView, Totals,
};
use crate::service::{LockService, NotSent, ServiceError, Status};

impl<S: LockService> Client<S> {
    /// Is this token a current one of the lock? Resources that cannot compare tokens themselves ask this.
    pub async fn check(&self, name: &str, token: FencingToken) -> Result<Checked, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        Ok(read!(self, Query::Check { lock, token }, Checked).value)
    }

    /// Everything about one lock. A name that nobody uses is a view without kind, holders and waiters.
    pub async fn inspect(&self, name: &str) -> Result<ReadAt<LockView>, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        Ok(read!(self, Query::Inspect { lock }, Lock))
    }

    /// Locks in use whose names begin so.
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

    /// A page of the namespace's sessions, after the given one.
    pub async fn sessions(
        &self,
        after: Option<SessionId>,
        rows: u32,
    ) -> Result<ReadAt<Page<SessionView>>, ClientError> {
        let namespace = self.settings.namespace.clone();
        Ok(read!(self, Query::Sessions { namespace, after, rows }, Sessions))
    }

    /// All sessions of the namespace, page by page: what opens or ends in between may be missing.
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

    /// A lock of this client's namespace, as something to be explained.
    pub fn about(&self, name: &str) -> Result<About, ClientError> {
        Ok(About::Lock(self.key(LockName::parse(name)?)))
    }

    /// Who waits for whom, why, since when, and what would end it. Bounded: what is left out is said.
    pub async fn explain(&self, about: About) -> Result<ReadAt<Explanation>, ClientError> {
        Ok(read!(self, Query::Explain(about), Explained))
    }

    /// Sizes of the whole state.
    pub async fn totals(&self) -> Result<ReadAt<Totals>, ClientError> {
        Ok(read!(self, Query::Totals, Totals))
    }

    /// The cluster as its leader sees it; where no leader can be reached, as the asked node does.
    pub async fn status(&self) -> Result<Status, ClientError> {
        Ok(self.retry().until_answered(|| self.service.status()).await?)
    }

    /// The cluster's id. One that is being founded has none for a moment: that counts as having no leader yet.
    pub async fn cluster_id(&self) -> Result<u128, ClientError> {
        let attempt = || async {
            let named = self.service.status().await?.cluster_id;
            named.ok_or_else(|| ServiceError::not_sent(NotSent::NoLeader))
        };
        Ok(self.retry().until_answered(attempt).await?)
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
    /// Only held ones, only awaited ones, or both.
    pub fn show(mut self, show: ListShow) -> Self {
        self.filter.show = show;
        self
    }

    /// Only those with a holder at least so long.
    pub fn older_than(mut self, age: Duration) -> Self {
        self.filter.older_than_ms = millis(age);
        self
    }

    /// Only names after this one.
    pub fn after(mut self, name: LockName) -> Self {
        self.filter.after = Some(name);
        self
    }

    /// Largest number of rows on a page, at most 1,000; 0 means 1,000.
    pub fn rows(mut self, rows: u32) -> Self {
        self.filter.rows = rows;
        self
    }

    /// One page.
    pub async fn page(&self) -> Result<ReadAt<Page<LockSummary>>, ClientError> {
        Ok(read!(self.client, Query::List(self.filter.clone()), Locks))
    }

    /// Everything, page by page: what is taken or given back in between may be missing.
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
