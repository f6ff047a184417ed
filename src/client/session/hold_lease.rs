//! Renews the lease of a hold as often in its length as its session is renewed in a TTL.

use std::sync::Arc;
use std::time::Duration;

use crate::client::hold::Hold;
use crate::client::retry::Backoff;
use crate::client::session::state::SessionState;
use crate::client::validity::RenewalAnswer;
use crate::client::wait::pause_until;
use crate::faults::{self, Fault};
use crate::model::{FencingToken, Outcome, Refusal, RenewalTarget, Reply};
use crate::service::{LockService, RenewalCall, ServiceError, only_reply};

/// Renews the lease of a hold as often as the session is renewed in a TTL, until the hold is released or has ended. The
/// first renewal is due this interval after the deadline was set, which for the repeated answer to an old request is
/// long ago.
pub(crate) async fn renew<S: LockService>(service: S, session: Arc<SessionState>, hold: Arc<Hold>) {
    let Some(lease_ms) = hold.lease_ms() else { return };
    let length = Duration::from_millis(lease_ms);
    let interval = length / session.schedule.renewals;
    let lock = session.key(&hold.name);
    let mut backoff = Backoff::up_to(interval / 2);
    let now = session.clock.now();
    let mut due = now.after(hold.left(now).unwrap_or(length).saturating_sub(length - interval));
    loop {
        let now = session.clock.now();
        if hold.ended(now).is_some() {
            return;
        }
        if now < due {
            hold.over_within(pause_until(due, now)).await;
            continue;
        }
        // Another guard of the same hold may have a longer lease, which both renew.
        let lease_ms = hold.lease_ms().unwrap_or(lease_ms);
        let (token, attempt) = (hold.token(), session.next_hold_attempt());
        let target = RenewalTarget::Hold { lock: lock.clone(), session: session.id, token, lease_ms };
        let renewal = RenewalCall { target, proof: session.proof(), attempt };
        let answer = tokio::time::timeout(interval, service.renew(vec![renewal])).await;
        let answer = answer.unwrap_or_else(|_| Err(ServiceError::unknown("a renewal was not answered in time")));
        match answer.and_then(only_reply) {
            Ok(Reply { index, stamp, outcome: Outcome::Renewed { deadline, .. }, .. }) => {
                let answered = session.clock.now();
                let sent = if faults::on(Fault::HoldFromArrival) { answered } else { now };
                hold.renewed(RenewalAnswer { sent, index, stamp, deadline }, answered);
                (due, backoff) = (now.after(interval), Backoff::up_to(interval / 2));
            }
            Ok(Reply { outcome: Outcome::Refused(refusal), .. }) | Err(ServiceError::Refused(refusal)) => {
                if is_over(&hold, token, &refusal).await {
                    return;
                }
            }
            Ok(_) => return tracing::error!(session = %session.id, "a renewal got an unexpected answer"),
            Err(error) => due = session.clock.now().after(backoff.pause(&error, &*session.clock)),
        }
    }
}

/// Whether a refusal means the end of the hold, and not that the hold has a newer token now.
async fn is_over(hold: &Arc<Hold>, token: FencingToken, refusal: &Refusal) -> bool {
    if refusal.hold_is_gone() {
        let _change = hold.change().await;
        if hold.token() != token {
            return false;
        }
        hold.lose(None);
    }
    true
}
