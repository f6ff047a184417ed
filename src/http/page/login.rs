//! Signing in and out.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::forms::Form;
use super::layout::{Layout, html};
use super::refused::Refused;
use super::shared::Shared;
use super::text::span;
use super::visit::{Arrival, Visit, cookie_name};
use crate::auth::{TokenHash, Who};
use crate::http::api::RefusedByPort;
use crate::limits;
use crate::service::{ErrorCode, LockService, ServiceError, Source};

#[derive(Template)]
#[template(path = "login.html", config = "src/http/page/askama.toml")]
struct Screen {
    layout: Layout,
    /// Where the form is sent, with the screen to return to.
    action: String,
    /// Why a token is not asked for; empty if it is.
    closed: &'static str,
    /// Why the caller is asked again; may be empty.
    again: String,
    /// Why the last try was refused; may be empty.
    refused: String,
}

impl Screen {
    fn new<S: LockService>(shared: &Shared<S>, arrival: &Arrival, refused: impl Into<String>) -> Result<Self, Refused> {
        let namespace = arrival.namespace()?;
        let action =
            super::text::Link::new("/login", &namespace).with_any("next", arrival.field("next").unwrap_or_default());
        let closed = if !shared.service.knows_callers() {
            "This cluster has no file of rules, so it does not know its callers, and the page only shows. \
             Use the command line to act on the locks of others."
        } else if arrival.connection.exposed {
            "Others could read a token that is sent in plain text. Open the page over TLS, or on the machine of the node."
        } else {
            ""
        };
        let (layout, again) = (Layout::bare(&namespace, ""), String::new());
        Ok(Self { layout, action: action.text(), closed, again, refused: refused.into() })
    }
}

/// Why a browser that has signed in is asked again; empty if it has not.
fn again<S: LockService>(shared: &Shared<S>, arrival: &Arrival) -> String {
    let Some(cookie) = &arrival.cookie else { return String::new() };
    let now = shared.clock.now();
    let Some(sign_in) = shared.sign_ins.find(cookie, now) else {
        return "Your sign-in has ended: it lasts 12 hours, and a node that restarts forgets it.".to_owned();
    };
    if let Err(error) = known(shared, arrival, sign_in.token) {
        return format!("Your sign-in has ended: {}. Sign in with another token.", reason(error));
    }
    let acts = arrival.field("next").is_some_and(|next| ["/ask?", "/break?"].iter().any(|act| next.starts_with(act)));
    if acts && !sign_in.may_act(now) {
        return "To ask for a lock or break a hold, sign in again: your last sign-in is more than 15 minutes old."
            .to_owned();
    }
    String::new()
}

/// Shows the form that asks for a token.
pub(super) async fn form<S: LockService>(
    State(shared): State<Arc<Shared<S>>>,
    request: Request,
) -> Result<Response, Refused> {
    let arrival = Arrival::new(&request.into_parts().0, &shared)?;
    let screen = Screen::new(&shared, &arrival, "")?;
    Ok(html(StatusCode::OK, &Screen { again: again(&shared, &arrival), ..screen }))
}

/// Signs in with the token of a form.
pub(super) async fn sign_in<S: LockService>(
    State(shared): State<Arc<Shared<S>>>,
    request: Request,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let arrival = Arrival::new(&parts, &shared)?;
    let screen =
        |status, why: String| -> Result<Response, Refused> { Ok(html(status, &Screen::new(&shared, &arrival, why)?)) };
    let refused = |code, status, why| -> Result<Response, Refused> {
        let mut answer = screen(status, why)?;
        answer.extensions_mut().insert(RefusedByPort(code));
        Ok(answer)
    };
    if !shared.service.knows_callers() || arrival.connection.exposed {
        return refused(ErrorCode::NotPermitted, StatusCode::FORBIDDEN, String::new());
    }
    let form = Form::read(&arrival, &parts.headers, body).await?;
    // Text that is no token is no guess, but a mistake.
    let token = match TokenHash::of(form.field("token")) {
        Ok(token) => token,
        Err(error) => {
            let why = format!("The sign-in was refused: {error}.");
            return refused(ErrorCode::Invalid, StatusCode::UNAUTHORIZED, why);
        }
    };
    let from = arrival.connection.from.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.ip());
    if let Err(wait) = shared.failures.permit(from, shared.clock.now()) {
        let most = limits::SIGN_IN_TRIES_MAX;
        let wait = span(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let why = format!("{from} has sent {most} unknown tokens within a minute: try again in {wait}.");
        return refused(ErrorCode::Overloaded, StatusCode::TOO_MANY_REQUESTS, why);
    }
    match known(&shared, &arrival, token) {
        Ok(()) => {
            shared.failures.succeeded(from);
            Ok(signed_in(&shared, &arrival, token))
        }
        // The service has counted it.
        Err(error) => screen(StatusCode::UNAUTHORIZED, format!("The sign-in was refused: {}.", reason(error))),
    }
}

/// Why a token is refused.
fn reason(error: ServiceError) -> String {
    if let ServiceError::Unauthenticated { why } = error { why } else { error.to_string() }
}

/// Checks that the cluster knows a token.
fn known<S: LockService>(shared: &Shared<S>, arrival: &Arrival, token: TokenHash) -> Result<(), ServiceError> {
    let connection = &arrival.connection;
    let source = Source::Connection(connection.id());
    shared.service.for_caller(source, connection.from, || Ok(Who::Token(token))).map(drop)
}

fn signed_in<S: LockService>(shared: &Shared<S>, arrival: &Arrival, token: TokenHash) -> Response {
    if let Some(replaced) = &arrival.cookie {
        shared.sign_ins.close(replaced);
    }
    let cookie = shared.sign_ins.open(token, &*shared.clock);
    let next = arrival.field("next").filter(|next| is_own(next)).unwrap_or("/").to_owned();
    let seconds = limits::SIGN_IN_MS_MAX / 1_000;
    let headers = [(LOCATION, next), (SET_COOKIE, set_cookie(shared, arrival, &cookie, seconds))];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// Returns the header that sets the cookie of this node.
fn set_cookie<S>(shared: &Shared<S>, arrival: &Arrival, cookie: &str, seconds: u64) -> String {
    let name = cookie_name(shared.info.node);
    // On a connection in plain text, which a port with TLS may accept, a browser refuses a cookie with `Secure`, or
    // does not return it.
    let secure = if arrival.connection.plain { "" } else { "; Secure" };
    format!("{name}={cookie}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// Whether this is a path of this port, and nothing that a browser reads as another place.
fn is_own(path: &str) -> bool {
    let rest = path.strip_prefix('/');
    rest.is_some_and(|rest| !rest.starts_with(['/', '\\'])) && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Ends the sign-in of a browser.
pub(super) async fn sign_out<S: LockService>(
    visit: Visit<S>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refused> {
    let form = Form::read(&visit.arrival, &headers, body).await?;
    let proven = visit.sign_in.as_ref().is_some_and(|own| own.proves(&["logout"], form.field("secret")));
    let Some(cookie) = visit.arrival.cookie.as_ref().filter(|_| proven) else {
        let why = "the form is not one that this sign-in was shown";
        let next = "Reload the page, then sign out again.";
        return Err(Refused::new(StatusCode::FORBIDDEN, why, next).counted(ErrorCode::NotPermitted));
    };
    visit.shared.sign_ins.close(cookie);
    let headers = [(LOCATION, "/login".to_owned()), (SET_COOKIE, set_cookie(&visit.shared, &visit.arrival, "", 0))];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use axum::body::to_bytes;
    use axum::http::header::{CONTENT_TYPE, COOKIE, ORIGIN};
    use tokio::sync::watch;

    use super::*;
    use crate::auth::new_token;
    use crate::net::ConnectionInfo;
    use crate::testing::{Cluster, ClusterOptions};

    /// On a connection that others may read, a token is refused and a cookie ignored. Over TLS, the cookie that a
    /// sign-in returns is sent over TLS alone. In plain text on the machine of the node it is not, because a browser
    /// would lose it.
    #[tokio::test]
    async fn a_readable_connection_carries_no_sign_in() {
        let (folder, token) = (tempfile::tempdir().expect("a folder"), new_token([1, 2]));
        let (rules, hash) = (folder.path().join("auth.toml"), TokenHash::of(&token).expect("a token"));
        let text = format!(
            "version = 1\n[[principal]]\nname = \"ops\"\nroles = []\n[[token]]\nprincipal = \"ops\"\n\
             sha256 = \"{hash}\"\nexpires = \"2035-01-01T00:00:00Z\"\n"
        );
        fs::write(&rules, text).expect("written");
        fs::set_permissions(&rules, fs::Permissions::from_mode(0o600)).expect("set");
        let audit = Some(folder.path().to_owned());
        let options = ClusterOptions { nodes: 1, auth: Some(rules), audit, ..ClusterOptions::default() };
        let cluster = Cluster::start_with(options).await.expect("started");
        let (node, (_stop, stopped)) = (cluster.leader().await, watch::channel(false));
        let shared = Shared::new(node.service(), node.info(), true, Arc::new(String::new), stopped);
        let request_on = |connection: ConnectionInfo, cookie: &str| {
            let request =
                axum::http::Request::post("/login").header(ORIGIN, "https://127.0.0.1").header(COOKIE, cookie);
            let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            let request = request.extension(connection);
            request.body(Body::from(format!("token={token}"))).expect("a request")
        };
        let request = |exposed, cookie: &str| request_on(ConnectionInfo::new(None, exposed, None), cookie);
        let answer = |exposed| sign_in(State(Arc::clone(&shared)), request(exposed, ""));
        let refused = answer(true).await.expect("a screen");
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert!(refused.headers().get(SET_COOKIE).is_none());
        let shown = to_bytes(refused.into_body(), usize::MAX).await.expect("a text");
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains("Others could read a token") && !shown.contains("type=\"password\""), "{shown}");
        let accepted = answer(false).await.expect("an answer");
        assert_eq!(accepted.status(), StatusCode::SEE_OTHER);
        let cookie = accepted.headers()[SET_COOKIE].to_str().expect("a text");
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
        let cookie = cookie.split(';').next().expect("a cookie");
        let arrived = |exposed| {
            let (parts, _) = request(exposed, cookie).into_parts();
            Arrival::new(&parts, &shared).expect("a request").cookie
        };
        assert_eq!((arrived(false).is_some(), arrived(true)), (true, None));
        let mut local = ConnectionInfo::new(None, false, None);
        local.plain = true;
        let accepted = sign_in(State(Arc::clone(&shared)), request_on(local, "")).await.expect("an answer");
        let cookie = accepted.headers()[SET_COOKIE].to_str().expect("a text");
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict"), "{cookie}");
    }

    /// After a sign-in the browser stays on this port.
    #[test]
    fn a_sign_in_leads_to_no_other_place() {
        for own in ["/", "/lock?lock=a%2Fb", "/break?lock=a&token=3"] {
            assert!(is_own(own), "{own}");
        }
        for other in ["", "//evil.example", "/\\evil.example", "https://evil.example", "lock", "/a\r\nb", "/é"] {
            assert!(!is_own(other), "{other:?}");
        }
    }
}
