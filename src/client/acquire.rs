//! Asking for a lock within a session: one request number from the first try to the last.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::hold::Hold;
use super::presence::{Errand, Tie};
use super::session::millis;
use super::waiting::{Wait, Wanted, granted, passed, settled};
use super::{Client, ClientError, LockGuard, Retry, Session};
use crate::clock::Instant;
use crate::model::{
    Acquire, Alter, Alteration, Claim, Command, Extras, Fairness, FencingToken, Handle, HolderView, LockKey, LockName,
    LockValue, Metadata, Mode, Owner, Place, Reentry, Reply, RequestId,
};
use crate::service::{Call, ClaimRef, LockService, ServiceError};

/// How a lock is to be acquired. [`acquire`](Self::acquire) asks for it; values are checked there.
#[must_use = "nothing is asked for before acquire()"]
pub struct LockRequest<S: LockService> {
    place: Within<S>,
    wanted: Wanted,
    owner: Option<String>,
    extras: Extras,
    value: Option<String>,
    on_queued: OnQueued,
}

type OnQueued = Option<Box<dyn FnMut(&Place) + Send>>;

/// Whose session asks.
enum Within<S: LockService> {
    Own(Session<S>),
    Shared(Client<S>),
}

impl<S: LockService> LockRequest<S> {
    pub(super) fn in_session(session: Session<S>, name: &str) -> Self {
        Self::new(Within::Own(session), name)
    }

    pub(super) fn in_shared_session(client: Client<S>, name: &str) -> Self {
        Self::new(Within::Shared(client), name)
    }

    fn new(place: Within<S>, name: &str) -> Self {
        let (wanted, extras) = (Wanted::new(name, Wait::WhileAlive), Extras::default());
        Self { place, wanted, owner: None, extras, value: None, on_queued: None }
    }

    /// Together with other shared holders, instead of alone.
    pub fn shared(self) -> Self {
        self.mode(Mode::Shared)
    }

    /// So many permits of a semaphore. The first to ask for a free name has to say the limit.
    pub fn permits(self, count: u32, limit: impl Into<Option<u32>>) -> Self {
        self.mode(Mode::Permits { count, limit: limit.into() })
    }

    /// How, in one word of the model.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.wanted.mode = mode;
        self
    }

    /// The line of execution that asks. Without one this request excludes every other, also of the same session.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.to_owned());
        self
    }

    /// What happens where the same session and [`owner`](Self::owner) hold the lock already; by default it is refused.
    /// Where it counts, each guard gives back one entry, and the last one frees the lock.
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.extras.reentry = reentry;
        self
    }

    /// It may pass others that are unfair, and be passed by them; never a fair one. It may starve.
    pub fn unfair(mut self) -> Self {
        self.extras.fairness = Fairness::Barging;
        self
    }

    /// The hold also ends so long after its last renewal, which the session's keeper sends at a third of it.
    pub fn lease(mut self, length: Duration) -> Self {
        self.extras.lease_ms = Some(millis(length));
        self
    }

    /// After an involuntary end the name stays closed for so long, to all but [`Session::resume`]; at most a minute.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.extras.delay_ms = millis(delay);
        self
    }

    /// A text kept with the hold and shown to everybody, at most 4 KiB.
    pub fn value(mut self, value: &str) -> Self {
        self.value = Some(value.to_owned());
        self
    }

    /// What for; shown to whoever waits.
    pub fn why(mut self, why: &str) -> Self {
        self.wanted.why = Some(why.to_owned());
        self
    }

    /// What the holder says of itself, instead of the client's.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.wanted.metadata = Some(metadata);
        self
    }

    /// Waits at most so long, counted from the call of [`acquire`](Self::acquire); by default as long as the session
    /// lives.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wanted.wait = Wait::For(wait);
        self
    }

    /// Does not wait.
    pub fn try_once(mut self) -> Self {
        self.wanted.wait = Wait::Try;
        self
    }

    /// Is told the place in the queue, each time that the cluster says it.
    pub fn on_queued(mut self, tell: impl FnMut(&Place) + Send + 'static) -> Self {
        self.on_queued = Some(Box::new(tell));
        self
    }

    /// Asks, and waits as was said.
    ///
    /// - It repeats itself under one request number through errors and changes of leader.
    /// - *Not acquired* is said only once the cluster has confirmed that nothing of it waits or holds.
    /// - Dropped before its end it leaves no waiter and no lock: the session's keeper withdraws it.
    pub async fn acquire(self) -> Result<LockGuard, ClientError> {
        let Wanted { name, mode, metadata, why, wait } = self.wanted;
        let name = name?;
        let owner = self.owner.as_deref().map(Owner::parse).transpose()?;
        let extras = Extras { value: self.value.as_deref().map(LockValue::parse).transpose()?, ..self.extras };
        extras.checked(owner.as_ref())?;
        let lease_ms = extras.lease_ms;
        let extras = (extras != *Extras::PLAIN).then(|| Box::new(extras));
        let (session, deadline) = match self.place {
            Within::Own(session) => {
                let deadline = wait.until(session.settings.clock.now());
                (session, deadline)
            }
            Within::Shared(client) => {
                let deadline = wait.until(client.settings.clock.now());
                (client.shared_session().await?, deadline)
            }
        };
        let metadata = Wanted::metadata(metadata, why, &session.settings.metadata)?;
        let now = session.settings.clock.now();
        let patience = deadline.map_or(wait, |deadline| Wait::For(deadline.since(now))).patience();
        let command = |request, answered_below| {
            let name = name.clone();
            Command::Acquire(Acquire { request, answered_below, name, mode, owner, patience, metadata, extras })
        };
        Pursuit::pursue(session, name.clone(), command, (lease_ms, self.on_queued), deadline).await
    }
}

impl<S: LockService> Session<S> {
    /// Takes up a hold that was lost, under a new token: while its lock-delay keeps the name closed, once, and not after a
    /// break. The lost token and the handle of the session that lost it prove the right to it.
    pub async fn resume(&self, name: &str, lost: FencingToken, handle: &Handle) -> Result<LockGuard, ClientError> {
        let name = LockName::parse(name)?;
        let command = |request, answered_below| {
            let what = Alteration::Resume { token: lost, handle: handle.clone(), lease_ms: None };
            Command::Alter(Alter { request, answered_below, name: name.clone(), what })
        };
        Pursuit::pursue(self.clone(), name.clone(), command, (None, None), None).await
    }
}

/// One request on its way.
struct Pursuit<S: LockService> {
    session: Session<S>,
    call: Call,
    claim: ClaimRef,
    lease_ms: Option<u64>,
    on_queued: OnQueued,
    /// Who was in the way when the cluster last said so.
    ahead: Option<Box<HolderView>>,
}

impl<S: LockService> Pursuit<S> {
    /// Draws a number and follows what is asked for under it to the hold.
    async fn pursue(
        session: Session<S>,
        name: LockName,
        command: impl FnOnce(RequestId, u64) -> Command,
        (lease_ms, on_queued): (Option<u64>, OnQueued),
        deadline: Option<Instant>,
    ) -> Result<LockGuard, ClientError> {
        let (number, answered_below) = session.tie.presence.draw();
        let withdrawal = Withdrawal { tie: session.tie.clone(), number, state: Armed::Armed };
        let request = session.tie.presence.request(number);
        let lock = LockKey { namespace: session.namespace().clone(), name };
        let call = session.tie.presence.call(command(request, answered_below));
        let claim = ClaimRef { lock, claim: Claim::Request(request) };
        let pursuit = Pursuit { call, claim, session, lease_ms, on_queued, ahead: None };
        pursuit.finish(withdrawal, deadline).await
    }

    async fn finish(mut self, mut withdrawal: Withdrawal, deadline: Option<Instant>) -> Result<LockGuard, ClientError> {
        let tie = self.session.tie.clone();
        let reply = tokio::select! {
            biased;
            reply = self.settle() => Some(reply?),
            end = tie.presence.lost() => return Err(tie.presence.lost_error(end)),
            () = passed(&*tie.presence.clock, deadline) => None,
        };
        let name = self.claim.lock.name;
        let Some(Reply { index, stamp, outcome }) = reply else {
            withdrawal.withdraw(self.session.settings.request_wait).await?;
            return Err(ClientError::NotAcquired { lock: name, holder: self.ahead });
        };
        withdrawal.disarm();
        let grant = granted(outcome, &name, self.ahead)?;
        let lease = grant.deadline.map(|deadline| {
            let length_ms = self.lease_ms.unwrap_or_else(|| deadline.ms_since(stamp));
            (length_ms, tie.presence.validity().beside((stamp, index), deadline))
        });
        let hold = Arc::new(Hold::new(name, &grant, lease));
        Ok(LockGuard::new(tie, hold, Duration::from_millis(grant.waited_ms)))
    }

    /// Until there is an outcome that is not a place in the queue.
    async fn settle(&mut self) -> Result<Reply, ServiceError> {
        let (service, presence) = (&self.session.service, &*self.session.tie.presence);
        let mut retry = Retry::new(presence.clock.clone(), self.session.settings.request_wait);
        let attempt = || {
            let (sent, answer) = (presence.clock.now(), super::keeper::submit(service, presence, &self.call));
            async move { Ok((sent, answer.await?)) }
        };
        let (ahead, on_queued) = (&mut self.ahead, &mut self.on_queued);
        let queued = |place: &Place| {
            *ahead = place.held_by.clone().map(Box::new);
            if let Some(tell) = on_queued {
                tell(place);
            }
        };
        Ok(settled(service, &self.claim, &mut retry, attempt, queued).await?.reply)
    }
}

/// Sees to it that a request that ended without an answer leaves nothing behind.
struct Withdrawal {
    tie: Tie,
    number: u64,
    state: Armed,
}

#[derive(Debug, PartialEq, Eq)]
enum Armed {
    Armed,
    Disarmed,
}

impl Withdrawal {
    /// The request is answered.
    fn disarm(mut self) {
        self.state = Armed::Disarmed;
        self.tie.presence.numbers().finish(self.number);
    }

    /// Cancels it, and returns once that was answered. When nobody answers for `wait` it goes on in the keeper.
    async fn withdraw(&mut self, wait: Duration) -> Result<(), ClientError> {
        self.state = Armed::Disarmed;
        let number = self.number;
        let answer = self.tie.ask(|done| Errand::Cancel { number, done });
        match tokio::time::timeout(wait, answer).await {
            Ok(answer) => answer.map(drop),
            Err(_) => {
                Err(ServiceError::unknown("the cancel of a request that ran out of time was not answered").into())
            }
        }
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if self.state == Armed::Armed {
            self.tie.leave(Errand::Cancel { number: self.number, done: None });
        }
    }
}

impl<S: LockService> fmt::Debug for LockRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest").field("wanted", &self.wanted).field("owner", &self.owner).finish_non_exhaustive()
    }
}
