//! History: questions and records.

use super::part::{lock_key, namespace, required, rows};
use crate::model::{
    Access, Arrival, ChainHash, Fairness, GrantFacts, HistoryPage, HistoryRecord, Invalid, LogTime, Owner, Principal,
    Query, QueryReply, QueryResult,
};
use crate::rpc::pb;

impl TryFrom<pb::HistoryRequest> for Query {
    type Error = Invalid;
    fn try_from(asked: pb::HistoryRequest) -> Result<Self, Invalid> {
        let named = !asked.lock.is_empty();
        let lock = named.then(|| lock_key(&asked.namespace, &asked.lock).map(|lock| lock.name)).transpose()?;
        Ok(Query::History {
            namespace: namespace(&asked.namespace)?,
            lock,
            after: asked.after.map(Into::into),
            rows: rows(asked.rows)?,
        })
    }
}

impl From<&HistoryRecord> for pb::HistoryRecord {
    fn from(record: &HistoryRecord) -> Self {
        Self {
            event: Some((&record.event).into()),
            mode: record.mode.map(|mode| Access { mode, limit: record.limit }.into()),
            grant: record.grant.as_ref().map(Into::into),
            previous: record.previous.0.to_vec().into(),
            before: record.before.0.to_vec().into(),
            hash: record.hash.0.to_vec().into(),
        }
    }
}

impl TryFrom<pb::HistoryRecord> for HistoryRecord {
    type Error = Invalid;
    fn try_from(record: pb::HistoryRecord) -> Result<Self, Invalid> {
        let access = record.mode.map(Access::try_from).transpose()?;
        Ok(Self {
            event: required("event", record.event)?.try_into()?,
            mode: access.map(|access| access.mode),
            limit: access.and_then(|access| access.limit),
            grant: record.grant.map(TryInto::try_into).transpose()?,
            previous: hash("previous", &record.previous)?,
            before: hash("before", &record.before)?,
            hash: hash("hash", &record.hash)?,
        })
    }
}

fn hash(field: &str, bytes: &[u8]) -> Result<ChainHash, Invalid> {
    let refused = |_| Invalid::new(field, "16 bytes", format!("{} bytes", bytes.len()));
    bytes.try_into().map(ChainHash).map_err(refused)
}

impl From<&GrantFacts> for pb::GrantFacts {
    fn from(facts: &GrantFacts) -> Self {
        Self {
            sequence: facts.arrival.sequence,
            queued: facts.arrival.queued,
            barging: facts.fairness == Fairness::Barging,
            set: facts.set,
            passing: facts.passing,
            owner: facts.owner.as_ref().map(ToString::to_string),
            principal: facts.principal.to_string(),
            who: facts.who.to_string(),
            why: facts.why.to_string(),
        }
    }
}

impl TryFrom<pb::GrantFacts> for GrantFacts {
    type Error = Invalid;
    fn try_from(facts: pb::GrantFacts) -> Result<Self, Invalid> {
        Ok(Self {
            arrival: Arrival { sequence: facts.sequence, queued: facts.queued },
            fairness: if facts.barging { Fairness::Barging } else { Fairness::Fair },
            set: facts.set,
            passing: facts.passing,
            owner: facts.owner.map(|owner| Owner::parse(&owner)).transpose()?,
            principal: Principal::parse(&facts.principal)?,
            who: facts.who.into(),
            why: facts.why.into(),
        })
    }
}

impl TryFrom<pb::HistoryReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::HistoryReply) -> Result<Self, Invalid> {
        let page = HistoryPage {
            records: reply.records.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            next: reply.next.map(Into::into),
            floor: required("floor", reply.floor)?.into(),
        };
        Ok(QueryReply { index: reply.index, now: LogTime(reply.now_ms), answer: QueryResult::History(page) })
    }
}
