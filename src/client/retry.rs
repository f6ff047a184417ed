//! Decides when to retry a request and when to give up.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Instant, millis};
use crate::limits::{RETRY_MS_MAX, RETRY_MS_MIN};
use crate::model::{Command, Manage, Managing, Outcome, QuotaKind, Refusal, Reply};
use crate::service::{Advice, Call, LockService, NotSent, REQUEST_WAIT, ServiceError};

/// Pauses that double from [`RETRY_MS_MIN`] to [`RETRY_MS_MAX`] milliseconds, or to a lower bound. Each is shortened at
/// random by up to a half, so that many clients of one leader do not retry together. The first attempt after a lost
/// answer has no pause: usually the node is gone, and another node is asked. The pauses restart only after a second
/// without a failure: a service that repeatedly works for a moment and fails again is asked once a second.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    next_ms: u64,
    longest_ms: u64,
    /// The end of the last pause.
    over: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next_ms: RETRY_MS_MIN, longest_ms: RETRY_MS_MAX, over: None }
    }

    /// Creates pauses that are never longer than this, for attempts that succeed only before a deadline. A longer pause
    /// could pass the deadline although the service answers again.
    pub(crate) fn up_to(longest: Duration) -> Self {
        Self { longest_ms: millis(longest).clamp(RETRY_MS_MIN, RETRY_MS_MAX), ..Self::new() }
    }

    /// Returns the pause before the next attempt, at least as long as an overloaded node asked for.
    pub(crate) fn pause(&mut self, error: &ServiceError, clock: &dyn Clock) -> Duration {
        let now = clock.now();
        if self.over.is_some_and(|over| Duration::from_millis(RETRY_MS_MAX) <= now.since(over)) {
            (self.next_ms, self.over) = (RETRY_MS_MIN, None);
        }
        let first = self.over.is_none();
        if first && matches!(error, ServiceError::Unknown { .. }) {
            self.over = Some(now);
            return Duration::ZERO;
        }
        let full_ms = self.next_ms;
        self.next_ms = (full_ms * 2).min(self.longest_ms);
        let jittered_ms = full_ms - clock.random_below(full_ms / 2 + 1);
        let pause = Duration::from_millis(jittered_ms.max(error.pause_ms()));
        self.over = Some(now.after(pause));
        pause
    }
}

/// Retries the attempts of one caller. Its patience counts from the first of several successive failures, so it bounds
/// an outage and not the whole call.
///
/// It also knows whether an attempt of the caller's command may have been executed. Then no error says that the command
/// had no effect.
#[derive(Debug)]
pub(crate) struct Retry {
    clock: Arc<dyn Clock>,
    patience: Duration,
    /// How long one attempt may take before it counts as failed.
    attempt_wait: Duration,
    /// Whether every attempt ends within that time without a timer.
    timely: bool,
    /// Whether only an answer ends it, and no other error.
    persistent: bool,
    backoff: Backoff,
    failing_since: Option<Instant>,
    /// Whether an attempt without an answer may have been executed.
    in_doubt: bool,
}

impl Retry {
    pub(crate) fn new(clock: Arc<dyn Clock>, patience: Duration) -> Self {
        Self {
            clock,
            patience,
            attempt_wait: patience,
            timely: false,
            persistent: false,
            backoff: Backoff::new(),
            failing_since: None,
            in_doubt: false,
        }
    }

    /// Creates a retry that never gives up, for work that ends when the surrounding task is dropped.
    pub(crate) fn unlimited(clock: Arc<dyn Clock>) -> Self {
        Self { attempt_wait: REQUEST_WAIT, ..Self::new(clock, Duration::MAX) }
    }

    /// Bounds the pauses, for attempts that succeed only before a deadline.
    pub(crate) fn pausing_up_to(self, longest: Duration) -> Self {
        Self { backoff: Backoff::up_to(longest), ..self }
    }

    /// Also retries after errors that a retry usually cannot fix, for work that no caller can do again: a token may be
    /// renewed and a node repaired. Only a refusal of the command and an invalid value end it.
    pub(crate) fn persistent(self) -> Self {
        Self { persistent: true, ..self }
    }

    /// Sets the time within which each attempt ends, if it is known. Attempts that always end within the limit of an
    /// attempt need no timer.
    pub(crate) fn of_attempts_within(mut self, longest: Option<Duration>) -> Self {
        self.timely = longest.is_some_and(|longest| longest <= self.attempt_wait);
        self
    }

    /// Repeats the attempt of a command until it is answered.
    ///
    /// # Errors
    /// The error of the last attempt, if a retry cannot help or the patience is over. If an attempt may have been
    /// executed, it is *unknown* all the same, for example if the caller's token was revoked in between. A refusal
    /// remains: it is the answer to all attempts of a request.
    pub(crate) async fn until_answered<T, F>(&mut self, attempt: impl FnMut() -> F) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        self.repeat(true, attempt).await.map_err(|error| self.doubted(error))
    }

    /// Whether an attempt before the answered one may have been executed.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Records that the command was executed, and that its final outcome is not known yet.
    pub(crate) fn executed(&mut self) {
        self.in_doubt = true;
    }

    /// Returns the error of the caller's command. It is *unknown* if an attempt may have been executed, except for a
    /// refusal.
    pub(crate) fn doubted(&self, error: ServiceError) -> ServiceError {
        if self.in_doubt && !matches!(error, ServiceError::Refused(_)) { after_doubt(error) } else { error }
    }

    /// Repeats an attempt that `changes` something or not, until it is answered.
    async fn repeat<T, F>(&mut self, changes: bool, mut attempt: impl FnMut() -> F) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        loop {
            let (began, doubt_before) = (self.clock.now(), self.in_doubt);
            // If this attempt is dropped without an answer, the doubt remains.
            self.in_doubt |= changes;
            let trying = attempt();
            let answer = if self.timely { trying.await } else { Box::pin(within(self.attempt_wait, trying)).await };
            if !changes || !answer.as_ref().is_err_and(ServiceError::leaves_doubt) {
                self.in_doubt = doubt_before;
            }
            match answer {
                Ok(answer) => {
                    self.answered();
                    return Ok(answer);
                }
                Err(error) => self.pause(error, began).await?,
            }
        }
    }

    /// Like [`until_answered`](Self::until_answered), for a call that changes nothing: no error leaves it in doubt.
    pub(crate) async fn until_read<T, F>(&mut self, attempt: impl FnMut() -> F) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        self.repeat(false, attempt).await.map_err(ServiceError::of_read)
    }

    /// Records an answer, which ends an outage. It does not restart the pauses; see [`Backoff`].
    pub(crate) fn answered(&mut self) {
        self.failing_since = None;
    }

    /// Waits before a failed wait is repeated, or returns the error. The outage begins now, no matter how long the wait
    /// worked.
    pub(crate) async fn broke_off(&mut self, error: ServiceError) -> Result<(), ServiceError> {
        self.pause(error, self.clock.now()).await.map_err(|error| self.doubted(error))
    }

    /// Waits before the next attempt, or returns the error. `began` is when the failed attempt began. If the attempt
    /// had no answer, the outage began then. If the answer was that the node does not lead, the outage begins now,
    /// however late the answer was.
    async fn pause(&mut self, error: ServiceError, began: Instant) -> Result<(), ServiceError> {
        let pause = self.next_pause(error, began)?;
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Returns the pause before the next attempt. It ends with the patience at the latest, so that the last attempt is
    /// made then. If a node asks for a pause as long as the remaining patience, there is no further attempt.
    fn next_pause(&mut self, error: ServiceError, began: Instant) -> Result<Duration, ServiceError> {
        let answered = matches!(error, ServiceError::NotSent { why: NotSent::NotLeader | NotSent::Detached, .. });
        let since = *self.failing_since.get_or_insert_with(|| if answered { self.clock.now() } else { began });
        let left = self.patience.saturating_sub(self.clock.now().since(since));
        let hopeless = error.advice() == Advice::GiveUp && (!self.persistent || is_answer(&error));
        if hopeless || left <= Duration::from_millis(error.pause_ms()) {
            // The caller learns of this outage. A later call has the whole patience again.
            self.failing_since = None;
            return Err(error);
        }
        Ok(self.backoff.pause(&error, &*self.clock).min(left))
    }
}

/// Whether the error is an answer to the command itself, so that a later attempt would get it, too.
pub(crate) fn is_answer(error: &ServiceError) -> bool {
    matches!(error, ServiceError::Refused(_) | ServiceError::Invalid(_))
}

/// Returns the answer to a lease request or to its withdrawal. A refusal for want of room becomes an error that may
/// pass: the cluster does not remember it, so an earlier copy of the request may still be granted.
pub(crate) fn remembered(reply: Reply) -> Result<Reply, ServiceError> {
    let Outcome::Refused(refusal @ Refusal::Quota { what: QuotaKind::Takes, .. }) = &reply.outcome else {
        return Ok(reply);
    };
    Err(ServiceError::not_sent(NotSent::LimitReached { limit: refusal.to_string(), pause_ms: RETRY_MS_MAX }))
}

/// Returns the error of a command of which an earlier attempt may have been executed.
pub(crate) fn after_doubt(error: ServiceError) -> ServiceError {
    if error.leaves_doubt() {
        return error;
    }
    let (why, leader) = (format!("an earlier attempt may have been executed; then: {error}"), error.leader().cloned());
    ServiceError::Unknown { why, leader }
}

/// Repeats a command without a number until it is answered. Also returns whether an earlier attempt may have been
/// executed.
///
/// # Errors
/// The error of the last attempt. If an earlier attempt may have been executed, the error is *unknown* all the same,
/// even if the last attempt was refused.
pub(crate) async fn repeated<S: LockService>(
    service: &S,
    call: &Call,
    retry: &mut Retry,
) -> Result<(Reply, bool), ServiceError> {
    let answer = retry.until_answered(|| service.submit(call.clone())).await;
    let in_doubt = retry.is_in_doubt();
    match answer {
        Ok(reply) => Ok((reply, in_doubt)),
        Err(error) if in_doubt => Err(after_doubt(error)),
        Err(error) => Err(error),
    }
}

/// Repeats the command of an operator until it is answered. If what it ends is gone after an attempt without an answer,
/// that attempt may have ended it, or another client: the result is the error *unknown*.
pub(crate) async fn operated<S: LockService>(
    service: &S,
    command: Command,
    retry: &mut Retry,
) -> Result<Reply, ServiceError> {
    let ends_session = matches!(command, Command::EndSession(_));
    let ends_hold =
        matches!(command, Command::Manage(Manage { what: Managing::BreakHold { .. } | Managing::HandOver { .. }, .. }));
    let (reply, in_doubt) = repeated(service, &Call::new(command), retry).await?;
    let session_ended = ends_session && matches!(reply.outcome, Outcome::Refused(Refusal::SessionEnded { .. }));
    if in_doubt && (session_ended || (ends_hold && reply.outcome.hold_is_gone())) {
        let what = if session_ended { "the session has ended" } else { "the hold is gone" };
        return Err(ServiceError::unknown(format!("{what}, by an attempt of this call or otherwise")));
    }
    Ok(reply)
}

async fn within<T>(
    longest: Duration,
    attempt: impl Future<Output = Result<T, ServiceError>>,
) -> Result<T, ServiceError> {
    let late = || ServiceError::unknown(format!("no answer within {} ms", longest.as_millis()));
    tokio::time::timeout(longest, attempt).await.unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt as _;

    use super::*;
    use crate::clock::ManualClock;

    /// Pauses double from 10 ms to a second or a lower bound, are shortened by at most a half, and are never shorter
    /// than a node asks for.
    #[test]
    fn pauses_double_up_to_a_second() {
        let clock = ManualClock::new(1);
        let mut backoff = Backoff::new();
        let error = ServiceError::not_sent(NotSent::NoLeader);
        for full in [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
            let pause = backoff.pause(&error, &clock).as_millis();
            assert!(full / 2 <= pause && pause <= full, "{pause} of {full}");
        }
        let mut short = Backoff::up_to(Duration::from_millis(60));
        for full in [10, 20, 40, 60, 60] {
            let pause = short.pause(&error, &clock).as_millis();
            assert!(full / 2 <= pause && pause <= full, "{pause} of {full}");
        }
        let overloaded = ServiceError::not_sent(NotSent::Overloaded { pause_ms: 5_000 });
        assert_eq!(backoff.pause(&overloaded, &clock), Duration::from_secs(5));
    }

    /// After a lost answer the next node is asked at once. The pauses begin with the next failure.
    #[test]
    fn the_first_attempt_after_a_lost_answer_has_no_pause() {
        let clock = ManualClock::new(1);
        let mut backoff = Backoff::new();
        let lost = ServiceError::unknown("the connection was reset");
        assert_eq!(backoff.pause(&lost, &clock), Duration::ZERO);
        for full in [10, 20, 40] {
            let pause = backoff.pause(&lost, &clock).as_millis();
            assert!(full / 2 <= pause && pause <= full, "{pause} of {full}");
        }
    }

    /// A service that repeatedly works for a moment and fails again is asked less and less often. After a second
    /// without a failure the pauses restart.
    #[test]
    fn pauses_restart_only_after_a_second_without_failure() {
        let clock = ManualClock::new(1);
        let mut backoff = Backoff::new();
        let error = ServiceError::not_sent(NotSent::NoLeader);
        let mut pause_after = |moment| {
            clock.advance(moment);
            let pause = backoff.pause(&error, &clock);
            clock.advance(pause);
            pause.as_millis()
        };
        let longest = Duration::from_millis(RETRY_MS_MAX);
        for full in [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
            let pause = pause_after(longest - Duration::from_millis(1));
            assert!(full / 2 <= pause && pause <= full, "{pause} of {full}");
        }
        assert!(pause_after(longest) <= 10);
    }

    /// After the retry has returned an error, it has the whole patience again.
    #[tokio::test]
    async fn patience_is_whole_after_giving_up() {
        let clock = Arc::new(ManualClock::new(1));
        let mut retry = Retry::new(clock.clone(), Duration::from_secs(5));
        let error = || ServiceError::not_sent(NotSent::NoLeader);
        for _ in 0..2 {
            retry.broke_off(error()).await.expect("patient");
            clock.advance(Duration::from_secs(5));
            assert_eq!(retry.broke_off(error()).await, Err(error()));
        }
    }

    /// An error that a retry cannot fix is returned at once. Other errors are returned when the patience is over, and
    /// an answer restarts it.
    #[tokio::test]
    async fn patience_counts_from_the_first_failure_in_a_row() {
        let clock = Arc::new(ManualClock::new(1));
        let mut retry = Retry::new(clock.clone(), Duration::from_secs(5));
        let began = clock.now();
        let error = || ServiceError::not_sent(NotSent::NoLeader);
        assert!(retry.pause(ServiceError::Internal("impossible".into()), began).await.is_err());
        retry.answered();
        retry.pause(error(), began).await.expect("patient at first");
        clock.advance(Duration::from_secs(4));
        retry.pause(error(), clock.now()).await.expect("still patient");
        retry.answered();
        clock.advance(Duration::from_secs(4));
        retry.pause(error(), clock.now()).await.expect("patient again after an answer");
        clock.advance(Duration::from_secs(5));
        assert_eq!(retry.pause(error(), clock.now()).await, Err(error()));
    }

    /// No pause passes the end of the patience: the last attempt is made at its end, unless a node asks for a longer
    /// pause.
    #[test]
    fn no_pause_passes_the_end_of_the_patience() {
        let clock = Arc::new(ManualClock::new(1));
        let (patience, began) = (Duration::from_secs(1), clock.now());
        let mut retry = Retry::new(clock.clone(), patience);
        let error = || ServiceError::not_sent(NotSent::NoLeader);
        while let Ok(pause) = retry.next_pause(error(), clock.now()) {
            clock.advance(pause);
        }
        assert_eq!(clock.now().since(began), patience);
        let mut retry = Retry::new(clock.clone(), patience);
        let overloaded = || ServiceError::not_sent(NotSent::Overloaded { pause_ms: 600 });
        assert_eq!(retry.next_pause(overloaded(), clock.now()), Ok(Duration::from_millis(600)));
        clock.advance(Duration::from_millis(600));
        assert_eq!(retry.next_pause(overloaded(), clock.now()), Err(overloaded()), "400 ms are left");
    }

    /// An attempt that a node answered late with "not the leader" is repeated at another node. An attempt without an
    /// answer for the same time is not.
    #[tokio::test]
    async fn a_leader_that_was_replaced_late_uses_up_no_patience() {
        let clock = Arc::new(ManualClock::new(1));
        let retry = || Retry::new(clock.clone(), Duration::from_secs(5));
        let began = clock.now();
        clock.advance(Duration::from_secs(6));
        let mut replaced = retry();
        let error = || ServiceError::not_sent(NotSent::NotLeader);
        replaced.pause(error(), began).await.expect("patient from here");
        clock.advance(Duration::from_secs(5));
        assert_eq!(replaced.pause(error(), clock.now()).await, Err(error()));
        assert!(retry().pause(ServiceError::unknown("silence"), began).await.is_err());
    }

    /// An attempt that is dropped before its answer may have been executed, and the error of a later one does not end
    /// that doubt. An attempt that was refused leaves none.
    #[tokio::test]
    async fn a_dropped_attempt_leaves_doubt() {
        let mut retry = Retry::new(Arc::new(ManualClock::new(1)), Duration::from_secs(5));
        let revoked = || ServiceError::Unauthenticated { why: "the token is not known".to_owned() };
        let refused = || ready(Err::<(), _>(revoked()));
        assert_eq!(retry.until_answered(refused).await, Err(revoked()));
        assert!(!retry.is_in_doubt());
        assert_eq!(retry.until_answered(pending::<Result<(), ServiceError>>).now_or_never(), None);
        assert!(retry.is_in_doubt());
        assert!(matches!(retry.until_answered(refused).await, Err(ServiceError::Unknown { .. })));
    }

    /// The attempt is repeated until the service answers.
    #[tokio::test]
    async fn errors_are_retried_until_an_answer() {
        let mut retry = Retry::unlimited(Arc::new(ManualClock::new(1)));
        let mut tries = 0;
        let answer = retry.until_answered(|| {
            tries += 1;
            let answer = if tries < 4 { Err(ServiceError::unknown("broken")) } else { Ok(tries) };
            async move { answer }
        });
        assert_eq!(answer.await, Ok(4));
    }
}
