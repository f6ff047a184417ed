//! Answers to questions. A reply names its namespace once, for all its rows.

use super::scalars::lock_key;
use super::table::Wire;
use crate::model::{
    Checked, Explanation, FencingToken, HistoryPage, Invalid, LockKey, LockView, LogTime, Namespace, Page, QueryReply,
    QueryResult, TokenChange, ValidTokens,
};
use crate::rpc::pb;
use crate::service::ServiceError;

/// `Variant(shape) = Message { fields }`, as in `wire_shapes`; beside its own fields every message says where and when.
macro_rules! wire_answers {
    ($($variant:ident $shape:tt = $wire:ident { $($field:ident),* })*) => { $(
        impl TryFrom<(&Namespace, QueryReply)> for pb::$wire {
            type Error = ServiceError;
            fn try_from((of, QueryReply { index, now, answer }): (&Namespace, QueryReply)) -> Result<Self, ServiceError> {
                let QueryResult::$variant $shape = &answer else { return Err(other_answer()) };
                Ok(Self { namespace: of.to_wire(), index, now_ms: now.to_wire(), $($field: Wire::to_wire($field)),* })
            }
        }

        impl TryFrom<pb::$wire> for QueryReply {
            type Error = Invalid;
            fn try_from(reply: pb::$wire) -> Result<Self, Invalid> {
                let pb::$wire { namespace, index, now_ms, $($field),* } = reply;
                $(let $field = Wire::from_wire(stringify!($field), $field)?;)*
                let of = Wire::from_wire("namespace", namespace)?;
                Ok(QueryReply { index, now: LogTime(now_ms), answer: in_namespace(&of, QueryResult::$variant $shape) })
            }
        }
    )* };
}

wire_answers! {
    Checked(Checked { state, lowest_valid }) = CheckReply { state, lowest_valid }
    Lock(LockView { lock, kind, limit, holders, waiters, delay_ms, closed, value, free })
        = InspectReply { lock, kind, limit, holders, waiters, delay_ms, closed, value, free }
    Locks(Page { rows, more }) = ListReply { rows, more }
    Sessions(Page { rows, more }) = SessionsReply { rows, more }
    Claim { outcome, recalled } = ClaimReply { outcome, recalled }
    Totals(totals) = TotalsReply { totals }
    Explained(Explanation { chain, freed_by, more }) = ExplainReply { chain, freed_by, more }
    History(HistoryPage { records, next, floor }) = HistoryReply { records, next, floor }
    Documents(Page { rows, more }) = FindDocumentsReply { rows, more }
    Pings(Page { rows, more }) = PingsReply { rows, more }
}

impl TryFrom<(&Namespace, QueryReply)> for pb::TokensReply {
    type Error = ServiceError;
    fn try_from((_, QueryReply { index, now, answer }): (&Namespace, QueryReply)) -> Result<Self, ServiceError> {
        let QueryResult::Tokens(valid) = &answer else { return Err(other_answer()) };
        Ok(Self { index, now_ms: now.to_wire(), ..Self::of_all(valid) })
    }
}

impl TryFrom<pb::TokensReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::TokensReply) -> Result<Self, Invalid> {
        // A question is answered with all tokens; the floor follows from them.
        let pb::TokensReply { namespace, lock, index, now_ms, seen, all: _, valid, ended: _, floor: _, next } = reply;
        let valid = ValidTokens {
            lock: lock_key(&namespace, &lock)?,
            seen: Wire::from_wire("seen", seen)?,
            tokens: Wire::from_wire("valid", valid)?,
            next: Wire::from_wire("next", next)?,
        };
        Ok(QueryReply { index, now: LogTime(now_ms), answer: QueryResult::Tokens(valid) })
    }
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
        let ValidTokens { lock: LockKey { namespace, name }, seen, tokens: _, next } = valid;
        let (index, now_ms, all) = (0, 0, false);
        let (namespace, lock, seen, next) = (namespace.to_wire(), name.to_wire(), seen.to_wire(), next.to_wire());
        let (valid, ended, floor) = (Vec::new(), Vec::new(), valid.floor().as_u64());
        Self { namespace, lock, index, now_ms, seen, all, valid, ended, floor, next }
    }
}

/// The names in an answer get the namespace that its reply names once.
fn in_namespace(namespace: &Namespace, mut answer: QueryResult) -> QueryResult {
    let add = |to: &mut Namespace| to.clone_from(namespace);
    match &mut answer {
        QueryResult::Lock(view) => add(&mut view.lock.namespace),
        QueryResult::Locks(page) => page.rows.iter_mut().for_each(|row| add(&mut row.lock.namespace)),
        QueryResult::Sessions(page) => page.rows.iter_mut().for_each(|row| add(&mut row.namespace)),
        QueryResult::Documents(page) => page.rows.iter_mut().for_each(|row| add(&mut row.lock.namespace)),
        QueryResult::Checked(_)
        | QueryResult::Claim { .. }
        | QueryResult::Totals(_)
        | QueryResult::Explained(_)
        | QueryResult::History(_)
        | QueryResult::Tokens(_)
        | QueryResult::Pings(_)
        | QueryResult::WouldBreak(_) => {}
    }
    answer
}

/// The error of a service that answered another question than it was asked.
pub(super) fn other_answer() -> ServiceError {
    ServiceError::Internal("the service answered another question".to_owned())
}
