//! Questions and subscriptions as they come in, and as a client sends them.

use super::scalars::{bounded, namespace, rows};
use super::table::Wire;
use crate::limits::{LOCK_NAME_BYTES_MAX, METADATA_BYTES_MAX};
use crate::model::{About, Invalid, ListFilter, LockName, Namespace, Query, SessionId, WhichDocuments, WhichPings};
use crate::rpc::pb;
use crate::rpc::pb::find_documents_request::Which as AskedDocuments;
use crate::rpc::pb::pings_request::Which as AskedPings;
use crate::rpc::pb::watch_request::Scope as AskedScope;
use crate::service::{Freshness, Scope, ServiceError, Subscription};

/// A question with how true its answer has to be, and the namespace that the reply echoes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rpc) struct Question {
    pub(in crate::rpc) namespace: Namespace,
    pub(in crate::rpc) query: Query,
    pub(in crate::rpc) freshness: Freshness,
}

impl Question {
    pub(in crate::rpc) fn new(mut query: Query, freshness: Freshness) -> Self {
        let namespace = named_in(&mut query).cloned().unwrap_or_default();
        Self { namespace, query, freshness }
    }

    /// A question whose names were read without their namespace. Its bounds hold for callers from outside: the node's own keep them.
    fn asked(of: &str, mut query: Query, freshness: i32) -> Result<Self, Invalid> {
        let (namespace, freshness) = (namespace(of)?, Wire::from_wire("freshness", freshness)?);
        if let Some(named) = named_in(&mut query) {
            named.clone_from(&namespace);
        }
        if let Query::List(ListFilter { rows: asked, .. })
        | Query::Sessions { rows: asked, .. }
        | Query::History { rows: asked, .. }
        | Query::Documents { rows: asked, .. }
        | Query::Pings { rows: asked, .. } = &mut query
        {
            *asked = rows(*asked)?;
        }
        if let Query::List(ListFilter { prefix, .. }) = &query {
            bounded("prefix", prefix, LOCK_NAME_BYTES_MAX)?;
        }
        if let Query::Pings { which: WhichPings::Of(process) | WhichPings::After(Some(process)), .. } = &query {
            bounded("process", process, METADATA_BYTES_MAX)?;
        }
        Ok(Self { namespace, query, freshness })
    }
}

/// The namespace of the names in a question.
fn named_in(query: &mut Query) -> Option<&mut Namespace> {
    match query {
        Query::Check { lock, .. }
        | Query::Inspect { lock }
        | Query::Tokens { lock }
        | Query::WouldBreak { lock, .. }
        | Query::Explain(About::Lock(lock))
        | Query::Claim { lock: Some(lock), .. } => Some(&mut lock.namespace),
        Query::List(ListFilter { namespace, .. })
        | Query::Sessions { namespace, .. }
        | Query::History { namespace, .. }
        | Query::Documents { namespace, .. }
        | Query::Pings { namespace, .. } => Some(namespace),
        Query::Explain(About::Session(_) | About::Request(_)) | Query::Claim { lock: None, .. } | Query::Totals => None,
    }
}

/// `Variant { shape } = Message { fields }`, as in `wire_shapes`; every message also has the namespace of its names.
macro_rules! wire_queries {
    ($namespace:ident; $($variant:ident $shape:tt = $wire:ident { $($field:ident),* })*) => { $(
        #[allow(unused_variables, reason = "not every shape has a namespace beside its lock")]
        impl TryFrom<pb::$wire> for Question {
            type Error = Invalid;
            fn try_from(pb::$wire { namespace, $($field,)* freshness }: pb::$wire) -> Result<Self, Invalid> {
                let $namespace = Namespace::default();
                $(let $field = Wire::from_wire(stringify!($field), $field)?;)*
                Self::asked(&namespace, Query::$variant $shape, freshness)
            }
        }

        #[allow(unused_variables, reason = "a question knows the namespace of its names")]
        impl TryFrom<&Question> for pb::$wire {
            type Error = ServiceError;
            fn try_from(Question { namespace, query, freshness }: &Question) -> Result<Self, ServiceError> {
                let Query::$variant $shape = query else {
                    return Err(ServiceError::Internal(concat!("not for ", stringify!($wire)).to_owned()));
                };
                let (namespace, freshness) = (namespace.to_wire(), freshness.to_wire());
                Ok(Self { namespace, $($field: Wire::to_wire($field),)* freshness })
            }
        }
    )* };
}

wire_queries! { namespace;
    Check { lock, token } = CheckRequest { lock, token }
    Inspect { lock } = InspectRequest { lock }
    List(ListFilter { namespace, prefix, show, older_than_ms, after, rows })
        = ListRequest { prefix, show, older_than_ms, after, rows }
    Sessions { namespace, after, rows } = SessionsRequest { after, rows }
    Claim { lock, claim } = ClaimRequest { lock, claim }
    Explain(about) = ExplainRequest { about }
    Totals {} = TotalsRequest {}
    History { namespace, lock, after, rows } = HistoryRequest { lock, after, rows }
    Tokens { lock } = TokensRequest { lock }
    Documents { namespace, which, rows } = FindDocumentsRequest { which, rows }
    Pings { namespace, which, rows } = PingsRequest { which, rows }
}

wire_oneof! { About = explain_request::About { Lock(lock), Session(session), Request(request) } }

wire_leaves! {
    WhichDocuments: Option<AskedDocuments>, which => match which {
        WhichDocuments::After(after) => after.as_ref().map(|after| AskedDocuments::After(after.to_wire())),
        WhichDocuments::Named(name) => Some(AskedDocuments::Lock(name.to_wire())),
        WhichDocuments::Stamped(ts) => Some(AskedDocuments::Ts(ts.to_wire())),
    }, (_, asked) => Ok(match asked {
        None => WhichDocuments::After(None),
        Some(AskedDocuments::After(name)) => WhichDocuments::After(Some(LockName::parse(&name)?)),
        Some(AskedDocuments::Lock(name)) => WhichDocuments::Named(LockName::parse(&name)?),
        Some(AskedDocuments::Ts(ts)) => WhichDocuments::Stamped(Wire::from_wire("ts", ts)?),
    });
    WhichPings: Option<AskedPings>, which => match which {
        WhichPings::After(after) => after.as_ref().map(|after| AskedPings::After(after.to_wire())),
        WhichPings::Of(process) => Some(AskedPings::Process(process.to_wire())),
    }, (_, asked) => Ok(match asked {
        None => WhichPings::After(None),
        Some(AskedPings::After(process)) => WhichPings::After(Some(process.into())),
        Some(AskedPings::Process(process)) => WhichPings::Of(process.into()),
    });
}

impl TryFrom<pb::WatchRequest> for Subscription {
    type Error = Invalid;
    fn try_from(asked: pb::WatchRequest) -> Result<Self, Invalid> {
        let pb::WatchRequest { namespace: of, scope, after, cluster_id } = asked;
        let scope = match scope.unwrap_or_else(|| AskedScope::Prefix(String::new())) {
            AskedScope::Prefix(prefix) => {
                bounded("prefix", &prefix, LOCK_NAME_BYTES_MAX)?;
                Scope::Namespace { namespace: namespace(&of)?, prefix }
            }
            AskedScope::Session(session) => Scope::Session(SessionId::from_u64(session)?),
            AskedScope::Holds(session) => Scope::Holds(SessionId::from_u64(session)?),
        };
        let (after, cluster_id) = (Wire::from_wire("after", after)?, Wire::from_wire("cluster_id", cluster_id)?);
        Ok(Self { scope, after, cluster_id })
    }
}

impl From<&Subscription> for pb::WatchRequest {
    fn from(Subscription { scope, after, cluster_id }: &Subscription) -> Self {
        let (namespace, scope) = match scope {
            Scope::Namespace { namespace, prefix } => (namespace.to_wire(), AskedScope::Prefix(prefix.clone())),
            // The wire has the events of the whole session; a reader that wants its end alone skips the others.
            Scope::Session(session) | Scope::SessionEnd(session) => {
                (String::new(), AskedScope::Session(session.as_u64()))
            }
            Scope::Holds(session) => (String::new(), AskedScope::Holds(session.as_u64())),
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
