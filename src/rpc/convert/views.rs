//! What other callers may know of holders, waiters, sessions, documents and the cluster.

use super::table::{Wire, required};
use crate::model::{
    Arrival, BreakReport, Checked, Closing, Document, ExplainedWait, Explanation, GrantFacts, HistoryPage,
    HistoryRecord, HolderView, Invalid, LockName, LockSummary, LockView, Obstacle, Page, Part, Participant,
    ProcessPing, SessionId, SessionView, ValidTokens, WaiterView,
};
use crate::rpc::pb;
use crate::service::{MemberChange, NodeStatus, Status};

wire_messages! {
    HolderView = Holder { session, owner, principal, token, mode, metadata, cached, recalled; since_ms: since, deadline_ms: deadline }
    WaiterView = Waiter { place, sequence, session, owner, mode, metadata; since_ms: since }
    BreakReport = Broken { done, holder, next; last_seen_ms: last_seen }
    Closing = Closing { token, who, left_ms; until_ms: until }
    LockSummary = LockSummary { lock, kind, limit, holders, waiters, oldest, delay_ms, value }
    SessionView = SessionSummary {
        session, namespace, metadata, ttl_ms, disconnected, leaderless_ms, holds, waits; opened_ms: opened, deadline_ms: deadline
    }
    ExplainedWait = ExplainedWait { lock, place, sequence, waiter, parent, waits_for; until_ms: until }
    Obstacle = Obstacle { lock, why, sequence, who }
    Participant = Participant { session, owner, metadata, token, mode, health, recalled; since_ms: since, ends_ms: ends }
    Document = DocumentView { lock, state, ts, process, who, why, term, token, native; when_ms: when }
    ProcessPing = ProcessPing { process; ping_ms: ping }
    NodeStatus = NodeStatus { id, role, client, peer, http, applied, healthy, version, features, rules, certificate_ends }
    Status = StatusReply {
        cluster, cluster_id, peers_id, node, leader, term, applied, nodes, totals, ttl_ms_min, ttl_ms_max, features, closed_ms, led_ms,
        uncounted_ms, warnings;
        log_time_ms: log_time, timing: timing_ms
    }
    Arrival = Arrival { sequence, queued }
    GrantFacts = GrantFacts { arrival, set, passing, owner, principal, who, why; barging: fairness }
    HistoryRecord = HistoryRecord { event, mode, limit, grant, previous, before, hash }
    Checked = Checked { state, lowest_valid; since_ms: since, deadline_ms: deadline }
    LockView = LockView { lock, kind, limit, holders, waiters, delay_ms, closed, value, free }
    Explanation = Explanation { chain, freed_by, more }
    ValidTokens = ValidTokens { lock, seen, tokens, next }
    HistoryPage = HistoryPage { records, next, floor }
    Part<LockSummary, LockName> = LockPage { rows, next }
    Part<SessionView, SessionId> = SessionPage { rows, next }
    Part<Document, LockName> = DocumentPage { rows, next }
    Page<ProcessPing> = PingPage { rows, more }
}

wire_leaves! {
    [u64; 3]: Option<pb::Timing>, timing_ms => {
        let [heartbeat_ms, election_min_ms, election_max_ms] = *timing_ms;
        Some(pb::Timing { heartbeat_ms, election_min_ms, election_max_ms })
    }, (field, timing) => {
        let pb::Timing { heartbeat_ms, election_min_ms, election_max_ms } = required(field, timing)?;
        Ok([heartbeat_ms, election_min_ms, election_max_ms])
    };
}

wire_oneof! {
    MemberChange = change_members_request::Change in ChangeMembersRequest.change {
        Add = AddMember { node, client, peer },
        Promote = PromoteMember { node, instead_of },
        Remove = RemoveMember { node },
    }
}
