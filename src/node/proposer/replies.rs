//! Replies to the callers of one log entry.
//!
//! The callers of a large entry get their replies in portions while its last commands are still being executed: the
//! entry is committed by then, and a decided command stays decided. These replies are sent from the runtime in which
//! most callers run, if several threads drive it: each wake-up from another thread would cost a switch between threads.
//! The callers of a small entry get their replies from the thread that applies it, as soon as its events are published:
//! no other task runs in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;

use super::lane::ReplySender;
use super::queue::ProposalQueue;
use crate::limits::{ANSWERS_AT_ONCE, GATHER_COMMANDS_MIN};
use crate::machine::Applied;
use crate::model::Reply;
use crate::mutex::Mutex;
use crate::raft::Listener;
use crate::service::ServiceError;

/// The callers of one entry. Each gets one reply. Dropping this closes the channels of the callers that have none.
pub(super) struct BatchReplies {
    runtime: Handle,
    queue: Arc<ProposalQueue>,
    decided: Arc<DecidedReplies>,
    /// The number of the entry.
    entry: u64,
    served: usize,
    unanswered: Mutex<Unanswered>,
}

struct Unanswered {
    /// Channels in the order of the entry: its renewals, then its commands.
    answers: std::vec::IntoIter<ReplySender>,
    /// How many calls waited for the next entry when a large entry sent its first replies. They are counted at that
    /// time, because later calls may come from callers of this entry.
    others: Option<usize>,
}

/// Replies with the channels to their callers. Dropping this sends them, so that every caller gets its reply even if
/// the runtime has ended and drops new tasks at once.
#[derive(Debug)]
struct Replies(Vec<(Reply, ReplySender)>);

/// Replies of the small entry that is being applied, kept until its events are published: a caller that subscribes
/// after its reply gets no event of its own command.
#[derive(Debug, Default)]
pub(in crate::node) struct DecidedReplies {
    /// The number of the entry, and its replies.
    kept: Mutex<Option<(u64, Replies)>>,
    /// Number of entries so far.
    entries: AtomicU64,
}

impl DecidedReplies {
    /// Keeps the replies of an entry, and sends those of the entry before it.
    fn keep(&self, entry: u64, replies: Replies) {
        let before = self.kept.lock().replace((entry, replies));
        drop(before);
    }

    /// Sends the replies that are kept.
    pub(in crate::node) fn send(&self) {
        let kept = self.kept.lock().take();
        drop(kept);
    }

    /// Sends the replies that are kept if they are those of this entry.
    fn send_of(&self, entry: u64) {
        let kept = self.kept.lock().take_if(|(of, _)| *of == entry);
        drop(kept);
    }
}

impl BatchReplies {
    /// Takes the callers that wait for an entry's renewals and those that wait for its commands. The replies of a large
    /// entry are sent from `runtime`, and the next calls of its callers go into `queue`.
    pub(super) fn new(
        runtime: Handle,
        queue: Arc<ProposalQueue>,
        decided: Arc<DecidedReplies>,
        mut renewers: Vec<ReplySender>,
        submitters: Vec<ReplySender>,
    ) -> Self {
        renewers.extend(submitters);
        let served = renewers.len();
        let unanswered = Mutex::new(Unanswered { answers: renewers.into_iter(), others: None });
        let entry = decided.entries.fetch_add(1, Ordering::Relaxed);
        Self { runtime, queue, decided, entry, served, unanswered }
    }

    /// Returns the number of callers, with a reply or without.
    pub(super) fn served(&self) -> usize {
        self.served
    }

    /// Returns how many other calls waited for the next entry when a large entry sent its first replies; otherwise 0.
    pub(super) fn others_waiting(&self) -> usize {
        self.unanswered.lock().others.unwrap_or(0)
    }

    /// Whether there are enough callers to send replies in portions, from another runtime.
    fn is_large(&self) -> bool {
        GATHER_COMMANDS_MIN <= self.served
    }

    /// Takes out the callers that have no reply and whose commands are decided, if there are at least `at_least`.
    fn take_decided(&self, applied: &Applied, at_least: usize) -> Option<Replies> {
        let mut unanswered = self.unanswered.lock();
        let answered = self.served - unanswered.answers.len();
        let decided = applied.renewals.len() + applied.commands.len();
        if answered == self.served || decided < answered + at_least {
            return None;
        }
        if self.is_large() && unanswered.others.is_none() {
            unanswered.others = Some(self.queue.len());
        }
        let replies = applied.renewals.iter().chain(&applied.commands).skip(answered).cloned();
        Some(Replies(replies.zip(&mut unanswered.answers).collect()))
    }

    /// Sends the replies: their drop does. Those of a large entry are sent from another runtime.
    fn send(&self, replies: Replies) {
        if self.is_large() {
            self.runtime.spawn(async move { drop(replies) });
        }
    }

    /// Sends the remaining replies once the entry was applied.
    pub(super) fn reply_applied(&self, applied: &Applied) {
        if let Some(replies) = self.take_decided(applied, 1) {
            self.send(replies);
        }
    }

    /// Sends this error to the callers without a reply. Commands that were decided before it keep their replies. The
    /// replies of another entry still wait for its events.
    pub(super) fn reply_error(&self, error: &ServiceError) {
        self.decided.send_of(self.entry);
        for answer in &mut self.unanswered.lock().answers {
            answer.send(Err(error.clone())).ok();
        }
    }
}

impl Listener for BatchReplies {
    fn decided(&self, so_far: &Applied) {
        if self.is_large() {
            if let Some(replies) = self.take_decided(so_far, ANSWERS_AT_ONCE) {
                self.send(replies);
            }
        } else if let Some(replies) = self.take_decided(so_far, self.served) {
            self.decided.keep(self.entry, replies);
        }
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
        callers_of(&Arc::default(), renewers, submitters)
    }

    fn callers_of(decided: &Arc<DecidedReplies>, renewers: usize, submitters: usize) -> (BatchReplies, Vec<Answered>) {
        let (mut answers, receivers): (Vec<_>, Vec<_>) = (0..renewers + submitters).map(|_| oneshot::channel()).unzip();
        let submitters = answers.split_off(renewers);
        (BatchReplies::new(Handle::current(), Arc::default(), decided.clone(), answers, submitters), receivers)
    }

    fn reply(index: usize) -> Reply {
        Reply::new(index as u64, LogTime(0), Outcome::Done)
    }

    /// Every caller of a large entry gets one reply, in the order of the entry, a few at a time; the last callers get
    /// theirs when the entry has been applied.
    #[tokio::test]
    async fn a_large_entry_is_answered_while_it_is_applied() {
        let (renewers, submitters) = (ANSWERS_AT_ONCE + 3, 2 * ANSWERS_AT_ONCE);
        let (callers, answers) = callers(renewers, submitters);
        let mut applied = Applied::default();
        applied.renewals.extend((0..renewers).map(reply));
        for number in renewers..renewers + submitters {
            applied.commands.push(reply(number));
            callers.decided(&applied);
        }
        tokio::task::yield_now().await;
        let answered = answers.iter().filter(|answer| !answer.is_empty()).count();
        assert!((submitters..renewers + submitters).contains(&answered), "{answered} have a reply");
        callers.reply_applied(&applied);
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.await.expect("a reply"), Ok(reply(number)));
        }
    }

    /// The callers of a small entry get their replies when its events are published: after its last command, and before
    /// the proposer learns that it was applied.
    #[tokio::test]
    async fn a_small_entry_is_answered_when_its_events_are_published() {
        let (callers, answers) = callers(1, 2);
        let mut applied = Applied::default();
        applied.renewals.push(reply(0));
        for number in 1..=2 {
            applied.commands.push(reply(number));
            callers.decided(&applied);
        }
        assert!(answers.iter().all(oneshot::Receiver::is_empty), "the events are not published yet");
        callers.reply_applied(&applied);
        assert!(answers.iter().all(oneshot::Receiver::is_empty), "the replies are kept");
        callers.decided.send();
        for (number, mut answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.try_recv(), Ok(Ok(reply(number))));
        }
    }

    /// The error of one entry does not send the replies of another one before its events are published.
    #[tokio::test]
    async fn an_error_leaves_the_replies_of_other_entries() {
        let decided = Arc::default();
        let (applying, mut answers) = callers_of(&decided, 0, 1);
        let (discarded, mut failed) = callers_of(&decided, 0, 1);
        let mut applied = Applied::default();
        applied.commands.push(reply(0));
        applying.decided(&applied);
        discarded.reply_error(&ServiceError::unknown("discarded"));
        assert!(failed[0].try_recv().is_ok_and(|reply| reply.is_err()));
        assert!(answers[0].is_empty(), "the events are not published yet");
        decided.send();
        assert_eq!(answers[0].try_recv(), Ok(Ok(reply(0))));
    }

    /// An error after the last command of a small entry was decided does not replace its replies. In an entry of
    /// renewals alone, no command is decided, and the callers get their replies when the entry has been applied.
    #[tokio::test]
    async fn decided_commands_keep_their_replies() {
        let (failed, mut answers) = callers(0, 1);
        let mut applied = Applied::default();
        applied.commands.push(reply(0));
        failed.decided(&applied);
        failed.reply_error(&ServiceError::Stopping);
        assert_eq!(answers[0].try_recv(), Ok(Ok(reply(0))));
        let (undecided, mut answers) = callers(1, 1);
        undecided.decided(&Applied::default());
        undecided.reply_error(&ServiceError::Stopping);
        assert_eq!(answers.remove(0).try_recv(), Ok(Err(ServiceError::Stopping)));
        let (renewed, mut answers) = callers(1, 0);
        let mut applied = Applied::default();
        applied.renewals.push(reply(0));
        renewed.reply_applied(&applied);
        assert_eq!(answers[0].try_recv(), Ok(Ok(reply(0))));
    }
}
