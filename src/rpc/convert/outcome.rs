//! Outcomes of commands.

use super::answers::other_answer;
use super::error::{error_from_wire, error_to_wire};
use super::table::Wire;
use crate::model::{Grant, Invalid, LockName, LogTime, Outcome, Place, QueryReply, QueryResult, Refusal, Reply};
use crate::rpc::pb;
use crate::service::ServiceError;

wire_messages! {
    Grant = Granted { token, waited_ms; deadline_ms: deadline, ends_ms: ends }
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
        Broken(breach),
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
    // The namespace is added by the call that echoes it.
    Reply: pb::Reply, reply => {
        let Reply { index, stamp, outcome, recalled } = reply;
        let (stamp_ms, outcome, recalled) = (stamp.to_wire(), outcome.to_wire(), recalled.to_wire());
        pb::Reply { namespace: String::new(), index: *index, stamp_ms, outcome, recalled }
    }, (_, pb::Reply { namespace: _, index, stamp_ms, outcome, recalled }) => {
        let (outcome, recalled) = (Wire::from_wire("outcome", outcome)?, Wire::from_wire("recalled", recalled)?);
        Ok(Reply { index, stamp: LogTime(stamp_ms), outcome, recalled })
    };
    // What became of a claim, without the place where it was decided.
    Outcome: pb::Reply, outcome => pb::Reply { outcome: outcome.to_wire(), ..Default::default() },
        (field, wire) => Reply::from_wire(field, wire).map(|reply| reply.outcome);
}

wire_whole! { Reply: pb::Reply, "reply"; }

/// The answer to a dry run, in the form of the command's reply.
pub(in crate::rpc) fn dry_run_reply(answered: QueryReply) -> Result<Reply, ServiceError> {
    let QueryReply { index, now: stamp, answer: QueryResult::WouldBreak(outcome) } = answered else {
        return Err(other_answer());
    };
    Ok(Reply::new(index, stamp, outcome))
}

/// The same, read back.
pub(in crate::rpc) fn dry_run_answer(Reply { index, stamp, outcome, recalled: _ }: Reply) -> QueryReply {
    QueryReply { index, now: stamp, answer: QueryResult::WouldBreak(outcome) }
}
