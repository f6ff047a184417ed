//! Queries, their answers, and subscriptions.

use super::table::Wire;
use crate::model::{About, Invalid, ListFilter, Query, QueryReply, QueryResult, WhichDocuments, WhichPings};
use crate::rpc::pb;
use crate::service::{Freshness, Scope, Subscription};

/// A query with the consistency of its answer.
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
        Holders { lock },
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
