//! A client's presence in the cluster: whatever it holds or waits for ends with it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::keeper::Keeper;
use super::presence::{Beat, Errand, Presence, Tie};
use super::validity::{Answer, Validity};
use super::{Client, ClientError, HoldState, LockRequest, Settings};
use crate::limits::{RENEWALS_A_TTL, TTL_MS_DEFAULT_MIN};
use crate::model::{Command, Handle, Instance, Metadata, Namespace, OpenSession, Outcome, SessionId};
use crate::service::{Call, LockService};

/// How a session is to be. [`open`](Self::open) opens it.
#[derive(Debug)]
#[must_use = "nothing is opened before open()"]
pub struct SessionBuilder<S: LockService> {
    client: Client<S>,
    ttl: Option<Duration>,
    grace: Option<Duration>,
    handle: Option<Handle>,
    metadata: Option<Metadata>,
    accepts_hand_over: bool,
}

impl<S: LockService> SessionBuilder<S> {
    pub(super) fn new(client: Client<S>) -> Self {
        Self { client, ttl: None, grace: None, handle: None, metadata: None, accepts_hand_over: false }
    }

    /// It ends so long after its last renewal. By default the larger of 10 s and twice what the cluster's timing
    /// profile allows.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// It also ends so long after its stream broke: crashes are noticed sooner, and so are broken networks. At most
    /// the TTL, at least a third of the cluster's shortest one: with less every failover would cost the session.
    pub fn disconnect_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// The secret that proves it, instead of a random one.
    pub fn handle(mut self, handle: Handle) -> Self {
        self.handle = Some(handle);
        self
    }

    /// What it says of itself, instead of the client's.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// It takes holds that are handed over to it, also those that it did not ask for. Such a hold has no guard before
    /// [`Session::adopt`], and ends with the session; the namespace's events tell of it.
    pub fn accepts_hand_over(mut self) -> Self {
        self.accepts_hand_over = true;
        self
    }

    /// Opens it and begins to renew it. Abandoned halfway it may leave a session without locks, until its TTL is over.
    pub async fn open(self) -> Result<Session<S>, ClientError> {
        let Client { service, settings, .. } = self.client.clone();
        let clock = settings.clock.clone();
        let mut retry = self.client.retry();
        let ttl_ms = match self.ttl {
            Some(ttl) => millis(ttl),
            None => default_ttl_ms(retry.until_answered(|| service.status()).await?.ttl_ms_min),
        };
        let handle = self.handle.unwrap_or_else(|| Handle::from_random(clock.random_u128()));
        let open = OpenSession {
            namespace: settings.namespace.clone(),
            handle: handle.clone(),
            instance: Instance(clock.random_u128()),
            ttl_ms,
            disconnect_grace_ms: self.grace.map(millis),
            accepts_hand_over: self.accepts_hand_over,
            metadata: self.metadata.unwrap_or_else(|| settings.metadata.clone()).checked()?,
        };
        let call = Call::new(Command::OpenSession(open));
        let attempt = || {
            let (sent, answer) = (clock.now(), service.submit(call.clone()));
            async move { Ok((sent, answer.await?)) }
        };
        let (sent, reply) = retry.until_answered(attempt).await?;
        let Outcome::Opened { session, ttl_ms, deadline } = reply.outcome else {
            return Err(ClientError::unexpected(reply.outcome));
        };
        let validity = Validity::new(Answer { sent, index: reply.index, stamp: reply.stamp, deadline }, self.grace);
        let ttl = Duration::from_millis(ttl_ms);
        let interval = self.grace.map_or(ttl, |grace| grace.min(ttl)) / RENEWALS_A_TTL as u32;
        let namespace = settings.namespace.clone();
        let beat = Beat { begun: settings.begun, interval };
        let presence = Presence::new(clock, namespace, (session, handle), (ttl, beat), validity);
        Ok(Session::start(service, settings, presence))
    }
}

/// 10 s, or twice the cluster's floor where that is more: one failed failover does not end it.
pub(crate) fn default_ttl_ms(floor_ms: u64) -> u64 {
    TTL_MS_DEFAULT_MIN.max(floor_ms.saturating_mul(2))
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An open session. Clones are the same session; the last of them and of its guards to be dropped closes it.
///
/// - It is renewed at a third of its TTL, or hardly earlier, by a task of its own; again and again where that is not
///   answered. Sessions of one client that live equally long are renewed at the same moments.
/// - When its deadline has passed on the client's clock it is lost for good: it is closed as *lost*, never renewed.
#[derive(Clone)]
pub struct Session<S: LockService> {
    pub(super) tie: Tie,
    pub(super) service: S,
    pub(super) settings: Settings,
}

impl<S: LockService> Session<S> {
    fn start(service: S, settings: Settings, presence: Presence) -> Self {
        let presence = Arc::new(presence);
        let (errands, inbox) = mpsc::unbounded_channel();
        let keeper = Keeper::new(service.clone(), presence.clone(), inbox);
        // Owned by the ties: the keeper ends when the last one is dropped, or with the session.
        tokio::spawn(keeper.run());
        let (performer, request_wait) = (Arc::new(service.clone()), settings.request_wait);
        Self { tie: Tie { presence, errands, service: performer, request_wait }, service, settings }
    }

    /// Its public id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.tie.presence.id
    }

    /// The secret that proves it.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.tie.presence.handle
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.tie.presence.namespace
    }

    /// Its TTL, as the cluster keeps it.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.tie.presence.ttl
    }

    /// How long it is surely alive if nothing more is answered; zero once it is lost.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.tie.presence.valid_for()
    }

    /// How sure it is.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.tie.presence.state()
    }

    /// Waits until it is lost or closed, and says how.
    pub async fn lost(&self) -> ClientError {
        self.tie.presence.lost_error(self.tie.presence.lost().await)
    }

    /// A client of the same service and namespace, for questions, and for what acts on others' locks. Locks that are asked
    /// for without a session are asked for in this one: the client is a handle on it, as a clone is, until it is lost.
    #[must_use]
    pub fn client(&self) -> Client<S> {
        let (service, settings) = (self.service.clone(), self.settings.clone());
        let shared = Arc::new(tokio::sync::Mutex::new(Some(self.clone())));
        Client { service, settings, shared, withdrawals: Arc::default() }
    }

    /// Asks for a lock.
    pub fn lock(&self, name: &str) -> LockRequest<S> {
        LockRequest::in_session(self.clone(), name)
    }

    /// Ends it: everything that it holds is released, all its guards are lost. An error means that the cluster did not
    /// answer before the session's own deadline, after which it ends by itself.
    pub async fn close(self) -> Result<(), ClientError> {
        let (done, answer) = oneshot::channel();
        self.tie.leave(Errand::Close { done });
        match answer.await {
            Ok(answer) => answer.map_err(ClientError::from),
            Err(_) => Err(self.lost().await),
        }
    }
}

impl<S: LockService> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id()).field("state", &self.state()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a wish the TTL is 10 s, or twice a floor that is above 5 s.
    #[test]
    fn the_default_ttl_follows_the_floor() {
        assert_eq!(default_ttl_ms(3_000), 10_000);
        assert_eq!(default_ttl_ms(36_000), 72_000);
    }
}
