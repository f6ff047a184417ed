//! Reads: locks, sessions, explanations, history, tokens and the leader of an election.

use std::time::Duration;

use axum::http::Method;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::from_text;
use super::call::{Answered, Call, RequestContext};
use super::fields::{absent, needed, of_this_log, position, session, token};
use super::problem::{Decided, Failed, named};
use super::settle::bounded;
use crate::client;
use crate::limits;
use crate::model::{About, ListFilter, ListShow, LockName, Page, Part, Query, QueryReply, QueryResult, TokenState};
use crate::service::{ErrorCode, LockService};
use crate::shapes::history::HistoryLine;
use crate::shapes::{Checked, Explained, Free, Leader, Lock, LockRow, state_word};

/// Shows one lock with its holders and waiters, or lists the locks in use, one page at a time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly"}))]
pub(super) struct LocksQuery {
    /// Name of the one lock to show. Without it, the locks are listed.
    lock: Option<String>,
    /// Only locks whose names have this prefix.
    prefix: Option<String>,
    show: Option<ShowWord>,
    /// Only locks with a holder that has held for at least this long.
    #[serde(default, deserialize_with = "from_text")]
    older_than_ms: Option<u64>,
    /// The last name of the previous page.
    after: Option<String>,
    /// Largest number of rows, at most 1,000.
    #[serde(default, deserialize_with = "from_text")]
    rows: Option<u32>,
    /// Whether the asked node answers from what it has applied.
    #[serde(default, deserialize_with = "from_text")]
    stale: Option<bool>,
}

/// Which locks to list. `overdue`: those whose oldest holder may be gone, because its session is disconnected, or was
/// not renewed for more than half its TTL.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ShowWord {
    All,
    Held,
    Waiting,
    Overdue,
}

/// One lock, or a page of a listing.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Locks {
    One(Box<Lock>),
    Page(LockPage),
}

/// A page of a listing, in the order of the names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LockPage {
    locks: Vec<LockRow>,
    /// Whether more rows follow after the last one.
    more: bool,
}

impl Call for LocksQuery {
    const METHOD: Method = Method::GET;
    const WORD: &'static str = "locks";
    type Answer = Locks;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Locks>, Failed> {
        let Some(lock) = &self.lock else { return self.list(context).await };
        let form = "next to `lock`";
        absent(form, "prefix", self.prefix.as_ref())?;
        absent(form, "show", self.show.as_ref())?;
        absent(form, "older_than_ms", self.older_than_ms.as_ref())?;
        absent(form, "after", self.after.as_ref())?;
        absent(form, "rows", self.rows.as_ref())?;
        let reply = context.query(Query::Inspect { lock: context.lock(lock)? }, self.stale).await?;
        let QueryResult::Lock(view) = &reply.answer else { return Err(Failed::unexpected(reply.answer)) };
        Ok(Answered::read(&reply, Locks::One(Box::new(Lock::new(view, reply.now)))))
    }
}

impl LocksQuery {
    async fn list<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Locks>, Failed> {
        let filter = ListFilter {
            namespace: context.namespace.clone(),
            prefix: self.prefix.unwrap_or_default(),
            show: match self.show {
                None | Some(ShowWord::All) => ListShow::All,
                Some(ShowWord::Held) => ListShow::Held,
                Some(ShowWord::Waiting) => ListShow::Waiting,
                Some(ShowWord::Overdue) => ListShow::Overdue,
            },
            older_than_ms: self.older_than_ms.unwrap_or_default(),
            after: None,
            rows: 0,
        };
        let after = named("after", self.after.as_deref().map(LockName::parse).transpose())?;
        let query = |after, rows| Query::List(ListFilter { after, rows, ..filter.clone() });
        let part = |reply: QueryReply| {
            let QueryResult::Locks(part) = reply.answer else { return Err(Failed::unexpected(reply.answer)) };
            let rows = part.rows.iter().map(|row| LockRow::new(row, reply.now)).collect();
            Ok(Part { rows, next: part.next })
        };
        let ((index, now), Page { rows, more }) = context.page((self.rows, self.stale), after, query, part).await?;
        Ok(Answered::at(index, now, Locks::Page(LockPage { locks: rows, more })))
    }
}

/// Whether a fencing token is current. A resource that cannot compare tokens asks this.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly", "token": "31"}))]
pub(super) struct CheckBody {
    lock: String,
    token: String,
}

impl Call for CheckBody {
    const WORD: &'static str = "check";
    type Answer = Checked;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Checked>, Failed> {
        let query = Query::Check { lock: context.lock(&self.lock)?, token: token(&self.token)? };
        let reply = context.query(query, None).await?;
        let QueryResult::Checked(checked) = &reply.answer else { return Err(Failed::unexpected(reply.answer)) };
        let (state, valid) = (state_word(checked.state), checked.state == TokenState::Valid);
        Ok(Answered::read(&reply, Checked { state, valid, lowest_valid: checked.lowest_valid.to_string() }))
    }
}

/// Waits until a lock is free, at most `poll_ms`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly", "poll_ms": 1_000}))]
pub(super) struct WaitBody {
    lock: String,
    /// Longest wait; 30 s by default, at most 10 min.
    poll_ms: Option<u64>,
}

impl Call for WaitBody {
    const WORD: &'static str = "wait";
    type Answer = Free;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Free>, Failed> {
        let key = context.lock(&self.lock)?;
        let longest_ms = bounded(self.poll_ms)?.unwrap_or(limits::HTTP_POLL_MS_DEFAULT_MAX);
        let reply = context.until_free(key, Duration::from_millis(longest_ms)).await?;
        let QueryResult::Lock(view) = &reply.answer else { return Err(Failed::unexpected(reply.answer)) };
        let (namespace, lock, free) = (context.namespace.to_string(), self.lock, view.free);
        Ok(Answered::read(&reply, Free { namespace, lock, free }))
    }
}

/// Explains the waits for a lock, or those of a session: which client waits for which, why, and what would end it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly"}))]
pub(super) struct ExplainQuery {
    lock: Option<String>,
    /// Id of the session, in place of `lock`.
    session: Option<String>,
    /// Whether the asked node answers from what it has applied.
    #[serde(default, deserialize_with = "from_text")]
    stale: Option<bool>,
}

impl Call for ExplainQuery {
    const METHOD: Method = Method::GET;
    const WORD: &'static str = "explain";
    const ERRORS: &'static [ErrorCode] = &[ErrorCode::SessionEnded];
    type Answer = Explained;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Explained>, Failed> {
        let about = match &self.session {
            None => About::Lock(context.lock(needed("unless there is a `session`", "lock", self.lock.as_deref())?)?),
            Some(id) => {
                absent("next to `session`", "lock", self.lock.as_ref())?;
                let (session, namespace) = (session(id)?, &context.namespace);
                let reply = context.query(Query::of_session(namespace, session), self.stale).await?;
                let at = Decided::at(reply.index, reply.now);
                reply.answer.of_session(session).map_err(|refusal| Failed::refused(refusal, at))?;
                About::Session(session)
            }
        };
        let reply = context.query(Query::Explain(about), self.stale).await?;
        let QueryResult::Explained(explanation) = &reply.answer else { return Err(Failed::unexpected(reply.answer)) };
        Ok(Answered::read(&reply, Explained::new(self.lock, explanation, reply.now)))
    }
}

/// Lists what happened to the holders of a lock, or of all locks, from the past to now, one page at a time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly"}))]
pub(super) struct HistoryQuery {
    /// Name of the lock. Default: all locks of the namespace.
    lock: Option<String>,
    /// The position after which the page begins, `INDEX.N` or `INDEX.N@CLUSTER`. Default: all that is kept.
    from: Option<String>,
    /// Largest number of records, at most 1,000.
    #[serde(default, deserialize_with = "from_text")]
    rows: Option<u32>,
    /// Whether the asked node answers from what it has applied.
    #[serde(default, deserialize_with = "from_text")]
    stale: Option<bool>,
}

/// A page of the history.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Records {
    records: Vec<HistoryLine>,
    /// The position after which to continue; null at the end.
    next: Option<String>,
    /// Records up to this position are no longer kept.
    floor: String,
}

impl Call for HistoryQuery {
    const METHOD: Method = Method::GET;
    const WORD: &'static str = "history";
    const ERRORS: &'static [ErrorCode] = &[ErrorCode::EventsMissed];
    type Answer = Records;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Records>, Failed> {
        let from = self.from.as_deref().map(|text| position("from", text)).transpose()?;
        let query = Query::History {
            namespace: context.namespace.clone(),
            lock: self.lock.as_deref().map(LockName::parse).transpose()?,
            after: from.as_ref().map(|from| from.position),
            rows: self.rows.unwrap_or_default(),
        };
        let cluster_id = context.cluster_id()?;
        let reply = context.query(query, self.stale).await?;
        let QueryResult::History(page) = &reply.answer else { return Err(Failed::unexpected(reply.answer)) };
        // The log of the asked node may end before that of another one.
        let end = if self.stale == Some(true) { u64::MAX } else { reply.index };
        from.map(|from| of_this_log(&from, cluster_id, end, page.floor)).transpose()?;
        let records = page.records.iter().map(|record| HistoryLine::new(record).of(cluster_id)).collect();
        let (next, floor) = (page.next.map(|next| next.to_string()), page.floor.to_string());
        Ok(Answered::read(&reply, Records { records, next, floor }))
    }
}

/// Shows who leads an election: the holder of its lock, and the value that it proclaims.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "primary"}))]
pub(super) struct LeaderQuery {
    lock: String,
    /// Whether the asked node answers from what it has applied.
    #[serde(default, deserialize_with = "from_text")]
    stale: Option<bool>,
}

impl Call for LeaderQuery {
    const METHOD: Method = Method::GET;
    const WORD: &'static str = "leader";
    type Answer = Leader;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Leader>, Failed> {
        let lock = context.lock(&self.lock)?;
        let reply = context.query(Query::Holders { lock: lock.clone() }, self.stale).await?;
        let QueryResult::Lock(view) = &reply.answer else { return Err(Failed::unexpected(reply.answer)) };
        let leader = client::Leader::of(view);
        Ok(Answered::read(&reply, Leader::new(&lock.namespace, &lock.name, leader.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fake::{Fake, context};
    use super::*;

    /// A listing of several parts names the index of the first one, so that a watch from there misses no release.
    #[tokio::test(start_paused = true)]
    async fn a_listing_of_several_parts_is_as_of_the_first() {
        let (context, _stop) = context(&Fake::new());
        let query: LocksQuery = serde_json::from_value(serde_json::json!({"stale": "true"})).expect("fields");
        let point = query.answer(&context).await.expect("a page").point;
        assert_eq!(point.map(|(index, _)| index), Some(1));
    }

    /// A stale listing waits for its turn after its first part, so that many of them leave the state to the commands.
    #[tokio::test(start_paused = true)]
    async fn stale_listings_take_turns() {
        let (context, _stop) = context(&Fake::new());
        let query: LocksQuery = serde_json::from_value(serde_json::json!({"stale": "true"})).expect("fields");
        let turn = context.api.listing.acquire().await.expect("a turn");
        let mut listing = Box::pin(query.answer(&context));
        let longest = Duration::from_secs(1);
        assert!(tokio::time::timeout(longest, &mut listing).await.is_err(), "another listing has the turn");
        drop(turn);
        assert!(tokio::time::timeout(longest, listing).await.expect("a turn").is_ok());
    }
}
