//! `sessions/ID/events`: what others do to the holds of a session, and its end, as a stream.

use std::pin::Pin;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::call::{Answered, RequestContext};
use super::fields::needed;
use super::problem::{Decided, Failed};
use super::sessions::one;
use super::stream::{Events, NextEvent, StreamCall};
use crate::limits;
use crate::model::{Claim, Event, LogTime, Outcome, Query, QueryResult, Refusal, RequestId, SessionId};
use crate::service::{self, ErrorCode, LockService, Scope, ServiceError, Subscription};
use crate::shapes::Happened;

/// Follows what others do to the holds of a session, from now on: `revoke-requested`, `broken`, `handed-over`,
/// `expired` and `recalled`. The last event is `session-ended`. After a break of the stream some events may be missing:
/// begin again, and then check the holds.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub(super) struct SessionEventsQuery {}

impl StreamCall for SessionEventsQuery {
    const PATH: Option<&'static str> = Some("/v1/ns/{namespace}/sessions/{id}/events");
    const WORD: &'static str = "events";
    const ERRORS: &'static [ErrorCode] = &[ErrorCode::SessionEnded, ErrorCode::EventsMissed];
    type Event = Happened;

    async fn begin<S: LockService>(self, context: RequestContext<S>) -> Result<Answered<Events<Happened>>, Failed> {
        let session = needed("in the path", "id", context.session)?;
        // The subscriptions begin before the session is read, so its end is in one of them.
        let holds = context.service.hold_events(session)?;
        let subscription = Subscription { scope: Scope::SessionEnd(session), after: None, cluster_id: None };
        let end = context.service.subscribe(subscription).await?;
        let point = match one(&context, session, None).await {
            Ok(read) => read.point,
            // Only its owner and those that read the namespace learn whether a session has ended.
            Err(unknown) => match ended(&context, session).await {
                Ok((point, None)) if is_forbidden(&unknown) => Some(point),
                Ok((_, ended)) => return Err(ended.unwrap_or(unknown)),
                Err(_) => return Err(unknown),
            },
        };
        let cluster_id = context.cluster_id()?;
        let cut_off = Box::pin(context.api.info.cut_off());
        let events = context.stream(Following { holds, end, cut_off, cluster_id, over: false });
        Ok(Answered { point, ..Answered::fixed(events) })
    }
}

/// Whether a caller may not list the sessions of the namespace. It may follow its own sessions all the same.
fn is_forbidden(failed: &Failed) -> bool {
    matches!(failed, Failed::Service(error, _) if matches!(**error, ServiceError::Forbidden { .. }))
}

/// Returns the refusal of a session that has ended, if the cluster remembers it, and the point of the log at which this
/// is true. The session of another principal is refused like one that has ended.
async fn ended<S: LockService>(
    context: &RequestContext<S>,
    session: SessionId,
) -> Result<((u64, LogTime), Option<Failed>), Failed> {
    let claim = Claim::Request(RequestId { session, number: 1 });
    let answered = context.query(Query::Claim { lock: None, claim }, None).await?;
    let point = (answered.index, answered.now);
    let QueryResult::Claim { outcome: Some(Outcome::Refused(refusal)), .. } = answered.answer else {
        return Ok((point, None));
    };
    let decided = Decided::at(answered.index, answered.now);
    Ok((point, matches!(refusal, Refusal::SessionEnded { .. }).then(|| Failed::refused(refusal, decided))))
}

/// The events of one session.
struct Following {
    holds: service::Events,
    end: service::Events,
    /// Ends the stream at a node that has had no leader for long. The holder must not rely on a node that learns of no
    /// break.
    cut_off: Pin<Box<dyn Future<Output = ServiceError> + Send>>,
    cluster_id: u128,
    /// Whether the session has ended.
    over: bool,
}

impl Following {
    fn event(&self, event: &Event) -> Result<Option<Happened>, Failed> {
        Ok(Some(Happened::new(event, self.cluster_id)))
    }
}

impl NextEvent<Happened> for Following {
    async fn next(&mut self) -> Result<Option<Happened>, Failed> {
        if self.over {
            return Ok(None);
        }
        let error = tokio::select! {
            biased;
            end = self.end.next() => match end {
                Ok(event) => {
                    self.over = true;
                    return self.event(&event);
                }
                Err(error) => error,
            },
            event = self.holds.next() => match event {
                Ok(event) => return self.event(&event),
                Err(error) => error,
            },
            error = &mut self.cut_off => return Err(error.into()),
        };
        // The end of a session first ends the events of its holds.
        let longest = Duration::from_millis(limits::SESSION_END_WAIT_MS);
        if let Ok(Ok(event)) = timeout(longest, self.end.next()).await {
            self.over = true;
            return self.event(&event);
        }
        Err(error.into())
    }
}
