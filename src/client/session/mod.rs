//! Sessions: what a client holds or waits for ends with its session.

pub(crate) mod commands;
pub(crate) mod hold_events;
pub(crate) mod hold_lease;
pub(crate) mod hold_table;
pub(crate) mod keep_alive;
pub(crate) mod reference;
pub(crate) mod state;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use self::keep_alive::KeepAlive;
use self::reference::{BackgroundTask, SessionRef};
use self::state::{RenewalSchedule, SessionState};
use super::error::ClientError;
use super::hold::HoldState;
use super::settings::Settings;
use super::validity::{Answer, Validity};
use crate::clock::millis;
use crate::limits::{RENEWALS_A_TTL, TTL_MS_DEFAULT_MIN};
use crate::model::{Command, Handle, Instance, Metadata, Namespace, OpenSession, Outcome, SessionId};
use crate::service::{Call, LockService};

/// Options of a session. [`open`](Self::open) opens it.
#[derive(Debug)]
#[must_use = "nothing is opened before open()"]
pub struct SessionBuilder<S: LockService> {
    service: S,
    settings: Settings,
    ttl: Option<Duration>,
    grace: Option<Duration>,
    handle: Option<Handle>,
    metadata: Option<Metadata>,
    accepts_hand_over: bool,
}

impl<S: LockService> SessionBuilder<S> {
    pub(crate) fn new(service: S, settings: Settings) -> Self {
        Self { service, settings, ttl: None, grace: None, handle: None, metadata: None, accepts_hand_over: false }
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

    /// Its metadata, instead of the client's.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Takes holds that are handed over to it, also those that it did not ask for. Such a hold has no guard before
    /// [`Session::adopt`], and ends with the session; the namespace's events report it.
    pub fn accepts_hand_over(mut self) -> Self {
        self.accepts_hand_over = true;
        self
    }

    /// Opens it and begins to renew it. Abandoned halfway it may leave a session without locks, until its TTL is over.
    pub async fn open(self) -> Result<Session<S>, ClientError> {
        let Self { service, settings, .. } = self;
        let clock = settings.clock.clone();
        let mut retry = settings.retry();
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
        let schedule = RenewalSchedule { begun: settings.begun, interval };
        let namespace = settings.namespace.clone();
        let state = SessionState::new(clock, namespace, (session, handle), (ttl, schedule), validity);
        Ok(Session::start(service, settings, state))
    }
}

/// 10 s, or twice the cluster's floor where that is more: one failed failover does not end it.
pub(crate) fn default_ttl_ms(floor_ms: u64) -> u64 {
    TTL_MS_DEFAULT_MIN.max(floor_ms.saturating_mul(2))
}

/// An open session. Clones are the same session; the last of them and of its guards to be dropped closes it.
///
/// - A task of its own renews it at a third of its TTL, or hardly earlier, and retries a renewal that is not answered. Sessions
///   of one client with the same TTL are renewed at the same moments.
/// - When its deadline has passed on the client's clock it is lost for good: it is closed as *lost*, never renewed.
#[derive(Clone)]
pub struct Session<S: LockService> {
    pub(crate) reference: SessionRef,
    pub(crate) service: S,
    pub(crate) settings: Settings,
}

impl<S: LockService> Session<S> {
    fn start(service: S, settings: Settings, state: SessionState) -> Self {
        let state = Arc::new(state);
        let (queue, tasks) = mpsc::unbounded_channel();
        // From here on, so that the events of every hold that is granted from now on are among them.
        let events = service.hold_events(state.id);
        let follow = hold_events::follow(service.clone(), state.clone(), events);
        let keep_alive = KeepAlive::new(service.clone(), state.clone(), tasks);
        // Owned by the references: it ends when the last one is dropped, or with the session.
        tokio::spawn(keep_alive.run());
        let (commands, request_wait) = (Arc::new(service.clone()), settings.request_wait);
        let reference = SessionRef { state, queue, service: commands, request_wait };
        reference.run_in_background(Box::pin(follow));
        Self { reference, service, settings }
    }

    /// Its public id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.reference.state.id
    }

    /// The secret that proves it.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.reference.state.handle
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.reference.state.namespace
    }

    /// Its TTL, as the cluster keeps it.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.reference.state.ttl
    }

    /// How long it surely lives if no further renewal is answered; zero once it is lost.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.reference.state.valid_for()
    }

    /// How certain it is.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.reference.state.state()
    }

    /// Waits until it is lost or closed, and returns the reason.
    pub async fn lost(&self) -> ClientError {
        let state = &self.reference.state;
        state.lost_error(state.lost().await)
    }

    /// Ends it: everything that it holds is released, all its guards are lost. An error means that the cluster did not
    /// answer before the session's own deadline, after which it ends by itself.
    pub async fn close(self) -> Result<(), ClientError> {
        let (done, answer) = oneshot::channel();
        self.reference.queue(BackgroundTask::Close(done));
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

    /// Without a given TTL it is 10 s, or twice a floor that is above 5 s.
    #[test]
    fn the_default_ttl_follows_the_floor() {
        assert_eq!(default_ttl_ms(3_000), 10_000);
        assert_eq!(default_ttl_ms(36_000), 72_000);
    }
}
