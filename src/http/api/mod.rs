//! The calls under `/v1`: each is a type that is read from a request, becomes a command or query of the service, and
//! describes itself in `/v1/openapi.json`.

mod acquire;
mod acquire_body;
mod alter;
mod body;
mod call;
mod cluster;
mod fields;
mod holds;
mod openapi;
mod operators;
mod problem;
mod reads;
mod sessions;
mod settle;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use axum::{Extension, Router};
use tokio::sync::watch;

use self::acquire_body::AcquireBody;
use self::alter::{DowngradeBody, ResumeBody, UpgradeBody, ValueBody};
use self::call::{Api, At, Call, OfCalls};
use self::cluster::{ErrorsQuery, MembersQuery, OpenApiQuery, StatusQuery};
use self::holds::{RefreshBody, ReleaseBody, WithdrawBody};
use self::openapi::Description;
use self::operators::{AskBody, BreakBody, HandOverBody, SemaphoreBody};
pub(super) use self::problem::Failed;
use self::reads::{CheckBody, ExplainQuery, HistoryQuery, LeaderQuery, LocksQuery, TokensQuery, WaitBody};
use self::sessions::{CloseBody, EndBody, OpenBody, RenewBody, SessionQuery, SessionsQuery};
use crate::net::ConnectionInfo;
use crate::rpc::Tasks;
use crate::service::{LockService, ServerInfo};

/// Returns the routes of all calls of a node. Waits end once `stop` is true.
pub(super) fn routes<S: LockService>(
    service: S,
    info: ServerInfo,
    tasks: Tasks,
    stop: watch::Receiver<bool>,
) -> Router {
    let description = all_calls(Description::default()).document();
    all_calls(Routes(Router::new())).0.with_state(Api::new(service, info, tasks, stop, description))
}

/// Adds all calls. Their routes and their description come from this list.
fn all_calls<T: OfCalls>(of: T) -> T {
    let leases = of.with::<AcquireBody>().with::<WithdrawBody>().with::<RefreshBody>().with::<ReleaseBody>();
    let alter = leases.with::<UpgradeBody>().with::<DowngradeBody>().with::<ResumeBody>().with::<ValueBody>();
    let sessions = alter.with::<OpenBody>().with::<RenewBody>().with::<CloseBody>().with::<EndBody>();
    let sessions = sessions.with::<SessionsQuery>().with::<SessionQuery>();
    let reads = sessions.with::<CheckBody>().with::<WaitBody>().with::<LocksQuery>().with::<ExplainQuery>();
    let reads = reads.with::<HistoryQuery>().with::<LeaderQuery>().with::<TokensQuery>();
    let others = reads.with::<AskBody>().with::<BreakBody>().with::<HandOverBody>().with::<SemaphoreBody>();
    others.with::<StatusQuery>().with::<MembersQuery>().with::<ErrorsQuery>().with::<OpenApiQuery>()
}

/// The routes so far.
struct Routes<S>(Router<Arc<Api<S>>>);

impl<S: LockService> OfCalls for Routes<S> {
    fn with<C: Call>(self) -> Self {
        let method = if C::METHOD == Method::POST { MethodFilter::POST } else { MethodFilter::GET };
        Self(self.0.route(&C::path(), on(method, handle::<S, C>)))
    }
}

/// Answers a request: recognizes the caller, reads the call, and does what it asks for.
async fn handle<S: LockService, C: Call>(
    State(api): State<Arc<Api<S>>>,
    Extension(connection): Extension<ConnectionInfo>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let unreadable = |_| Failed::malformed(StatusCode::BAD_REQUEST, "path", "in UTF-8", "other bytes");
    let at = params.map_err(unreadable).and_then(|params| At::new(Arc::clone(&api), &connection, &params, &headers));
    let at = match at {
        Ok(at) => at,
        // A caller that is not recognized learns nothing about the node.
        Err(failed) => return failed.into_response(),
    };
    let answered = async {
        let query = query.unwrap_or_default();
        let call = if C::METHOD == Method::POST {
            body::query::<NoQuery>(&query)?;
            body::json::<C>(&headers, body).await?
        } else {
            body::query::<C>(&query)?
        };
        call.answer(&at).await
    };
    api.signed(answered.await.into_response())
}

/// The query of a call whose fields are in its body.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

/// Answers a request for a path that no call has.
pub(super) async fn no_such_path() -> Failed {
    Failed::malformed(StatusCode::NOT_FOUND, "path", "one of /v1/openapi.json", "another one")
}

/// Answers a request with a method that its path does not have.
pub(super) async fn no_such_method(method: Method) -> Failed {
    let bound = "one of the path, see /v1/openapi.json";
    Failed::malformed(StatusCode::METHOD_NOT_ALLOWED, "method", bound, method.as_str())
}

#[cfg(test)]
mod tests;
