//! Queries: requests that change nothing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    About, Claim, Document, Explanation, FencingToken, HistoryPage, HolderView, Kind, LockKey, LockName, LockValue,
    LogTime, Metadata, Mode, Namespace, Outcome, Owner, Position, ProcessPing, Refusal, RequestId, SessionId,
    ValidTokens, WhichDocuments, WhichPings, text,
};
use crate::limits;

/// A query of the state. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// Whether this token is a current token of the lock.
    Check {
        /// The lock's full name.
        lock: LockKey,
        /// The token to check.
        token: FencingToken,
    },
    /// Everything about one lock.
    Inspect {
        /// The lock's full name.
        lock: LockKey,
    },
    /// Locks in use, one page at a time.
    List(ListFilter),
    /// Sessions of a namespace, one page at a time.
    Sessions {
        /// The namespace to list.
        namespace: Namespace,
        /// The last session of the previous page.
        after: Option<SessionId>,
        /// Largest number of rows, at most 1,000; 0 means 1,000.
        rows: u32,
    },
    /// The current outcome of a claim, for a caller that did not receive the answer.
    Claim {
        /// For a take, the lock of the take. A request needs none, because it is found by its session.
        lock: Option<LockKey>,
        /// The request or take.
        claim: Claim,
    },
    /// Sizes of the whole state.
    Totals,
    /// Which requests wait for which others, and why.
    Explain(About),
    /// What happened to the holders of locks, one page at a time.
    History {
        /// The namespace of the locks.
        namespace: Namespace,
        /// Only this lock. `None` for all locks.
        lock: Option<LockName>,
        /// The position after which the page begins. `None` begins at the oldest record that is kept.
        after: Option<Position>,
        /// Largest number of records, at most 1,000; 0 means 1,000.
        rows: u32,
    },
    /// Every valid token of one lock.
    Tokens {
        /// The lock's full name.
        lock: LockKey,
    },
    /// Locks as documents, one page at a time.
    Documents {
        /// The namespace to list.
        namespace: Namespace,
        /// Which documents to show.
        which: WhichDocuments,
        /// Largest number of rows, at most 1,000; 0 means 1,000.
        rows: u32,
    },
    /// Signs of life of processes and sessions, one page at a time.
    Pings {
        /// The namespace to list.
        namespace: Namespace,
        /// Which signs of life to show.
        which: WhichPings,
        /// Largest number of rows, at most 1,000; 0 means 1,000.
        rows: u32,
    },
    /// The outcome that a break of this hold would have.
    WouldBreak {
        /// The lock's full name.
        lock: LockKey,
        /// The token of the grant.
        token: FencingToken,
    },
    /// The same as [`Inspect`](Self::Inspect), but without the waiters, of which there may be many.
    Holders {
        /// The lock's full name.
        lock: LockKey,
    },
}

/// The filter of [`Query::List`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListFilter {
    /// The namespace to list.
    pub namespace: Namespace,
    /// Only names with this prefix.
    pub prefix: String,
    /// Which locks to list.
    pub show: ListShow,
    /// Only locks with a holder that has held them for at least this long, in milliseconds.
    pub older_than_ms: u64,
    /// The last name of the previous page.
    pub after: Option<LockName>,
    /// The largest number of rows.
    pub rows: u32,
}

/// Which locks to list. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListShow {
    /// Every lock in use.
    All,
    /// Locks that are held.
    Held,
    /// Locks that a request waits for.
    Waiting,
    /// Locks whose oldest holder may be gone: its session is disconnected, or was not renewed for more than half its
    /// TTL.
    Overdue,
}

/// An answer, with the log index and log time for which it is true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryReply {
    /// Log index up to which the answering node had applied the log.
    pub index: u64,
    /// Log time at that index. Ages and remaining times in the answer are relative to it.
    pub now: LogTime,
    /// The result of the query.
    pub answer: QueryResult,
}

/// The result of a [`Query`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryResult {
    /// Result of [`Query::Check`].
    Checked(Checked),
    /// Result of [`Query::Inspect`], and without waiters of [`Query::Holders`].
    Lock(LockView),
    /// Result of [`Query::List`], in name order.
    Locks(Part<LockSummary, LockName>),
    /// Result of [`Query::Sessions`], in id order.
    Sessions(Part<SessionView, SessionId>),
    /// Result of [`Query::Claim`].
    Claim {
        /// The outcome if the claim is finished, or its place in the queue. A session's request whose answer was
        /// forgotten is refused as too old. `None` if the claim is unknown.
        outcome: Option<Outcome>,
        /// Same as [`Reply::recalled`](super::Reply::recalled).
        recalled: Vec<FencingToken>,
    },
    /// Result of [`Query::Totals`].
    Totals(Totals),
    /// Result of [`Query::Explain`].
    Explained(Explanation),
    /// Result of [`Query::History`].
    History(HistoryPage),
    /// Result of [`Query::Tokens`].
    Tokens(ValidTokens),
    /// Result of [`Query::Documents`], in name order.
    Documents(Part<Document, LockName>),
    /// Result of [`Query::Pings`], in the order of the processes' names.
    Pings(Page<ProcessPing>),
    /// Result of [`Query::WouldBreak`]: the outcome or refusal that the break would have. Nothing was broken.
    WouldBreak(Outcome),
}

impl Query {
    /// A query that finds out whether a session is open in this namespace. The answer is read with
    /// [`QueryResult::of_session`].
    pub(crate) fn of_session(namespace: &Namespace, session: SessionId) -> Self {
        // The claim is looked up in the namespace of its lock. Neither the lock nor the number matters.
        let lock = LockKey { namespace: namespace.clone(), name: LockName::least() };
        Self::Claim { lock: Some(lock), claim: Claim::Request(RequestId { session, number: 1 }) }
    }
}

impl QueryResult {
    /// The refusal in the answer to [`Query::of_session`], if the session is not open in the namespace.
    pub(crate) fn of_session(self, session: SessionId) -> Result<(), Refusal> {
        let QueryResult::Claim { outcome: Some(Outcome::Refused(refusal)), .. } = self else { return Ok(()) };
        let not_open = matches!(refusal, Refusal::SessionEnded { session: ended, .. } if ended == session);
        if not_open { Err(refusal) } else { Ok(()) }
    }
}

/// The largest number of rows of a page for a caller that asked for this number. 0 means the maximum.
pub(crate) fn page_rows(asked: u32) -> usize {
    match asked as usize {
        0 => limits::PAGE_ROWS_MAX,
        asked => asked.min(limits::PAGE_ROWS_MAX),
    }
}

/// Some rows of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The rows, in order of their names or ids.
    pub rows: Vec<T>,
    /// Whether more rows may follow after the last one.
    pub more: bool,
}

/// A part of a listing. A query looks at a limited number of locks, sessions or documents, so that it does not delay
/// others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part<T, C> {
    /// The rows, in order of their names or ids. There may be none although others follow.
    pub rows: Vec<T>,
    /// The name or id after which the next part begins; `None` at the end.
    pub next: Option<C>,
}

/// Whether a token is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// The verdict on the token.
    pub state: TokenState,
    /// Every lower token of the lock is stale. For an exclusive lock this is the valid token; for a free name, the next
    /// token.
    pub lowest_valid: FencingToken,
    /// When the token's hold began; `None` unless the token is valid.
    pub since: Option<LogTime>,
    /// When that hold ends unless it is renewed. `None` also if only a release ends it.
    pub deadline: Option<LogTime>,
}

/// The verdict on a token, see [`Checked`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenState {
    /// A holder has the lock with this token now.
    Valid,
    /// The hold of this token has ended, or the token is a grant of another lock.
    Stale,
    /// This cluster has not granted the token: it has a later epoch, or is above every grant.
    UnknownEpoch,
}

/// The state of one lock, see [`Query::Inspect`] and [`Query::Holders`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockView {
    /// The lock's full name.
    pub lock: LockKey,
    /// The kind that the name is in use as. `None` if it has no holder and no waiter.
    pub kind: Option<Kind>,
    /// The number of permits of a semaphore.
    pub limit: Option<u32>,
    /// The holders, in the order of their tokens.
    pub holders: Vec<HolderView>,
    /// The waiters, in the order of the queue.
    pub waiters: Vec<WaiterView>,
    /// How long the name, or some of its permits, stay closed after a hold, in milliseconds. `None` if nothing is
    /// closed.
    pub delay_ms: Option<u64>,
    /// What keeps the name or its permits closed, in the order of the tokens.
    pub closed: Vec<Closing>,
    /// The text of the first holder that has one.
    pub value: Option<LockValue>,
    /// Whether a wait for the release of the name returns: it has no holder, and nothing keeps the name or its permits
    /// closed.
    pub free: bool,
}

impl LockView {
    /// The view of a name that is not in use.
    #[must_use]
    pub fn free(lock: LockKey) -> Self {
        let (holders, waiters, closed) = (vec![], vec![], vec![]);
        Self { lock, kind: None, limit: None, holders, waiters, delay_ms: None, closed, value: None, free: true }
    }
}

/// A hold that has ended and still keeps the name or some permits closed, or permits that were returned and stay
/// closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// The token of that hold. A break of it opens the name.
    pub token: FencingToken,
    /// The name of its holder, for display.
    #[serde(deserialize_with = "text::shared")]
    pub who: Arc<str>,
    /// Closed while log time is at most this.
    pub until: LogTime,
    /// The remaining time, in milliseconds.
    pub left_ms: u64,
}

/// A request in a queue, as other clients may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaiterView {
    /// The position in the queue, from 1.
    pub place: u64,
    /// The number that orders the queue.
    pub sequence: u64,
    /// The session of the request. `None` for a take.
    pub session: Option<SessionId>,
    /// The line of execution that made the request, if named.
    pub owner: Option<Owner>,
    /// How the request is to hold the lock.
    pub mode: Mode,
    /// What the client states about itself.
    pub metadata: Metadata,
    /// Log time when it was queued.
    pub since: LogTime,
}

/// One row of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockSummary {
    /// The lock's full name.
    pub lock: LockKey,
    /// The kind that the name is in use as.
    pub kind: Kind,
    /// The number of permits of a semaphore.
    pub limit: Option<u32>,
    /// The number of holders.
    pub holders: u64,
    /// The number of waiters.
    pub waiters: u64,
    /// The oldest holder, if any.
    pub oldest: Option<HolderView>,
    /// Same as [`LockView::delay_ms`].
    pub delay_ms: Option<u64>,
    /// Same as [`LockView::value`].
    pub value: Option<LockValue>,
}

/// One session, as any client may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// The public id of the session.
    pub session: SessionId,
    /// The namespace of the session.
    pub namespace: Namespace,
    /// What the client states about itself.
    pub metadata: Metadata,
    /// The TTL in milliseconds.
    pub ttl_ms: u64,
    /// Log time when it was opened.
    pub opened: LogTime,
    /// The session ends after this point of log time, unless it is renewed.
    pub deadline: LogTime,
    /// Whether the session's stream broke and the client has not attached again.
    pub disconnected: bool,
    /// Real time without a leader since the last renewal, in milliseconds. The session may live this much longer than
    /// its TTL.
    pub leaderless_ms: u64,
    /// The number of locks that it holds.
    pub holds: u64,
    /// The number of locks that it waits for.
    pub waits: u64,
}

/// Sizes of the whole state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// The number of live sessions.
    pub sessions: u64,
    /// The number of names in use.
    pub locks: u64,
    /// The number of holds.
    pub holders: u64,
    /// The number of waits.
    pub waiters: u64,
    /// The counter of the newest token. It grows with each grant, upgrade and hand-over. A restored cluster does not
    /// begin at zero, so only the difference of two values means something.
    pub grants: u64,
}
