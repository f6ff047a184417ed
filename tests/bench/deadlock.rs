//! The cost of one more wait after a full queue of named owners, with and without a cycle.

use std::time::Duration;

use lockkeeper::machine::Machine;
use lockkeeper::model::{
    Access, Acquire, Command, Extras, Fairness, Mode, Outcome, Owner, Refusal, RequestId, SessionId,
};

use super::machine::timed;
use super::timer::Timer;
use super::words::{apply, entry, name, open, wish};

const QUEUE: u64 = 9_990;

/// What the queue waits for.
#[derive(Clone, Copy)]
enum Queue {
    /// A single lock.
    Lock,
    /// A semaphore with this many permits, each held by an owner.
    Permits(u32),
    /// The same, with barging waiters.
    Barging(u32),
    /// The same; half of the waiters hold a lock for which the other half waits.
    Holding(u32),
    /// One lock, requested in a set with another lock.
    Sets,
    /// A permit of a semaphore with this many permits, requested in a set with a lock.
    SetsForPermits(u32),
}

impl Queue {
    /// The limit of the semaphore, if there is one.
    fn limit(self) -> Option<u32> {
        match self {
            Self::Permits(limit) | Self::Barging(limit) | Self::Holding(limit) | Self::SetsForPermits(limit) => {
                Some(limit)
            }
            Self::Lock | Self::Sets => None,
        }
    }
}

/// Which holders wait for the owner whose wait is measured.
#[derive(Clone, Copy, PartialEq)]
enum Others {
    /// No holder waits for it.
    None,
    /// One holder of what it requests.
    One,
    /// Every holder of what it requests.
    Every,
}

/// A queue and the session of the next waiter.
struct Scene {
    machine: Machine,
    last: SessionId,
    queue: Queue,
    number: u64,
}

/// Measures one more wait: after holders that wait for no other owner, with one holder that waits for the new owner,
/// and with all of them.
pub(crate) fn one_more_wait(timer: &Timer) {
    let queues = [
        ("a lock", Queue::Lock),
        ("a semaphore of 1", Queue::Permits(1)),
        ("a semaphore of 3", Queue::Permits(3)),
        ("a semaphore of 3, barging", Queue::Barging(3)),
        ("a semaphore of 3, holding", Queue::Holding(3)),
        ("sets", Queue::Sets),
        ("sets for a semaphore of 3", Queue::SetsForPermits(3)),
    ];
    let others = [
        ("no holder waits back", Others::None),
        ("one holder waits back", Others::One),
        ("all holders wait back", Others::Every),
    ];
    for (queue_name, queue) in queues {
        for (others_name, others) in others {
            let part = format!("one more wait behind {QUEUE}/{queue_name}, {others_name}");
            if timer.wants(&part) {
                let mut scene = Scene::set(queue, others);
                timer.measure(&part, 1, |rounds| (0..rounds).map(|_| scene.ask(others)).sum());
            }
        }
    }
}

impl Scene {
    fn set(queue: Queue, others: Others) -> Self {
        let mut machine = Machine::new();
        let sessions = open(&mut machine, QUEUE + 2);
        let holders = queue.limit().unwrap_or(1);
        let mut scene = Self { machine, last: sessions[0], queue, number: 1 };
        // The lock that the new owner holds, and for which holders wait.
        scene.apply(asks_for(sessions[0], 1, 1, "last"));
        for holder in 0..holders {
            let held = match queue {
                Queue::Sets => Queue::Lock,
                Queue::SetsForPermits(limit) => Queue::Permits(limit),
                Queue::Lock | Queue::Permits(_) | Queue::Barging(_) | Queue::Holding(_) => queue,
            };
            let number = scene.number();
            scene.apply(asks(held, sessions[1], number, &format!("holder {holder}")));
        }
        for (at, session) in (0..).zip(&sessions[2..]) {
            let number = scene.number();
            if let Queue::Holding(_) = queue {
                scene.apply(asks_for(*session, number, 2 + at / 2, "waiter"));
            }
            if !matches!(queue, Queue::Holding(_)) || at % 2 == 0 {
                let number = scene.number();
                scene.apply(asks(queue, *session, number, "waiter"));
            }
        }
        let back = match others {
            Others::None => 0,
            Others::One => 1,
            Others::Every => holders,
        };
        for holder in 0..back {
            let number = scene.number();
            scene.apply(asks_for(sessions[1], number, 1, &format!("holder {holder}")));
        }
        scene
    }

    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn apply(&mut self, command: Command) {
        let applied = apply(&mut self.machine, &entry(0, [command]));
        let outcome = &applied.commands[0].outcome;
        assert!(matches!(outcome, Outcome::Granted(_) | Outcome::Queued(_)), "{outcome:?}");
    }

    /// Requests the wait. Cancels it if it was not refused.
    fn ask(&mut self, others: Others) -> Duration {
        let number = self.number();
        let asked = asks(self.queue, self.last, number, "last");
        let (applied, took) = timed(&mut self.machine, &entry(0, [asked]));
        let refused = matches!(applied.commands[0].outcome, Outcome::Refused(Refusal::Deadlock { .. }));
        let one_of_many = others == Others::One && self.queue.limit().is_some_and(|limit| 1 < limit);
        assert_eq!(refused, others != Others::None && !one_of_many, "{:?}", applied.commands[0].outcome);
        if !refused {
            let request = RequestId { session: self.last, number };
            let cancel = Command::Cancel { request };
            apply(&mut self.machine, &entry(0, [cancel]));
        }
        took
    }
}

fn asks(queue: Queue, session: SessionId, number: u64, owner: &str) -> Command {
    let owner = Some(Owner::parse(owner).expect("a legal owner"));
    let asked = Acquire { owner, ..wish(session, number, &name(0)) };
    match queue {
        Queue::Lock => Command::Acquire(asked),
        Queue::Permits(limit) | Queue::Holding(limit) => Command::Acquire(permit(asked, limit)),
        Queue::Barging(limit) => {
            let extras = Extras { fairness: Fairness::Barging, ..Extras::default() };
            Command::Acquire(Acquire { extras: Some(Box::new(extras)), ..permit(asked, limit) })
        }
        Queue::Sets => Command::Acquire(set(asked)),
        Queue::SetsForPermits(limit) => Command::Acquire(set(permit(asked, limit))),
    }
}

/// The same request in a set with another lock.
fn set(mut asked: Acquire) -> Acquire {
    asked.locks.insert(name(1_000 + asked.request.number), Mode::Exclusive.into());
    asked
}

fn permit(mut asked: Acquire, limit: u32) -> Acquire {
    asked.locks.values_mut().for_each(|access| *access = Access::permits(1, limit));
    asked
}

fn asks_for(session: SessionId, number: u64, lock: u64, owner: &str) -> Command {
    let owner = Some(Owner::parse(owner).expect("a legal owner"));
    Command::Acquire(Acquire { owner, ..wish(session, number, &name(lock)) })
}
