//! Screens that cannot be shown: what is wrong, and what to do.

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};

use super::layout::{Layout, html};
use super::text::Link;
use crate::http::api::RefusedByPort;
use crate::model::{Invalid, Namespace};
use crate::service::{Advice, ErrorCode, ServiceError};

/// Why a screen is not shown.
#[derive(Debug)]
pub(super) enum Refused {
    /// What is wrong, and the next step.
    Shown(Box<Shown>),
    /// The browser is sent to another screen.
    Moved(String),
}

/// What is wrong, and the next step.
#[derive(Debug)]
pub(super) struct Shown {
    status: StatusCode,
    why: String,
    next: &'static str,
    /// Whether another sign-in may help.
    sign_in: bool,
    /// The screen of the lock that an act was about.
    lock: Option<String>,
    /// The code under which the port counts this refusal; `None` if the service has counted it.
    code: Option<ErrorCode>,
}

#[derive(Template)]
#[template(path = "refused.html", config = "src/http/page/askama.toml")]
struct Screen {
    layout: Layout,
    title: &'static str,
    why: String,
    next: &'static str,
    /// The link to the lock that an act was about.
    lock: Option<String>,
}

impl Refused {
    pub(super) fn new(status: StatusCode, why: impl Into<String>, next: &'static str) -> Self {
        Refused::Shown(Box::new(Shown { status, why: why.into(), next, sign_in: false, lock: None, code: None }))
    }

    /// Marks this as a refusal of the page itself. The metrics count it under this code, because the service does not
    /// see it.
    pub(super) fn counted(mut self, code: ErrorCode) -> Self {
        if let Refused::Shown(shown) = &mut self {
            shown.code = Some(code);
        }
        self
    }

    /// The refusal of an act that was submitted. It may have been done even if the caller is no principal any more: a
    /// token that is revoked between two attempts leaves the first one in doubt.
    pub(super) fn of_act(error: ServiceError) -> Self {
        let in_doubt = matches!(error, ServiceError::Unauthenticated { .. });
        let mut refused = Self::from(error);
        if let (Refused::Shown(shown), true) = (&mut refused, in_doubt) {
            shown.next = "Your sign-in ended after the form was sent, so it may have been done: sign in, and look at the \
                          lock before you repeat it.";
        }
        refused
    }

    /// The same with a link to the lock that an act was about.
    pub(super) fn about(mut self, lock: Link) -> Self {
        if let Refused::Shown(shown) = &mut self {
            shown.lock = Some(lock.text());
        }
        self
    }
}

impl From<ServiceError> for Refused {
    fn from(error: ServiceError) -> Self {
        let row = error.code().row();
        let (next, sign_in) = match (&error, row.advice) {
            (ServiceError::Unauthenticated { .. }, _) => ("Nothing was done. Sign in, then repeat it.", true),
            (ServiceError::Forbidden { .. }, _) => {
                ("Ask an operator for the right, or sign in as another principal.", true)
            }
            (_, Advice::Retry) => ("Reload the page in a moment.", false),
            (_, Advice::Ask) => ("It may have happened: look at the lock before you repeat it.", false),
            (_, Advice::GiveUp) => ("A reload does not help.", false),
        };
        let status = StatusCode::from_u16(row.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Refused::Shown(Box::new(Shown { status, why: error.to_string(), next, sign_in, lock: None, code: None }))
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Refused::new(StatusCode::BAD_REQUEST, invalid.to_string(), "Correct the address of the page.")
            .counted(ErrorCode::Invalid)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Shown { status, why, next, sign_in, lock, code } = match self {
            Refused::Moved(to) => return (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response(),
            Refused::Shown(shown) => *shown,
        };
        let mut layout = Layout::bare(&Namespace::default(), "");
        if sign_in {
            layout.sign_in = Some(Link::to("/login").text());
        }
        let title = match status {
            StatusCode::CONFLICT => "Nothing was done",
            _ => status.canonical_reason().unwrap_or("Refused"),
        };
        let mut answer = html(status, &Screen { layout, title, why, next, lock });
        if let Some(code) = code {
            answer.extensions_mut().insert(RefusedByPort(code));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    async fn text(refused: Refused) -> String {
        let answer = refused.into_response();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        let body = to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
        String::from_utf8(body.to_vec()).expect("text")
    }

    /// A sign-in that ended before an act was submitted leaves nothing in doubt, one that ended later does.
    #[tokio::test]
    async fn an_act_may_have_been_done_before_the_sign_in_ended() {
        let ended = || ServiceError::Unauthenticated { why: "the token is not known".to_owned() };
        let (before, after) = (text(ended().into()).await, text(Refused::of_act(ended())).await);
        assert!(before.contains("Nothing was done.") && before.contains("the token is not known"), "{before}");
        assert!(!after.contains("Nothing was done") && after.contains("look at the lock before"), "{after}");
        assert!(after.contains("the token is not known") && after.contains(">Sign in<"), "{after}");
    }

    /// A malformed address counts as a refusal of the port. What the service refuses does not, because it counts that.
    #[test]
    fn only_refusals_of_the_page_itself_are_counted_here() {
        let counted = |refused: Refused| {
            let answer = refused.into_response();
            answer.extensions().get::<RefusedByPort>().map(|RefusedByPort(code)| *code)
        };
        let malformed = Namespace::parse("").expect_err("too short");
        assert_eq!(counted(malformed.clone().into()), Some(ErrorCode::Invalid));
        assert_eq!(counted(ServiceError::Invalid(malformed.clone()).into()), None);
        assert_eq!(counted(Refused::of_act(ServiceError::Invalid(malformed))), None);
    }
}
