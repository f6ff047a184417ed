//! Asking for a lock within a session.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::hold::Hold;
use super::pursuit::{Asker, Pursuit, Ready};
use super::validity::{self, Validity};
use super::wanted::{Choices, Wait, Wanted, choice_methods, mode_methods, wanted_methods};
use super::{Client, ClientError, LockGuard, Retry, Session};
use crate::limits::LEASE_MS_MIN;
use crate::model::{
    Access, Acquire, Alter, Alteration, Command, Fairness, FencingToken, Grant, Handle, HolderView, Invalid, LockKey,
    LockName, Mode, Outcome, Query, QueryResult, Reentry, Refusal, RenewalTarget, Reply,
};
use crate::service::{Freshness, LockService, RenewalCall, ServiceError};

/// How a lock is to be acquired: exclusive, and waited for as long as the session lives, by default.
/// [`acquire`](Self::acquire) asks for it; values are checked there.
#[must_use = "nothing is asked for before acquire()"]
pub struct LockRequest<S: LockService> {
    asker: Asker<S>,
    name: Result<LockName, Invalid>,
    access: Access,
    wanted: Wanted,
    choices: Choices,
}

impl<S: LockService> LockRequest<S> {
    pub(super) fn in_session(session: Session<S>, name: &str) -> Self {
        Self::new(Asker::Own(session), name)
    }

    pub(super) fn in_shared_session(client: Client<S>, name: &str) -> Self {
        Self::new(Asker::Shared(client), name)
    }

    fn new(asker: Asker<S>, name: &str) -> Self {
        let (wanted, choices) = (Wanted::new(Wait::WhileAlive), Choices::default());
        Self { asker, name: LockName::parse(name), access: Mode::Exclusive.into(), wanted, choices }
    }

    /// What happens where the same session and [`owner`](Self::owner) hold the lock already; by default it is refused.
    /// Where it counts, each guard gives back one entry, and the last one frees the lock.
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.choices.extras.reentry = reentry;
        self
    }

    /// It may pass others that are unfair, and be passed by them; never a fair one. It may starve.
    pub fn unfair(mut self) -> Self {
        self.choices.extras.fairness = Fairness::Barging;
        self
    }

    /// Asks, and waits as was said.
    ///
    /// - It repeats itself under one request number through errors and changes of leader.
    /// - *Not acquired* is said only once the cluster has confirmed that nothing of it waits or holds.
    /// - Dropped before its end it leaves no waiter and no lock: the session's keeper withdraws it.
    pub async fn acquire(self) -> Result<LockGuard, ClientError> {
        let Self { asker, name, access, wanted, mut choices } = self;
        let name = name?;
        let (owner, extras) = choices.checked([access.mode])?;
        let lease_ms = choices.lease_ms;
        let Ready { session, metadata, patience, deadline } = asker.ready(wanted).await?;
        let asked = name.clone();
        let command = |request, answered_below| {
            let locks = (asked, access).into();
            Command::Acquire(Acquire { request, answered_below, locks, owner, patience, metadata, lease_ms, extras })
        };
        let pursued = Pursuit::pursue(session, &name, command, choices.on_queued, deadline).await?;
        Ok(pursued.guard(name, lease_ms)?.held_in(access.mode))
    }
}

wanted_methods!(LockRequest);
mode_methods!(LockRequest);
choice_methods!(LockRequest);

impl<S: LockService> Session<S> {
    /// Takes up a hold that was lost, under a new token: while its lock-delay keeps the name closed, once, and not after a
    /// break. The lost token and the handle of the session that lost it prove the right to it.
    pub async fn resume(&self, name: &str, lost: FencingToken, handle: &Handle) -> Result<LockGuard, ClientError> {
        let name = LockName::parse(name)?;
        let command = |request, answered_below| {
            let what = Alteration::Resume { token: lost, handle: handle.clone(), lease_ms: None };
            Command::Alter(Alter { request, answered_below, name: name.clone(), what })
        };
        let pursued = Pursuit::pursue(self.clone(), &name, command, None, None).await?;
        let guard = pursued.guard(name, None)?;
        // The grant does not say how many permits there are to give back. A guard whose mode cannot be had any more is one of
        // a hold, or a session, that has ended since.
        let presence = &self.tie.presence;
        let retry = Retry::for_ever(presence.clock.clone());
        let mode = tokio::select! {
            biased;
            held = self.held(guard.name(), guard.token(), retry) => held?.map(|(mode, _)| mode),
            _ = presence.told_of_its_end() => None,
        };
        Ok(match mode {
            Some(mode) => guard.held_in(mode),
            None => guard,
        })
    }

    /// The guard of a hold that was handed over to this session without its having asked. Refused where the session does not
    /// hold the lock under this token. Two guards of one hold both give it back: adopt it once.
    ///
    /// Where the hold has a lease of its own, it has one from now on of the length that was left of it.
    pub async fn adopt(&self, name: &str, token: FencingToken) -> Result<LockGuard, ClientError> {
        let name = LockName::parse(name)?;
        let (mode, left_ms) = self.surely_held(&name, token).await?;
        let lease = self.lease_of(&name, token, left_ms.max(LEASE_MS_MIN)).await?;
        if lease.is_none() {
            // Its lease may have run out just before it could be renewed: then the hold is gone by now.
            self.surely_held(&name, token).await?;
        }
        let grant = Grant { token, deadline: None, ends: None, waited_ms: 0 };
        let hold = Arc::new(Hold::new(name, &grant, lease, None));
        Ok(LockGuard::new(self.tie.clone(), hold, Duration::ZERO).held_in(mode))
    }

    /// How this session holds the lock under this token, and for how long if it is not renewed; refused where it does not.
    async fn surely_held(&self, name: &LockName, token: FencingToken) -> Result<(Mode, u64), ClientError> {
        let retry = Retry::new(self.settings.clock.clone(), self.settings.request_wait);
        let held = self.held(name, token, retry).await?;
        held.ok_or_else(|| Refusal::NotHeld { lock: self.key(name) }.into())
    }

    /// Renews the lease of a hold for so long; `None` where it has none. Only a renewal says whether it has.
    async fn lease_of(
        &self,
        name: &LockName,
        token: FencingToken,
        lease_ms: u64,
    ) -> Result<Option<(u64, Validity)>, ClientError> {
        let presence = &self.tie.presence;
        let target = RenewalTarget::Hold { lock: self.key(name), session: self.id(), token, lease_ms };
        let attempt = || {
            let (proof, attempt) = (presence.proof(), presence.next_hold_attempt());
            let renewal = RenewalCall { target: target.clone(), proof, attempt };
            let (sent, answer) = (presence.clock.now(), self.service.renew(vec![renewal]));
            async move { Ok((sent, answer.await?)) }
        };
        let mut retry = Retry::new(presence.clock.clone(), self.settings.request_wait);
        let (sent, replies) = retry.until_answered(attempt).await?;
        let Some(Reply { index, stamp, outcome, .. }) = replies.into_iter().next() else {
            return Err(ServiceError::Internal("a renewal without an answer".to_owned()).into());
        };
        if let Outcome::Renewed { deadline, .. } = outcome {
            let answer = validity::Answer { sent, index, stamp, deadline };
            return Ok(Some((lease_ms, Validity::new(answer, None))));
        }
        let without = matches!(outcome, Outcome::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. }));
        if without { Ok(None) } else { Err(ClientError::unexpected(outcome)) }
    }

    fn key(&self, name: &LockName) -> LockKey {
        LockKey { namespace: self.namespace().clone(), name: name.clone() }
    }

    /// How this session holds the lock under this token, and for how many milliseconds if it is not renewed; `None` where it
    /// does not.
    async fn held(
        &self,
        name: &LockName,
        token: FencingToken,
        mut retry: Retry,
    ) -> Result<Option<(Mode, u64)>, ClientError> {
        let query = Query::Inspect { lock: self.key(name) };
        let answered = retry.until_answered(|| self.service.query(query.clone(), Freshness::Linearizable)).await?;
        let QueryResult::Lock(view) = answered.answer else {
            return Err(ServiceError::Internal("the service answered another question".to_owned()).into());
        };
        let own = |holder: &&HolderView| holder.token == token && holder.session == Some(self.id());
        let held = view.holders.iter().find(own);
        Ok(held.and_then(|holder| Some((holder.mode, holder.deadline?.ms_since(answered.now)))))
    }
}

impl<S: LockService> fmt::Debug for LockRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest").field("name", &self.name).field("wanted", &self.wanted).finish_non_exhaustive()
    }
}
