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
    Shown { status: StatusCode, why: String, next: &'static str },
    /// The browser is sent to another screen.
    Moved(String),
}

#[derive(Template)]
#[template(path = "refused.html", config = "src/http/page/askama.toml")]
struct Screen {
    layout: Layout,
    title: &'static str,
    why: String,
    next: &'static str,
}

impl Refused {
    pub(super) fn new(status: StatusCode, why: impl Into<String>, next: &'static str) -> Self {
        Refused::Shown { status, why: why.into(), next }
    }
}

impl From<ServiceError> for Refused {
    fn from(error: ServiceError) -> Self {
        let row = error.word().row();
        let next = match row.advice {
            Advice::Retry => "Reload the page in a moment.",
            Advice::Ask => "It may have happened: look at the lock before you repeat it.",
            Advice::GiveUp => "A reload does not help.",
        };
        Refused::new(
            StatusCode::from_u16(row.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            error.to_string(),
            next,
        )
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Refused::new(StatusCode::BAD_REQUEST, invalid.to_string(), "Correct the address of the page.")
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, why, next) = match self {
            Refused::Moved(to) => return (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response(),
            Refused::Shown { status, why, next } => (status, why, next),
        };
        let mut layout = Layout::bare(&Namespace::default());
        if status == StatusCode::UNAUTHORIZED {
            layout.sign_in = Some(Link::new("/login", &Namespace::default()).text());
        }
        let title = status.canonical_reason().unwrap_or("Refused");
        html(status, &Screen { layout, title, why, next })
    }
}
