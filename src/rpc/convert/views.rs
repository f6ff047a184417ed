//! What others may know of holders, waiters, sessions, documents and the cluster.

use super::table::Wire;
use crate::model::{
    Access, Arrival, BreakReport, Closing, Document, ExplainedWait, GrantFacts, HistoryRecord, HolderView, Invalid,
    LockSummary, Obstacle, Participant, ProcessPing, SessionView, WaiterView,
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
        session, metadata, ttl_ms, disconnected, leaderless_ms, holds, waits; opened_ms: opened, deadline_ms: deadline
    } + namespace
    ExplainedWait = ExplainedWait { lock, place, sequence, waiter, parent, waits_for; until_ms: until }
    Obstacle = Obstacle { lock, why, sequence, who }
    Participant = Participant { session, owner, metadata, token, mode, health, recalled; since_ms: since, ends_ms: ends }
    Document = Document { lock, state, ts, process, who, why, term, token, native; when_ms: when }
    ProcessPing = ProcessPing { process; ping_ms: ping }
    NodeStatus = NodeStatus { id, role, client, peer, http, applied, healthy, version, features }
}

wire_shapes! {
    GrantFacts {
        arrival: Arrival { sequence, queued }, fairness: barging, set, passing, owner, principal, who, why
    } = GrantFacts { sequence, queued, barging, set, passing, owner, principal, who, why }
    Status {
        cluster, cluster_id, peers_id, node, leader, term, log_time: log_time_ms, applied, nodes, totals, ttl_ms_min,
        ttl_ms_max, features, timing_ms: [heartbeat_ms, election_min_ms, election_max_ms], closed_ms
    } = StatusReply {
        cluster, cluster_id, peers_id, node, leader, term, log_time_ms, applied, nodes, totals, ttl_ms_min,
        ttl_ms_max, features, heartbeat_ms, election_min_ms, election_max_ms, closed_ms
    }
}

wire_leaves! {
    // A record has the limit beside the mode; the wire has both in one.
    HistoryRecord: pb::HistoryRecord, record => {
        let HistoryRecord { event, mode, limit, grant, previous, before, hash } = record;
        let mode = mode.map(|mode| Access { mode, limit: *limit }.to_wire());
        let (event, grant) = (event.to_wire(), grant.to_wire());
        let (previous, before, hash) = (previous.to_wire(), before.to_wire(), hash.to_wire());
        pb::HistoryRecord { event, mode, grant, previous, before, hash }
    }, (_, pb::HistoryRecord { event, mode, grant, previous, before, hash }) => {
        let (mode, limit) = Option::<Access>::from_wire("mode", mode)?.map(|Access { mode, limit }| (mode, limit)).unzip();
        let (event, grant) = (Wire::from_wire("event", event)?, Wire::from_wire("grant", grant)?);
        let (previous, before) = (Wire::from_wire("previous", previous)?, Wire::from_wire("before", before)?);
        let (limit, hash) = (limit.flatten(), Wire::from_wire("hash", hash)?);
        Ok(HistoryRecord { event, mode, limit, grant, previous, before, hash })
    };
}

wire_oneof! {
    MemberChange = change_members_request::Change in ChangeMembersRequest.change {
        Add = AddMember { node, client, peer },
        Promote = PromoteMember { node, instead_of },
        Remove = RemoveMember { node },
    }
}
