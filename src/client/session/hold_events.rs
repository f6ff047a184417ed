//! Follows the events of a session's holds: breaks, hand-overs, ends of leases, and requests to release.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::client::hold::Hold;
use crate::client::retry::{Backoff, Retry};
use crate::client::session::cached_holds::CachedHolds;
use crate::client::session::state::SessionState;
use crate::model::{Claim, Outcome, Query, QueryReply, QueryResult, Refusal, TokenState};
use crate::service::{Events, Freshness, LockService, ServiceError};

/// Applies the events of the session's holds while the session lives. If events were missed, or the session had no
/// stream for a time, it subscribes again and then reads each watched hold; cached holds are given up at once.
pub(crate) async fn follow<S: LockService>(
    service: S,
    session: Arc<SessionState>,
    mut events: Result<Events, ServiceError>,
) {
    let (mut backoff, mut reads) = (Backoff::new(), FuturesUnordered::new());
    loop {
        let next = async {
            match &mut events {
                Ok(events) => events.next().await,
                Err(error) => Err(error.clone()),
            }
        };
        tokio::select! {
            biased;
            Some(()) = reads.next(), if !reads.is_empty() => {}
            event = next => match event {
                Ok(event) => session.holds.on_event(&event),
                Err(ServiceError::Refused(Refusal::SessionEnded { reason, why, .. })) => {
                    return session.end_reported(reason, why);
                }
                Err(error) => {
                    session.holds.cached(CachedHolds::unfollowed);
                    tokio::select! {
                        () = tokio::time::sleep(backoff.pause(&error, &*session.clock)) => {}
                        () = session.attached.notified() => {}
                    }
                    events = service.hold_events(session.id);
                    if events.is_ok() {
                        session.holds.cached(CachedHolds::followed);
                        let missed = session.holds.missed().into_iter();
                        reads = missed.map(|hold| read(&service, &session, hold)).collect();
                    }
                }
            },
        }
    }
}

/// Reads whether a hold still lasts. A stale token means its loss only if no upgrade that may have changed the token is
/// in progress.
pub(crate) async fn read<S: LockService>(service: &S, session: &SessionState, hold: Arc<Hold>) {
    hold.read_now();
    // If the hold was broken in the gap, no later event reports its loss, so the read is retried after every error.
    let mut retry = Retry::unlimited(session.clock.clone()).persistent();
    loop {
        let token = hold.token();
        let query = Query::Check { lock: session.key(&hold.name), token };
        let checked = retry.until_read(|| query_in_turn(service, session, &query)).await;
        let Ok(QueryResult::Checked(checked)) = checked.map(|answered| answered.answer) else { return };
        if checked.state == TokenState::Valid || session_has_ended(service, session).await {
            return;
        }
        let _change = hold.change().await;
        if hold.token() == token {
            return hold.lose(None);
        }
    }
}

/// Makes one attempt of a query, together with few others. A query that is refused again and again leaves the others
/// their turns.
async fn query_in_turn<S: LockService>(
    service: &S,
    session: &SessionState,
    query: &Query,
) -> Result<QueryReply, ServiceError> {
    // The semaphore is never closed.
    let _permit = session.holds.reads.acquire().await.ok();
    service.query(query.clone(), Freshness::Linearizable).await
}

/// Whether the whole session has ended, and with it its holds. If so, records the end of the session with its reason.
async fn session_has_ended<S: LockService>(service: &S, session: &SessionState) -> bool {
    let mut retry = Retry::unlimited(session.clock.clone());
    let query = Query::Claim { lock: None, claim: Claim::Request(session.request(1)) };
    let answered = retry.until_read(|| query_in_turn(service, session, &query)).await;
    let Ok(QueryResult::Claim { outcome: Some(Outcome::Refused(Refusal::SessionEnded { reason, why, .. })), .. }) =
        answered.map(|answered| answered.answer)
    else {
        return false;
    };
    session.end_reported(reason, why);
    true
}
