//! The task of a session: renews it, attaches it again, runs the work that was left to it, and closes it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant as TokioInstant;

use crate::client::retry::{Backoff, Retry};
use crate::client::session::reference::BackgroundTask;
use crate::client::session::state::{SessionEnd, SessionState};
use crate::client::validity::Answer;
use crate::client::wait::pause_until;
use crate::clock::Instant;
use crate::faults::{self, Fault};
use crate::limits::RENEWALS_IN_FLIGHT_MAX;
use crate::model::{Attach, Command, Outcome, Refusal, RenewalTarget, Reply, SessionClose};
use crate::service::{LockService, NotSent, RenewalCall, ServiceError};

/// Keeps one session alive. It ends when the last reference to the session is dropped, when it is asked to close, or when the
/// session is lost; closing takes at most until the session's own deadline, or one TTL after a loss.
pub(crate) struct KeepAlive<S> {
    service: S,
    session: Arc<SessionState>,
    queue: mpsc::UnboundedReceiver<BackgroundTask>,
    tasks: FuturesUnordered<BoxFuture<'static, ()>>,
    attempts: FuturesUnordered<BoxFuture<'static, Attempted>>,
    /// The number of the last attempt; attaches count by it, so they rise.
    attempt: u64,
    /// When to make the next attempt.
    due: Instant,
    /// Whether the session still has its stream; `None` where the next attempt attaches, to another stream.
    attachment: Option<watch::Receiver<bool>>,
    last: LastAttempt,
    backoff: Backoff,
}

/// State of the last attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastAttempt {
    Answered,
    Failed,
    Renewing,
    Attaching,
}

/// One attempt to prolong the session, with its answer.
struct Attempted {
    /// Its number.
    attempt: u64,
    sent: Instant,
    answer: Result<Reply, ServiceError>,
}

/// Why the session is renewed no longer.
enum Ending {
    /// The last reference to it was dropped.
    Unreferenced,
    /// A caller closes it, and waits for the answer.
    Closed(oneshot::Sender<Result<(), ServiceError>>),
    /// It was lost.
    Lost(SessionEnd),
}

impl<S: LockService> KeepAlive<S> {
    pub(crate) fn new(service: S, session: Arc<SessionState>, queue: mpsc::UnboundedReceiver<BackgroundTask>) -> Self {
        let due = session.schedule.after(session.validity().newest_answered());
        Self {
            attachment: Some(service.attachment(session.id)),
            service,
            session,
            queue,
            tasks: FuturesUnordered::new(),
            attempts: FuturesUnordered::new(),
            attempt: 0,
            due,
            last: LastAttempt::Answered,
            backoff: Backoff::new(),
        }
    }

    pub(crate) async fn run(mut self) {
        let ending = self.keep().await;
        if !matches!(ending, Ending::Lost(_)) {
            self.session.end_as(SessionEnd::Closed);
        }
        // Pending tasks are dropped: closing the session completes all of them at once.
        let Self { service, session, queue, tasks, attempts, .. } = self;
        drop((queue, tasks, attempts));
        match ending {
            Ending::Unreferenced => drop(close(&service, &session, SessionClose::Done).await),
            Ending::Closed(done) => drop(done.send(close(&service, &session, SessionClose::Done).await)),
            Ending::Lost(SessionEnd::Expired) => drop(close(&service, &session, SessionClose::Lost).await),
            Ending::Lost(SessionEnd::Closed | SessionEnd::Reported(_)) => {}
        }
    }

    async fn keep(&mut self) -> Ending {
        let session = self.session.clone();
        let mut lost = pin!(session.lost());
        let pause = |due| pause_until(due, session.clock.now());
        // Kept from one task to the next: to arm it anew for each would cost more than the task.
        let (mut napping, mut nap) = (self.due, pin!(tokio::time::sleep(pause(self.due))));
        loop {
            if napping != self.due {
                napping = self.due;
                nap.as_mut().reset(TokioInstant::now() + pause(napping));
            }
            tokio::select! {
                biased;
                end = &mut lost => return Ending::Lost(end),
                Some(attempted) = self.attempts.next(), if !self.attempts.is_empty() => self.on_answer(attempted),
                task = self.queue.recv() => match task {
                    None => return Ending::Unreferenced,
                    Some(BackgroundTask::Close(done)) => return Ending::Closed(done),
                    Some(BackgroundTask::Run(task)) => self.tasks.push(task),
                },
                Some(()) = self.tasks.next(), if !self.tasks.is_empty() => {}
                () = detached(&mut self.attachment) => self.on_detached(),
                () = &mut nap => {
                    self.renew_if_due();
                    nap.as_mut().reset(TokioInstant::now() + pause(self.due));
                }
            }
        }
    }

    /// The session has no stream any more. Its commands are answered all the same, by whichever node they come to, but only a
    /// stream tells the cluster when the client is gone: so it is attached again at once. After an attempt that failed it keeps
    /// to the pause.
    fn on_detached(&mut self) {
        self.attachment = None;
        match self.last {
            LastAttempt::Attaching | LastAttempt::Failed => {}
            LastAttempt::Answered | LastAttempt::Renewing => self.due = self.session.clock.now(),
        }
    }

    /// Makes an attempt if one is due: a renewal, or an attach where the session has no stream. After an attempt without any
    /// answer the next one attaches: another stream, and so perhaps another node, may answer. Late answers to earlier attempts
    /// count all the same.
    fn renew_if_due(&mut self) {
        let now = self.session.clock.now();
        if now < self.due {
            return;
        }
        self.due = now.after(self.session.schedule.interval / 2);
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
            let answer = service.renew(vec![renewal]).await;
            let answer = answer.and_then(|replies| {
                replies.into_iter().next().ok_or_else(|| ServiceError::Internal("a renewal without an answer".into()))
            });
            Attempted { attempt, sent, answer }
        }));
    }

    fn attach(&mut self, sent: Instant) {
        self.session.validity().attaching(sent);
        let SessionState { namespace, id, handle, .. } = &*self.session;
        let (namespace, handle) = (namespace.clone(), handle.clone());
        let attach = Attach { namespace, session: *id, handle, attempt: self.attempt };
        let call = self.session.call(Command::Attach(attach));
        let (attempt, service) = (self.attempt, self.service.clone());
        self.attempts.push(Box::pin(async move { Attempted { attempt, sent, answer: service.submit(call).await } }));
    }

    fn on_answer(&mut self, Attempted { attempt, sent, answer }: Attempted) {
        let session = self.session.clone();
        // While a newer attempt is under way, or was answered, the failure of an older one says nothing.
        let superseded = attempt < self.attempt;
        let outdated = sent < session.validity().newest_answered();
        match answer {
            Ok(Reply {
                index,
                stamp,
                outcome: outcome @ (Outcome::Renewed { deadline, .. } | Outcome::Attached { deadline, .. }),
                ..
            }) => {
                if matches!(outcome, Outcome::Attached { .. }) {
                    self.attachment = Some(self.service.attachment(session.id));
                }
                let now = session.clock.now();
                let counted = if faults::on(Fault::SessionFromArrival) { now } else { sent };
                session.validity().answered(Answer { sent: counted, index, stamp, deadline }, now);
                if !outdated {
                    self.due = session.schedule.after(sent);
                    (self.last, self.backoff) = (LastAttempt::Answered, Backoff::new());
                }
            }
            Ok(Reply { outcome: Outcome::Refused(Refusal::SessionEnded { reason, why, .. }), .. })
            | Err(ServiceError::Refused(Refusal::SessionEnded { reason, why, .. })) => {
                session.end_reported(reason, why)
            }
            Ok(Reply { outcome: Outcome::Refused(Refusal::StaleAttempt { newest }), .. }) => {
                // Late answers to older attaches name the newest one of this session itself, as they should.
                let foreign = self.attempt < newest;
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

    /// Tries again after a pause. It never gives up: only the deadline ends a session.
    fn retry_later(&mut self, error: ServiceError) {
        self.last = LastAttempt::Failed;
        let pause = self.backoff.pause(&error, &*self.session.clock);
        self.due = self.session.clock.now().after(pause);
        tracing::debug!(session = %self.session.id, %error, ?pause, "a renewal failed");
    }
}

/// Waits until the session has no stream any more; for ever where that is known, or where nothing could break.
async fn detached(attachment: &mut Option<watch::Receiver<bool>>) {
    if let Some(attachment) = attachment
        && attachment.wait_for(|attached| !attached).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Whether there is no stream, or it leads to a node that does not lead, and is left for another one.
fn needs_other_stream(error: &ServiceError) -> bool {
    matches!(error, ServiceError::NotSent { why: NotSent::NotLeader | NotSent::NoLeader | NotSent::Detached, .. })
}

/// Closes the session. Tries until it is answered or the session has ended by itself on every clock.
async fn close<S: LockService>(service: &S, session: &SessionState, end: SessionClose) -> Result<(), ServiceError> {
    let clock = &session.clock;
    let bound = match end {
        SessionClose::Done => session.validity().left(clock.now()),
        SessionClose::Lost => session.ttl,
    };
    let call = session.call(Command::CloseSession { session: session.id, end });
    let mut retry = Retry::for_ever(clock.clone());
    let answer = retry.until_answered(|| service.submit(call.clone()));
    match tokio::time::timeout(bound.max(Duration::from_millis(1)), answer).await {
        Ok(answer) => answer.map(drop),
        Err(_) => Err(ServiceError::unknown("closing the session was not answered before its deadline")),
    }
}
