//! Tests the query that the proposer makes before it delays an acquire: whether the acquire would only join the queue.

use super::mirror::{Watched, entry};
use super::random::Scenario;
use crate::model::{Command, EventKind, Outcome};

const SCENARIOS: u64 = 60;
const ENTRIES: usize = 300;

/// In random scenarios, an acquire that would queue according to the query is never granted at once. One that would
/// queue behind others would also queue.
#[test]
fn an_acquire_that_would_queue_is_not_granted() {
    let (mut queued, mut behind) = (0, 0);
    for seed in 4_000..4_000 + SCENARIOS {
        let (mut scenario, mut watched) = (Scenario::new(seed), Watched::default());
        for _ in 0..ENTRIES {
            let mut drawn = scenario.entry(watched.machine.next_deadline());
            let commands = std::mem::take(&mut drawn.commands);
            let applied = watched.apply(&drawn);
            scenario.learn(&drawn, &applied);
            for submission in commands {
                let one = entry(drawn.stamp.0, vec![], vec![submission.command]);
                let (queues, queues_behind) = if let Command::Acquire(acquire) = &one.commands[0].command {
                    (watched.machine.would_queue(acquire, false), watched.machine.would_queue(acquire, true))
                } else {
                    (false, false)
                };
                assert!(queues || !queues_behind, "scenario {seed}: {one:?}");
                let applied = watched.apply(&one);
                scenario.learn(&one, &applied);
                if !queues {
                    continue;
                }
                let granted = applied.events.iter().any(|event| matches!(event.kind, EventKind::Granted { .. }));
                assert!(!granted, "scenario {seed}: {one:?} came to {applied:?}");
                if matches!(applied.commands[0].outcome, Outcome::Queued(_)) {
                    queued += 1;
                    behind += usize::from(queues_behind);
                }
            }
        }
    }
    assert!(500 < queued && 100 < behind && behind < queued, "{queued} queued, {behind} of them behind others");
}
