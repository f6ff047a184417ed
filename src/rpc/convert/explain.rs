//! Who waits for whom: the question and its answer.

use super::answer::other_answer;
use super::part::{known, lock_key, metadata, owner, parent, required, session};
use crate::model::{
    About, ExplainedWait, Explanation, FencingToken, Invalid, LockKey, LogTime, Obstacle, Participant, QueryReply,
    QueryResult, RequestId, SessionId,
};
use crate::rpc::pb;
use crate::rpc::pb::explain_request::About as Wire;
use crate::service::ServiceError;

impl TryFrom<pb::ExplainRequest> for About {
    type Error = Invalid;
    fn try_from(asked: pb::ExplainRequest) -> Result<Self, Invalid> {
        Ok(match required("about", asked.about)? {
            Wire::Lock(name) => About::Lock(lock_key(&asked.namespace, &name)?),
            Wire::Session(session) => About::Session(SessionId::from_u64(session)?),
            Wire::Request(pb::RequestId { session, number }) => {
                About::Request(RequestId { session: SessionId::from_u64(session)?, number })
            }
        })
    }
}

impl From<&About> for pb::ExplainRequest {
    fn from(about: &About) -> Self {
        let (namespace, about) = match about {
            About::Lock(LockKey { namespace, name }) => (namespace.to_string(), Wire::Lock(name.to_string())),
            About::Session(session) => (String::new(), Wire::Session(session.as_u64())),
            About::Request(RequestId { session, number }) => {
                (String::new(), Wire::Request(pb::RequestId { session: session.as_u64(), number: *number }))
            }
        };
        Self { namespace, about: Some(about), freshness: pb::Freshness::Unspecified.into() }
    }
}

impl TryFrom<QueryReply> for pb::ExplainReply {
    type Error = ServiceError;
    fn try_from(answered: QueryReply) -> Result<Self, ServiceError> {
        let QueryResult::Explained(explanation) = &answered.answer else { return Err(other_answer(&answered.answer)) };
        Ok(Self {
            namespace: String::new(),
            index: answered.index,
            now_ms: answered.now.0,
            chain: explanation.chain.iter().map(Into::into).collect(),
            freed_by: explanation.freed_by.iter().map(Into::into).collect(),
            more: explanation.more,
        })
    }
}

impl TryFrom<pb::ExplainReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::ExplainReply) -> Result<Self, Invalid> {
        let explanation = Explanation {
            chain: reply.chain.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            freed_by: reply.freed_by.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            more: reply.more,
        };
        Ok(Self { index: reply.index, now: LogTime(reply.now_ms), answer: QueryResult::Explained(explanation) })
    }
}

impl From<&ExplainedWait> for pb::ExplainedWait {
    fn from(wait: &ExplainedWait) -> Self {
        Self {
            lock: Some((&wait.lock).into()),
            place: wait.place,
            sequence: wait.sequence,
            waiter: Some((&wait.waiter).into()),
            parent: wait.parent.as_ref().map(Into::into),
            until_ms: wait.until.map(|until| until.0),
            waits_for: wait.waits_for.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<pb::ExplainedWait> for ExplainedWait {
    type Error = Invalid;
    fn try_from(wait: pb::ExplainedWait) -> Result<Self, Invalid> {
        Ok(Self {
            lock: required("lock", wait.lock)?.try_into()?,
            place: wait.place,
            sequence: wait.sequence,
            waiter: required("waiter", wait.waiter)?.try_into()?,
            parent: wait.parent.map(parent).transpose()?,
            until: wait.until_ms.map(LogTime),
            waits_for: wait.waits_for.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
        })
    }
}

impl From<&Obstacle> for pb::Obstacle {
    fn from(obstacle: &Obstacle) -> Self {
        Self {
            lock: Some((&obstacle.lock).into()),
            why: pb::WaitReason::from(obstacle.why).into(),
            sequence: obstacle.sequence,
            who: Some((&obstacle.who).into()),
        }
    }
}

impl TryFrom<pb::Obstacle> for Obstacle {
    type Error = Invalid;
    fn try_from(obstacle: pb::Obstacle) -> Result<Self, Invalid> {
        Ok(Self {
            lock: required("lock", obstacle.lock)?.try_into()?,
            why: known::<pb::WaitReason>("why", obstacle.why)?.try_into()?,
            sequence: obstacle.sequence,
            who: required("who", obstacle.who)?.try_into()?,
        })
    }
}

impl From<&Participant> for pb::Participant {
    fn from(who: &Participant) -> Self {
        Self {
            session: who.session.map(SessionId::as_u64),
            owner: who.owner.as_ref().map(ToString::to_string),
            metadata: Some((&who.metadata).into()),
            token: who.token.map(FencingToken::as_u64),
            mode: Some(who.mode.into()),
            since_ms: who.since.0,
            health: pb::Health::from(who.health).into(),
            ends_ms: who.ends.map(|ends| ends.0),
        }
    }
}

impl TryFrom<pb::Participant> for Participant {
    type Error = Invalid;
    fn try_from(who: pb::Participant) -> Result<Self, Invalid> {
        Ok(Self {
            session: session(who.session)?,
            owner: owner(who.owner)?,
            metadata: metadata(who.metadata)?,
            token: who.token.map(FencingToken::from_u64).transpose()?,
            mode: required("mode", who.mode)?.try_into()?,
            since: LogTime(who.since_ms),
            health: known::<pb::Health>("health", who.health)?.try_into()?,
            ends: who.ends_ms.map(LogTime),
        })
    }
}
