//! Follows what others do to a session's holds: one subscription for each session, from the first guard that asks.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use crate::client::hold::{Hold, RevokeRequest};
use crate::client::retry::{Backoff, Retry};
use crate::client::session::state::SessionState;
use crate::limits::{HOLD_LOOKS_AT_ONCE, HOLDS_FOLLOWED_SWEEP_MIN};
use crate::model::{
    Claim, EndReason, Event, EventKind, FencingToken, Outcome, Query, QueryResult, Refusal, TokenState,
};
use crate::service::{Events, Freshness, LockService, Scope, ServiceError, Subscription};

/// Holds that are followed. A guard that is gone leaves an empty place, which is cleared away when there are twice as many.
type Followed = Vec<Weak<Hold>>;

/// Until the keeper is gone. After every beginning of a subscription each hold is looked at once: what happened before is
/// found there, what happens after is told.
pub(crate) async fn follow<S: LockService>(
    service: S,
    session: Arc<SessionState>,
    mut newcomers: mpsc::UnboundedReceiver<Arc<Hold>>,
) {
    let mut holds: Followed = Vec::new();
    let mut backoff = Backoff::new();
    loop {
        let scope = Scope::Holds(session.id);
        match service.subscribe(Subscription { scope, after: None, cluster_id: None }).await {
            Ok(events) => {
                let Some(error) = listen(&service, &session, events, &mut newcomers, &mut holds).await else { return };
                tokio::time::sleep(backoff.pause(&error, &*session.clock)).await;
            }
            Err(error) => tokio::time::sleep(backoff.pause(&error, &*session.clock)).await,
        }
    }
}

/// Until the subscription ends, and how; `None` once nobody is left to follow for.
async fn listen<S: LockService>(
    service: &S,
    session: &SessionState,
    mut events: Events,
    newcomers: &mut mpsc::UnboundedReceiver<Arc<Hold>>,
    holds: &mut Followed,
) -> Option<ServiceError> {
    // A session may hold thousands of locks: its looks must not come to the cluster all at once.
    let mut unseen: VecDeque<Weak<Hold>> = holds.iter().cloned().collect();
    let mut looks = FuturesUnordered::new();
    let mut sweep_at = HOLDS_FOLLOWED_SWEEP_MIN.max(2 * holds.len());
    loop {
        while looks.len() < HOLD_LOOKS_AT_ONCE
            && let Some(hold) = unseen.pop_front()
        {
            looks.extend(hold.upgrade().map(|hold| look(service, session, hold)));
        }
        tokio::select! {
            newcomer = newcomers.recv() => {
                let newcomer = newcomer?;
                if sweep_at <= holds.len() {
                    holds.retain(|hold| hold.strong_count() > 0);
                    sweep_at = HOLDS_FOLLOWED_SWEEP_MIN.max(2 * holds.len());
                }
                holds.push(Arc::downgrade(&newcomer));
                unseen.push_back(Arc::downgrade(&newcomer));
            }
            Some(()) = looks.next(), if !looks.is_empty() => {}
            event = events.next() => match event {
                Ok(event) => happened(&event, holds),
                Err(error) => return Some(error),
            },
        }
    }
}

/// Tells the hold with this token, which several guards may share.
fn happened(event: &Event, holds: &Followed) {
    let of = |token: FencingToken| holds.iter().filter_map(Weak::upgrade).filter(move |hold| hold.token() == token);
    let its = event.subject.token().into_iter().flat_map(of);
    match &event.kind {
        // Where it has no lease it ended with its session, which the keeper hears of.
        EventKind::Expired { reason, .. } => {
            its.filter(|hold| hold.lease_length().is_some()).for_each(|hold| hold.lose(Some(*reason)));
        }
        EventKind::Broken { .. } => its.for_each(|hold| hold.lose(Some(EndReason::Broken))),
        EventKind::HandedOver { from, .. } => of(*from).for_each(|hold| hold.lose(Some(EndReason::HandedOver))),
        EventKind::RevokeRequested { by, why } => {
            its.for_each(|hold| hold.request_revoke(RevokeRequest { by: by.clone(), why: why.clone() }));
        }
        EventKind::Queued { .. }
        | EventKind::Granted { .. }
        | EventKind::WaitEnded { .. }
        | EventKind::Released { .. }
        | EventKind::Upgraded { .. }
        | EventKind::Downgraded
        | EventKind::PermitsReturned { .. }
        | EventKind::Resumed { .. }
        | EventKind::Reopened
        | EventKind::ValueChanged
        | EventKind::Recalled
        | EventKind::LimitChanged { .. }
        | EventKind::SessionOpened
        | EventKind::SessionEnded { .. }
        | EventKind::LeaderlessGap { .. } => {}
    }
}

/// Whether it is still held. A token that is stale says so only where no upgrade is under way that may have changed it.
async fn look<S: LockService>(service: &S, session: &SessionState, hold: Arc<Hold>) {
    let lock = session.key(&hold.name);
    let mut retry = Retry::for_ever(session.clock.clone());
    loop {
        let token = hold.token();
        let query = Query::Check { lock: lock.clone(), token };
        let checked = retry.until_answered(|| service.query(query.clone(), Freshness::Linearizable)).await;
        let Ok(QueryResult::Checked(checked)) = checked.map(|answered| answered.answer) else { return };
        if checked.state == TokenState::Valid {
            return;
        }
        if session_has_ended(service, session, &mut retry).await {
            return;
        }
        let _change = hold.clone().change().await;
        if hold.token() == token {
            return hold.lose(None);
        }
    }
}

/// Whether the whole session has ended, which its holds ended with: then the session is ended, with the reason.
async fn session_has_ended<S: LockService>(service: &S, session: &SessionState, retry: &mut Retry) -> bool {
    let claim = Claim::Request(session.request(1));
    let query = Query::Claim { lock: None, claim };
    let answered = retry.until_answered(|| service.query(query.clone(), Freshness::Linearizable)).await;
    let Ok(QueryResult::Claim { outcome: Some(Outcome::Refused(Refusal::SessionEnded { reason, why, .. })), .. }) =
        answered.map(|answered| answered.answer)
    else {
        return false;
    };
    session.end_reported(reason, why);
    true
}
