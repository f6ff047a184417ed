//! The one task of a session: renews it, attaches it again, does what guards and acquires left behind, closes it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant as TokioInstant;

use super::backoff::{Backoff, Retry};
use super::hold::Hold;
use super::presence::{End, Errand, Presence, pause_until};
use super::validity::Answer;
use super::{errands, witness};
use crate::clock::Instant;
use crate::faults::{self, Fault};
use crate::limits::RENEWALS_IN_FLIGHT_MAX;
use crate::model::{Attach, Command, Outcome, Refusal, RenewalTarget, Reply, SessionClose};
use crate::service::{Call, ClaimRef, LockService, NotSent, RenewalCall, ServiceError};

type Work<T> = FuturesUnordered<Pin<Box<dyn Future<Output = T> + Send>>>;

/// See the module. It ends when every tie to the session is gone, when it is asked to close, or when the session is
/// lost; closing takes at most until the session's own deadline, or one TTL after a loss.
pub(super) struct Keeper<S> {
    service: S,
    presence: Arc<Presence>,
    inbox: mpsc::UnboundedReceiver<Errand>,
    errands: Work<()>,
    attempts: Work<Attempted>,
    /// The number of the last attempt; attaches count by it, so they rise.
    attempt: u64,
    /// When to make the next attempt.
    due: Instant,
    /// The next attempt attaches: the session has no stream.
    detached: bool,
    /// Where to leave holds that are to be followed; `None` before the first one.
    followed: Option<mpsc::UnboundedSender<Arc<Hold>>>,
    last: Last,
    backoff: Backoff,
}

/// What has become of the last attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    QueryReply,
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

/// Why the keeper stops renewing.
enum Ending {
    /// Nobody holds the session any more.
    Left,
    /// Somebody closes it, and waits for the answer.
    Asked(oneshot::Sender<Result<(), ServiceError>>),
    /// It was lost.
    Lost(End),
}

impl<S: LockService> Keeper<S> {
    pub(super) fn new(service: S, presence: Arc<Presence>, inbox: mpsc::UnboundedReceiver<Errand>) -> Self {
        let due = presence.beat().after(presence.validity().newest_answered());
        Self {
            service,
            presence,
            inbox,
            errands: FuturesUnordered::new(),
            attempts: FuturesUnordered::new(),
            attempt: 0,
            due,
            detached: false,
            followed: None,
            last: Last::QueryReply,
            backoff: Backoff::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let ending = self.keep().await;
        if !matches!(ending, Ending::Lost(_)) {
            self.presence.end_as(End::Closed);
        }
        // Whoever still waits for an errand is told now that the session has ended; closing it does all errands at once.
        let Self { service, presence, inbox, errands, attempts, .. } = self;
        drop((inbox, errands, attempts));
        match ending {
            Ending::Left => drop(close(&service, &presence, SessionClose::Done).await),
            Ending::Asked(done) => drop(done.send(close(&service, &presence, SessionClose::Done).await)),
            Ending::Lost(End::Passed) => drop(close(&service, &presence, SessionClose::Lost).await),
            Ending::Lost(End::Closed | End::Told(_)) => {}
        }
    }

    async fn keep(&mut self) -> Ending {
        let presence = self.presence.clone();
        let mut lost = pin!(presence.lost());
        // Both are kept from one errand to the next: to arm them anew for each would cost more than the errand.
        let mut detached = pin!(presence.detached.notified());
        let pause = |due| pause_until(due, presence.clock.now());
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
                errand = self.inbox.recv() => match errand {
                    None => return Ending::Left,
                    Some(Errand::Close { done }) => return Ending::Asked(done),
                    Some(other) => self.take_up(other),
                },
                Some(()) = self.errands.next(), if !self.errands.is_empty() => {}
                () = &mut detached => {
                    detached.set(presence.detached.notified());
                    self.hear_of_detachment();
                }
                () = &mut nap => {
                    self.look();
                    nap.as_mut().reset(TokioInstant::now() + pause(self.due));
                }
            }
        }
    }

    /// Somebody found that there is no stream. An attach that is under way will mend that, and one that failed keeps to
    /// its pause, however many callers ask; one that was answered since then has mended it.
    fn hear_of_detachment(&mut self) {
        if self.service.is_attached(self.presence.id) {
            return;
        }
        match self.last {
            Last::Attaching => {}
            Last::Failed => self.detached = true,
            Last::QueryReply | Last::Renewing => {
                self.detached = true;
                self.due = self.presence.clock.now();
            }
        }
    }

    /// Begins an errand. Those that are under way at the end are dropped, for everything ends with the session.
    fn take_up(&mut self, errand: Errand) {
        let (service, presence) = (self.service.clone(), self.presence.clone());
        let work: Pin<Box<dyn Future<Output = ()> + Send>> = match errand {
            Errand::Perform(request, turn) => {
                Box::pin(async move { errands::perform_left(&service, presence, request, turn).await })
            }
            Errand::KeepLease(hold) => Box::pin(errands::keep_lease(service, presence, hold)),
            Errand::Follow(hold) => return self.follow(hold),
            // Asked for where errands are received, for it ends the keeper.
            Errand::Close { .. } => return,
        };
        self.errands.push(work);
    }

    /// One witness follows for all holds of the session, from the first one on.
    fn follow(&mut self, hold: Arc<Hold>) {
        let followed = self.followed.get_or_insert_with(|| {
            let (newcomers, inbox) = mpsc::unbounded_channel();
            self.errands.push(Box::pin(witness::follow(self.service.clone(), self.presence.clone(), inbox)));
            newcomers
        });
        let _ = followed.send(hold);
    }

    /// Makes an attempt if one is due: a renewal, or an attach where the session has no stream to renew it over. After an attempt without any answer the next one attaches: another stream, and
    /// so perhaps another node, may be luckier. Late answers to earlier ones count all the same.
    fn look(&mut self) {
        let now = self.presence.clock.now();
        if now < self.due {
            return;
        }
        self.due = now.after(self.presence.beat().interval / 2);
        if self.attempts.len() >= RENEWALS_IN_FLIGHT_MAX {
            return;
        }
        self.attempt += 1;
        let unanswered = matches!(self.last, Last::Renewing | Last::Attaching);
        let detached = self.detached || !self.service.is_attached(self.presence.id);
        if detached || unanswered {
            self.attach(now);
            (self.detached, self.last) = (false, Last::Attaching);
        } else {
            self.renew(now);
            self.last = Last::Renewing;
        }
    }

    fn renew(&mut self, sent: Instant) {
        let renewal = RenewalCall {
            target: RenewalTarget::Session(self.presence.id),
            proof: self.presence.proof(),
            attempt: self.attempt,
        };
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
        self.presence.validity().attaching(sent);
        let Presence { namespace, id, handle, .. } = &*self.presence;
        let (namespace, handle) = (namespace.clone(), handle.clone());
        let attach = Attach { namespace, session: *id, handle, attempt: self.attempt };
        let call = self.presence.call(Command::Attach(attach));
        let (attempt, service) = (self.attempt, self.service.clone());
        self.attempts.push(Box::pin(async move { Attempted { attempt, sent, answer: service.submit(call).await } }));
    }

    fn on_answer(&mut self, Attempted { attempt, sent, answer }: Attempted) {
        let presence = self.presence.clone();
        // While a newer attempt is under way, or was answered, the failure of an older one says nothing.
        let superseded = attempt < self.attempt;
        let outdated = sent < presence.validity().newest_answered();
        match answer {
            Ok(Reply {
                index,
                stamp,
                outcome: Outcome::Renewed { deadline, .. } | Outcome::Attached { deadline, .. },
                ..
            }) => {
                let now = presence.clock.now();
                let counted = if faults::on(Fault::SessionFromArrival) { now } else { sent };
                presence.validity().answered(Answer { sent: counted, index, stamp, deadline }, now);
                if !outdated {
                    self.due = presence.beat().after(sent);
                    (self.last, self.backoff) = (Last::QueryReply, Backoff::new());
                }
            }
            Ok(Reply { outcome: Outcome::Refused(Refusal::SessionEnded { reason, why, .. }), .. })
            | Err(ServiceError::Refused(Refusal::SessionEnded { reason, why, .. })) => {
                presence.end_reported(reason, why)
            }
            Ok(Reply { outcome: Outcome::Refused(Refusal::StaleAttempt { newest }), .. }) => {
                // Late answers to older attaches name the newest one of this session itself, which is as it should be.
                let foreign = self.attempt < newest;
                if foreign || !superseded {
                    (self.attempt, self.detached) = (self.attempt.max(newest), true);
                    self.again(ServiceError::not_sent(NotSent::Detached));
                }
            }
            Ok(_) | Err(_) if superseded => {}
            Ok(Reply { outcome, .. }) => self.again(ServiceError::Internal(format!("{outcome:?}"))),
            Err(error) => {
                // A node that does not lead, or leads nobody, is left for another one.
                self.detached |= is_detached(&error) || leads_nobody(&error);
                self.again(error);
            }
        }
    }

    /// Tries again after a pause; never gives up, for only the deadline ends a session.
    fn again(&mut self, error: ServiceError) {
        self.last = Last::Failed;
        let pause = self.backoff.pause(&error, &*self.presence.clock);
        self.due = self.presence.clock.now().after(pause);
        tracing::debug!(session = %self.presence.id, %error, ?pause, "a renewal failed");
    }
}

/// Submits a command of a session, and wakes the keeper where the session turns out to have no stream: its commands are
/// answered all the same, but through whichever node they come to, and nobody would notice that the client is gone.
pub(super) async fn submit<S: LockService>(
    service: &S,
    presence: &Presence,
    call: &Call,
) -> Result<Reply, ServiceError> {
    // Boxed: those who try again and set bounds pass it on by value, several times.
    let answer = Box::pin(service.submit(call.clone())).await;
    if !service.is_attached(presence.id) {
        presence.detached.notify_one();
    }
    answer
}

/// Waits for what becomes of a session's claim, and wakes the keeper as [`submit`] does.
pub(super) async fn settled<S: LockService>(
    service: &S,
    presence: &Presence,
    claim: &ClaimRef,
) -> Result<Reply, ServiceError> {
    let answer = service.settled(claim.clone()).await;
    if !service.is_attached(presence.id) {
        presence.detached.notify_one();
    }
    answer
}

fn leads_nobody(error: &ServiceError) -> bool {
    matches!(error, ServiceError::NotSent { why: NotSent::NotLeader | NotSent::NoLeader, .. })
}

fn is_detached(error: &ServiceError) -> bool {
    matches!(error, ServiceError::NotSent { why: NotSent::Detached, .. })
}

/// Closes the session, trying until it is answered or it has ended by itself on every clock.
async fn close<S: LockService>(service: &S, presence: &Presence, end: SessionClose) -> Result<(), ServiceError> {
    let clock = &presence.clock;
    let left = presence.validity().left(clock.now());
    let bound = match end {
        SessionClose::Done => left,
        SessionClose::Lost => presence.ttl,
    };
    let call = presence.call(Command::CloseSession { session: presence.id, end });
    let mut retry = Retry::for_ever(clock.clone());
    let answer = retry.until_answered(|| service.submit(call.clone()));
    match tokio::time::timeout(bound.max(Duration::from_millis(1)), answer).await {
        Ok(answer) => answer.map(drop),
        Err(_) => Err(ServiceError::unknown("closing the session was not answered before its deadline")),
    }
}
