//! What guards and acquires want done besides asking for a lock: each request is repeated until it is answered or the
//! session ends. Who waits for the answer performs it himself; what nobody waits for is the keeper's.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::{Backoff, Retry};
use super::hold::{Alone, Hold};
use super::keeper::submit;
use super::presence::Presence;
use super::presence::pause_until;
use super::validity::Answer;
use super::waiting::settled;
use crate::faults::{self, Fault};
use crate::model::{
    Alter, Alteration, Claim, Command, FencingToken, LockKey, LockValue, Outcome, Patience, Refusal, Release,
    RenewalTarget, Reply,
};
use crate::service::{Advice, ClaimRef, LockService, RenewalCall, ServiceError};

/// A request number, and the bound below which all were answered when it was drawn.
pub(super) type Drawn = (u64, u64);

/// What is to be done, under a number of its own: performed twice it is done once. Who performs what concerns a hold is
/// [alone](Hold::alone) with it from the first try to the last, so that its token is the same in all of them.
#[derive(Debug, Clone)]
pub(super) enum Request {
    /// Withdraw an acquire or an upgrade, whatever has become of it.
    Cancel(u64),
    /// Give a lock back.
    Release(Arc<Hold>, Drawn),
    /// Change a hold.
    Alter(Arc<Hold>, Drawn, Change),
}

impl Request {
    /// Waits for its turn.
    pub(super) async fn turn(&self) -> Option<Alone> {
        match self {
            Request::Cancel(_) => None,
            Request::Release(hold, _) | Request::Alter(hold, ..) => Some(Arc::clone(hold).alone().await),
        }
    }
}

/// Performs requests through a service.
pub(super) trait Perform: Send + Sync {
    /// Until it is answered, or for as long as `patience` allows; what cannot be mended by trying again ends with the session.
    fn perform(&self, presence: Arc<Presence>, request: Request, patience: Option<Duration>) -> Performing;
}

/// The answer to come.
pub(super) type Performing = Pin<Box<dyn Future<Output = Result<Reply, ServiceError>> + Send>>;

impl<S: LockService> Perform for S {
    fn perform(&self, presence: Arc<Presence>, request: Request, patience: Option<Duration>) -> Performing {
        let service = self.clone();
        let retry = Retry::patient_for(presence.clock.clone(), patience).of_attempts_within(service.answers_within());
        match request {
            Request::Cancel(number) => {
                let cancel = Command::Cancel { request: presence.request(number) };
                Box::pin(async move { finish(&service, &presence, retry, number, cancel).await })
            }
            Request::Release(hold, (number, answered_below)) => {
                let (request, name) = (presence.request(number), hold.name.clone());
                let release = Command::Release(Release { request, answered_below, name, token: hold.token() });
                Box::pin(async move { finish(&service, &presence, retry, number, release).await })
            }
            Request::Alter(hold, drawn, change) => {
                Box::pin(async move { alter(&service, &presence, retry, &hold, drawn, change).await })
            }
        }
    }
}

impl fmt::Debug for dyn Perform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Perform")
    }
}

/// Performs what nobody waits for, in the turn that it has, or in its own.
pub(super) async fn perform_left(
    service: &dyn Perform,
    presence: Arc<Presence>,
    request: Request,
    turn: Option<Alone>,
) {
    let session = presence.id;
    let _turn = if turn.is_some() { turn } else { request.turn().await };
    if let Err(error) = service.perform(presence, request, None).await {
        tracing::warn!(%session, %error, "a dropped lock stays until its session ends");
    }
}

/// What is to become of a hold; its token is known when its turn has come.
#[derive(Debug, Clone)]
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

/// Whether it is answered, or trying again cannot change that it is not.
pub(super) fn is_final(answer: &Result<Reply, ServiceError>) -> bool {
    answer.as_ref().err().is_none_or(|error| error.advice() == Advice::GiveUp)
}

/// Repeats a command until it is answered. Its number is outstanding until then.
async fn finish<S: LockService>(
    service: &S,
    presence: &Presence,
    mut retry: Retry,
    number: u64,
    command: Command,
) -> Result<Reply, ServiceError> {
    let call = presence.call(command);
    let answer = retry.until_answered(|| submit(service, presence, &call)).await;
    if is_final(&answer) {
        presence.numbers().finish(number);
    }
    answer
}

/// Changes a hold; waits where that has to wait.
async fn alter<S: LockService>(
    service: &S,
    presence: &Presence,
    mut retry: Retry,
    hold: &Hold,
    (number, answered_below): Drawn,
    change: Change,
) -> Result<Reply, ServiceError> {
    let request = presence.request(number);
    let (name, what) = (hold.name.clone(), change.of(hold.token()));
    let lock = LockKey { namespace: presence.namespace.clone(), name: name.clone() };
    let call = presence.call(Command::Alter(Alter { request, answered_below, name, what }));
    let claim = ClaimRef { lock, claim: Claim::Request(request) };
    let attempt = || {
        let (sent, answer) = (presence.clock.now(), submit(service, presence, &call));
        async move { Ok((sent, answer.await?)) }
    };
    let wait = || super::keeper::settled(service, presence, &claim);
    let answer = settled(service, &claim, &mut retry, attempt, wait, |_| ()).await.map(|settled| settled.reply);
    if let Ok(Reply { outcome: Outcome::Granted(grant), .. }) = &answer {
        hold.regranted(grant.token);
    }
    if is_final(&answer) {
        presence.numbers().finish(number);
    }
    answer
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
        let renewal = RenewalCall { target, proof: presence.proof(), attempt };
        let answer = tokio::time::timeout(interval, service.renew(vec![renewal])).await;
        let answer = answer.unwrap_or_else(|_| Err(ServiceError::unknown("a renewal was not answered in time")));
        match answer.map(|replies| replies.into_iter().next()) {
            Ok(Some(Reply { index, stamp, outcome: Outcome::Renewed { deadline, .. }, .. })) => {
                let sent = if faults::on(Fault::HoldFromArrival) { presence.clock.now() } else { now };
                hold.renewed(Answer { sent, index, stamp, deadline }, &presence);
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
async fn is_over(hold: &Arc<Hold>, token: FencingToken, refusal: &Refusal) -> bool {
    let gone = matches!(refusal, Refusal::NotHeld { .. } | Refusal::HeldByOther { .. });
    if gone {
        let _alone = Arc::clone(hold).alone().await;
        if hold.token() != token {
            return false;
        }
        hold.end_as(None);
    }
    true
}
