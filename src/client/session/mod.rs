//! Sessions: the holds and waits of a client end with its session.

pub(crate) mod cached_holds;
mod close;
pub(crate) mod commands;
pub(crate) mod hold_events;
pub(crate) mod hold_lease;
pub(crate) mod hold_table;
pub(crate) mod keep_alive;
pub(crate) mod reference;
pub(crate) mod state;
#[cfg(feature = "cli")]
pub(crate) mod takeover;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use self::cached_holds::CachedHolds;
use self::keep_alive::{KeepAlive, Tenure};
use self::reference::{BackgroundTask, SessionRef};
use self::state::{RenewalSchedule, SessionState};
use super::error::ClientError;
use super::hold::HoldState;
use super::settings::Settings;
use super::validity::{RenewalAnswer, Validity};
use crate::clock::millis;
use crate::limits::{RENEWALS_A_TTL, TTL_MS_DEFAULT_MIN};
use crate::model::{Command, Handle, Instance, Metadata, Namespace, OpenSession, Outcome, Refusal, SessionId};
use crate::mutex::Mutex;
use crate::service::{Call, LockService, ServiceError};

/// The last error of an opening, if there was one.
pub(crate) type LastError = Arc<Mutex<Option<ServiceError>>>;

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
    pub(crate) last_error: LastError,
}

impl<S: LockService> SessionBuilder<S> {
    pub(crate) fn new(service: S, settings: Settings) -> Self {
        Self {
            service,
            ttl: settings.ttl,
            settings,
            grace: None,
            handle: None,
            metadata: None,
            accepts_hand_over: false,
            last_error: Arc::default(),
        }
    }

    /// Sets the TTL: the session ends this duration after its last renewal. The default is the larger of 10 s and twice
    /// the cluster's minimum, also for `None`.
    pub fn ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.ttl = ttl.into();
        self
    }

    /// Sets the disconnect grace: the session also ends this duration after its stream broke. So crashes are detected
    /// sooner, but a network failure counts as a crash. At most the TTL, and at least a third of the cluster's minimum
    /// TTL: with less, every failover would end the session.
    pub fn disconnect_grace(mut self, grace: impl Into<Option<Duration>>) -> Self {
        self.grace = grace.into();
        self
    }

    /// Sets the secret that proves the session. A random one is used by default.
    pub fn handle(mut self, handle: Handle) -> Self {
        self.handle = Some(handle);
        self
    }

    /// Sets the metadata of the session. By default it is the client's metadata.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Accepts holds that other sessions hand over, even without a request for them. Such a hold has no guard before
    /// [`Session::adopt`] and ends with the session; the namespace's events report it.
    pub fn accepts_hand_over(mut self) -> Self {
        self.accepts_hand_over = true;
        self
    }

    /// Opens the session and starts to renew it. If the future is dropped, a session without locks may remain until its
    /// TTL is over.
    pub async fn open(self) -> Result<Session<S>, ClientError> {
        let instance = Instance(self.settings.clock.random_u128());
        let opened = self.send(instance, self.grace).await?;
        let validity = Validity::new(opened.answer, self.grace);
        let interval = self.grace.map_or(opened.ttl, |grace| grace.min(opened.ttl)) / RENEWALS_A_TTL as u32;
        Ok(self.start(opened, (interval, RENEWALS_A_TTL as u32), validity, None))
    }

    /// Sends the request until it is answered.
    async fn send(&self, instance: Instance, grace: Option<Duration>) -> Result<Opened, ClientError> {
        let Self { service, settings, .. } = self;
        let clock = &settings.clock;
        let mut retry = settings.retry();
        let noted = |error: &ServiceError| *self.last_error.lock() = Some(error.clone());
        let ttl_ms = match self.ttl {
            Some(ttl) => millis(ttl),
            None => {
                let read = || async { service.status().await.inspect_err(noted) };
                default_ttl_ms(retry.until_read(read).await?.ttl_ms_min)
            }
        };
        let random = || Handle::from_random(clock.random_u128());
        let mut open = OpenSession {
            namespace: settings.namespace.clone(),
            handle: self.handle.clone().unwrap_or_else(random),
            instance,
            ttl_ms,
            disconnect_grace_ms: grace.map(millis),
            accepts_hand_over: self.accepts_hand_over,
            metadata: self.metadata.clone().unwrap_or_else(|| settings.metadata.clone()).checked()?,
        };
        loop {
            let attempt = || {
                let call = Call::new(Command::OpenSession(open.clone()));
                let (sent, answer) = (clock.now(), service.submit(call));
                async move { Ok((sent, answer.await.inspect_err(noted)?)) }
            };
            let (sent, reply) = retry.until_answered(attempt).await?;
            if let Outcome::Opened { session, ttl_ms, deadline } = reply.outcome {
                let answer = RenewalAnswer { sent, index: reply.index, stamp: reply.stamp, deadline };
                return Ok(Opened { session, handle: open.handle, ttl: Duration::from_millis(ttl_ms), answer });
            }
            let has_ended = matches!(reply.outcome, Outcome::Refused(Refusal::Tombstoned { .. }));
            if !has_ended || self.handle.is_some() {
                return Err(ClientError::unexpected(reply.outcome));
            }
            // An attempt whose answer was lost opened the session, and it has ended since.
            open.handle = random();
            // That session has ended, so the lost answer leaves no doubt about the next one.
            retry = settings.retry();
        }
    }

    /// Starts to renew the session in this interval, and the leases of its holds as many times in their length.
    fn start(
        self,
        opened: Opened,
        (interval, renewals): (Duration, u32),
        validity: Validity,
        tenure: Option<Tenure>,
    ) -> Session<S> {
        let Self { service, settings, .. } = self;
        let Opened { session, handle, ttl, .. } = opened;
        let schedule = RenewalSchedule { begun: settings.begun, interval, renewals };
        let (clock, namespace) = (settings.clock.clone(), settings.namespace.clone());
        let state = SessionState::new(clock, namespace, (session, handle), (ttl, schedule), validity);
        if let Some(tenure) = &tenure {
            state.hold_attempts_after(tenure.attempt);
        }
        let (state, (queue, tasks)) = (Arc::new(state), mpsc::unbounded_channel());
        // Subscribes before any lock is granted, so that no event of a hold is missed.
        let events = service.hold_events(state.id);
        if events.is_ok() {
            state.holds.cached(CachedHolds::followed);
        }
        let follow = hold_events::follow(service.clone(), state.clone(), events);
        let keep_alive = KeepAlive::new(service.clone(), state.clone(), tasks, tenure);
        // The references own this task: it ends when the last reference is dropped, or with the session.
        tokio::spawn(keep_alive.run());
        let (commands, request_wait) = (Arc::new(service.clone()), settings.request_wait);
        let reference = SessionRef { state, queue, service: commands, request_wait };
        reference.run_in_background(Box::pin(follow));
        Session { reference, service, settings }
    }
}

/// The answer to the request to open a session.
struct Opened {
    session: SessionId,
    handle: Handle,
    ttl: Duration,
    answer: RenewalAnswer,
}

/// Returns the default TTL: 10 s, or twice the cluster's minimum if that is more, so that one failed failover does not
/// end the session.
pub(crate) fn default_ttl_ms(floor_ms: u64) -> u64 {
    TTL_MS_DEFAULT_MIN.max(floor_ms.saturating_mul(2))
}

/// An open session. Clones are the same session. It is closed when the last of the clones and their guards is dropped.
///
/// - A task renews it each third of its TTL or slightly earlier, and retries a renewal that is not answered. Sessions
///   of one client with the same TTL are renewed at the same times.
/// - When its deadline has passed on the client's clock, it is permanently lost: it is closed as *lost* and never
///   renewed.
#[derive(Debug, Clone)]
pub struct Session<S: LockService> {
    pub(crate) reference: SessionRef,
    pub(crate) service: S,
    pub(crate) settings: Settings,
}

impl<S: LockService> Session<S> {
    /// Returns the session's public id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.reference.state.id
    }

    /// Returns the secret that proves the session.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.reference.state.handle
    }

    /// Returns the session's namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.reference.state.namespace
    }

    /// Returns the session's TTL, as the cluster keeps it.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.reference.state.ttl
    }

    /// Returns how long the session certainly lives if no further renewal is answered; zero once it is lost.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.reference.state.valid_for()
    }

    /// Returns how certain it is that the session lives.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.reference.state.state()
    }

    /// Waits until the session is lost or closed, and returns the reason.
    pub async fn lost(&self) -> ClientError {
        let state = &self.reference.state;
        state.lost_error(state.lost().await)
    }

    /// Ends the session: all its holds are released, and all its guards are lost.
    ///
    /// # Errors
    /// The cluster did not answer within the request wait; the error names the last reason, or is that reason if the
    /// cluster has certainly not closed the session and a retry usually cannot help. The session's task continues with
    /// the close until the session's own deadline. At that deadline the session ends in any case.
    pub async fn close(self) -> Result<(), ClientError> {
        let (done, answer) = oneshot::channel();
        self.reference.queue(BackgroundTask::Close(done, self.settings.request_wait));
        match answer.await {
            Ok(answer) => answer.map_err(ClientError::from),
            Err(_) => Err(self.lost().await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The default TTL is 10 s, or twice a minimum above 5 s.
    #[test]
    fn the_default_ttl_follows_the_floor() {
        assert_eq!(default_ttl_ms(3_000), 10_000);
        assert_eq!(default_ttl_ms(36_000), 72_000);
    }
}
