//! Outcomes of commands.

use super::error::{error_from_wire, error_to_wire};
use super::table::Wire;
use crate::model::{Grant, Invalid, LockName, Outcome, Place, Refusal, Reply};
use crate::rpc::pb;
use crate::service::ServiceError;

wire_messages! {
    Grant = Granted { token, waited_ms; deadline_ms: deadline, ends_ms: ends }
    Reply = Reply { index, outcome, recalled; stamp_ms: stamp }
    Place = Queued { lock, place, sequence, held_by }
}

wire_oneof! {
    Outcome = reply::Outcome {
        Opened = Opened { session, ttl_ms; deadline_ms: deadline },
        Attached = Attached { attachment; deadline_ms: deadline },
        Closed,
        Renewed = Renewed { attempt, token; deadline_ms: deadline },
        Granted(grant),
        GrantedSet(grants),
        Queued(place),
        TimedOut,
        Withdrawn,
        HoldEnded = HoldEnded { reason },
        Released = Released { left },
        Downgraded,
        Done,
        Broken(report),
        HandedOver = HandedOver { token, to },
        Freed { locks },
        Refused(refused),
    }
}

wire_leaves! {
    (LockName, Grant): pb::GrantedMember, granted => {
        let (lock, grant) = granted;
        pb::GrantedMember { lock: lock.to_wire(), grant: grant.to_wire() }
    }, (_, pb::GrantedMember { lock, grant }) => Ok((LockName::parse(&lock)?, Wire::from_wire("grant", grant)?));
    Vec<(LockName, Grant)>: pb::GrantedSet, grants => pb::GrantedSet { members: grants.to_wire() },
        (_, pb::GrantedSet { members }) => Wire::from_wire("members", members);
    Refusal: pb::Error, refusal => error_to_wire(&ServiceError::Refused(refusal.clone())), (field, wire) => {
        let error = error_from_wire(&wire);
        let ServiceError::Refused(refusal) = error else { return Err(Invalid::new(field, "a known refusal", error)) };
        Ok(refusal)
    };
    // The outcome of a claim without the position of its decision.
    Outcome: pb::Reply, outcome => pb::Reply { outcome: outcome.to_wire(), ..Default::default() },
        (field, wire) => Reply::from_wire(field, wire).map(|reply| reply.outcome);
}
