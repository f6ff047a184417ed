//! The limit on the header of a request, with an answer that names it.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::api::Failed;
use crate::limits;

/// Refuses a request whose header is too large, or has too many lines.
pub(super) async fn bounded(request: Request, next: Next) -> Response {
    match refusal(&request) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

fn refusal(request: &Request) -> Option<Failed> {
    let (lines, target) = (request.headers(), request.uri().to_string());
    let bytes = lines.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let bytes = target.len() + bytes.sum::<usize>();
    let (most, longest) = (limits::HTTP_HEADERS_MAX, limits::HTTP_HEADER_BYTES_MAX);
    (most < lines.len() || longest < bytes).then(|| {
        let (bound, found) =
            (format!("{most} lines, {longest} bytes"), format!("{} lines, {bytes} bytes", lines.len()));
        Failed::malformed(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "header", &bound, &found)
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn status(lines: usize, bytes: usize, target: &str) -> u16 {
        let mut request = Request::builder().uri(target);
        for line in 0..lines {
            request = request.header(format!("x-{line:03}"), "x".repeat(bytes));
        }
        let refused = refusal(&request.body(Body::empty()).expect("a request"));
        refused.map_or(200, |refused| refused.into_response().status().as_u16())
    }

    /// A header up to the limits is accepted. One more line, or a byte more in a line or in the target, is refused.
    #[test]
    fn a_header_is_bounded() {
        let (most, longest) = (limits::HTTP_HEADERS_MAX, limits::HTTP_HEADER_BYTES_MAX);
        assert_eq!((status(most, 0, "/"), status(most + 1, 0, "/")), (200, 431));
        let fits = longest - "/x-000: \r\n".len();
        assert_eq!((status(1, fits, "/"), status(1, fits + 1, "/"), status(1, fits, "/a")), (200, 431, 431));
    }
}
