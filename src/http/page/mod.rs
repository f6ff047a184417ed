//! The web page: what a cluster does now, on screens that the node renders.
//!
//! - Templates are HTML files. Every text in them is escaped, also characters that a browser does not show.
//! - Screens are read from the state of the asked node. Only what an act would do is asked of the leader.
//! - A `GET` changes nothing. Acts need a cluster that knows its callers, a new sign-in, and a form of this page.

mod acts;
mod assets;
mod escape;
mod failures;
mod forms;
mod layout;
mod live;
mod lock;
mod locks;
mod login;
mod measures;
mod nodes;
mod overview;
mod reads;
mod records;
mod refused;
mod scans;
mod sessions;
mod shared;
mod sign_ins;
mod summary;
mod text;
mod timeline;
mod visit;
mod walls;
mod why;

use axum::Router;
use axum::http::header::{ACCEPT, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::watch;

use self::refused::Refused;
use self::shared::Shared;
pub(crate) use self::text::shell;
use crate::http::scrape::Render;
use crate::service::{ErrorCode, LockService, ServerInfo};

/// Returns the routes of all screens of a node. `tls` says whether the port speaks TLS. Streams end once `stop` is
/// true.
pub(super) fn routes<S: LockService>(
    service: S,
    info: ServerInfo,
    tls: bool,
    render: Render,
    stop: watch::Receiver<bool>,
) -> Router {
    Router::new()
        .route("/", get(overview::overview::<S>))
        .route("/locks", get(locks::locks::<S>))
        .route("/lock", get(lock::lock::<S>))
        .route("/sessions", get(sessions::sessions::<S>))
        .route("/session", get(sessions::session::<S>))
        .route("/nodes", get(nodes::nodes::<S>))
        .route("/login", get(login::form::<S>).post(login::sign_in::<S>))
        .route("/logout", post(login::sign_out::<S>))
        .route("/page/live", get(live::live::<S>))
        .merge(acts::routes())
        .with_state(Shared::new(service, info, tls, render, stop))
        .merge(assets::routes())
        .route_layer(map_response(protected))
}

/// Returns the answer to a browser for a path or method that the port does not have; `None` for a program, and below
/// `/v1/`.
pub(super) async fn missing(status: StatusCode, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
    let accepted = headers.get(ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or_default();
    if path.starts_with("/v1/") || !accepted.contains("text/html") {
        return None;
    }
    let why = format!("this port has no {method} {path}");
    // Counts as the problem that a program gets.
    let refused = Refused::new(status, why, "Choose one of the screens above.").counted(ErrorCode::Invalid);
    Some(protected(refused.into_response()).await)
}

/// Adds what a browser may do with a screen: load files of this port, and send forms to it.
async fn protected(mut answer: Response) -> Response {
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // With `no-referrer`, browsers send the origin `null` with a form, which is refused.
    answer.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    answer
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
