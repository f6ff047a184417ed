//! The end of a run: all clients end, and the records of the run are checked.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::checker::check;
use crate::clients::Caller;
use crate::clock::newest;
use crate::invariants::{self, Evidence, coverage, no_panic, progress};
use crate::run::NODES;
use crate::world::World;

/// Exit code of a run that broke an invariant.
const BROKEN: i32 = 3;
/// Longest time from the last fault until the cluster serves. It covers a failover, the longest wait for a lost
/// connection, and a session that must expire first.
const SERVES: Duration = Duration::from_secs(12);
/// Longest time from the stop until all clients have ended.
const DRAINS: Duration = Duration::from_secs(30);

/// Longest real time for one step of simulated time, even on a busy machine.
const STANDSTILL: Duration = Duration::from_secs(100);

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records panics from now on. The first one may end the run, so it is printed at once, unless the simulation itself
/// panics.
pub(crate) fn catch_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        let of_simulation = info.location().is_some_and(|at| at.file().starts_with("tests"));
        if panics.is_empty() && !of_simulation {
            println!("BROKEN {}: {}", no_panic::NAME, info.to_string().replace('\n', " "));
        }
        panics.push(info.to_string());
        drop(panics);
        before(info);
    }));
}

/// Ends a run whose simulated time does not advance: a loop never waits, or a thread is blocked.
pub(crate) fn watch_over_time() {
    std::thread::spawn(|| {
        let mut before = newest();
        loop {
            std::thread::sleep(STANDSTILL);
            let now = newest();
            if now == before {
                println!("BROKEN {}: a loop never waits, or a thread is blocked", progress::NAME);
                println!("  simulated time does not advance after {now:?}");
                std::process::exit(BROKEN);
            }
            before = now;
        }
    });
}

/// The end after the last fault: the cluster serves again, the clients end, and the nodes reach the same state.
pub(crate) fn settle(world: &mut World, last_client: usize) {
    let granted = world.run.notes().granted;
    let serves = world.until(SERVES, |world| granted + 20 < world.run.notes().granted);
    if !serves {
        world.run.found(progress::NAME, format!("no new grants within {SERVES:?} of the last fault"));
    }
    world.run.stop();
    let closing = world.add_client(last_client, end_it);
    let drained = world.until(DRAINS, |world| closing.is_done() && world.run.notes().saw_marker() == [true; NODES]);
    if !drained {
        let saw = world.run.notes().saw_marker();
        world.run.found(progress::NAME, format!("not at rest within {DRAINS:?}; the nodes reported the end: {saw:?}"));
    }
    // Wait for messages that nothing else waits for, such as commit notices.
    world.pass(Duration::from_secs(1));
}

/// Waits until no client holds or waits, and then marks the end with a session.
async fn end_it(caller: Caller) {
    let client = caller.connect();
    loop {
        match client.totals().await {
            Ok(totals) if totals.value.holders == 0 && totals.value.waiters == 0 && totals.value.sessions == 0 => break,
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => caller.run.note_error("totals", &error),
        }
    }
    loop {
        match client.session().open().await {
            Ok(last) => {
                caller.run.notes().marker = Some(last.id());
                if let Err(error) = last.close().await {
                    caller.run.note_error("the last close", &error);
                }
                return;
            }
            Err(error) => caller.run.note_error("the last session", &error),
        }
    }
}

/// Checks the run, prints its result, and ends the process.
pub(crate) fn end(world: &mut World) -> ! {
    let states = world.places.iter().filter_map(|place| Some(place.node()?.verified())).collect();
    let digest = world.run.digest();
    let notes = world.run.notes();
    let finished = notes.saw_marker() == [true; NODES];
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let evidence = Evidence { notes: &notes, violations: check(&notes.history, finished), states, panics };
    println!(
        "RUN digest={digest:016x} time={:?} grants={} leaders={} expired={} installs={} {:?}",
        world.now(),
        notes.granted,
        notes.leaders.len(),
        notes.expired.len(),
        notes.installs,
        world.actions
    );
    let mut sound = true;
    for invariant in invariants::ALL {
        let broken = (invariant.broken)(&evidence);
        let Some(first) = broken.first() else { continue };
        // A planted bug may prevent a scenario from completing. Coverage is then not checked.
        if invariant.name == coverage::NAME && !sound {
            continue;
        }
        sound = false;
        println!("BROKEN {}: {}", invariant.name, invariant.sentence);
        println!("  {} times; the first: {first}", broken.len());
    }
    std::process::exit(if sound { 0 } else { BROKEN });
}
