//! Protects the port from web pages of other sites: a browser on the same machine or network would send their requests.
//!
//! A page can let its own host name point to this node (DNS rebinding), so a request must name a host that the operator
//! knows. The page cannot change the headers `Host`, `Origin` and `Sec-Fetch-Site`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::api::{Failed, RefusedByPort};
use crate::net::ConnectionInfo;
use crate::service::{ErrorCode, LockService, ServiceError, Source};

/// The host names under which requests may reach the port, besides `localhost` and IP addresses.
#[derive(Debug, Clone, Default)]
pub struct Hosts(Arc<[String]>);

impl FromIterator<String> for Hosts {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }
}

impl Hosts {
    fn knows(&self, host: &str) -> bool {
        let name = host.to_ascii_lowercase();
        let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        is_address || name == "localhost" || self.0.contains(&name)
    }

    /// Returns why the port refuses a request on a connection of this scheme, if it does.
    fn refusal(&self, method: &Method, scheme: &str, authority: Option<&str>, headers: &HeaderMap) -> Option<Refusal> {
        let authority = authority.or_else(|| text(headers, &HOST)).unwrap_or_default();
        if !self.knows(without_port(authority)) {
            return Some(Refusal::Host(authority.to_owned()));
        }
        let origin = headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
        let own = |origin: &str| {
            let parts = origin.split_once("://");
            parts.is_some_and(|(with, of)| with == scheme && of.eq_ignore_ascii_case(authority))
        };
        let site = headers.get(SITE).map(HeaderValue::as_bytes);
        let from_elsewhere = site.is_some_and(|site| ![&b"same-origin"[..], b"none"].contains(&site));
        if origin.is_some_and(|origin| !own(origin)) || from_elsewhere {
            return Some(Refusal::OtherSite);
        }
        let known = [Method::GET, Method::HEAD, Method::POST].contains(method);
        (!known).then(|| Refusal::Method(method.clone()))
    }
}

/// Why the port refuses a request.
#[derive(Debug)]
enum Refusal {
    /// The request is to a host that the operator does not know.
    Host(String),
    /// A page of another site sent the request.
    OtherSite,
    /// No path has this method.
    Method(Method),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            Refusal::OtherSite => StatusCode::FORBIDDEN,
            Refusal::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    /// The answer to a request for this path, which counts as a refusal of the port.
    fn answer(&self, path: &str) -> Response {
        let mut answer =
            if path.starts_with("/v1/") { self.problem().into_response() } else { self.screen().into_response() };
        let code = if let Refusal::OtherSite = self { ErrorCode::NotPermitted } else { ErrorCode::Invalid };
        answer.extensions_mut().insert(RefusedByPort(code));
        answer
    }

    /// The answer to a browser.
    fn screen(&self) -> (StatusCode, String) {
        let text = match self {
            Refusal::Host(host) => {
                format!("this port is not {host:?}; use an IP address, or name it under [http] hosts\n")
            }
            Refusal::OtherSite => format!("{OTHER_SITE}\n"),
            Refusal::Method(_) => "this port answers GET and POST\n".to_owned(),
        };
        (self.status(), text)
    }

    /// The answer to a call.
    fn problem(&self) -> Failed {
        match self {
            Refusal::Host(host) => {
                let bound = "an IP address, localhost or a name under [http] hosts";
                let sent = if host.is_empty() { "nothing".to_owned() } else { format!("{host:?}") };
                Failed::malformed(self.status(), "host", bound, &sent)
            }
            Refusal::OtherSite => other_site().into(),
            Refusal::Method(method) => Failed::malformed(self.status(), "method", "GET or POST", method.as_str()),
        }
    }
}

const OTHER_SITE: &str = "a page of another site may not send requests to this port";

fn other_site() -> ServiceError {
    ServiceError::Forbidden { why: OTHER_SITE.to_owned() }
}

/// Says where the page of a request came from, relative to this port.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers of each answer: a browser shows it as what it is, in no frame, with no script, and keeps no copy.
const HEADERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; \
         base-uri 'none'; form-action 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the host of `host:port`, where an IPv6 address is in brackets.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.is_empty() => host,
        Some(_) | None => authority,
    }
}

/// Answers requests that a page of another site could have sent, and adds the headers to each answer. The service
/// records a request that such a page did send.
pub(super) async fn protect<S: LockService>(
    State((service, hosts)): State<(S, Hosts)>,
    request: Request,
    next: Next,
) -> Response {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let connection: Option<&ConnectionInfo> = request.extensions().get();
    // A page in plain text under the same name may be forged, so it is another site for a port with TLS.
    let is_plain = connection.is_none_or(|connection| connection.plain);
    let scheme = if is_plain { "http" } else { "https" };
    let mut answer = match hosts.refusal(request.method(), scheme, authority, request.headers()) {
        Some(refusal) => {
            if let (Refusal::OtherSite, Some(connection)) = (&refusal, connection) {
                service.page_refused(Source::Connection(connection.id()), connection.from, &other_site());
            }
            refusal.answer(request.uri().path())
        }
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        // A screen of the web page has its own policy, and its files may be kept.
        answer.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &str, authority: Option<&str>, headers: &[(&str, &str)]) -> u16 {
        status_over("http", method, authority, headers)
    }

    fn status_over(scheme: &str, method: &str, authority: Option<&str>, headers: &[(&str, &str)]) -> u16 {
        let hosts = Hosts::from_iter(["Locks.example".to_owned()]);
        let method = method.parse().expect("a method");
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_bytes(name.as_bytes()).expect("a name"), value.parse().expect("a value"))
        });
        hosts.refusal(&method, scheme, authority, &headers.collect()).map_or(200, |refusal| refusal.status().as_u16())
    }

    fn to(host: &str) -> u16 {
        status("GET", None, &[("host", host)])
    }

    /// an address, `localhost` and the names of the operator are answered; every other host is not this port.
    #[test]
    fn the_host_must_be_known() {
        for known in
            ["127.0.0.1:7621", "10.0.0.1", "[::1]:7621", "[::1]", "localhost:7621", "LOCKS.example", "locks.example:80"]
        {
            assert_eq!(to(known), 200, "{known}");
        }
        for unknown in
            ["evil.example", "evil.example:7621", "127.0.0.1.evil.example", "locks.example.evil", "", ":7621"]
        {
            assert_eq!(to(unknown), 421, "{unknown}");
        }
        assert_eq!(status("GET", None, &[]), 421);
        assert_eq!(
            status("GET", Some("evil.example"), &[("host", "127.0.0.1")]),
            421,
            "the target of the request counts"
        );
    }

    /// a page of another site gets 403, with each of the headers that a browser adds. Other methods than the
    /// three are refused.
    #[test]
    fn other_sites_are_refused() {
        let host = ("host", "127.0.0.1:7621");
        let with = |name, value| status("GET", None, &[host, (name, value)]);
        assert_eq!(with("origin", "http://127.0.0.1:7621"), 200);
        for other in ["http://evil.example", "null", "http://127.0.0.1:7622", "http://127.0.0.1", "127.0.0.1:7621"] {
            assert_eq!(with("origin", other), 403, "{other}");
        }
        // The same name and port over another scheme is another site.
        for (scheme, other) in [("http", "https"), ("https", "http")] {
            let from = |of: &str| {
                let origin = format!("{of}://127.0.0.1:7621");
                status_over(scheme, "POST", None, &[host, ("origin", &origin)])
            };
            assert_eq!([from(scheme), from(other)], [200, 403], "{scheme}");
        }
        assert_eq!([with("sec-fetch-site", "same-origin"), with("sec-fetch-site", "none")], [200, 200]);
        assert_eq!([with("sec-fetch-site", "cross-site"), with("sec-fetch-site", "same-site")], [403, 403]);
        assert_eq!(
            ["HEAD", "POST", "OPTIONS", "PUT"].map(|method| status(method, None, &[host])),
            [200, 200, 405, 405]
        );
    }

    /// Each refusal counts once, with its code, as a call and as a screen.
    #[test]
    fn refusals_count_with_their_codes() {
        for (refusal, code) in [
            (Refusal::Host("evil.example".to_owned()), ErrorCode::Invalid),
            (Refusal::OtherSite, ErrorCode::NotPermitted),
            (Refusal::Method(Method::PUT), ErrorCode::Invalid),
        ] {
            for path in ["/v1/errors", "/healthz", "/"] {
                let answer = refusal.answer(path);
                let marked = answer.extensions().get::<RefusedByPort>().map(|RefusedByPort(of)| *of);
                assert_eq!((answer.status(), marked), (refusal.status(), Some(code)), "{refusal:?} of {path}");
            }
        }
    }
}
