//! The end of a run: everybody comes to an end, and what was written down is judged.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::checker::check;
use crate::clients::Caller;
use crate::clock::newest;
use crate::invariants::{self, Evidence, coverage, progress};
use crate::run::NODES;
use crate::world::World;

/// The process of a run ends with this code where something was broken.
const BROKEN: i32 = 3;
/// After the last fault the cluster serves within so long: a failover, the longest wait for a lost connection, a
/// session that must expire first.
const SERVES: Duration = Duration::from_secs(12);
/// After that everybody who stops has come to an end within so long.
const DRAINS: Duration = Duration::from_secs(30);

/// A moment of simulated time takes no longer than this, however busy the machine is.
const STANDSTILL: Duration = Duration::from_secs(100);

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Panics are written down from now on.
pub(crate) fn catch_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
        before(info);
    }));
}

/// Ends a run in which simulated time stands still: somewhere a loop turns without ever waiting, or a thread is blocked.
pub(crate) fn watch_over_time() {
    std::thread::spawn(|| {
        let mut before = newest();
        loop {
            std::thread::sleep(STANDSTILL);
            let now = newest();
            if now == before {
                println!("BROKEN {}: something turns without ever waiting, or blocks its thread", progress::NAME);
                println!("  simulated time stands still at {now:?}");
                std::process::exit(BROKEN);
            }
            before = now;
        }
    });
}

/// After the last fault: the cluster serves again, clients end, and the nodes come to one state.
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
        world.run.found(progress::NAME, format!("not at rest within {DRAINS:?}; the nodes told the end: {saw:?}"));
    }
    // What nobody waits for, such as the news of what is committed, arrives.
    world.pass(Duration::from_secs(1));
}

/// Waits until nobody holds or waits, and marks the end by a session.
async fn end_it(caller: Caller) {
    let client = caller.connect();
    loop {
        match client.totals().await {
            Ok(totals) if totals.value.holders == 0 && totals.value.waiters == 0 && totals.value.sessions == 0 => break,
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => caller.run.met("totals", &error),
        }
    }
    loop {
        match client.session().open().await {
            Ok(last) => {
                caller.run.notes().marker = Some(last.id());
                if let Err(error) = last.close().await {
                    caller.run.met("the last close", &error);
                }
                return;
            }
            Err(error) => caller.run.met("the last session", &error),
        }
    }
}

/// Judges the run, says what came of it, and ends the process.
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
        world.deeds
    );
    let mut sound = true;
    for invariant in invariants::ALL {
        let broken = (invariant.broken)(&evidence);
        let Some(first) = broken.first() else { continue };
        // A planted bug may well keep a story from getting on: what it covered says nothing then.
        if invariant.name == coverage::NAME && !sound {
            continue;
        }
        sound = false;
        println!("BROKEN {}: {}", invariant.name, invariant.sentence);
        println!("  {} times; the first: {first}", broken.len());
    }
    std::process::exit(if sound { 0 } else { BROKEN });
}
