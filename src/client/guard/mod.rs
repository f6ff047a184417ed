//! A held lock.

use std::future::Future;
use std::time::Duration;

use std::sync::Arc;

use super::errands::{Change, Drawn, Request};
use super::hold::{Asked, Hold};
use super::hold_watch::HoldWatch;
use super::permit::Permit;
use super::presence::{Errand, Tie};
use super::waiting::{granted, passed};
use super::wanted::Wait;
use super::{ClientError, HoldState, Lost};
use crate::model::{FencingToken, LockName, LockValue, LogTime, Mode, Outcome, Reply, SessionId};

/// Holds a lock, a share of one, or permits of a semaphore, and keeps the session alive. Dropping it gives the lock
/// back: the session's keeper repeats the release until it is answered or the session ends.
///
/// It may be handed to another task. It is lost with its session or at the end of its own lease, which it tells *before*
/// the cluster may grant the lock to another; a break or a hand-over by others it tells as soon as it hears of it. So pass
/// [`token`](Self::token) to the resource, which refuses older ones, and let work run under [`run`](Self::run).
///
/// News of breaks, hand-overs and requests to give it up are followed from the first call of [`lost`](Self::lost),
/// [`watch`](Self::watch), [`run`](Self::run) or [`asked`](Self::asked) on.
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    tie: Tie,
    hold: Arc<Hold>,
    waited: Duration,
    permits: u32,
    owed: Owed,
}

/// Whether dropping the guard still has to give the lock back.
#[derive(Debug, PartialEq, Eq)]
enum Owed {
    Release,
    Nothing,
}

/// A lock was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Log index of the entry that did it.
    pub index: u64,
    /// Log time of that entry.
    pub at: LogTime,
    /// How often the same owner still has it entered, or how many permits are left; 0 where it is no longer held.
    pub left: u32,
}

impl Released {
    pub(super) fn from_reply(reply: Reply) -> Result<Self, ClientError> {
        let Outcome::Released { left } = reply.outcome else { return Err(ClientError::unexpected(reply.outcome)) };
        Ok(Self { index: reply.index, at: reply.stamp, left })
    }
}

impl LockGuard {
    /// Has its lease renewed by the session's keeper, where it has one.
    pub(super) fn new(tie: Tie, hold: Arc<Hold>, waited: Duration) -> Self {
        if hold.lease_length().is_some() {
            tie.leave(Errand::KeepLease(hold.clone()));
        }
        Self { tie, hold, waited, permits: 1, owed: Owed::Release }
    }

    /// It was granted in this mode.
    pub(super) fn held_in(mut self, mode: Mode) -> Self {
        self.permits = match mode {
            Mode::Exclusive | Mode::Shared => 1,
            Mode::Permits(count) => count,
        };
        self
    }

    /// The fencing token of this grant, larger than that of every earlier one. An [`upgrade`](Self::upgrade) gives it
    /// another one.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token()
    }

    /// Which lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.hold.name
    }

    /// Whose.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.tie.presence.id
    }

    /// How long it stood in the queue, in log time.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How long it is surely held if nothing more is answered; zero once it is lost. The clock is read at each call.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        let presence = &self.tie.presence;
        if self.hold.ended(presence).is_some() {
            return Duration::ZERO;
        }
        let session = presence.valid_for();
        self.hold.left(presence).map_or(session, |lease| lease.min(session))
    }

    /// How sure it is.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.hold.state(&self.tie.presence)
    }

    /// Waits until it is lost, and tells so before another may be granted the lock; after a break or a hand-over by
    /// others, as soon as it hears of it.
    pub async fn lost(&self) -> Lost {
        self.watch().lost().await
    }

    /// A look at the hold that does not own it, for those who have to hear of its loss while somebody else releases it.
    #[must_use]
    pub fn watch(&self) -> HoldWatch {
        self.follow();
        HoldWatch { presence: self.tie.presence.clone(), hold: self.hold.clone() }
    }

    /// Waits until somebody asks the holder to give it up, and tells each such request once. Nothing else happens: the
    /// holder decides.
    pub async fn asked(&self) -> Asked {
        self.follow();
        self.hold.asked().await
    }

    fn follow(&self) {
        if self.hold.follow_first() {
            self.tie.leave(Errand::Follow(self.hold.clone()));
        }
    }

    /// From shared to exclusive, under a new token, if nobody else shares it; otherwise it is refused at once, and the hold
    /// stays as it is.
    pub async fn upgrade(&mut self) -> Result<FencingToken, ClientError> {
        self.upgrade_as(Wait::Try).await
    }

    /// As [`upgrade`](Self::upgrade), but waits at most so long for the others, ahead of the whole queue. Of two that would
    /// upgrade the second is refused at once. Dropped before its end it is withdrawn; [`token`](Self::token) tells whether
    /// it was granted all the same.
    pub async fn upgrade_within(&mut self, wait: Duration) -> Result<FencingToken, ClientError> {
        self.upgrade_as(Wait::For(wait)).await
    }

    async fn upgrade_as(&mut self, wait: Wait) -> Result<FencingToken, ClientError> {
        let presence = self.tie.presence.clone();
        let deadline = wait.until(presence.clock.now());
        let drawn = presence.draw();
        let mut withdrawal = Withdrawn { tie: self.tie.clone(), number: Some(drawn.0) };
        let answer = self.alter(drawn, Change::Upgrade(wait.patience()));
        tokio::pin!(answer);
        // Without an answer it is withdrawn, too: the session's keeper goes on with an upgrade that no caller waits for.
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer?,
            () = passed(&*presence.clock, deadline) => {
                withdrawal.withdraw();
                answer.await?
            }
        };
        withdrawal.number = None;
        Ok(granted(answer.outcome, self.name(), None)?.token)
    }

    /// From exclusive to shared, at once and under the same token. A shared hold stays as it is.
    pub async fn downgrade(&mut self) -> Result<(), ClientError> {
        let reply = self.alter(self.tie.presence.draw(), Change::Downgrade).await?;
        if reply.outcome == Outcome::Downgraded { Ok(()) } else { Err(ClientError::unexpected(reply.outcome)) }
    }

    /// Changes the text that is kept with the hold and shown to every client; `None` takes it away. After an error that
    /// leaves its outcome open the session's keeper goes on with the change; later changes wait for it.
    pub async fn set_value(&self, value: Option<&str>) -> Result<(), ClientError> {
        let value = value.map(LockValue::parse).transpose()?;
        let reply = self.alter(self.tie.presence.draw(), Change::SetValue(value)).await?;
        if reply.outcome == Outcome::Done { Ok(()) } else { Err(ClientError::unexpected(reply.outcome)) }
    }

    /// Its permits, each of which is given back for itself; of a lock there is one. They are made when they are taken from the
    /// iterator, which gives the others back together when it is dropped. A hold that its owner entered again gives none back
    /// before that was released.
    #[must_use = "dropping the permits gives them back"]
    pub fn into_permits(mut self) -> impl Iterator<Item = Permit> + Send {
        self.owed = Owed::Nothing;
        Permit::all(&self.tie, &self.hold, self.permits).one_by_one()
    }

    fn alter(&self, drawn: Drawn, change: Change) -> impl Future<Output = Result<Reply, ClientError>> + Send + use<> {
        let (tie, hold) = (self.tie.clone(), self.hold.clone());
        async move { tie.ask(Request::Alter(hold, drawn, change)).await }
    }

    /// Does work while the lock is held. If the lock is lost first, the work is dropped at that moment, before another
    /// may be granted the lock.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let output = tokio::select! {
            biased;
            lost = self.lost() => return Err(lost),
            output = work => output,
        };
        // The last stretch of the work may have taken longer than the lease.
        if self.state() == HoldState::Lost { Err(self.lost().await) } else { Ok(output) }
    }

    /// Gives the lock back and says what became of it. Abandoned halfway it is given back all the same; so it is after an
    /// error that leaves its outcome open, which means that the service did not answer for the client's request wait.
    pub async fn release(mut self) -> Result<Released, ClientError> {
        self.owed = Owed::Nothing;
        self.hold.give_back();
        Released::from_reply(self.tie.ask(self.given_back()).await?)
    }

    /// What gives it back.
    fn given_back(&self) -> Request {
        Request::Release(self.hold.clone(), self.tie.presence.draw())
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.owed == Owed::Release {
            self.hold.give_back();
            self.tie.leave(Errand::Perform(self.given_back(), None));
        }
    }
}

/// Withdraws an upgrade that nobody waits for any more.
struct Withdrawn {
    tie: Tie,
    number: Option<u64>,
}

impl Withdrawn {
    fn withdraw(&mut self) {
        if let Some(number) = self.number.take() {
            self.tie.leave(Errand::Perform(Request::Cancel(number), None));
        }
    }
}

impl Drop for Withdrawn {
    fn drop(&mut self) {
        self.withdraw();
    }
}
