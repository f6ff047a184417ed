//! Screens that cannot be shown: what is wrong, and what to do.

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};

use super::layout::{Layout, html};
use super::text::Link;
use crate::model::{Invalid, Namespace};
use crate::service::{Advice, ServiceError};

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
        Refused::Shown(Box::new(Shown { status, why: why.into(), next, sign_in: false, lock: None }))
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
        let row = error.word().row();
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
        Refused::Shown(Box::new(Shown { status, why: error.to_string(), next, sign_in, lock: None }))
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Refused::new(StatusCode::BAD_REQUEST, invalid.to_string(), "Correct the address of the page.")
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Shown { status, why, next, sign_in, lock } = match self {
            Refused::Moved(to) => return (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response(),
            Refused::Shown(shown) => *shown,
        };
        let mut layout = Layout::bare(&Namespace::default());
        if sign_in {
            layout.sign_in = Some(Link::new("/login", &Namespace::default()).text());
        }
        let title = match status {
            StatusCode::CONFLICT => "Nothing was done",
            _ => status.canonical_reason().unwrap_or("Refused"),
        };
        html(status, &Screen { layout, title, why, next, lock })
    }
}
