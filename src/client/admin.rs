//! Operations on the locks of other sessions: break a hold, ask a holder to release, hand a lock over, and set the
//! limit of a semaphore. The public fencing token names the grant.

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use super::retry::repeated;
use crate::model::{
    BreakReport, Command, EndSession, FencingToken, LockName, Manage, Managing, Outcome, Query, Reason, Refusal, Reply,
    SessionId, Setting,
};
use crate::service::{Call, LockService, ServiceError};

impl<S: LockService> Client<S> {
    /// Ends a hold without its holder's consent and without its lock-delay, so the next waiter gets the lock. A token
    /// other than the hold's current one changes nothing and is refused.
    pub async fn break_hold(&self, name: &str, token: FencingToken, why: &str) -> Result<BreakReport, ClientError> {
        let why = Reason::parse(why)?;
        broken(self.manage(name, Managing::BreakHold { token, why }).await?.outcome)
    }

    /// Reports what [`break_hold`](Self::break_hold) would do: which client holds the lock, when the holder's session
    /// was last seen, and which waiter would be next. Changes nothing.
    pub async fn would_break(&self, name: &str, token: FencingToken) -> Result<BreakReport, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        broken(read!(self, Query::WouldBreak { lock, token }, WouldBreak).value)
    }

    /// Asks a holder to release its hold. The holder decides; see
    /// [`LockGuard::revoke_requested`](super::LockGuard::revoke_requested).
    pub async fn ask(&self, name: &str, token: FencingToken, why: &str) -> Result<(), ClientError> {
        let why = Reason::parse(why)?;
        self.done(name, Managing::Ask { token, why }).await
    }

    /// Makes another session the holder without a moment in which the lock is free, and returns the new token. The
    /// other session must wait for this lock alone or must have declared that it accepts hand-overs.
    pub async fn hand_over(&self, name: &str, token: FencingToken, to: SessionId) -> Result<FencingToken, ClientError> {
        let outcome = self.manage(name, Managing::HandOver { token, to }).await?.outcome;
        let Outcome::HandedOver { token, .. } = outcome else { return Err(ClientError::unexpected(outcome)) };
        Ok(token)
    }

    /// Keeps a semaphore with this limit of permits, also while no session uses it, or changes the limit of an existing
    /// one. Additional permits are granted at once; a lower limit ends no hold.
    pub async fn set_semaphore(&self, name: &str, limit: u32) -> Result<(), ClientError> {
        self.done(name, Managing::SetLimit { limit }).await
    }

    /// Stops keeping a semaphore's limit: the semaphore is removed once no session uses it.
    pub async fn remove_semaphore(&self, name: &str) -> Result<(), ClientError> {
        self.done(name, Managing::RemoveLimit).await
    }

    /// Ends another client's session: its holds are broken and its waiters removed. The error that its client gets
    /// contains `why`.
    pub async fn end_session(&self, session: SessionId, why: &str) -> Result<(), ClientError> {
        let (namespace, why) = (self.settings.namespace.clone(), Reason::parse(why)?);
        let (reply, in_doubt) = self.repeated(Command::EndSession(EndSession { namespace, session, why })).await?;
        if reply.outcome == Outcome::Closed {
            return Ok(());
        }
        if in_doubt && matches!(reply.outcome, Outcome::Refused(Refusal::SessionEnded { .. })) {
            return Err(ServiceError::unknown("the session has ended, by an attempt of this call or otherwise").into());
        }
        Err(ClientError::unexpected(reply.outcome))
    }

    /// Changes a setting of the whole cluster. It applies at once, to all sessions and holds that begin afterwards.
    pub async fn change_setting(&self, setting: Setting) -> Result<(), ClientError> {
        let (reply, _) = self.repeated(Command::ChangeSetting(setting)).await?;
        if reply.outcome == Outcome::Done { Ok(()) } else { Err(ClientError::unexpected(reply.outcome)) }
    }

    async fn done(&self, name: &str, what: Managing) -> Result<(), ClientError> {
        let outcome = self.manage(name, what).await?.outcome;
        if outcome == Outcome::Done { Ok(()) } else { Err(ClientError::unexpected(outcome)) }
    }

    /// Repeats the operation until it is answered. If the hold is gone after an attempt without an answer, that attempt
    /// may have ended it, or another client: the result is the error *unknown*.
    async fn manage(&self, name: &str, what: Managing) -> Result<Reply, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        let ends = matches!(what, Managing::BreakHold { .. } | Managing::HandOver { .. });
        let (reply, in_doubt) = self.repeated(Command::Manage(Manage { lock, what })).await?;
        let gone = matches!(reply.outcome, Outcome::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. }));
        if ends && in_doubt && gone {
            return Err(
                ServiceError::unknown("the hold is gone, by an attempt of this call or by another client").into()
            );
        }
        Ok(reply)
    }

    /// Repeats a command until it is answered. Also returns whether an earlier attempt may have been executed.
    pub(super) async fn repeated(&self, command: Command) -> Result<(Reply, bool), ClientError> {
        Ok(repeated(&self.service, &Call::new(command), &mut self.retry()).await?)
    }
}

fn broken(outcome: Outcome) -> Result<BreakReport, ClientError> {
    let Outcome::Broken(breach) = outcome else { return Err(ClientError::unexpected(outcome)) };
    Ok(*breach)
}
