//! Acting on locks without holding them: break, ask, hand over, and the limits of semaphores. A grant is named by its
//! public token.

use std::sync::atomic::{AtomicBool, Ordering};

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use crate::model::{
    BreakReport, Command, EndSession, FencingToken, LockName, Manage, Managing, Outcome, Query, Reason, Refusal, Reply,
    SessionId, Setting,
};
use crate::service::{Call, LockService, ServiceError};

impl<S: LockService> Client<S> {
    /// Ends a hold against its holder's will, without its lock-delay: the next in the queue gets the lock. A token that is
    /// not the present one changes nothing.
    pub async fn break_hold(&self, name: &str, token: FencingToken, why: &str) -> Result<BreakReport, ClientError> {
        let why = Reason::parse(why)?;
        broken(self.manage(name, Managing::BreakHold { token, why }).await?.outcome)
    }

    /// What a break would do: whose hold it is, when its session was last seen, and who would be next. Changes nothing.
    pub async fn would_break(&self, name: &str, token: FencingToken) -> Result<BreakReport, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        broken(read!(self, Query::WouldBreak { lock, token }, WouldBreak).value)
    }

    /// Asks a holder to give up its hold. The holder decides; see
    /// [`LockGuard::revoke_requested`](super::LockGuard::revoke_requested).
    pub async fn ask(&self, name: &str, token: FencingToken, why: &str) -> Result<(), ClientError> {
        let why = Reason::parse(why)?;
        self.done(name, Managing::Ask { token, why }).await
    }

    /// Makes another session the holder, without a gap: one that waits for this lock alone, or that said that it accepts.
    /// Answers the new token.
    pub async fn hand_over(&self, name: &str, token: FencingToken, to: SessionId) -> Result<FencingToken, ClientError> {
        let outcome = self.manage(name, Managing::HandOver { token, to }).await?.outcome;
        let Outcome::HandedOver { token, .. } = outcome else { return Err(ClientError::unexpected(outcome)) };
        Ok(token)
    }

    /// Keeps a semaphore of so many permits, also while nobody uses it, or changes the limit of one that is there. A higher
    /// limit is granted at once; a lower one evicts nobody.
    pub async fn set_semaphore(&self, name: &str, limit: u32) -> Result<(), ClientError> {
        self.done(name, Managing::SetLimit { limit }).await
    }

    /// Forgets a semaphore's limit once nobody uses it.
    pub async fn remove_semaphore(&self, name: &str) -> Result<(), ClientError> {
        self.done(name, Managing::RemoveLimit).await
    }

    /// Ends a session that is not the caller's: what it held is broken, and its waiters leave. Its client learns why.
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

    /// Changes a setting of the whole cluster: at once, for what is opened and granted from now on.
    pub async fn change_setting(&self, setting: Setting) -> Result<(), ClientError> {
        let (reply, _) = self.repeated(Command::ChangeSetting(setting)).await?;
        if reply.outcome == Outcome::Done { Ok(()) } else { Err(ClientError::unexpected(reply.outcome)) }
    }

    async fn done(&self, name: &str, what: Managing) -> Result<(), ClientError> {
        let outcome = self.manage(name, what).await?.outcome;
        if outcome == Outcome::Done { Ok(()) } else { Err(ClientError::unexpected(outcome)) }
    }

    /// Repeats it until it is answered. A hold that is gone after an attempt with an unknown end may have been ended by that
    /// attempt, or by others: that is answered as *unknown*.
    async fn manage(&self, name: &str, what: Managing) -> Result<Reply, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        let ends = matches!(what, Managing::BreakHold { .. } | Managing::HandOver { .. });
        let (reply, in_doubt) = self.repeated(Command::Manage(Manage { lock, what })).await?;
        let gone = matches!(reply.outcome, Outcome::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. }));
        if ends && in_doubt && gone {
            return Err(ServiceError::unknown("the hold is gone, by an attempt of this call or by others").into());
        }
        Ok(reply)
    }

    /// Repeats a command until it is answered; also whether an attempt before may have been executed.
    async fn repeated(&self, command: Command) -> Result<(Reply, bool), ClientError> {
        let call = Call::new(command);
        let in_doubt = AtomicBool::new(false);
        let attempt = || async {
            // An attempt that is given up for want of an answer leaves the doubt.
            let doubt_before = in_doubt.swap(true, Ordering::Relaxed);
            let answer = self.service.submit(call.clone()).await;
            if matches!(answer, Err(ServiceError::NotSent { .. })) {
                in_doubt.store(doubt_before, Ordering::Relaxed);
            }
            answer.map(|reply| (reply, doubt_before))
        };
        Ok(self.retry().until_answered(attempt).await?)
    }
}

fn broken(outcome: Outcome) -> Result<BreakReport, ClientError> {
    let Outcome::Broken(breach) = outcome else { return Err(ClientError::unexpected(outcome)) };
    Ok(*breach)
}
