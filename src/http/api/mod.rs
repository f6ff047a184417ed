//! The calls under `/v1`: each is a type that is read from a request, becomes a command or query of the service, and
//! describes itself in `/v1/openapi.json`.

mod acquire;
mod acquire_body;
mod alter;
mod body;
mod call;
mod cluster;
mod fields;
mod hold;
mod openapi;
mod operators;
mod problem;
mod reads;
mod release;
mod session_events;
mod sessions;
mod settle;
mod stream;
mod tokens;
mod watch;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use axum::{Extension, Router};
use serde::de::DeserializeOwned;
use tokio::sync::watch::Receiver;

use self::acquire_body::AcquireBody;
use self::alter::{DowngradeBody, ResumeBody, UpgradeBody, ValueBody};
pub(super) use self::call::for_caller;
use self::call::{Api, Call, RequestContext};
use self::cluster::{ErrorsQuery, MembersQuery, OpenApiQuery, StatusQuery};
use self::hold::body::HoldBody;
use self::openapi::Description;
use self::operators::{AskBody, BreakBody, HandOverBody, SemaphoreBody};
pub(super) use self::problem::{Failed, RefusedByPort};
use self::reads::{CheckBody, ExplainQuery, HistoryQuery, LeaderQuery, LocksQuery, WaitBody};
use self::release::{RefreshBody, ReleaseBody, WithdrawBody};
use self::session_events::SessionEventsQuery;
use self::sessions::{CloseBody, EndBody, OpenBody, RenewBody, SessionQuery, SessionsQuery};
use self::stream::{OfCalls, StreamCall};
use self::tokens::TokensQuery;
use self::watch::WatchQuery;
use super::node_headers::with_node_headers;
use crate::net::ConnectionInfo;
use crate::rpc::Tasks;
use crate::service::{LockService, ServerInfo};

/// Returns the routes of all calls of a node. Waits end once `stop` is true.
pub(super) fn routes<S: LockService>(service: S, info: ServerInfo, tasks: Tasks, stop: Receiver<bool>) -> Router {
    let description = all_calls(Description::default()).document();
    all_calls(Routes(Router::new())).0.with_state(Api::new(service, info, tasks, stop, description))
}

/// Adds all calls. Their routes and their description come from this list.
fn all_calls<T: OfCalls>(of: T) -> T {
    let leases = of.with::<AcquireBody>().with::<WithdrawBody>().with::<RefreshBody>().with::<ReleaseBody>();
    let leases = leases.streaming::<HoldBody>();
    let alter = leases.with::<UpgradeBody>().with::<DowngradeBody>().with::<ResumeBody>().with::<ValueBody>();
    let sessions = alter.with::<OpenBody>().with::<RenewBody>().with::<CloseBody>().with::<EndBody>();
    let sessions = sessions.with::<SessionsQuery>().with::<SessionQuery>().streaming::<SessionEventsQuery>();
    let reads = sessions.with::<CheckBody>().with::<WaitBody>().with::<LocksQuery>().with::<ExplainQuery>();
    let reads = reads.with::<HistoryQuery>().with::<LeaderQuery>().with_both::<TokensQuery>().streaming::<WatchQuery>();
    let others = reads.with::<AskBody>().with::<BreakBody>().with::<HandOverBody>().with::<SemaphoreBody>();
    others.with::<StatusQuery>().with::<MembersQuery>().with::<ErrorsQuery>().with::<OpenApiQuery>()
}

/// The routes so far.
struct Routes<S>(Router<Arc<Api<S>>>);

impl<S: LockService> OfCalls for Routes<S> {
    fn with<C: Call>(self) -> Self {
        Self(self.0.route(&C::path(), on(filter(&C::METHOD), handle::<S, C>)))
    }

    fn streaming<C: StreamCall>(self) -> Self {
        Self(self.0.route(&C::path(), on(filter(&C::METHOD), handle_stream::<S, C>)))
    }

    fn with_both<C: Call + StreamCall>(self) -> Self {
        Self(self.0.route(&<C as Call>::path(), on(filter(&<C as Call>::METHOD), handle_both::<S, C>)))
    }
}

fn filter(method: &Method) -> MethodFilter {
    if *method == Method::POST { MethodFilter::POST } else { MethodFilter::GET }
}

/// A request that was not read yet.
struct Asked {
    connection: ConnectionInfo,
    path: String,
    params: Result<RawPathParams, RawPathParamsRejection>,
    query: Option<String>,
    headers: HeaderMap,
    body: Body,
}

impl<T: Send + Sync> FromRequest<T> for Asked {
    type Rejection = Response;

    async fn from_request(request: Request, state: &T) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let connection = Extension::from_request_parts(&mut parts, state).await.map_err(IntoResponse::into_response)?;
        let params = RawPathParams::from_request_parts(&mut parts, state).await;
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().map(str::to_owned));
        Ok(Self { connection: connection.0, path, params, query, headers: parts.headers, body })
    }
}

impl Asked {
    /// Recognizes the caller, and reads the names in the path. The outer error is that of a caller that is not
    /// recognized.
    fn caller<S: LockService>(&self, api: &Arc<Api<S>>) -> Result<Result<RequestContext<S>, Failed>, Failed> {
        let service = for_caller(&api.service, &self.connection, &self.headers)?;
        // The text of a rejection has the name of the parameter in backticks.
        let unreadable = |rejection: &RawPathParamsRejection| {
            let text = rejection.body_text();
            let field = text.split('`').nth(1).unwrap_or("path");
            Failed::malformed(StatusCode::BAD_REQUEST, field, "in UTF-8", &self.path)
        };
        let params = self.params.as_ref().map_err(unreadable);
        let certificate = self.connection.certificate.clone();
        Ok(params.and_then(|params| RequestContext::new(Arc::clone(api), service, params, &self.headers, certificate)))
    }

    /// Reads the fields of a call from the body, or for a `GET` from the query.
    async fn read<C: DeserializeOwned>(self, method: &Method) -> Result<C, Failed> {
        let query = self.query.unwrap_or_default();
        if *method != Method::POST {
            return body::query::<C>(&query);
        }
        body::query::<NoQuery>(&query)?;
        body::json::<C>(&self.headers, self.body).await
    }
}

/// Answers a request: recognizes the caller, reads the call, and does what it asks for.
async fn handle<S: LockService, C: Call>(State(api): State<Arc<Api<S>>>, asked: Asked) -> Result<Response, Failed> {
    // A caller that is not recognized learns nothing about the node.
    let context = asked.caller(&api)?;
    let answered = async {
        let context = context?;
        asked.read::<C>(&C::METHOD).await?.answer(&context).await
    };
    Ok(with_node_headers(&api.info, answered.await.into_response()))
}

/// Answers a request with a stream.
async fn handle_stream<S: LockService, C: StreamCall>(
    State(api): State<Arc<Api<S>>>,
    asked: Asked,
) -> Result<Response, Failed> {
    let context = asked.caller(&api)?;
    let headers = asked.headers.clone();
    let begun = async {
        let context = context?;
        stream::begin(asked.read::<C>(&C::METHOD).await?, context, &headers).await
    };
    Ok(with_node_headers(&api.info, begun.await.into_response()))
}

/// Answers a request with a stream if its caller accepts one.
async fn handle_both<S: LockService, C: Call + StreamCall>(
    api: State<Arc<Api<S>>>,
    asked: Asked,
) -> Result<Response, Failed> {
    if stream::is_wanted(&asked.headers) {
        handle_stream::<S, C>(api, asked).await
    } else {
        handle::<S, C>(api, asked).await
    }
}

/// The query of a call whose fields are in its body.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

#[cfg(test)]
mod tests;
