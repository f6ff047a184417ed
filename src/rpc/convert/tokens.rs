//! Valid tokens of a lock.

use super::part::{known, lock_key, required};
use crate::model::{FencingToken, Invalid, LogTime, Query, QueryReply, QueryResult, TokenChange, ValidTokens};
use crate::rpc::pb;

impl TryFrom<pb::TokensRequest> for Query {
    type Error = Invalid;
    fn try_from(asked: pb::TokensRequest) -> Result<Self, Invalid> {
        known::<pb::Freshness>("freshness", asked.freshness)?;
        Ok(Query::Tokens { lock: lock_key(&asked.namespace, &asked.lock)? })
    }
}

impl pb::TokensReply {
    /// Everything that is valid.
    pub(in crate::rpc) fn of_all(valid: &ValidTokens) -> Self {
        let tokens = valid.tokens.iter().map(|token| token.as_u64()).collect();
        Self { all: true, valid: tokens, ..Self::of_rest(valid) }
    }

    /// What changed.
    pub(in crate::rpc) fn of_change(valid: &ValidTokens, change: TokenChange) -> Self {
        let token = |token: Option<FencingToken>| token.map(FencingToken::as_u64).into_iter().collect();
        Self { all: false, valid: token(change.granted), ended: token(change.ended), ..Self::of_rest(valid) }
    }

    /// A reply without any tokens.
    fn of_rest(valid: &ValidTokens) -> Self {
        Self {
            namespace: valid.lock.namespace.to_string(),
            lock: valid.lock.name.to_string(),
            seen: Some(valid.seen.into()),
            floor: valid.floor().as_u64(),
            next: valid.next.as_u64(),
            ..Self::default()
        }
    }
}

impl TryFrom<pb::TokensReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::TokensReply) -> Result<Self, Invalid> {
        let valid = ValidTokens {
            lock: lock_key(&reply.namespace, &reply.lock)?,
            seen: required("seen", reply.seen)?.into(),
            tokens: reply.valid.into_iter().map(FencingToken::from_u64).collect::<Result<_, _>>()?,
            next: FencingToken::from_u64(reply.next)?,
        };
        Ok(QueryReply { index: reply.index, now: LogTime(reply.now_ms), answer: QueryResult::Tokens(valid) })
    }
}
