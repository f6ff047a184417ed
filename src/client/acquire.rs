//! Asking for a lock within a session: one request number from the first try to the last.

use std::fmt;
use std::time::Duration;

use super::presence::{Errand, Tie};
use super::waiting::{Wait, Wanted, granted, passed, settled};
use super::{Client, ClientError, LockGuard, Retry, Session};
use crate::clock::Instant;
use crate::model::{Acquire, Claim, Command, HolderView, LockKey, Metadata, Mode, Owner, Place, Reply};
use crate::service::{Call, ClaimRef, LockService, ServiceError};

/// How a lock is to be acquired. [`acquire`](Self::acquire) asks for it; values are checked there.
#[must_use = "nothing is asked for before acquire()"]
pub struct LockRequest<S: LockService> {
    place: Within<S>,
    wanted: Wanted,
    owner: Option<String>,
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
        Self { place, wanted: Wanted::new(name, Wait::WhileAlive), owner: None, on_queued: None }
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
        let (number, answered_below) = session.tie.presence.draw();
        let withdrawal = Withdrawal { tie: session.tie.clone(), number, state: Armed::Armed };
        let request = session.tie.presence.request(number);
        let acquire =
            Acquire { request, answered_below, name: name.clone(), mode, owner, patience, metadata, extras: None };
        let pursuit = Pursuit {
            call: session.tie.presence.call(Command::Acquire(acquire)),
            claim: ClaimRef {
                lock: LockKey { namespace: session.namespace().clone(), name },
                claim: Claim::Request(request),
            },
            session,
            on_queued: self.on_queued,
            ahead: None,
        };
        pursuit.finish(withdrawal, deadline).await
    }
}

/// One request on its way.
struct Pursuit<S: LockService> {
    session: Session<S>,
    call: Call,
    claim: ClaimRef,
    on_queued: OnQueued,
    /// Who was in the way when the cluster last said so.
    ahead: Option<Box<HolderView>>,
}

impl<S: LockService> Pursuit<S> {
    async fn finish(mut self, mut withdrawal: Withdrawal, deadline: Option<Instant>) -> Result<LockGuard, ClientError> {
        let tie = self.session.tie.clone();
        let outcome = tokio::select! {
            biased;
            reply = self.settle() => Some(reply?.outcome),
            end = tie.presence.lost() => return Err(tie.presence.lost_error(end)),
            () = passed(&*tie.presence.clock, deadline) => None,
        };
        let name = self.claim.lock.name;
        let Some(outcome) = outcome else {
            withdrawal.withdraw(self.session.settings.request_wait).await?;
            return Err(ClientError::NotAcquired { lock: name, holder: self.ahead });
        };
        withdrawal.disarm();
        granted(outcome, &name, self.ahead).map(|grant| LockGuard::new(tie, name, &grant))
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
