//! Operations on the locks of other sessions: break a hold, ask a holder to release, hand a lock over, and set the
//! limit of a semaphore. The public fencing token names the grant.

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use super::retry::operated;
use crate::model::{
    BreakReport, Command, EndSession, FencingToken, LockName, Manage, Managing, Outcome, Query, Reason, SessionId,
    Setting,
};
use crate::service::LockService;

impl<S: LockService> Client<S> {
    /// Ends a hold without its holder's consent and without its lock-delay, so the next waiter gets the lock. A token
    /// other than the hold's current one changes nothing and is refused.
    pub async fn break_hold(&self, name: &str, token: FencingToken, why: &str) -> Result<BreakReport, ClientError> {
        let why = Reason::parse(why)?;
        broken(self.manage(name, Managing::BreakHold { token, why }).await?)
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
        let outcome = self.manage(name, Managing::HandOver { token, to }).await?;
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
        let outcome = self.operated(Command::EndSession(EndSession { namespace, session, why })).await?;
        if outcome == Outcome::Closed { Ok(()) } else { Err(ClientError::unexpected(outcome)) }
    }

    /// Changes a setting of the whole cluster. It applies at once, to all sessions and holds that begin afterwards. The
    /// lease of a token keeps its end, and its later renewals are bounded by the new setting.
    pub async fn change_setting(&self, setting: Setting) -> Result<(), ClientError> {
        done(self.operated(Command::ChangeSetting(setting)).await?)
    }

    async fn done(&self, name: &str, what: Managing) -> Result<(), ClientError> {
        done(self.manage(name, what).await?)
    }

    async fn manage(&self, name: &str, what: Managing) -> Result<Outcome, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        self.operated(Command::Manage(Manage { lock, what })).await
    }

    async fn operated(&self, command: Command) -> Result<Outcome, ClientError> {
        Ok(operated(&self.service, command, &mut self.retry()).await?.outcome)
    }
}

fn done(outcome: Outcome) -> Result<(), ClientError> {
    if outcome == Outcome::Done { Ok(()) } else { Err(ClientError::unexpected(outcome)) }
}

fn broken(outcome: Outcome) -> Result<BreakReport, ClientError> {
    let Outcome::Broken(report) = outcome else { return Err(ClientError::unexpected(outcome)) };
    Ok(*report)
}
