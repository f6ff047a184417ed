//! One hold, as its guard and its session's keeper share it. It knows no service.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::presence::{HoldState, Presence, pause_until};
use super::validity::{Answer, Validity};
use crate::clock::Instant;
use crate::limits::RENEWALS_A_TTL;
use crate::model::{EndReason, FencingToken, Grant, LockName, Principal, Reason};

/// Somebody asks the holder to give up its hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Who, as the cluster checked it.
    pub by: Principal,
    /// What for.
    pub why: Reason,
}

/// The shared state of one hold.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) name: LockName,
    /// See [`alone`](Self::alone).
    turn: Semaphore,
    fate: watch::Sender<Fate>,
    lease: Option<Mutex<LeaseOfHold>>,
    /// The end that its request chose, which nothing moves.
    ends: Option<Validity>,
    followed: AtomicBool,
}

/// What has become of a hold.
#[derive(Debug)]
struct Fate {
    token: FencingToken,
    given_back: bool,
    /// It ended by itself or by others; how, where the cluster said so.
    ended: Option<Option<EndReason>>,
    asked: Option<Asked>,
}

/// An end of the hold besides its session's.
#[derive(Debug)]
struct LeaseOfHold {
    length_ms: u64,
    validity: Validity,
}

/// The turn of one who does something with a hold; it goes with the request, whoever performs it.
#[derive(Debug)]
pub(super) struct Alone(Arc<Hold>);

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.turn.add_permits(1);
    }
}

impl Hold {
    /// As it was granted. `lease` is its lease's length and end, and `ends` the end that its request chose, where it has them.
    pub(super) fn new(name: LockName, grant: &Grant, lease: Option<(u64, Validity)>, ends: Option<Validity>) -> Self {
        let fate = Fate { token: grant.token, given_back: false, ended: None, asked: None };
        Self {
            name,
            turn: Semaphore::new(1),
            fate: watch::Sender::new(fate),
            lease: lease.map(|(length_ms, validity)| Mutex::new(LeaseOfHold { length_ms, validity })),
            ends,
            followed: AtomicBool::new(false),
        }
    }

    /// Waits until nothing else is under way with it: one change, or the release, at a time.
    pub(super) async fn alone(self: Arc<Self>) -> Alone {
        // It is never closed.
        if let Ok(turn) = self.turn.acquire().await {
            turn.forget();
        }
        Alone(self)
    }

    /// The present token: an upgrade gives it a new one.
    pub(super) fn token(&self) -> FencingToken {
        self.fate.borrow().token
    }

    /// An upgrade gave it another token.
    pub(super) fn regranted(&self, token: FencingToken) {
        self.fate.send_modify(|fate| fate.token = token);
    }

    /// Its guard gives it back: whatever is told of its end from now on is expected.
    pub(super) fn give_back(&self) {
        self.fate.send_modify(|fate| fate.given_back = true);
    }

    /// It is not held any more; the first end counts.
    pub(super) fn end_as(&self, reason: Option<EndReason>) {
        self.fate.send_if_modified(|fate| {
            let first = fate.ended.is_none() && !fate.given_back;
            if first {
                fate.ended = Some(reason);
            }
            first
        });
    }

    /// Somebody asks for it.
    pub(super) fn ask(&self, asked: Asked) {
        self.fate.send_modify(|fate| fate.asked = Some(asked));
    }

    /// True the first time: who asks has to see to it that news of it are followed.
    pub(super) fn follow_first(&self) -> bool {
        !self.followed.swap(true, Ordering::Relaxed)
    }

    fn lease(&self) -> Option<MutexGuard<'_, LeaseOfHold>> {
        self.lease.as_ref().map(|lease| lease.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How long its lease is and how often it is renewed; `None` where it has none.
    pub(super) fn lease_length(&self) -> Option<(u64, Duration)> {
        let length_ms = self.lease()?.length_ms;
        Some((length_ms, Duration::from_millis(length_ms) / RENEWALS_A_TTL as u32))
    }

    /// Its lease was prolonged.
    pub(super) fn renewed(&self, answer: Answer, presence: &Presence) {
        if let Some(mut lease) = self.lease() {
            lease.validity.answered(answer, presence.clock.now());
        }
    }

    /// How it ended, apart from its session. The clock is read, so an end of its own that passed unnoticed is found here.
    pub(super) fn ended(&self, presence: &Presence) -> Option<Option<EndReason>> {
        let told = self.fate.borrow().ended;
        if told.is_some() {
            return told;
        }
        let now = presence.clock.now();
        let passed = self.lease().is_some_and(|mut lease| lease.validity.is_passed(now));
        if self.ends.as_ref().is_some_and(|ends| ends.until() <= now) {
            self.end_as(Some(EndReason::TimeOver));
        } else if passed {
            self.end_as(None);
        }
        self.fate.borrow().ended
    }

    /// What is left of it by ends of its own; `None` where it has none.
    pub(super) fn left(&self, presence: &Presence) -> Option<Duration> {
        let now = presence.clock.now();
        let lease = self.lease().map(|lease| lease.validity.left(now));
        lease.into_iter().chain(self.ends.as_ref().map(|ends| ends.left(now))).min()
    }

    /// The first instant at which it may have ended by itself.
    fn until(&self) -> Option<Instant> {
        let lease = self.lease().map(|lease| lease.validity.until());
        lease.into_iter().chain(self.ends.as_ref().map(Validity::until)).min()
    }

    /// How sure it is: as its session is, or less where its own lease was not renewed for half of its length.
    pub(super) fn state(&self, presence: &Presence) -> HoldState {
        if self.ended(presence).is_some() {
            return HoldState::Lost;
        }
        let interval = self.lease_length().map(|(_, interval)| interval);
        let answered = self.lease().map(|lease| lease.validity.newest_answered());
        let overdue = interval
            .zip(answered)
            .is_some_and(|(interval, answered)| interval + interval / 2 < presence.clock.now().since(answered));
        match presence.state() {
            HoldState::Held if overdue => HoldState::Unsure,
            state @ (HoldState::Held | HoldState::Unsure | HoldState::Lost) => state,
        }
    }

    /// Waits for its own end. As a session's end it is found by the clock, too, however the keeper is scheduled.
    pub(super) async fn lost(&self, presence: &Presence) -> Option<EndReason> {
        let mut told = self.fate.subscribe();
        loop {
            if let Some(reason) = self.ended(presence) {
                return reason;
            }
            told.borrow_and_update();
            match self.until() {
                Some(until) => {
                    let look = pause_until(until, presence.clock.now());
                    // The sender lives in `self`, so the channel cannot close while it is awaited.
                    let _ = tokio::time::timeout(look, told.changed()).await;
                }
                None => drop(told.changed().await),
            }
        }
    }

    /// Waits until somebody asks for it, and takes that.
    pub(super) async fn asked(&self) -> Asked {
        let mut told = self.fate.subscribe();
        loop {
            told.borrow_and_update();
            let mut asked = None;
            self.fate.send_if_modified(|fate| {
                asked = fate.asked.take();
                false
            });
            match asked {
                Some(asked) => return asked,
                None => drop(told.changed().await),
            }
        }
    }

    /// Whether its guard has given it back.
    pub(super) fn is_given_back(&self) -> bool {
        self.fate.borrow().given_back
    }

    /// Waits until it is given back.
    pub(super) async fn given_back(&self) {
        // The sender lives in `self`, so the channel cannot close while it is awaited.
        drop(self.fate.subscribe().wait_for(|fate| fate.given_back).await);
    }

    /// Waits until it is given back, for so long.
    pub(super) async fn given_back_within(&self, longest: Duration) -> bool {
        let mut told = self.fate.subscribe();
        let given_back = told.wait_for(|fate| fate.given_back);
        tokio::time::timeout(longest, given_back).await.is_ok()
    }
}
