//! The task of a `hold`: it takes over the session, acquires the locks, and reports what happens to them.
//!
//! The session passes from stream to stream, so a stream that breaks leaves it open. The client believes in its hold
//! because of the events, so an event from which it counts is sent only while the session and the hold are proven for
//! longer than the silence that the client tolerates.

pub(super) mod body;
mod end;
mod events;
mod pace;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant as TokioInstant, sleep_until};

use self::events::{HoldAlive, HoldAsked, HoldEnding, HoldEvent, HoldGranted, HoldWaiting};
use self::pace::Pace;
use super::acquire::GrantedMember;
use super::call::RequestContext;
use super::fields::Ends;
use super::problem::Failed;
use super::stream::{Events, Sent, sent};
use crate::client::{
    Client, ClientError, RevokeRequest, Session, SetGuard, TakenOver, Takeover, Unattached, acquire_in,
};
use crate::clock::millis;
use crate::limits;
use crate::model::{
    Acquire, Claim, EndReason, Handle, Instance, LockName, LogTime, Outcome, Patience, Place, Query, QueryResult,
    Reason,
};
use crate::service::{Freshness, LockService};
use crate::shapes::Holder;

/// What a `hold` asks for, besides its request for the locks.
pub(super) struct Terms {
    pub(super) request: String,
    pub(super) instance: Instance,
    pub(super) handle: Handle,
    pub(super) ttl: Duration,
    /// Longest time of the stream.
    pub(super) max: Duration,
    /// How long the session lives after the stream broke; `None` for the rest of its TTL.
    pub(super) grace: Option<Duration>,
    pub(super) is_set: bool,
}

/// A `hold` that runs.
pub(super) struct Hold<S> {
    context: RequestContext<S>,
    terms: Terms,
    /// Length of the hold's own lease.
    lease: Option<Duration>,
    /// Whether the request may wait.
    waits: bool,
    pace: Pace,
    /// When to send the next event of a hold that may end before its session. Other events follow the session's
    /// renewals.
    beat: Option<TokioInstant>,
    sender: mpsc::Sender<Sent<HoldEvent>>,
    /// Takes the error of a request that is refused; `None` once an event was sent.
    refusal: Option<oneshot::Sender<Failed>>,
    /// The place that was reported last.
    place: Option<u64>,
    /// When to send the event `ending`; `None` once it was sent.
    ending: Option<TokioInstant>,
    over: TokioInstant,
}

/// What may happen at any time.
enum Step {
    Gone,
    Stopping,
    SessionEnded(ClientError),
    Renewed,
    Beat,
    Ending,
    Over,
}

/// Why the stream of a `hold` ends.
enum Departure {
    /// The client is gone, or takes no events.
    Broken,
    /// The node stops.
    Stopping,
    /// Another stream has the session.
    Moved,
    /// The longest time of the stream is over.
    Over,
    /// The request was not granted.
    Refused(ClientError),
    /// The session or one of the holds has ended.
    Ended { lock: Option<LockName>, reason: Option<EndReason>, why: Option<Reason> },
}

impl Departure {
    /// The departure after an error of a request or of the session.
    fn after<S: LockService>(error: ClientError, session: &Session<S>) -> Self {
        if session.is_superseded() {
            return Self::Moved;
        }
        if let ClientError::SessionLost { reason, why, .. } = error {
            return Self::Ended { lock: None, reason, why };
        }
        Self::Refused(error)
    }
}

impl<S: LockService> Hold<S> {
    /// Starts the task. If the request is refused, the second channel gets the error and there are no events; otherwise
    /// it is closed with the first event. The number in `acquire` is not used: the Rust client draws another.
    pub(super) fn begin(
        context: RequestContext<S>,
        terms: Terms,
        acquire: Acquire,
    ) -> (Events<HoldEvent>, oneshot::Receiver<Failed>) {
        let (sender, events) = mpsc::channel(limits::HOLD_EVENTS_WAITING_MAX);
        let (refusal, refused) = oneshot::channel();
        let over = TokioInstant::now() + terms.max;
        let ending = over - Duration::from_millis(limits::HOLD_ENDING_MS).min(terms.max / 2);
        let tasks = context.api.tasks.clone();
        let hold = Self {
            context,
            lease: acquire.lease_ms.map(Duration::from_millis),
            waits: acquire.patience != Patience::Try,
            pace: Pace::of_session(terms.ttl),
            terms,
            beat: None,
            sender,
            refusal: Some(refusal),
            place: None,
            ending: Some(ending),
            over,
        };
        tasks.run(hold.run(acquire));
        (events, refused)
    }

    async fn run(mut self, acquire: Acquire) {
        let opened = tokio::select! {
            biased;
            () = self.sender.closed() => return,
            stopping = self.context.stopped() => Err(stopping),
            opened = self.open(&acquire) => opened,
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(failed) => return self.refuse(failed),
        };
        // From here on the lock may be granted, so a caller that leaves is noticed only once its session can be left.
        let taken = tokio::select! {
            biased;
            _ = self.context.stopped() => Err(Self::unanswered()),
            taken = opened.take_over(&acquire) => self.checked(taken).await,
        };
        let TakenOver { session, resumed } = match taken {
            Ok(taken) => taken,
            Err(failed) => return self.refuse(failed),
        };
        // A session that was taken over keeps its TTL.
        self.pace = Pace::of_session(session.ttl());
        let departure = match self.acquire(&session, acquire).await {
            Ok(guards) => self.held(&session, guards, resumed).await,
            Err(departure) => departure,
        };
        self.depart(session, departure).await;
    }

    async fn open(&self, acquire: &Acquire) -> Result<Unattached<S>, Failed> {
        let terms = &self.terms;
        let (service, namespace) = (self.context.service.clone(), self.context.namespace.clone());
        let client = Client::new(service).clock(Arc::clone(&self.context.api.clock)).namespace(namespace);
        let client = client.metadata(acquire.metadata.clone());
        let (instance, renewals, grace) = (terms.instance, limits::HOLD_RENEWALS_A_TTL, terms.grace);
        let session = client.session().handle(terms.handle.clone()).ttl(terms.ttl);
        self.checked(session.open_unattached(Takeover { instance, renewals, grace }).await).await
    }

    /// Waits for the grant, and reports the place in the queue: when it is known, and again when it has changed.
    async fn acquire(&mut self, session: &Session<S>, acquire: Acquire) -> Result<SetGuard, Departure> {
        let (places, mut queue) = watch::channel(None::<Place>);
        let report = move |place: &Place| drop(places.send_replace(Some(place.clone())));
        let mut acquiring = pin!(acquire_in(session, acquire, Some(Box::new(report))));
        loop {
            let step = tokio::select! {
                biased;
                guards = &mut acquiring => return guards.map_err(|error| Departure::after(error, session)),
                step = self.step(session) => Some(step),
                Ok(()) = queue.changed() => None,
            };
            let departure = match step {
                Some(step) => {
                    let renewed = matches!(step, Step::Renewed) && self.refusal.is_none();
                    match self.report_step(step, session, None).await {
                        None if renewed => self.moved(session).await,
                        departure => departure,
                    }
                }
                None => {
                    let place = queue.borrow_and_update().clone();
                    self.waiting(place).await
                }
            };
            if let Some(departure) = departure {
                // Otherwise the request would be withdrawn as soon as its future is dropped.
                self.leave(session, &departure);
                return Err(departure);
            }
        }
    }

    /// Reports the place that the answer to the request names.
    async fn waiting(&mut self, place: Option<Place>) -> Option<Departure> {
        let (place, now) = (place?, self.now().await);
        self.report_place(&place, now).await
    }

    /// Reports the place if it has changed. Reads only the state of this node, which may be a little older.
    async fn moved(&mut self, session: &Session<S>) -> Option<Departure> {
        let query = Query::Claim { lock: None, claim: Claim::Request(session.first_request()) };
        let answered = self.context.service.query(query, Freshness::Stale).await.ok()?;
        let QueryResult::Claim { outcome: Some(Outcome::Queued(place)), .. } = answered.answer else { return None };
        if self.place == Some(place.place) { None } else { self.report_place(&place, answered.now).await }
    }

    /// Returns the log time of this node.
    async fn now(&self) -> LogTime {
        self.context.query(Query::Totals, Some(true)).await.map_or(LogTime(0), |answered| answered.now)
    }

    async fn report_place(&mut self, Place { place, held_by, .. }: &Place, now: LogTime) -> Option<Departure> {
        self.place = Some(*place);
        let held_by = held_by.as_deref().map(|holder| Holder::new(holder, now));
        self.send(HoldEvent::Waiting(HoldWaiting { place: *place, held_by })).await
    }

    /// Reports the grant once the session and the holds are proven for long enough, and then what happens to the holds.
    async fn held(&mut self, session: &Session<S>, guards: SetGuard, resumed: bool) -> Departure {
        self.follow(session, &guards);
        if !self.is_proven(session, Some(&guards)) {
            session.renew();
        }
        let mut reported = false;
        loop {
            if !reported {
                self.follow(session, &guards);
            }
            let departure = if !reported && self.is_proven(session, Some(&guards)) {
                reported = true;
                self.send(self.granted(session, &guards, resumed)).await
            } else {
                tokio::select! {
                    biased;
                    step = self.step(session) => {
                        let waits = matches!(step, Step::Renewed | Step::Beat) && !reported;
                        if waits { None } else { self.report_step(step, session, Some(&guards)).await }
                    }
                    lost = guards.lost() => {
                        Some(Departure::Ended { lock: Some(lost.lock), reason: lost.reason, why: lost.why })
                    }
                    (lock, RevokeRequest { by, why }) = guards.revoke_requested(), if reported => {
                        let (lock, by, why) = (lock.to_string(), by.to_string(), why.as_str().to_owned());
                        self.send(HoldEvent::Asked(HoldAsked { lock, by, why })).await
                    }
                }
            };
            if let Some(departure) = departure {
                // Otherwise the locks would be released as soon as their guards are dropped.
                self.leave(session, &departure);
                return departure;
            }
        }
    }

    /// Sets the pace of the events by the ends of the holds.
    fn follow(&mut self, session: &Session<S>, guards: &SetGuard) {
        let fixed = guards.left_at_most();
        self.pace = Pace::of_hold(session.ttl(), self.lease, fixed);
        let has_end = self.lease.is_some() || fixed.is_some();
        self.beat = has_end.then(|| TokioInstant::now() + self.pace.beat());
    }

    /// Whether the session and the holds are proven for as long as a client believes in them because of an event sent
    /// now.
    fn is_proven(&self, session: &Session<S>, guards: Option<&SetGuard>) -> bool {
        self.pace.belief() < guards.map_or_else(|| session.valid_for(), SetGuard::valid_for)
    }

    async fn step(&self, session: &Session<S>) -> Step {
        let due = async |at: Option<TokioInstant>| match at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        };
        tokio::select! {
            biased;
            error = session.lost() => Step::SessionEnded(error),
            () = self.sender.closed() => Step::Gone,
            _ = self.context.stopped() => Step::Stopping,
            () = session.renewed() => Step::Renewed,
            () = due(self.beat) => Step::Beat,
            () = due(self.ending) => Step::Ending,
            () = sleep_until(self.over) => Step::Over,
        }
    }

    /// Reports a step. Returns the reason if the stream ends.
    async fn report_step(&mut self, step: Step, session: &Session<S>, guards: Option<&SetGuard>) -> Option<Departure> {
        if matches!(step, Step::Beat) {
            self.beat = Some(TokioInstant::now() + self.pace.beat());
        }
        match step {
            Step::Gone => Some(Departure::Broken),
            Step::Stopping => Some(Departure::Stopping),
            Step::Over => Some(Departure::Over),
            Step::SessionEnded(error) => Some(Departure::after(error, session)),
            Step::Ending => {
                self.ending = None;
                let in_ms = millis(self.over.saturating_duration_since(TokioInstant::now()));
                self.send(HoldEvent::Ending(HoldEnding { in_ms })).await
            }
            // Before the first event the caller is not known to wait.
            Step::Renewed | Step::Beat if self.refusal.is_some() => None,
            // An answer that took long proves too little.
            Step::Renewed | Step::Beat if !self.is_proven(session, guards) => None,
            Step::Renewed | Step::Beat => self.send(HoldEvent::Alive(HoldAlive { ends: ends(session, guards) })).await,
        }
    }

    /// Sends an event. Returns the reason if the client does not take it, or the node stops before it does.
    async fn send(&mut self, event: HoldEvent) -> Option<Departure> {
        let departure = tokio::select! {
            biased;
            taken = sent(&self.sender, Ok(event), self.pace.silence()) => (!taken).then_some(Departure::Broken),
            _ = self.context.stopped() => Some(Departure::Stopping),
        };
        self.refusal = None;
        departure
    }

    fn granted(&self, session: &Session<S>, guards: &SetGuard, resumed: bool) -> HoldEvent {
        let member = |(lock, token): (LockName, _)| GrantedMember { lock: lock.to_string(), token: format!("{token}") };
        let mut members: Vec<_> = guards.tokens().into_iter().map(member).collect();
        let token = if self.terms.is_set { None } else { members.pop().map(|member| member.token) };
        HoldEvent::Granted(Box::new(HoldGranted {
            token,
            locks: self.terms.is_set.then_some(members),
            session: session.id().to_string(),
            request: self.terms.request.clone(),
            handle: session.handle().reveal().to_owned(),
            resumed,
            beat_ms: millis(self.pace.beat()),
            silence_ms: millis(self.pace.silence()),
            ends: ends(session, Some(guards)),
        }))
    }
}

/// Returns the earliest deadline of the session and the holds. It counts from the newest of the entries that set them,
/// because log time has reached that one.
fn ends<S: LockService>(session: &Session<S>, guards: Option<&SetGuard>) -> Ends {
    let ends = guards.into_iter().flat_map(SetGuard::ends);
    let (stamp, deadline) =
        ends.fold(session.ends(), |(stamp, deadline), (newer, earlier)| (stamp.max(newer), deadline.min(earlier)));
    Ends::new(stamp, deadline)
}

#[cfg(test)]
mod tests;
