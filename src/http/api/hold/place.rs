//! The place of a `hold` in the queue.

use super::{Departure, Hold, HoldEvent, Session};
use crate::http::api::hold_events::HoldWaiting;
use crate::model::{Claim, LogTime, Outcome, Place, Query, QueryResult};
use crate::service::{Freshness, LockService};
use crate::shapes::Holder;

impl<S: LockService> Hold<S> {
    /// Reports the place that the answer to the request names.
    pub(super) async fn waiting(&mut self, place: Option<Place>) -> Option<Departure> {
        let (place, now) = (place?, self.now().await);
        self.report(&place, now).await
    }

    /// Reports the place if it has changed. Reads only the state of this node, which may be a little older.
    pub(super) async fn moved(&mut self, session: &Session<S>) -> Option<Departure> {
        let query = Query::Claim { lock: None, claim: Claim::Request(session.first_request()) };
        let answered = self.context.service.query(query, Freshness::Stale).await.ok()?;
        let QueryResult::Claim { outcome: Some(Outcome::Queued(place)), .. } = answered.answer else { return None };
        if self.place == Some(place.place) { None } else { self.report(&place, answered.now).await }
    }

    /// Returns the log time of this node.
    async fn now(&self) -> LogTime {
        self.context.query(Query::Totals, Some(true)).await.map_or(LogTime(0), |answered| answered.now)
    }

    async fn report(&mut self, Place { place, held_by, .. }: &Place, now: LogTime) -> Option<Departure> {
        self.place = Some(*place);
        let held_by = held_by.as_deref().map(|holder| Holder::new(holder, now));
        self.send(HoldEvent::Waiting(HoldWaiting { place: *place, held_by })).await
    }
}
