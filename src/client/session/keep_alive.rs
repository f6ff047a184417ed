//! The task of a session. It renews and re-attaches the session, runs queued work, and closes the session.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant as TokioInstant;

use crate::client::retry::Backoff;
use crate::client::session::close::close;
#[cfg(feature = "cli")]
use crate::client::session::close::report_break;
use crate::client::session::reference::BackgroundTask;
use crate::client::session::state::{SessionEnd, SessionState};
use crate::client::validity::RenewalAnswer;
use crate::client::wait::pause_until;
use crate::clock::{Instant, millis};
use crate::faults::{self, Fault};
use crate::limits::{ATTACH_MS_MAX, RENEWALS_A_TTL, RENEWALS_IN_FLIGHT_MAX};
use crate::model::{Attach, Attachment, Command, Outcome, Refusal, RenewalTarget, Reply, SessionClose};
use crate::service::{LockService, NotSent, RenewalCall, ServiceError, only_reply};

/// Keeps one session alive. It ends when the last reference to the session is dropped, when a caller closes the
/// session, or when the session is lost. The close is retried until the session's own deadline at the latest, or for
/// one TTL after a loss.
pub(crate) struct KeepAlive<S> {
    service: S,
    session: Arc<SessionState>,
    queue: mpsc::UnboundedReceiver<BackgroundTask>,
    tasks: FuturesUnordered<BoxFuture<'static, ()>>,
    attempts: FuturesUnordered<BoxFuture<'static, Attempted>>,
    /// The number of the last attempt. Attaches use it too, so their numbers increase.
    attempt: u64,
    /// The client's tenure with a session that clients take over from each other; `None` for a session of one client.
    tenure: Option<Tenure>,
    /// When to make the next attempt.
    due: Instant,
    /// Whether the session still has its stream; `None` if the next attempt must attach the session to another stream.
    attachment: Option<watch::Receiver<bool>>,
    /// When an attach was last answered, or the session was opened; `None` without a stream and during an attach. Only
    /// renewals that were sent since then allow local takes, because the stream's events begin with that answer.
    attached: Option<Instant>,
    last: LastAttempt,
    backoff: Backoff,
}

/// The time between the takeover of a session by one client and by the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tenure {
    /// The attachment with which it began, or a later one of the same client.
    pub(crate) attachment: Attachment,
    /// The number of the attach. Attempts of later tenures have larger numbers.
    pub(crate) attempt: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastAttempt {
    Answered,
    Failed,
    Renewing,
    Attaching,
}

/// An answered or failed attempt to extend the session.
struct Attempted {
    attempt: u64,
    sent: Instant,
    answer: Result<Reply, ServiceError>,
}

/// Why the session is not renewed any more.
enum Ending {
    /// The last reference to it was dropped, or a caller closes it and waits this long for the answer.
    Closed(Option<(oneshot::Sender<Result<(), ServiceError>>, Duration)>),
    Lost(SessionEnd),
    /// The client leaves the session to the next one. With a duration, its stream broke.
    #[cfg(feature = "cli")]
    Left(Option<Duration>),
}

impl<S: LockService> KeepAlive<S> {
    pub(crate) fn new(
        service: S,
        session: Arc<SessionState>,
        queue: mpsc::UnboundedReceiver<BackgroundTask>,
        tenure: Option<Tenure>,
    ) -> Self {
        let opened = session.validity().newest_answered();
        // The first renewal of a tenure shows the client before it that its tenure is over. A repeated request to open
        // gets the deadline of the first one, which may be near.
        let at_once = tenure.is_some() || session.validity().granted_ms() < millis(session.ttl);
        let due = if at_once { opened } else { session.schedule.after(opened) };
        session.refresh_cached(Some(opened));
        let backoff = Backoff::up_to(session.schedule.retry_within());
        Self {
            attachment: Some(service.attachment(session.id)),
            attached: Some(opened),
            service,
            session,
            queue,
            tasks: FuturesUnordered::new(),
            attempts: FuturesUnordered::new(),
            attempt: tenure.map_or(0, |tenure| tenure.attempt),
            tenure,
            due,
            last: LastAttempt::Answered,
            backoff,
        }
    }

    pub(crate) async fn run(mut self) {
        let ending = self.keep().await;
        if !matches!(ending, Ending::Lost(_)) {
            self.session.end_as(SessionEnd::Closed);
        }
        #[cfg(feature = "cli")]
        if matches!(ending, Ending::Left(Some(_))) {
            self.settle().await;
        }
        // Pending tasks are dropped because closing the session completes all of them at once.
        let Self { service, session, queue, tasks, attempts, tenure, .. } = self;
        drop((queue, tasks, attempts));
        match ending {
            // The next client may have the session already, so only an explicit close ends it.
            Ending::Closed(None) | Ending::Lost(SessionEnd::Expired) if tenure.is_some() => {}
            Ending::Closed(caller) => close(&service, &session, SessionClose::Done, caller).await,
            Ending::Lost(SessionEnd::Expired) => close(&service, &session, SessionClose::Lost, None).await,
            Ending::Lost(SessionEnd::Closed | SessionEnd::Reported(_) | SessionEnd::Superseded) => {}
            #[cfg(feature = "cli")]
            Ending::Left(broken) => {
                if let (Some(pause), Some(Tenure { attachment, .. })) = (broken, tenure) {
                    tokio::time::sleep(pause).await;
                    report_break(&service, &session, attachment).await;
                }
            }
        }
    }

    /// Waits until the attempts that are on their way are answered, at most a TTL. One that is applied after the report
    /// of the break would lengthen the session again, or give it another attachment than the report names.
    #[cfg(feature = "cli")]
    async fn settle(&mut self) {
        let longest = self.session.ttl;
        let answers = async {
            while let Some(attempted) = self.attempts.next().await {
                self.on_answer(attempted);
            }
        };
        drop(tokio::time::timeout(longest, answers).await);
    }

    async fn keep(&mut self) -> Ending {
        let session = self.session.clone();
        let mut lost = pin!(session.lost());
        let pause = |due| pause_until(due, session.clock.now());
        // The timer is reused, because creating one for each task would cost more than the task.
        let (mut timer_due, mut timer) = (self.due, pin!(tokio::time::sleep(pause(self.due))));
        loop {
            if timer_due != self.due {
                timer_due = self.due;
                timer.as_mut().reset(TokioInstant::now() + pause(timer_due));
            }
            tokio::select! {
                biased;
                end = &mut lost => return Ending::Lost(end),
                Some(attempted) = self.attempts.next(), if !self.attempts.is_empty() => self.on_answer(attempted),
                task = self.queue.recv() => match task {
                    None => return Ending::Closed(None),
                    Some(BackgroundTask::Close(done, wait)) => return Ending::Closed(Some((done, wait))),
                    Some(BackgroundTask::Run(task)) => self.tasks.push(task),
                    #[cfg(feature = "cli")]
                    Some(BackgroundTask::Renew) => self.due = session.clock.now(),
                    #[cfg(feature = "cli")]
                    Some(BackgroundTask::Leave(broken)) => return Ending::Left(broken),
                },
                Some(()) = self.tasks.next(), if !self.tasks.is_empty() => {}
                () = detached(&mut self.attachment) => self.on_detached(),
                // Only the first notification counts: a later one would postpone the timer again.
                () = session.stream_needed.notified(), if self.attaches_later() => {
                    self.due = self.due.min(session.clock.now());
                }
                () = &mut timer => {
                    self.renew_if_due();
                    timer.as_mut().reset(TokioInstant::now() + pause(self.due));
                }
            }
        }
    }

    /// Handles the loss of the session's stream. Any node still answers the session's commands, but only a stream shows
    /// the cluster when the client disconnects, so the session is attached again soon. After a failed attempt the pause
    /// of the backoff remains.
    fn on_detached(&mut self) {
        self.attachment = None;
        self.attached = None;
        self.session.refresh_cached(None);
        let now = self.session.clock.now();
        match self.last {
            LastAttempt::Attaching | LastAttempt::Failed => {}
            LastAttempt::Answered if self.may_attach_later() => {
                let pause = Duration::from_millis(self.session.clock.random_below(ATTACH_MS_MAX));
                self.due = self.due.min(now.after(pause));
            }
            LastAttempt::Answered | LastAttempt::Renewing => self.due = now,
        }
    }

    /// Whether the session can do without a stream for a moment. A node that ends breaks the streams of all its
    /// sessions. If all of them attached at once, their requests would wait for that, and so would the election of the
    /// next leader. A session with a disconnect grace or with cached holds needs its stream, and so does one that
    /// clients take over from each other.
    fn may_attach_later(&self) -> bool {
        let session = &self.session;
        let has_grace = session.schedule.interval < session.ttl / RENEWALS_A_TTL as u32;
        self.tenure.is_none() && !has_grace && !session.holds.caches()
    }

    /// Whether the session has no stream, and waits before it attaches.
    fn attaches_later(&self) -> bool {
        self.attachment.is_none() && self.last == LastAttempt::Answered
    }

    /// Makes an attempt if one is due: a renewal, or an attach if the session has no stream. After an attempt without
    /// an answer the next one attaches, because another stream may lead to a node that answers. Late answers to earlier
    /// attempts still count.
    fn renew_if_due(&mut self) {
        let now = self.session.clock.now();
        if now < self.due {
            return;
        }
        self.due = now.after(self.session.schedule.retry_within());
        if self.attempts.len() >= RENEWALS_IN_FLIGHT_MAX {
            return;
        }
        self.attempt += 1;
        let unanswered = matches!(self.last, LastAttempt::Renewing | LastAttempt::Attaching);
        if self.attachment.is_none() || unanswered {
            self.attach(now);
            self.last = LastAttempt::Attaching;
        } else {
            self.renew(now);
            self.last = LastAttempt::Renewing;
        }
    }

    fn renew(&mut self, sent: Instant) {
        let target = RenewalTarget::Session(self.session.id);
        let renewal = RenewalCall { target, proof: self.session.proof(), attempt: self.attempt };
        let (attempt, service) = (self.attempt, self.service.clone());
        self.attempts.push(Box::pin(async move {
            let answer = service.renew(vec![renewal]).await.and_then(only_reply);
            Attempted { attempt, sent, answer }
        }));
    }

    fn attach(&mut self, sent: Instant) {
        self.session.validity().attaching(sent);
        self.session.refresh_cached(None);
        self.attached = None;
        let SessionState { namespace, id, handle, .. } = &*self.session;
        let (namespace, handle) = (namespace.clone(), handle.clone());
        let attach = Attach { namespace, session: *id, handle, attempt: self.attempt };
        let call = self.session.call(Command::Attach(attach));
        let (attempt, service) = (self.attempt, self.service.clone());
        self.attempts.push(Box::pin(async move { Attempted { attempt, sent, answer: service.submit(call).await } }));
    }

    fn on_answer(&mut self, Attempted { attempt, sent, answer }: Attempted) {
        let session = self.session.clone();
        // If a newer attempt is in progress or was answered, the failure of an older one has no meaning.
        let superseded = attempt < self.attempt;
        let outdated = sent < session.validity().newest_answered();
        match answer {
            Ok(Reply {
                index,
                stamp,
                outcome: outcome @ (Outcome::Renewed { deadline, .. } | Outcome::Attached { deadline, .. }),
                recalled,
            }) => {
                let now = session.clock.now();
                if self.is_overtaken(attempt, deadline.ms_since(stamp)) {
                    return session.end_as(SessionEnd::Superseded);
                }
                let attach = matches!(outcome, Outcome::Attached { .. });
                if let (Outcome::Attached { attachment, .. }, Some(tenure)) = (&outcome, &mut self.tenure) {
                    tenure.attachment = *attachment;
                }
                if attach {
                    self.attachment = Some(self.service.attachment(session.id));
                    self.attached = Some(now);
                    session.attached.notify_one();
                }
                let counted = if faults::on(Fault::SessionFromArrival) { now } else { sent };
                session.validity().answered(RenewalAnswer { sent: counted, index, stamp, deadline }, now);
                session.refused(None);
                if !outdated {
                    self.due = session.schedule.after(sent);
                    self.last = LastAttempt::Answered;
                    self.backoff = Backoff::up_to(session.schedule.retry_within());
                }
                session.renewed.notify_one();
                session.holds.recalled(&recalled);
                if attach && session.holds.caches() {
                    self.due = now;
                } else if !outdated && self.attached.is_some_and(|attached| attached <= sent) {
                    session.refresh_cached(Some(sent));
                }
            }
            Ok(Reply { outcome: Outcome::Refused(Refusal::SessionEnded { reason, why, .. }), .. })
            | Err(ServiceError::Refused(Refusal::SessionEnded { reason, why, .. })) => {
                session.end_reported(reason, why)
            }
            Ok(Reply { outcome: Outcome::Refused(Refusal::StaleAttempt { newest }), .. }) => {
                // A late answer to an older attach may name a newer attach of this client: that is no conflict.
                let foreign = self.attempt < newest;
                if foreign && self.tenure.is_some() {
                    return session.end_as(SessionEnd::Superseded);
                }
                if foreign || !superseded {
                    self.attempt = self.attempt.max(newest);
                    self.attachment = None;
                    self.retry_later(ServiceError::not_sent(NotSent::Detached));
                }
            }
            Ok(_) | Err(_) if superseded => {}
            Ok(Reply { outcome, .. }) => self.retry_later(ServiceError::Internal(format!("{outcome:?}"))),
            Err(error) => {
                if needs_other_stream(&error) {
                    self.attachment = None;
                }
                self.retry_later(error);
            }
        }
    }

    /// Whether another client has taken the session over and renewed it before this attempt: the cluster then keeps the
    /// deadline of that renewal, and does not set one that is a whole TTL away.
    fn is_overtaken(&self, attempt: u64, left_ms: u64) -> bool {
        self.tenure.is_some() && attempt == self.attempt && left_ms < millis(self.session.ttl)
    }

    /// Retries after a pause. It never gives up: only the deadline ends a session.
    fn retry_later(&mut self, error: ServiceError) {
        self.last = LastAttempt::Failed;
        self.session.refused(Some(&error));
        let pause = self.backoff.pause(&error, &*self.session.clock);
        self.due = self.session.clock.now().after(pause);
        tracing::debug!(session = %self.session.id, %error, ?pause, "a renewal failed");
    }
}

/// Waits until the session loses its stream. Never returns if the loss is already known, or if the service has no
/// streams.
async fn detached(attachment: &mut Option<watch::Receiver<bool>>) {
    if let Some(attachment) = attachment
        && attachment.wait_for(|attached| !attached).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Whether the session needs another stream: it has none, or the node of its stream does not lead.
fn needs_other_stream(error: &ServiceError) -> bool {
    matches!(error, ServiceError::NotSent { why: NotSent::NotLeader | NotSent::NoLeader | NotSent::Detached, .. })
}
