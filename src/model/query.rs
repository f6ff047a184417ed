//! What can be asked without changing anything.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    About, Claim, Document, Explanation, FencingToken, HistoryPage, HolderView, Kind, LockKey, LockName, LockValue,
    LogTime, Metadata, Mode, Namespace, Outcome, Owner, Position, ProcessPing, SessionId, ValidTokens, WhichDocuments,
    WhichPings, text,
};
use crate::limits;

/// A question. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// Is this token a current one of the lock?
    Check {
        /// Which lock.
        lock: LockKey,
        /// Which token.
        token: FencingToken,
    },
    /// Everything about one lock.
    Inspect {
        /// Which.
        lock: LockKey,
    },
    /// Locks in use, a page at a time.
    List(ListFilter),
    /// Sessions of a namespace, a page at a time.
    Sessions {
        /// Which namespace.
        namespace: Namespace,
        /// The last one of the page before.
        after: Option<SessionId>,
        /// Largest number of rows, at most 1,000; 0 means 1,000.
        rows: u32,
    },
    /// What has become of a claim: the way back to an answer that got lost.
    Claim {
        /// Which lock's queue or holders to look at for a take; a request is found by its session.
        lock: Option<LockKey>,
        /// Whose.
        claim: Claim,
    },
    /// Totals.
    Totals,
    /// Who waits for whom, and why.
    Explain(About),
    /// What happened to the holders of locks, a page at a time.
    History {
        /// Whose.
        namespace: Namespace,
        /// Of this lock only.
        lock: Option<LockName>,
        /// Go on after this position; from the oldest record that is kept otherwise.
        after: Option<Position>,
        /// Largest number of records, at most 1,000; 0 means 1,000.
        rows: u32,
    },
    /// Every valid token of one lock.
    Tokens {
        /// Which.
        lock: LockKey,
    },
    /// Locks as documents, a page at a time.
    Documents {
        /// Which namespace.
        namespace: Namespace,
        /// Which of them.
        which: WhichDocuments,
        /// Largest number of rows, at most 1,000; 0 means 1,000.
        rows: u32,
    },
    /// Signs of life of processes and sessions, a page at a time.
    Pings {
        /// Which namespace.
        namespace: Namespace,
        /// Which of them.
        which: WhichPings,
        /// Largest number of rows, at most 1,000; 0 means 1,000.
        rows: u32,
    },
    /// What a break of this hold would do.
    WouldBreak {
        /// The lock's full name.
        lock: LockKey,
        /// The token of the grant.
        token: FencingToken,
    },
}

/// See [`Query::List`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListFilter {
    /// Which namespace.
    pub namespace: Namespace,
    /// Only names that begin so.
    pub prefix: String,
    /// Only held ones, only awaited ones, or both.
    pub show: ListShow,
    /// Only those with a holder at least so long, in milliseconds.
    pub older_than_ms: u64,
    /// The last name of the page before.
    pub after: Option<LockName>,
    /// At most so many.
    pub rows: u32,
}

/// Which locks to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListShow {
    /// Every lock in use.
    All,
    /// Those that somebody holds.
    Held,
    /// Those that somebody waits for.
    Waiting,
}

/// An answer with the applied index at which it was true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryReply {
    /// Log index up to which the answering node had applied.
    pub index: u64,
    /// Log time there; ages and remaining times below are relative to it.
    pub now: LogTime,
    /// The answer.
    pub answer: QueryResult,
}

/// See [`Query`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryResult {
    /// To [`Query::Check`].
    Checked(Checked),
    /// To [`Query::Inspect`].
    Lock(LockView),
    /// To [`Query::List`], in name order.
    Locks(Page<LockSummary>),
    /// To [`Query::Sessions`], in id order.
    Sessions(Page<SessionView>),
    /// To [`Query::Claim`]: its outcome if it is settled, or its place; `None` where nothing is known of it.
    Claim {
        /// Its outcome or place.
        outcome: Option<Outcome>,
        /// As in [`Reply`](super::Reply).
        recalled: Vec<FencingToken>,
    },
    /// To [`Query::Totals`].
    Totals(Totals),
    /// To [`Query::Explain`].
    Explained(Explanation),
    /// To [`Query::History`].
    History(HistoryPage),
    /// To [`Query::Tokens`].
    Tokens(ValidTokens),
    /// To [`Query::Documents`], in name order.
    Documents(Page<Document>),
    /// To [`Query::Pings`], in the order of the processes' names.
    Pings(Page<ProcessPing>),
    /// To [`Query::WouldBreak`]: the outcome of the break, which was not done; or its refusal.
    WouldBreak(Outcome),
}

/// Largest number of rows of one page, for a caller that asks for this number. 0 asks for as many as a page may have.
pub(crate) fn page_rows(asked: u32) -> usize {
    match asked as usize {
        0 => limits::PAGE_ROWS_MAX,
        asked => asked.min(limits::PAGE_ROWS_MAX),
    }
}

/// Some rows of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// In order of their names or ids.
    pub rows: Vec<T>,
    /// More follow after the last one.
    pub more: bool,
}

/// Whether a token is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// The verdict.
    pub state: TokenState,
    /// Below this every token of the lock is stale; for an exclusive lock it is the valid one, for a free name the next.
    pub lowest_valid: FencingToken,
}

/// See [`Checked`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenState {
    /// A holder has the lock with it now.
    Valid,
    /// Its hold has ended, or it is a grant of another lock.
    Stale,
    /// This cluster has not granted it: it is of a later epoch, or above every grant.
    UnknownEpoch,
}

/// See [`Query::Inspect`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockView {
    /// Which lock.
    pub lock: LockKey,
    /// `None` while nobody holds it or waits for it.
    pub kind: Option<Kind>,
    /// A semaphore's permits.
    pub limit: Option<u32>,
    /// In the order of their tokens.
    pub holders: Vec<HolderView>,
    /// In the order of the queue.
    pub waiters: Vec<WaiterView>,
    /// For so long the name, or some permits of it, stay closed after a hold, in milliseconds.
    pub delay_ms: Option<u64>,
    /// What keeps it closed, in the order of the tokens.
    pub closed: Vec<Closing>,
    /// The text kept by the first holder that has one.
    pub value: Option<LockValue>,
    /// A wait for the name returns: it has no holder, and no lock-delay keeps it or some of its permits closed.
    pub free: bool,
}

impl LockView {
    /// A name that is not in use.
    #[must_use]
    pub fn free(lock: LockKey) -> Self {
        let (holders, waiters, closed) = (vec![], vec![], vec![]);
        Self { lock, kind: None, limit: None, holders, waiters, delay_ms: None, closed, value: None, free: true }
    }
}

/// A hold that has ended, and what of it stays closed; or permits that were given back and stay closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// The token of that hold: a break of it opens the name.
    pub token: FencingToken,
    /// Who held it, as shown to people.
    #[serde(deserialize_with = "text::shared")]
    pub who: Arc<str>,
    /// Closed while log time is at most this.
    pub until: LogTime,
    /// How long that is, in milliseconds.
    pub left_ms: u64,
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaiterView {
    /// 1 is next.
    pub place: u64,
    /// Its number.
    pub sequence: u64,
    /// Whose session; `None` for a take.
    pub session: Option<SessionId>,
    /// Which line of execution.
    pub owner: Option<Owner>,
    /// How it wants the lock.
    pub mode: Mode,
    /// What it says of itself.
    pub metadata: Metadata,
    /// Since when.
    pub since: LogTime,
}

/// One row of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockSummary {
    /// Which lock.
    pub lock: LockKey,
    /// What it is in use as.
    pub kind: Kind,
    /// A semaphore's permits.
    pub limit: Option<u32>,
    /// How many hold it.
    pub holders: u64,
    /// How many wait.
    pub waiters: u64,
    /// The oldest holder, if any.
    pub oldest: Option<HolderView>,
    /// As in [`LockView`].
    pub delay_ms: Option<u64>,
    /// As in [`LockView`].
    pub value: Option<LockValue>,
}

/// One session, as anybody may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// Public id.
    pub session: SessionId,
    /// Its namespace.
    pub namespace: Namespace,
    /// What it says of itself.
    pub metadata: Metadata,
    /// TTL in milliseconds.
    pub ttl_ms: u64,
    /// When it was opened.
    pub opened: LogTime,
    /// When it ends if nobody renews it.
    pub deadline: LogTime,
    /// Whether its stream broke and it has not come back.
    pub disconnected: bool,
    /// Real time without a leader since its last sign of life, in milliseconds: so much longer it may live than its TTL.
    pub leaderless_ms: u64,
    /// How many locks it holds.
    pub holds: u64,
    /// For how many it waits.
    pub waits: u64,
}

/// Sizes of the whole state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Live sessions.
    pub sessions: u64,
    /// Names in use.
    pub locks: u64,
    /// Holds.
    pub holders: u64,
    /// Waits.
    pub waiters: u64,
    /// Grants since the cluster began.
    pub grants: u64,
}
