//! A held lock.

pub(crate) mod permit;
pub(crate) mod set;
pub(crate) mod watch;

use std::sync::Arc;
use std::time::Duration;

use self::permit::Permit;
use self::watch::{HoldRef, HoldWatch};
use super::error::{ClientError, Lost};
use super::hold::{Hold, HoldState, Released, RevokeRequest};
use super::on_drop::OnDrop;
use super::options::WaitLimit;
use super::session::commands::{HoldChange, SessionCommand};
use super::session::reference::SessionRef;
use super::wait::{granted, wait_until};
use crate::model::{FencingToken, LockName, LockValue, Mode, Outcome, SessionId};

/// Holds a lock, a share of one, or permits of a semaphore, and keeps the session alive. Dropping it releases the lock: the
/// session's task repeats the release until it is answered or the session ends.
///
/// It may be handed to another task. It is lost with its session or at the end of its own lease, which it reports *before*
/// the cluster may grant the lock to another; a break or a hand-over by others it reports as soon as the client knows. So pass
/// [`token`](Self::token) to the resource, which refuses older ones, and let work run under [`run`](Self::run).
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    held: OnDrop<HoldRef>,
    waited: Duration,
    permits: u32,
}

impl LockGuard {
    /// The guard of a hold. The session's task renews the lease of the hold, where it has one.
    pub(crate) fn new(session: SessionRef, hold: Arc<Hold>, waited: Duration) -> Self {
        session.state.holds.add(&hold);
        if hold.lease_length().is_some() {
            session.run_in_background(session.service.renew_lease(session.state.clone(), hold.clone()));
        }
        let held = OnDrop::new(HoldRef { session, hold }, |held| {
            held.hold.release();
            held.session.finish_in_background(held.release(), None);
        });
        Self { held, waited, permits: 1 }
    }

    /// It was granted in this mode.
    pub(crate) fn held_in(mut self, mode: Mode) -> Self {
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
        self.held.hold.token()
    }

    /// Name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.held.hold.name
    }

    /// Session of the hold.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.held.session.state.id
    }

    /// How long it stood in the queue, in log time.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How long it is surely held if no further renewal is answered; zero once it is lost. Reads the clock at each call.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.held.valid_for()
    }

    /// How certain it is.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.held.state()
    }

    /// Waits until it is lost, and returns before another may be granted the lock; after a break or a hand-over by others,
    /// as soon as the client knows.
    pub async fn lost(&self) -> Lost {
        self.watch().lost().await
    }

    /// Watches the hold without owning it: for a task that has to know of its loss while another task releases it.
    #[must_use]
    pub fn watch(&self) -> HoldWatch {
        self.held.watch()
    }

    /// Waits for a request to the holder to give it up, and returns each request once. Nothing else happens: the holder
    /// decides.
    pub async fn revoke_requested(&self) -> RevokeRequest {
        self.held.begin_watch();
        self.held.hold.revoke_requested().await
    }

    /// From shared to exclusive, under a new token, if no other holder shares it; otherwise it is refused at once, and the hold
    /// stays as it is.
    pub async fn upgrade(&mut self) -> Result<FencingToken, ClientError> {
        self.upgrade_as(WaitLimit::Try).await
    }

    /// As [`upgrade`](Self::upgrade), but waits at most so long for the other holders, ahead of the whole queue. Of two holders
    /// that upgrade the second is refused at once. Dropped before its end it is withdrawn; [`token`](Self::token) shows whether
    /// it was granted all the same.
    pub async fn upgrade_within(&mut self, wait: Duration) -> Result<FencingToken, ClientError> {
        self.upgrade_as(WaitLimit::For(wait)).await
    }

    async fn upgrade_as(&mut self, wait: WaitLimit) -> Result<FencingToken, ClientError> {
        let session = self.held.session.clone();
        let deadline = wait.until(session.state.clock.now());
        let drawn = session.state.draw();
        let mut cancel =
            OnDrop::new((session.clone(), drawn.0), |(session, number)| session.cancel_in_background(*number));
        let change = HoldChange::Upgrade(wait.patience());
        let answer = session.run(SessionCommand::Change(self.held.hold.clone(), drawn, change));
        tokio::pin!(answer);
        // Without an answer it is withdrawn, too: the session's task goes on with an upgrade that no caller waits for.
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer?,
            () = wait_until(&*session.state.clock, deadline) => {
                cancel.run_now();
                answer.await?
            }
        };
        cancel.disarm();
        Ok(granted(answer.outcome, self.name(), None)?.token)
    }

    /// From exclusive to shared, at once and under the same token. A shared hold stays as it is.
    pub async fn downgrade(&mut self) -> Result<(), ClientError> {
        self.change(HoldChange::Downgrade, Outcome::Downgraded).await
    }

    /// Changes the text that is kept with the hold and shown to every client; `None` takes it away. After an error that
    /// leaves its outcome open the session's task goes on with the change; later changes wait for it.
    pub async fn set_value(&self, value: Option<&str>) -> Result<(), ClientError> {
        let value = value.map(LockValue::parse).transpose()?;
        self.change(HoldChange::SetValue(value), Outcome::Done).await
    }

    async fn change(&self, change: HoldChange, done: Outcome) -> Result<(), ClientError> {
        let reply = self.held.session.run(self.held.change(change)).await?;
        if reply.outcome == done { Ok(()) } else { Err(ClientError::unexpected(reply.outcome)) }
    }

    /// Its permits, each of which is given back for itself; of a lock there is one. They are made when they are taken from the
    /// iterator, which gives the others back together when it is dropped. A hold that its owner entered again gives none back
    /// before that was released.
    #[must_use = "dropping the permits gives them back"]
    pub fn into_permits(mut self) -> impl Iterator<Item = Permit> + Send {
        self.held.disarm();
        Permit::all(self.held.clone(), self.permits).one_by_one()
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

    /// Releases the lock and returns the answer. Abandoned halfway it is released all the same; so it is after an error that
    /// leaves its outcome open, which means that the service did not answer for the client's request wait.
    pub async fn release(mut self) -> Result<Released, ClientError> {
        self.held.disarm();
        self.held.hold.release();
        Released::from_reply(self.held.session.run(self.held.release()).await?)
    }
}
