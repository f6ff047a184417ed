//! Forms that browsers send.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use tokio::time::timeout;

use super::refused::Refused;
use super::visit::Arrival;
use crate::http::urlencoded::fields;
use crate::limits;
use crate::service::ErrorCode;

/// The fields of a form.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form that a page of this port sent.
    pub(super) async fn read(arrival: &Arrival, headers: &HeaderMap, body: Body) -> Result<Self, Refused> {
        if !arrival.own_page {
            let why = "the request does not say that it comes from a page of this port (no header Origin)";
            let next = "Send the form with a browser, or use the calls under /v1.";
            return Err(Refused::new(StatusCode::FORBIDDEN, why, next).counted(ErrorCode::NotPermitted));
        }
        let malformed = |status, why: String, next| Refused::new(status, why, next).counted(ErrorCode::Invalid);
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with(FORM) {
            let why = format!("the body is {kind:?}, not {FORM}");
            return Err(malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, why, "Send the form with a browser."));
        }
        let read = timeout(Duration::from_millis(limits::MESSAGE_MS_MAX), to_bytes(body, limits::FRAME_BYTES_MAX));
        let Ok(Ok(bytes)) = read.await else {
            let why = format!("the form is incomplete, or larger than {} bytes", limits::FRAME_BYTES_MAX);
            return Err(malformed(StatusCode::BAD_REQUEST, why, "Send it again."));
        };
        let why = "the form is not in UTF-8".to_owned();
        let not_utf8 = |_| malformed(StatusCode::BAD_REQUEST, why, "Send it with a browser.");
        Ok(Self(fields(&bytes).map_err(not_utf8)?))
    }

    /// Returns a field without blanks at its ends; empty if the form has none of this name.
    pub(super) fn field(&self, name: &str) -> &str {
        self.exact(name).trim()
    }

    /// Returns a field as it was typed. The name of a lock may have blanks at its ends.
    pub(super) fn exact(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// The media type of forms.
const FORM: &str = "application/x-www-form-urlencoded";
