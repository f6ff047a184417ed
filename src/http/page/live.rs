//! Notifies open screens that something changed, at most once a second. The screen then reads itself again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant as TokioInstant, sleep};

use super::refused::Refused;
use super::visit::Visit;
use crate::limits;
use crate::model::Query;
use crate::service::LockService;

/// Streams an event for each change, and one each ten seconds without a change, because times on a screen pass. The
/// stream ends when the node stops, or when its caller may not read any more.
pub(super) async fn live<S: LockService>(visit: Visit<S>) -> Result<Response, Refused> {
    let Ok(permit) = Arc::clone(&visit.shared.live).try_acquire_owned() else {
        let why = format!("{} screens are open at this node", limits::LIVE_SCREENS_MAX);
        let next = "Close one, or open the page at another node.";
        // The screen works without the stream, so this does not count as a refusal.
        return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, why, next));
    };
    let open = Open { visit, shown: 0, at: TokioInstant::now(), _permit: permit };
    let events = stream::unfold(open, |mut open| async move {
        let event = open.next().await?;
        Some((Ok::<_, Infallible>(event), open))
    });
    // A proxy that buffers the answer would delay its events.
    let headers = [(CONTENT_TYPE, "text/event-stream"), (BUFFERING, "no")];
    Ok((headers, Body::from_stream(events)).into_response())
}

const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

struct Open<S> {
    visit: Visit<S>,
    /// Index of the log at the last event; 0 before the first.
    shown: u64,
    at: TokioInstant,
    _permit: OwnedSemaphorePermit,
}

impl<S: LockService> Open<S> {
    /// Waits for the next event; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let silence = Duration::from_millis(limits::LIVE_SILENCE_MS);
        let mut stop = self.visit.shared.stop.clone();
        loop {
            if self.shown != 0 {
                tokio::select! {
                    () = sleep(Duration::from_millis(limits::LIVE_TICK_MS)) => {}
                    () = async { drop(stop.wait_for(|stopped| *stopped).await) } => return None,
                }
            }
            let index = self.visit.read(Query::Totals).await.ok()?.index;
            if index != self.shown || silence <= self.at.elapsed() {
                (self.shown, self.at) = (index.max(1), TokioInstant::now());
                return Some(format!("data: {index}\n\n").into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::FromRequestParts;
    use axum::http::Request;
    use tokio::sync::watch;

    use super::super::shared::Shared;
    use super::*;
    use crate::http::api::RefusedByPort;
    use crate::net::ConnectionInfo;
    use crate::testing::Cluster;

    /// A screen with a place asks proxies to forward each event at once. One without a place is refused. It reloads
    /// instead, so it raises no alert.
    #[tokio::test]
    async fn a_screen_without_a_place_raises_no_alert() {
        let cluster = Cluster::start(1, None).await.expect("started");
        let (node, (_stop, stopped)) = (cluster.leader().await, watch::channel(false));
        let shared = Shared::new(node.service(), node.info(), false, Arc::new(String::new), stopped);
        let opened = async || {
            let request = Request::get("/page/live").extension(ConnectionInfo::new(None, false, None));
            let (mut parts, ()) = request.body(()).expect("a request").into_parts();
            live(Visit::from_request_parts(&mut parts, &shared).await.expect("a caller")).await
        };
        let answer = opened().await.expect("a place");
        assert_eq!(answer.headers()[BUFFERING], "no");
        shared.live.forget_permits(limits::LIVE_SCREENS_MAX);
        let refused = opened().await.expect_err("no place").into_response();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.extensions().get::<RefusedByPort>().is_none(), "it is counted");
    }
}
