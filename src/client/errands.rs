//! What the keeper does for guards and acquires: each errand is repeated until it is answered or the session ends.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::backoff::{Backoff, Retry};
use super::hold::Hold;
use super::keeper::submit;
use super::presence::Presence;
use super::presence::pause_until;
use super::validity::Answer;
use super::waiting::settled;
use crate::model::{
    Alter, Alteration, Claim, Command, FencingToken, LockKey, LockValue, Outcome, Patience, Refusal, Release,
    RenewalTarget, Reply,
};
use crate::service::{ClaimRef, LockService, RenewalCall, ServiceError};

/// Where an answer goes; nobody waits for that of what was dropped.
pub(super) type Done = Option<oneshot::Sender<Result<Reply, ServiceError>>>;

/// What is to become of a hold; its token is known when its turn has come.
#[derive(Debug)]
pub(super) enum Change {
    Downgrade,
    Upgrade(Patience),
    SetValue(Option<LockValue>),
    ReturnPermits(u32),
}

impl Change {
    fn of(self, token: FencingToken) -> Alteration {
        match self {
            Change::Downgrade => Alteration::Downgrade { token },
            Change::Upgrade(patience) => Alteration::Upgrade { token, patience },
            Change::SetValue(value) => Alteration::SetValue { token, value },
            Change::ReturnPermits(count) => Alteration::ReturnPermits { token, count },
        }
    }
}

/// Repeats a command until it is answered; what cannot be mended by trying again ends with the session.
pub(super) async fn finish<S: LockService>(
    service: S,
    presence: Arc<Presence>,
    number: u64,
    command: Command,
    done: Done,
) {
    let call = presence.call(command);
    let mut retry = Retry::for_ever(presence.clock.clone()).of_attempts_within(service.answers_within());
    let answer = retry.until_answered(|| submit(&service, &presence, &call)).await;
    presence.numbers().finish(number);
    match done {
        Some(done) => drop(done.send(answer)),
        None => {
            if let Err(error) = answer {
                tracing::warn!(session = %presence.id, %error, "a dropped lock stays until its session ends");
            }
        }
    }
}

/// Gives a hold back, after what is under way with it.
pub(super) async fn release<S: LockService>(service: S, presence: Arc<Presence>, hold: Arc<Hold>, done: Done) {
    let _alone = hold.changing.lock().await;
    let (number, answered_below) = presence.draw();
    let request = presence.request(number);
    let release = Release { request, answered_below, name: hold.name.clone(), token: hold.token() };
    finish(service, presence, number, Command::Release(release), done).await;
}

/// Changes a hold under the request `number`; waits where that has to wait.
pub(super) async fn alter<S: LockService>(
    service: S,
    presence: Arc<Presence>,
    hold: Arc<Hold>,
    (number, answered_below): (u64, u64),
    change: Change,
    done: Done,
) {
    let alone = hold.changing.lock().await;
    let request = presence.request(number);
    let (name, what) = (hold.name.clone(), change.of(hold.token()));
    let lock = LockKey { namespace: presence.namespace.clone(), name: name.clone() };
    let call = presence.call(Command::Alter(Alter { request, answered_below, name, what }));
    let claim = ClaimRef { lock, claim: Claim::Request(request) };
    let mut retry = Retry::for_ever(presence.clock.clone()).of_attempts_within(service.answers_within());
    let attempt = || {
        let (sent, answer) = (presence.clock.now(), submit(&service, &presence, &call));
        async move { Ok((sent, answer.await?)) }
    };
    let wait = || super::keeper::settled(&service, &presence, &claim);
    let answer = settled(&service, &claim, &mut retry, attempt, wait, |_| ()).await.map(|settled| settled.reply);
    if let Ok(Reply { outcome: Outcome::Granted(grant), .. }) = &answer {
        hold.regranted(grant.token);
    }
    drop(alone);
    presence.numbers().finish(number);
    if let Some(done) = done {
        drop(done.send(answer));
    }
}

/// Renews the lease of a hold at a third of its length until it is given back, or has ended.
pub(super) async fn keep_lease<S: LockService>(service: S, presence: Arc<Presence>, hold: Arc<Hold>) {
    let Some((lease_ms, interval)) = hold.lease_length() else { return };
    let lock = LockKey { namespace: presence.namespace.clone(), name: hold.name.clone() };
    let mut backoff = Backoff::new();
    let mut due = presence.clock.now().after(interval);
    while hold.ended(&presence).is_none() {
        let now = presence.clock.now();
        if now < due {
            if hold.given_back_within(pause_until(due, now)).await {
                return;
            }
            continue;
        }
        let (token, attempt) = (hold.token(), presence.next_hold_attempt());
        let target = RenewalTarget::Hold { lock: lock.clone(), session: presence.id, token, lease_ms };
        let renewal = RenewalCall { target, proof: Some(presence.handle.clone()), attempt };
        let answer = tokio::time::timeout(interval, service.renew(vec![renewal])).await;
        let answer = answer.unwrap_or_else(|_| Err(ServiceError::unknown("a renewal was not answered in time")));
        match answer.map(|replies| replies.into_iter().next()) {
            Ok(Some(Reply { index, stamp, outcome: Outcome::Renewed { deadline, .. } })) => {
                hold.renewed(Answer { sent: now, index, stamp, deadline }, &presence);
                (due, backoff) = (now.after(interval), Backoff::new());
            }
            Ok(Some(Reply { outcome: Outcome::Refused(refusal), .. })) | Err(ServiceError::Refused(refusal)) => {
                if is_over(&hold, token, &refusal).await {
                    return;
                }
            }
            Ok(_) => return tracing::error!(session = %presence.id, "a renewal was answered with something else"),
            Err(error) => due = presence.clock.now().after(backoff.pause(&error, &*presence.clock)),
        }
    }
}

/// Whether a refusal means the end of the hold, and not that it has a newer token by now.
async fn is_over(hold: &Hold, token: FencingToken, refusal: &Refusal) -> bool {
    let gone = matches!(refusal, Refusal::NotHeld { .. } | Refusal::HeldByOther { .. });
    if gone {
        let _alone = hold.changing.lock().await;
        if hold.token() != token {
            return false;
        }
        hold.end_as(None);
    }
    true
}
