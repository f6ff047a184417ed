//! Questions and subscriptions as they come in, and as a client sends them.

use super::scalars::{bounded, lock_key, namespace, required, rows};
use super::table::Wire;
use crate::limits;
use crate::model::{About, Invalid, ListFilter, LockKey, Namespace, Query, SessionId, WhichDocuments, WhichPings};
use crate::rpc::pb;
use crate::service::{Freshness, Scope, ServiceError, Subscription};

/// A question with how true its answer has to be, and the namespace that the reply echoes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rpc) struct Question {
    pub(in crate::rpc) namespace: Namespace,
    pub(in crate::rpc) query: Query,
    pub(in crate::rpc) freshness: Freshness,
}

impl Question {
    fn new(namespace: Namespace, query: Query, freshness: i32) -> Result<Self, Invalid> {
        let freshness = Wire::from_wire("freshness", freshness)?;
        Ok(Self { namespace, query: within_bounds(query)?, freshness })
    }
}

/// What only a caller from outside can get wrong: the node's own callers hold to it.
fn within_bounds(mut query: Query) -> Result<Query, Invalid> {
    match &mut query {
        Query::List(filter) => {
            bounded("prefix", &filter.prefix, limits::LOCK_NAME_BYTES_MAX)?;
            filter.rows = rows(filter.rows)?;
        }
        Query::Pings { which, rows: asked, .. } => {
            match which {
                WhichPings::Of(process) => bounded("process", process, limits::METADATA_BYTES_MAX)?,
                WhichPings::After(after) => {
                    bounded("after", after.as_deref().unwrap_or_default(), limits::METADATA_BYTES_MAX)?;
                }
            }
            *asked = rows(*asked)?;
        }
        Query::Sessions { rows: asked, .. }
        | Query::History { rows: asked, .. }
        | Query::Documents { rows: asked, .. } => {
            *asked = rows(*asked)?;
        }
        Query::Check { .. }
        | Query::Inspect { .. }
        | Query::Claim { .. }
        | Query::Totals
        | Query::Explain(_)
        | Query::Tokens { .. }
        | Query::WouldBreak { .. } => {}
    }
    Ok(query)
}

fn other_question(query: &Query, message: &str) -> ServiceError {
    ServiceError::Internal(format!("{message} cannot ask {query:?}"))
}

/// `Variant { shape } = Message { fields }`, as in `wire_shapes`, for messages whose namespace is part of the shape.
macro_rules! wire_queries {
    ($namespace:ident; $($variant:ident $shape:tt = $wire:ident { $($field:ident),* })*) => { $(
        impl TryFrom<pb::$wire> for Question {
            type Error = Invalid;
            fn try_from(asked: pb::$wire) -> Result<Self, Invalid> {
                let pb::$wire { $namespace, $($field,)* freshness } = asked;
                let $namespace: Namespace = Wire::from_wire("namespace", $namespace)?;
                $(let $field = Wire::from_wire(stringify!($field), $field)?;)*
                Self::new($namespace.clone(), Query::$variant $shape, freshness)
            }
        }

        impl TryFrom<(&Query, Freshness)> for pb::$wire {
            type Error = ServiceError;
            fn try_from((query, freshness): (&Query, Freshness)) -> Result<Self, ServiceError> {
                let Query::$variant $shape = query else { return Err(other_question(query, stringify!($wire))) };
                let $namespace = $namespace.to_wire();
                Ok(Self { $namespace, $($field: Wire::to_wire($field),)* freshness: freshness.to_wire() })
            }
        }
    )* };
}

wire_queries! { namespace;
    Check { lock: LockKey { namespace, name: lock }, token } = CheckRequest { lock, token }
    Inspect { lock: LockKey { namespace, name: lock } } = InspectRequest { lock }
    Tokens { lock: LockKey { namespace, name: lock } } = TokensRequest { lock }
    List(ListFilter { namespace, prefix, show, older_than_ms, after, rows })
        = ListRequest { prefix, show, older_than_ms, after, rows }
    Sessions { namespace, after, rows } = SessionsRequest { after, rows }
    History { namespace, lock, after, rows } = HistoryRequest { lock, after, rows }
}

impl TryFrom<pb::TotalsRequest> for Question {
    type Error = Invalid;
    fn try_from(pb::TotalsRequest { freshness }: pb::TotalsRequest) -> Result<Self, Invalid> {
        Self::new(Namespace::default(), Query::Totals, freshness)
    }
}

impl TryFrom<(&Query, Freshness)> for pb::TotalsRequest {
    type Error = ServiceError;
    fn try_from((_, freshness): (&Query, Freshness)) -> Result<Self, ServiceError> {
        Ok(Self { freshness: freshness.to_wire() })
    }
}

impl TryFrom<pb::ClaimRequest> for Question {
    type Error = Invalid;
    fn try_from(asked: pb::ClaimRequest) -> Result<Self, Invalid> {
        let pb::ClaimRequest { namespace: of, lock, claim, freshness } = asked;
        // The lock may be left out for a session's request.
        let lock = (!lock.is_empty()).then(|| lock_key(&of, &lock)).transpose()?;
        Self::new(namespace(&of)?, Query::Claim { lock, claim: Wire::from_wire("claim", claim)? }, freshness)
    }
}

impl TryFrom<(&Query, Freshness)> for pb::ClaimRequest {
    type Error = ServiceError;
    fn try_from((query, freshness): (&Query, Freshness)) -> Result<Self, ServiceError> {
        let Query::Claim { lock, claim } = query else { return Err(other_question(query, "ClaimRequest")) };
        let (namespace, lock) = lock
            .as_ref()
            .map(LockKey::to_wire)
            .map(|lock: pb::LockKey| (lock.namespace, lock.name))
            .unwrap_or_default();
        Ok(Self { namespace, lock, claim: claim.to_wire(), freshness: freshness.to_wire() })
    }
}

impl TryFrom<pb::ExplainRequest> for Question {
    type Error = Invalid;
    fn try_from(asked: pb::ExplainRequest) -> Result<Self, Invalid> {
        use pb::explain_request::About as Asked;
        let pb::ExplainRequest { namespace: of, about, freshness } = asked;
        let about = match required("about", about)? {
            Asked::Lock(name) => About::Lock(lock_key(&of, &name)?),
            Asked::Session(session) => About::Session(SessionId::from_u64(session)?),
            Asked::Request(request) => About::Request(Wire::from_wire("request", request)?),
        };
        Self::new(namespace(&of)?, Query::Explain(about), freshness)
    }
}

impl TryFrom<(&Query, Freshness)> for pb::ExplainRequest {
    type Error = ServiceError;
    fn try_from((query, freshness): (&Query, Freshness)) -> Result<Self, ServiceError> {
        use pb::explain_request::About as Asked;
        let Query::Explain(about) = query else { return Err(other_question(query, "ExplainRequest")) };
        let (namespace, about) = match about {
            About::Lock(LockKey { namespace, name }) => (namespace.to_wire(), Asked::Lock(name.to_wire())),
            About::Session(session) => (String::new(), Asked::Session(session.to_wire())),
            About::Request(request) => (String::new(), Asked::Request(request.to_wire())),
        };
        Ok(Self { namespace, about: Some(about), freshness: freshness.to_wire() })
    }
}

impl TryFrom<pb::FindDocumentsRequest> for Question {
    type Error = Invalid;
    fn try_from(asked: pb::FindDocumentsRequest) -> Result<Self, Invalid> {
        let pb::FindDocumentsRequest { namespace: of, lock, ts, after, rows, freshness } = asked;
        let which = match Wire::from_wire("lock", lock)? {
            Some(name) => WhichDocuments::Named(name),
            None if !ts.is_empty() => WhichDocuments::Stamped(Wire::from_wire("ts", ts)?),
            None => WhichDocuments::After(Wire::from_wire("after", after)?),
        };
        let namespace = namespace(&of)?;
        Self::new(namespace.clone(), Query::Documents { namespace, which, rows }, freshness)
    }
}

impl TryFrom<(&Query, Freshness)> for pb::FindDocumentsRequest {
    type Error = ServiceError;
    fn try_from((query, freshness): (&Query, Freshness)) -> Result<Self, ServiceError> {
        let Query::Documents { namespace, which, rows } = query else {
            return Err(other_question(query, "FindDocumentsRequest"));
        };
        let (lock, ts, after) = match which {
            WhichDocuments::After(after) => (None, Default::default(), after.to_wire()),
            WhichDocuments::Named(name) => (Some(name.to_wire()), Default::default(), None),
            WhichDocuments::Stamped(ts) => (None, ts.to_wire(), None),
        };
        Ok(Self { namespace: namespace.to_wire(), lock, ts, after, rows: *rows, freshness: freshness.to_wire() })
    }
}

impl TryFrom<pb::PingsRequest> for Question {
    type Error = Invalid;
    fn try_from(asked: pb::PingsRequest) -> Result<Self, Invalid> {
        let pb::PingsRequest { namespace: of, process, after, rows, freshness } = asked;
        let which = match process {
            Some(process) => WhichPings::Of(process.into()),
            None => WhichPings::After(after.map(Into::into)),
        };
        let namespace = namespace(&of)?;
        Self::new(namespace.clone(), Query::Pings { namespace, which, rows }, freshness)
    }
}

impl TryFrom<(&Query, Freshness)> for pb::PingsRequest {
    type Error = ServiceError;
    fn try_from((query, freshness): (&Query, Freshness)) -> Result<Self, ServiceError> {
        let Query::Pings { namespace, which, rows } = query else { return Err(other_question(query, "PingsRequest")) };
        let (process, after) = match which {
            WhichPings::Of(process) => (Some(process.to_wire()), None),
            WhichPings::After(after) => (None, after.to_wire()),
        };
        Ok(Self { namespace: namespace.to_wire(), process, after, rows: *rows, freshness: freshness.to_wire() })
    }
}

impl TryFrom<pb::WatchRequest> for Subscription {
    type Error = Invalid;
    fn try_from(asked: pb::WatchRequest) -> Result<Self, Invalid> {
        use pb::watch_request::Scope as Asked;
        let pb::WatchRequest { namespace: of, scope, after, cluster_id } = asked;
        let scope = match scope.unwrap_or_else(|| Asked::Prefix(String::new())) {
            Asked::Prefix(prefix) => {
                bounded("prefix", &prefix, limits::LOCK_NAME_BYTES_MAX)?;
                Scope::Namespace { namespace: namespace(&of)?, prefix }
            }
            Asked::Session(session) => Scope::Session(SessionId::from_u64(session)?),
            Asked::Holds(session) => Scope::Holds(SessionId::from_u64(session)?),
        };
        let (after, cluster_id) = (Wire::from_wire("after", after)?, Wire::from_wire("cluster_id", cluster_id)?);
        Ok(Self { scope, after, cluster_id })
    }
}

impl From<&Subscription> for pb::WatchRequest {
    fn from(Subscription { scope, after, cluster_id }: &Subscription) -> Self {
        use pb::watch_request::Scope as Asked;
        let (namespace, scope) = match scope {
            Scope::Namespace { namespace, prefix } => (namespace.to_wire(), Asked::Prefix(prefix.clone())),
            // The wire has the events of the whole session; a reader that wants its end alone skips the others.
            Scope::Session(session) | Scope::SessionEnd(session) => (String::new(), Asked::Session(session.as_u64())),
            Scope::Holds(session) => (String::new(), Asked::Holds(session.as_u64())),
        };
        Self { namespace, scope: Some(scope), after: after.to_wire(), cluster_id: cluster_id.to_wire() }
    }
}

/// The cluster that a client expects, if it names one.
impl pb::ClientHello {
    pub(in crate::rpc) fn expected_cluster(&self) -> Result<Option<u128>, Invalid> {
        Wire::from_wire("cluster_id", self.cluster_id.clone())
    }
}
