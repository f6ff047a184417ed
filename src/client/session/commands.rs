//! Commands of a session that concern its holds. Each is repeated under its own number until it is answered or the
//! session ends.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, Either, ready};
use futures_util::stream::FuturesUnordered;

use crate::client::hold::{Hold, PendingChange};
use crate::client::on_drop::OnDrop;
use crate::client::retry::{Retry, is_answer};
use crate::client::session::cached_holds::CachedHolds;
use crate::client::session::state::SessionState;
use crate::client::session::{hold_events, hold_lease};
use crate::client::wait::submit_and_wait;
use crate::model::{
    Alter, Alteration, Claim, Command, LockValue, Outcome, Patience, Refusal, Release, Reply, RequestId,
};
use crate::service::{Advice, ClaimRef, LockService, ServiceError};

/// A request number, and the bound below which every number was answered when this number was allocated.
pub(crate) type Drawn = (u64, u64);

/// A command with its own number: it is executed once even if it is repeated. Changes of one hold run one at a time, so
/// its token is the same in all attempts of a change.
#[derive(Debug, Clone)]
pub(crate) enum SessionCommand {
    /// Withdraw an acquire or an upgrade, regardless of its outcome.
    Cancel(u64),
    Change(Arc<Hold>, Drawn, HoldChange),
}

/// A change of a hold, or its release. It reads the hold's token when it starts.
#[derive(Debug, Clone)]
pub(crate) enum HoldChange {
    Release,
    Downgrade,
    Upgrade(Patience),
    SetValue(Option<LockValue>),
    ReturnPermits(u32),
}

impl SessionCommand {
    /// Begins its change of the hold, if it concerns one.
    pub(crate) fn change(&self) -> Option<PendingChange> {
        Some(self.hold()?.change())
    }

    /// Begins its change of the hold and waits for its turn, at most this duration for each earlier change. After an
    /// error, `change` still has its place, so that the session's task continues before later changes.
    pub(crate) async fn turn_within(
        &self,
        change: &mut Option<PendingChange>,
        longest: Duration,
    ) -> Result<(), ServiceError> {
        let Some(hold) = self.hold() else { return Ok(()) };
        if let Either::Right(waiting) = change.insert(hold.change()) {
            // Boxed because it is rare.
            let turn = Box::pin(hold.turn_within(waiting, longest)).await;
            let late = || ServiceError::unknown("an earlier change of the hold has not ended in time");
            *change = Some(Either::Left(ready(turn.ok_or_else(late)?)));
        }
        Ok(())
    }

    fn hold(&self) -> Option<&Arc<Hold>> {
        match self {
            SessionCommand::Cancel(_) => None,
            SessionCommand::Change(hold, ..) => Some(hold),
        }
    }

    /// Whether the command gives back what its caller has already given up, so that no other call does it.
    pub(crate) fn gives_back(&self) -> bool {
        match self {
            SessionCommand::Cancel(_)
            | SessionCommand::Change(_, _, HoldChange::Release | HoldChange::ReturnPermits(_)) => true,
            SessionCommand::Change(_, _, HoldChange::Downgrade | HoldChange::Upgrade(_) | HoldChange::SetValue(_)) => {
                false
            }
        }
    }

    /// Whether the command is not repeated after this result. One that gives something back is repeated after each
    /// error that is no answer to it: otherwise a temporary one, for example an outdated token, would leave a lock
    /// locked while the session lives. Another command is repeated after an error that leaves it in doubt: an upgrade
    /// may have been granted under a new token, which its hold must learn.
    pub(crate) fn is_final(&self, answer: &Result<Reply, ServiceError>) -> bool {
        let Err(error) = answer else { return true };
        let ends = if self.gives_back() { is_answer(error) } else { !error.leaves_doubt() };
        error.advice() == Advice::GiveUp && ends
    }

    /// Returns the number of the command if it may run again under another number once the cluster no longer knows
    /// whether it ran: a second execution changes nothing more. A return of permits would return them twice, and the
    /// caller of an upgrade withdraws it under its number.
    fn replaceable_number(&mut self) -> Option<&mut Drawn> {
        match self {
            SessionCommand::Cancel(_)
            | SessionCommand::Change(_, _, HoldChange::ReturnPermits(_) | HoldChange::Upgrade(_)) => None,
            SessionCommand::Change(_, drawn, HoldChange::Release | HoldChange::Downgrade | HoldChange::SetValue(_)) => {
                Some(drawn)
            }
        }
    }

    pub(crate) fn number(&self) -> u64 {
        match self {
            SessionCommand::Cancel(number) | SessionCommand::Change(_, (number, _), _) => *number,
        }
    }

    /// Returns the command as the cluster takes it, with the current token of the hold.
    fn build(self, request: RequestId) -> Command {
        let SessionCommand::Change(hold, (_, answered_below), change) = self else {
            return Command::Cancel { request };
        };
        let (name, token) = (hold.name.clone(), hold.token());
        let what = match change {
            HoldChange::Release => {
                let acquire = hold.acquire;
                return Command::Release(Release { request, answered_below, name, token, acquire });
            }
            HoldChange::Downgrade => Alteration::Downgrade { token },
            HoldChange::Upgrade(patience) => Alteration::Upgrade { token, patience },
            HoldChange::SetValue(value) => Alteration::SetValue { token, value },
            HoldChange::ReturnPermits(count) => Alteration::ReturnPermits { token, count },
        };
        Command::Alter(Alter { request, answered_below, name, what })
    }
}

/// What a guard needs from the service of its session, without a type parameter for the service.
pub(crate) trait SessionCommands: Send + Sync {
    /// Repeats a command until it is answered or `patience`, if any, is over. Returns at once errors that a retry
    /// cannot fix. Without a patience, a command that gives something back is repeated after these, too.
    fn run(
        &self,
        session: Arc<SessionState>,
        command: SessionCommand,
        patience: Option<Duration>,
    ) -> BoxFuture<'static, Result<Reply, ServiceError>>;

    /// Renews the lease of a hold until the hold ends.
    fn renew_lease(&self, session: Arc<SessionState>, hold: Arc<Hold>) -> BoxFuture<'static, ()>;

    /// Reads whether a hold is still held, because events of it may have been missed.
    fn read(&self, session: Arc<SessionState>, hold: Arc<Hold>) -> BoxFuture<'static, ()>;
}

impl<S: LockService> SessionCommands for S {
    fn run(
        &self,
        session: Arc<SessionState>,
        command: SessionCommand,
        patience: Option<Duration>,
    ) -> BoxFuture<'static, Result<Reply, ServiceError>> {
        let service = self.clone();
        let retry = match patience {
            Some(patience) => Retry::new(session.clock.clone(), patience),
            None if command.gives_back() => Retry::unlimited(session.clock.clone()).persistent(),
            None => Retry::unlimited(session.clock.clone()),
        };
        let retry = retry.of_attempts_within(service.answers_within());
        Box::pin(async move { run_renumbered(&service, &session, retry, command).await })
    }

    fn renew_lease(&self, session: Arc<SessionState>, hold: Arc<Hold>) -> BoxFuture<'static, ()> {
        Box::pin(hold_lease::renew(self.clone(), session, hold))
    }

    fn read(&self, session: Arc<SessionState>, hold: Arc<Hold>) -> BoxFuture<'static, ()> {
        let service = self.clone();
        Box::pin(async move { hold_events::read(&service, &session, hold).await })
    }
}

/// Whether the cluster no longer knows this number, because the session finished more later requests than it remembers.
/// The command under it did not run in this attempt, and no claim lives under it.
pub(crate) fn is_too_old(answer: &Result<Reply, ServiceError>) -> bool {
    matches!(answer, Ok(Reply { outcome: Outcome::Refused(Refusal::TooOld { .. }), .. }))
}

/// Repeats a command as [`SessionCommands::run`] does. In a busy session, a command that was delayed, for example
/// without a leader, can be too old when it arrives. It then runs under another number.
async fn run_renumbered<S: LockService>(
    service: &S,
    session: &SessionState,
    mut retry: Retry,
    mut command: SessionCommand,
) -> Result<Reply, ServiceError> {
    let mut answer = run(service, session, &mut retry, command.clone()).await;
    while is_too_old(&answer)
        && let Some(drawn) = command.replaceable_number()
    {
        *drawn = session.draw();
        // A task that repeats the command after this future is dropped uses the first number.
        let _finished = OnDrop::new((session, drawn.0), |(session, number)| session.finish(*number));
        answer = run(service, session, &mut retry, command.clone()).await;
    }
    answer
}

async fn run<S: LockService>(
    service: &S,
    session: &SessionState,
    retry: &mut Retry,
    command: SessionCommand,
) -> Result<Reply, ServiceError> {
    let (number, hold) = (command.number(), command.hold().cloned());
    let request = session.request(number);
    let call = session.call(command.clone().build(request));
    // Boxed because a retry with a timeout moves the future several times.
    let attempt = || Box::pin(service.submit(call.clone()));
    let answer = match &hold {
        None => retry.until_answered(attempt).await,
        Some(hold) => {
            let claim = ClaimRef { lock: session.key(&hold.name), claim: Claim::Request(request) };
            submit_and_wait(service, &claim, retry, attempt, |_| session.stream_needed.notify_waiters())
                .await
                .map(|settled| settled.reply)
        }
    };
    if let (Some(hold), Ok(Reply { outcome: Outcome::Granted(grant), .. })) = (&hold, &answer) {
        session.holds.regranted(hold, grant.token);
    }
    if let Ok(reply) = &answer {
        session.holds.recalled(&reply.recalled);
    }
    if command.is_final(&answer) {
        session.finish(number);
    }
    answer
}

/// Releases the cached holds that left the session's table while they were idle, until the session ends.
pub(crate) async fn release_cached(service: Arc<dyn SessionCommands>, session: Arc<SessionState>) {
    let mut releases = FuturesUnordered::new();
    loop {
        let now = session.clock.now();
        let idle = |cached: &mut CachedHolds| (cached.give_up_overdue(now), cached.take_given_up());
        let (look_again, holds) = session.holds.cached(idle);
        for hold in holds {
            hold.release();
            let command = SessionCommand::Change(hold, session.draw(), HoldChange::Release);
            releases.push(service.run(session.clone(), command, None));
        }
        let overdue = async {
            match look_again {
                Some(at) => tokio::time::sleep(at.since(now)).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(answer) = releases.next(), if !releases.is_empty() => if let Err(error) = answer {
                tracing::warn!(session = %session.id, %error, "a cached lock stays until its session ends");
            },
            () = session.holds.cached_changed.notified() => {}
            () = overdue => {}
        }
    }
}
