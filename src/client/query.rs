//! Queries: linearizable reads of the cluster's state.

use std::time::Duration;

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use crate::clock::millis;
use crate::limits::PAGE_ROWS_MAX;
use crate::model::{
    About, Checked, Explanation, FencingToken, ListFilter, ListShow, LockName, LockSummary, LockView, Page, Part,
    Query, RequestId, SessionId, SessionView, Totals, page_rows,
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

    /// Returns the state of one lock without its waiters.
    pub(super) async fn holders(&self, name: &str) -> Result<ReadAt<LockView>, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        Ok(read!(self, Query::Holders { lock }, Lock))
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
        let part = |after, rows| async move {
            let namespace = self.settings.namespace.clone();
            Ok(read!(self, Query::Sessions { namespace, after, rows }, Sessions))
        };
        filled(after, rows, part).await
    }

    /// Returns all sessions of the namespace, read page by page. Sessions that open or end meanwhile may be missing.
    pub async fn all_sessions(&self) -> Result<ReadAt<Vec<SessionView>>, ClientError> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|row: &SessionView| row.session);
            let ReadAt { index, now, value } = self.sessions(after, PAGE_ROWS_MAX as u32).await?;
            all.extend(value.rows);
            // A page that ends where the one before it ended would be read without end.
            if !value.more || all.last().map(|row| row.session) == after {
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
    ///
    /// # Errors
    /// Refuses a session that is not open in this client's namespace, and a request of such a session.
    pub async fn explain(&self, about: About) -> Result<ReadAt<Explanation>, ClientError> {
        if let About::Session(session) | About::Request(RequestId { session, .. }) = about {
            let answer = self.query(Query::of_session(&self.settings.namespace, session)).await?.answer;
            answer.of_session(session).map_err(ClientError::Refused)?;
        }
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

/// Fills a page from the parts of a listing. It does not trust the node, which may answer with more rows than the
/// client asked for, or with a next part that does not begin later, so that the listing would never end.
pub(super) async fn filled<T, C, F>(
    mut after: Option<C>,
    rows: u32,
    part: impl Fn(Option<C>, u32) -> F,
) -> Result<ReadAt<Page<T>>, ClientError>
where
    C: Clone + PartialOrd,
    F: Future<Output = Result<ReadAt<Part<T, C>>, ClientError>>,
{
    let mut found = Vec::new();
    loop {
        let wanted = page_rows(rows) - found.len();
        let ReadAt { index, now, value: Part { rows: got, next } } = part(after.clone(), wanted as u32).await?;
        let more = next.is_some() || wanted < got.len();
        let full = wanted <= got.len();
        found.extend(got.into_iter().take(wanted));
        if !more || full {
            return Ok(ReadAt { index, now, value: Page { rows: found, more } });
        }
        if next <= after {
            return Err(ServiceError::Internal("a part of a listing does not follow the last one".to_owned()).into());
        }
        after = next;
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
        let part = |after, rows| async move {
            let filter = ListFilter { after, rows, ..self.filter.clone() };
            Ok(read!(self.client, Query::List(filter), Locks))
        };
        filled(self.filter.after.clone(), self.filter.rows, part).await
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

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::model::LogTime;

    /// Reads a page of at most three rows from a node that answers with these parts, one after the other.
    async fn page(parts: &[(&[u32], Option<u32>)]) -> Result<(Vec<u32>, bool), ClientError> {
        let left = crate::mutex::Mutex::new(parts.iter());
        let part = |_, _| {
            let (rows, next) = left.lock().next().expect("no further part is read");
            ready(Ok(ReadAt { index: 1, now: LogTime(1), value: Part { rows: rows.to_vec(), next: *next } }))
        };
        filled(None, 3, part).await.map(|page| (page.value.rows, page.value.more))
    }

    /// A page is filled from several parts. A node that answers with more rows than it was asked for does no harm.
    #[tokio::test]
    async fn a_page_has_no_more_rows_than_wanted() {
        assert_eq!(page(&[(&[1, 2], Some(2)), (&[], Some(5)), (&[6], None)]).await, Ok((vec![1, 2, 6], false)));
        assert_eq!(page(&[(&[1, 2], Some(2)), (&[3], Some(3))]).await, Ok((vec![1, 2, 3], true)));
        for next in [Some(4), None] {
            assert_eq!(page(&[(&[1, 2], Some(2)), (&[3, 4], next)]).await, Ok((vec![1, 2, 3], true)));
        }
    }

    /// A node whose next part does not begin later ends the listing with an error.
    #[tokio::test]
    async fn a_listing_does_not_cycle() {
        for next in [2, 1] {
            let error = page(&[(&[1], Some(2)), (&[], Some(next))]).await.expect_err("it does not continue");
            assert!(matches!(error, ClientError::Service(ServiceError::Internal(_))), "{error}");
        }
    }
}
