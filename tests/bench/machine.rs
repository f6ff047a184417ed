//! The cost of the lock machine: acquires and releases of free locks, a lock that passes to the next waiter, sessions
//! that all end.

use std::time::{Duration, Instant};

use lockkeeper::machine::{Applied, Machine};
use lockkeeper::model::{Command, Entry, EventKind, FencingToken, SessionId};

use super::timer::Timer;
use super::words::{COMMANDS, TTL_MS, acquire, apply, entry, name, open, release, token};

const ENDING: u64 = 1_000;

/// Measures an entry of acquires of free locks and one of their releases, each in a separate session. The rate counts
/// pairs.
pub(crate) fn free_locks(timer: &Timer) {
    let mut machine = Machine::new();
    let sessions = open(&mut machine, COMMANDS);
    let mut number = 0;
    timer.measure("machine/acquire+release of a free lock", COMMANDS, |rounds| {
        (0..rounds).map(|_| pairs(&mut machine, &sessions, &mut number)).sum()
    });
}

fn pairs(machine: &mut Machine, sessions: &[SessionId], number: &mut u64) -> Duration {
    *number += 2;
    let (first, second) = (*number - 1, *number);
    let asked = sessions.iter().zip(0..).map(|(session, lock)| acquire(*session, first, &name(lock)));
    let (granted, acquiring) = timed(machine, &entry(0, asked));
    let held = sessions.iter().zip(0..).zip(&granted.commands);
    let given = held.map(|((session, lock), reply)| release(*session, second, &name(lock), token(&reply.outcome)));
    acquiring + timed(machine, &entry(0, given)).1
}

/// Measures a release that passes a lock to the first waiter of a full queue. The next request of the releasing session
/// is not timed.
pub(crate) fn hand_over(timer: &Timer) {
    let mut machine = Machine::new();
    let sessions = open(&mut machine, COMMANDS);
    let queue = sessions.iter().map(|session| acquire(*session, 1, &name(0)));
    let mut holding = token(&apply(&mut machine, &entry(0, queue)).commands[0].outcome);
    let (mut at, mut number) = (0, 1);
    timer.measure("machine/hand-over in a queue", 1, |rounds| {
        let mut spent = Duration::ZERO;
        for _ in 0..rounds {
            let session = sessions[at];
            number += 2;
            let given = entry(0, [release(session, number - 1, &name(0), holding)]);
            let (passed, took) = timed(&mut machine, &given);
            spent += took;
            holding = passed_on(&passed);
            apply(&mut machine, &entry(0, [acquire(session, number, &name(0))]));
            at = (at + 1) % sessions.len();
        }
        spent
    });
}

fn passed_on(applied: &Applied) -> FencingToken {
    let mut granted = applied.events.iter().filter(|event| matches!(event.kind, EventKind::Granted { .. }));
    granted.next().and_then(|event| event.subject.token()).expect("the next waiter has the lock")
}

/// Measures sessions that all end in one entry, each with a lock.
pub(crate) fn mass_expiry(timer: &Timer) {
    let mut full = Machine::new();
    let sessions = open(&mut full, ENDING);
    let held = sessions.iter().zip(0..).map(|(session, lock)| acquire(*session, 1, &name(lock)));
    apply(&mut full, &entry(0, held));
    let end = entry(TTL_MS + 1, [Command::Tick]);
    timer.measure("machine/sessions that end with a lock", ENDING, |rounds| {
        let ended = |_| {
            let mut machine = full.clone();
            let begun = Instant::now();
            while machine.totals().sessions != 0 {
                apply(&mut machine, &end);
            }
            begun.elapsed()
        };
        (0..rounds).map(ended).sum()
    });
}

pub(crate) fn timed(machine: &mut Machine, entry: &Entry) -> (Applied, Duration) {
    let began = Instant::now();
    let applied = apply(machine, entry);
    (applied, began.elapsed())
}
