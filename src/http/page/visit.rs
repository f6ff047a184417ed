//! A request for a screen: its caller, namespace and fields, and what the screen needs of the node.

use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;

use super::layout::{Layout, State, Target, html};
use super::reads;
use super::refused::Refused;
use super::shared::Shared;
use super::sign_ins::SignIn;
use super::text::Link;
use crate::auth::Who;
use crate::http::urlencoded::fields;
use crate::model::{LockKey, LockName, Namespace, Query, QueryReply};
use crate::net::ConnectionInfo;
use crate::service::{LockService, ServiceError, Source, Status, who_calls};

/// A request for a screen.
pub(super) struct Visit<S> {
    pub(super) shared: Arc<Shared<S>>,
    /// The service for this caller.
    pub(super) service: S,
    pub(super) namespace: Namespace,
    pub(super) sign_in: Option<SignIn>,
    pub(super) arrival: Arrival,
}

/// The parts of a request that every screen reads, also those that need no caller.
pub(super) struct Arrival {
    pub(super) fields: Vec<(String, String)>,
    pub(super) cookie: Option<String>,
    pub(super) connection: ConnectionInfo,
    /// Whether the browser says that a page of this port sent the request.
    pub(super) own_page: bool,
    /// The path and query, to return to.
    pub(super) path: String,
    host: String,
}

impl Arrival {
    pub(super) fn new<S>(parts: &Parts, shared: &Shared<S>) -> Result<Self, Refused> {
        let connection: Option<&ConnectionInfo> = parts.extensions.get();
        let unknown = || ServiceError::Internal("the connection is not known".to_owned());
        let connection = connection.cloned().ok_or_else(unknown)?;
        let text = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let name = cookie_name(shared.info.node);
        let cookies = text(COOKIE).unwrap_or_default().split(';');
        let cookie = cookies.filter_map(|one| one.trim().split_once('=')).find(|(of, _)| *of == name);
        let site = parts.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self {
            fields: fields(query.as_bytes())?,
            cookie: cookie.map(|(_, value)| value.to_owned()).filter(|_| !connection.exposed),
            connection,
            // A request with another origin, or from another site, does not get here.
            own_page: parts.headers.contains_key("origin") || site == Some(&b"same-origin"[..]),
            path: parts.uri.path_and_query().map_or("/".to_owned(), ToString::to_string),
            host: parts.uri.authority().map(ToString::to_string).or(text(HOST).map(str::to_owned)).unwrap_or_default(),
        })
    }

    /// Returns a field of the query, unless it is empty.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value).filter(|value| !value.is_empty())
    }

    pub(super) fn namespace(&self) -> Result<Namespace, Refused> {
        Ok(self.field("ns").map(Namespace::parse).transpose()?.unwrap_or_default())
    }
}

/// Returns the name of this node's cookie. Nodes on the same host share their cookies, on all ports.
pub(super) fn cookie_name(node: u64) -> String {
    format!("lockkeeper-node-{node}")
}

impl<S: LockService> FromRequestParts<Arc<Shared<S>>> for Visit<S> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared<S>>) -> Result<Self, Refused> {
        let arrival = Arrival::new(parts, shared)?;
        let connection = &arrival.connection;
        let now = shared.clock.now();
        let sign_in = arrival.cookie.as_ref().and_then(|cookie| shared.sign_ins.find(cookie, now));
        let shown = || match &sign_in {
            Some(sign_in) => Ok(Who::Token(sign_in.token)),
            None => who_calls(parts.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes), Some(connection)),
        };
        let service = shared.service.for_caller(Source::Connection(connection.id()), connection.from, shown);
        let service = service.map_err(|error| {
            let unknown = matches!(error, ServiceError::Unauthenticated { .. });
            if unknown && parts.method == Method::GET && !connection.exposed {
                return Refused::Moved(sign_in_link(&arrival.path));
            }
            error.into()
        })?;
        let namespace = arrival.namespace()?;
        Ok(Self { shared: Arc::clone(shared), service, namespace, sign_in, arrival })
    }
}

/// Returns the link to the form that signs in, and then returns to a screen.
pub(super) fn sign_in_link(path: &str) -> String {
    Link::to("/login").with("next", path).text()
}

impl<S: LockService> Visit<S> {
    /// Returns a field of the query, unless it is empty.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.arrival.field(name)
    }

    /// Returns a field of the query that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// Returns the lock that the query names.
    pub(super) fn lock(&self) -> Result<LockKey, Refused> {
        let name = LockName::parse(self.field("lock").unwrap_or_default())?;
        Ok(LockKey { namespace: self.namespace.clone(), name })
    }

    /// Answers a query with the state of this node.
    pub(super) async fn read(&self, query: Query) -> Result<QueryReply, Refused> {
        Ok(reads::read(&self.service, query).await?)
    }

    /// Returns the status of the cluster.
    pub(super) async fn status(&self) -> Result<Status, Refused> {
        Ok(self.shared.status(&self.service).await?)
    }

    /// Returns the link to a screen of this namespace.
    pub(super) fn link(&self, path: &str) -> Link {
        Link::new(path, &self.namespace)
    }

    /// Returns where commands with the data of this screen send their requests.
    pub(super) fn target(&self) -> Target {
        Target {
            scheme: if self.shared.tls { "https" } else { "http" },
            host: self.arrival.host.clone(),
            namespace: self.namespace.clone(),
            proves: self.shared.service.knows_callers(),
            certified: self.arrival.connection.proven.is_some(),
        }
    }

    /// Returns the layout of a screen that is true at this index of the log, if it has one, and is read again when
    /// something changes.
    pub(super) async fn layout(&self, screen: &'static str, index: impl Into<Option<u64>>) -> Result<Layout, Refused> {
        let status = self.status().await?;
        let state = Some(State::new(&status, index.into()));
        let signed_in = match &self.sign_in {
            Some(sign_in) => Some((self.service.whoami().await?.to_string(), sign_in.form_secret(&["logout"]))),
            None => None,
        };
        let may_sign_in = self.shared.service.knows_callers() && signed_in.is_none();
        let sign_in = may_sign_in.then(|| sign_in_link(&self.arrival.path));
        let bare = Layout::bare(&self.namespace, screen);
        Ok(Layout { live: true, cluster: status.cluster, state, sign_in, signed_in, ..bare })
    }

    /// Shows a screen.
    pub(super) fn show(&self, screen: &impl Template) -> Response {
        html(StatusCode::OK, screen)
    }
}
