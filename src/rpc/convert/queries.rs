//! Questions, their answers, and subscriptions.

use super::scalars::{bounded, rows};
use super::table::Wire;
use crate::limits::{LOCK_NAME_BYTES_MAX, METADATA_BYTES_MAX};
use crate::model::{
    About, FencingToken, Invalid, ListFilter, Query, QueryReply, QueryResult, TokenChange, ValidTokens, WhichDocuments,
    WhichPings,
};
use crate::rpc::pb;
use crate::service::{Freshness, Scope, Subscription};

/// A question with how true its answer has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rpc) struct Question {
    pub(in crate::rpc) query: Query,
    pub(in crate::rpc) freshness: Freshness,
}

wire_messages! {
    Question = QueryRequest { query, freshness }
    ListFilter = ListFilter { namespace, prefix, show, older_than_ms, after, rows }
    QueryReply = QueryReply { index, answer; now_ms: now }
    Subscription = WatchRequest { scope, after, cluster_id }
}

wire_oneof! {
    Query = query_request::Query {
        Check = TokenOf { lock, token },
        Inspect { lock },
        List(filter),
        Sessions = SessionsFilter { namespace, after, rows },
        Claim = ClaimOf { lock, claim },
        Explain(about),
        Totals,
        History = HistoryFilter { namespace, lock, after, rows },
        Tokens { lock },
        Documents = DocumentsFilter { namespace, which, rows },
        Pings = PingsFilter { namespace, which, rows },
        WouldBreak = TokenOf { lock, token },
    }
}
wire_oneof! { About = about::About in About.about { Lock(lock), Session(session), Request(request) } }
wire_oneof! { WhichDocuments = documents_filter::Which { After(after), Named(named), Stamped(stamped) } }
wire_oneof! { WhichPings = pings_filter::Which { After(after), Of(of) } }
wire_oneof! {
    QueryResult = query_reply::Answer {
        Checked(checked),
        Lock(lock),
        Locks(locks),
        Sessions(sessions),
        Claim = ClaimState { outcome, recalled },
        Totals(totals),
        Explained(explained),
        History(history),
        Tokens(tokens),
        Documents(documents),
        Pings(pings),
        WouldBreak(would_break),
    }
}
wire_oneof! {
    Scope = watch_request::Scope {
        Namespace = NamespaceScope { namespace, prefix },
        Session(session),
        SessionEnd(session_end),
        Holds(holds),
    }
}

impl Question {
    /// Refuses what is out of the bounds of callers from outside, and fills in what they leave out: the node's own callers keep
    /// them.
    pub(in crate::rpc) fn bounded(mut self) -> Result<Self, Invalid> {
        if let Query::List(ListFilter { rows: asked, .. })
        | Query::Sessions { rows: asked, .. }
        | Query::History { rows: asked, .. }
        | Query::Documents { rows: asked, .. }
        | Query::Pings { rows: asked, .. } = &mut self.query
        {
            *asked = rows(*asked)?;
        }
        if let Query::List(ListFilter { prefix, .. }) = &self.query {
            bounded("prefix", prefix, LOCK_NAME_BYTES_MAX)?;
        }
        if let Query::Pings { which: WhichPings::Of(process) | WhichPings::After(Some(process)), .. } = &self.query {
            bounded("process", process, METADATA_BYTES_MAX)?;
        }
        Ok(self)
    }
}

/// What a caller from outside follows, within its bounds.
pub(in crate::rpc) fn subscription(asked: pb::WatchRequest) -> Result<Subscription, Invalid> {
    let subscription = Subscription::from_wire("watch", asked)?;
    if let Scope::Namespace { prefix, .. } = &subscription.scope {
        bounded("prefix", prefix, LOCK_NAME_BYTES_MAX)?;
    }
    Ok(subscription)
}

impl pb::TokensReply {
    /// All valid tokens of a lock.
    pub(in crate::rpc) fn of_all(valid: &ValidTokens) -> Self {
        Self { all: true, valid: valid.tokens.to_wire(), ..Self::of_rest(valid) }
    }

    /// What changed.
    pub(in crate::rpc) fn of_change(valid: &ValidTokens, TokenChange { granted, ended }: TokenChange) -> Self {
        let tokens = |token: Option<FencingToken>| token.map(FencingToken::as_u64).into_iter().collect();
        Self { valid: tokens(granted), ended: tokens(ended), ..Self::of_rest(valid) }
    }

    /// A reply without any tokens.
    fn of_rest(valid: &ValidTokens) -> Self {
        let (seen, floor, next) = (valid.seen.to_wire(), valid.floor().as_u64(), valid.next.as_u64());
        Self { seen, floor, next, ..Self::default() }
    }
}
