//! Those who wait for the outcome of an entry, and how they are told.
//!
//! Where they are many, the first are told while the last commands are still being executed: the entry is committed by then,
//! and what was decided stays so. They are told in the runtime that most of them run in: to wake them from another thread
//! would cost each of them a wake-up across threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

use super::queue::{Answer, ProposalQueue};
use crate::limits::{ANSWERS_AT_ONCE, GATHER_COMMANDS_MIN};
use crate::machine::Applied;
use crate::model::Reply;
use crate::raft::Listener;
use crate::service::ServiceError;

/// The callers of one entry. Each is told once; whoever is left when this is dropped learns that no answer will come.
pub(super) struct BatchReplies {
    runtime: Handle,
    queue: Arc<ProposalQueue>,
    served: usize,
    unanswered: Mutex<Unanswered>,
}

struct Unanswered {
    /// In the order of the entry: its renewals, then its commands.
    answers: std::vec::IntoIter<Answer>,
    /// How many waited for the next entry when the first of this one was told: later some of this one are among them.
    others: Option<usize>,
}

/// Answers and what they say, told when this is dropped: what is spawned in a runtime that has ended is dropped at once, so
/// that nobody is left without an answer.
struct Replies(Vec<(Reply, Answer)>);

impl BatchReplies {
    /// Those who wait for an entry's renewals and those who wait for its commands. They run in `runtime`, and come again
    /// into `queue`.
    pub(super) fn new(
        runtime: Handle,
        queue: Arc<ProposalQueue>,
        mut renewers: Vec<Answer>,
        submitters: Vec<Answer>,
    ) -> Self {
        renewers.extend(submitters);
        let served = renewers.len();
        Self {
            runtime,
            queue,
            served,
            unanswered: Mutex::new(Unanswered { answers: renewers.into_iter(), others: None }),
        }
    }

    fn unanswered(&self) -> MutexGuard<'_, Unanswered> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many they are, told or not.
    pub(super) fn served(&self) -> usize {
        self.served
    }

    /// How many others waited for the next entry when the first of these was told.
    pub(super) fn others_waiting(&self) -> usize {
        self.unanswered().others.unwrap_or(0)
    }

    /// Whether they are so many that it pays to tell them elsewhere, and in repliess.
    pub(super) fn is_large(&self) -> bool {
        GATHER_COMMANDS_MIN <= self.served
    }

    /// Tells those who have not been told and whose outcome is among these, all of them or at least so many.
    pub(super) fn reply_decided(&self, applied: &Applied, at_least: usize) {
        let mut unanswered = self.unanswered();
        let told = self.served - unanswered.answers.len();
        let decided = applied.renewals.len() + applied.commands.len();
        if decided < told + at_least {
            return;
        }
        if unanswered.others.is_none() {
            unanswered.others = Some(self.queue.waiting(usize::MAX, false));
        }
        let replies = applied.renewals.iter().chain(&applied.commands).skip(told).cloned();
        let replies = Replies(replies.zip(&mut unanswered.answers).collect());
        drop(unanswered);
        if self.is_large() {
            self.runtime.spawn(async move { drop(replies) });
        }
    }

    /// Tells those who have not been told why they get no answer.
    pub(super) fn reply_error(&self, error: &ServiceError) {
        for answer in &mut self.unanswered().answers {
            answer.send(Err(error.clone())).ok();
        }
    }
}

impl Listener for BatchReplies {
    fn decided(&self, so_far: &Applied) {
        self.reply_decided(so_far, ANSWERS_AT_ONCE);
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        for (reply, answer) in self.0.drain(..) {
            answer.send(Ok(reply)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::model::{LogTime, Outcome};

    type Answered = oneshot::Receiver<Result<Reply, ServiceError>>;

    fn callers(renewers: usize, submitters: usize) -> (BatchReplies, Vec<Answered>) {
        let (mut answers, receivers): (Vec<_>, Vec<_>) = (0..renewers + submitters).map(|_| oneshot::channel()).unzip();
        let submitters = answers.split_off(renewers);
        (BatchReplies::new(Handle::current(), Arc::default(), answers, submitters), receivers)
    }

    fn reply(index: usize) -> Reply {
        Reply::new(index as u64, LogTime(0), Outcome::Done)
    }

    /// Everybody is told once, in the order of the entry, a replies at a time; the last when the entry has been applied.
    #[tokio::test]
    async fn repliess_are_told_while_the_entry_is_applied() {
        let (renewers, submitters) = (ANSWERS_AT_ONCE + 3, 2 * ANSWERS_AT_ONCE);
        let (callers, answers) = callers(renewers, submitters);
        let mut applied = Applied::default();
        applied.renewals.extend((0..renewers).map(reply));
        for number in renewers..renewers + submitters {
            applied.commands.push(reply(number));
            callers.decided(&applied);
        }
        tokio::task::yield_now().await;
        let told = answers.iter().filter(|answer| !answer.is_empty()).count();
        assert!((submitters..renewers + submitters).contains(&told), "{told} have been told");
        callers.reply_decided(&applied, 1);
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.await.expect("told"), Ok(reply(number)));
        }
    }
}
