//! Outcomes of commands.

use super::answers::other_answer;
use super::error::{error_from_wire, error_to_wire};
use super::table::{Wire, must_be_set, read_set, wire_messages, wire_oneof, wire_whole};
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

impl Wire<pb::GrantedSet> for Vec<(LockName, Grant)> {
    fn to_wire(&self) -> pb::GrantedSet {
        let member =
            |(lock, grant): &_| pb::GrantedMember { lock: LockName::to_wire(lock), grant: Grant::to_wire(grant) };
        pb::GrantedSet { members: self.iter().map(member).collect() }
    }

    fn from_wire(_: &'static str, pb::GrantedSet { members }: pb::GrantedSet) -> Result<Self, Invalid> {
        let member = |pb::GrantedMember { lock, grant }| Ok((LockName::parse(&lock)?, read_set("grant", grant)?));
        members.into_iter().map(member).collect()
    }
}

impl Wire<pb::Error> for Refusal {
    fn to_wire(&self) -> pb::Error {
        error_to_wire(&ServiceError::Refused(self.clone()))
    }

    fn from_wire(field: &'static str, wire: pb::Error) -> Result<Self, Invalid> {
        let error = error_from_wire(&wire);
        let ServiceError::Refused(refusal) = error else { return Err(Invalid::new(field, "a known refusal", error)) };
        Ok(refusal)
    }
}

/// The namespace is added by the call that echoes it.
impl Wire<pb::Reply> for Reply {
    fn to_wire(&self) -> pb::Reply {
        let Reply { index, stamp, outcome } = self;
        pb::Reply { namespace: String::new(), index: *index, stamp_ms: stamp.to_wire(), outcome: outcome.to_wire() }
    }

    fn from_wire(_: &'static str, wire: pb::Reply) -> Result<Self, Invalid> {
        let pb::Reply { namespace: _, index, stamp_ms, outcome } = wire;
        Ok(Reply { index, stamp: LogTime(stamp_ms), outcome: Wire::from_wire("outcome", outcome)? })
    }
}

/// What became of a claim, without the place where it was decided.
impl Wire<pb::Reply> for Outcome {
    fn to_wire(&self) -> pb::Reply {
        pb::Reply { outcome: self.to_wire(), ..Default::default() }
    }

    fn from_wire(field: &'static str, wire: pb::Reply) -> Result<Self, Invalid> {
        Reply::from_wire(field, wire).map(|reply| reply.outcome)
    }
}

wire_whole! { Reply: pb::Reply, "reply"; }

/// The answer to a dry run, in the form of the command's reply.
pub(in crate::rpc) fn dry_run_reply(answered: QueryReply) -> Result<Reply, ServiceError> {
    let QueryReply { index, now: stamp, answer: QueryResult::WouldBreak(outcome) } = answered else {
        return Err(other_answer(&answered.answer));
    };
    Ok(Reply { index, stamp, outcome })
}

/// The same, read back.
pub(in crate::rpc) fn dry_run_answer(Reply { index, stamp, outcome }: Reply) -> QueryReply {
    QueryReply { index, now: stamp, answer: QueryResult::WouldBreak(outcome) }
}
