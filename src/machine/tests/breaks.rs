//! A dry run of a break is a query: it reports what the break would do, and changes nothing.

use super::mirror::{Watched, entry};
use super::random::Scenario;
use crate::model::{Command, Manage, Managing, Outcome, Query, QueryResult};

const SCENARIOS: u64 = 40;
const ENTRIES: usize = 300;

/// In random scenarios, the answer to a dry run equals the outcome of the break right after it, except for the field
/// that says whether the break was done. A waiter that it names as next waits no longer after the break.
#[test]
fn a_dry_run_reports_what_the_break_does() {
    let (mut broken, mut refused, mut passed_on) = (0, 0, 0);
    for seed in 5_000..5_000 + SCENARIOS {
        let (mut scenario, mut watched) = (Scenario::new(seed), Watched::default());
        for _ in 0..ENTRIES {
            let mut drawn = scenario.entry(watched.machine.next_deadline());
            let commands = std::mem::take(&mut drawn.commands);
            let applied = watched.apply(&drawn);
            scenario.learn(&drawn, &applied);
            for submission in commands {
                let one = entry(drawn.stamp.0, vec![], vec![submission.command]);
                let mut answered = None;
                if let Command::Manage(Manage { lock, what: Managing::BreakHold { token, .. } }) =
                    &one.commands[0].command
                {
                    let query = Query::WouldBreak { lock: lock.clone(), token: *token };
                    answered = Some((lock.clone(), watched.machine.query(&query).answer));
                }
                let due = watched.machine.is_due();
                let applied = watched.apply(&one);
                scenario.learn(&one, &applied);
                // Holds that the sweep left past their deadline end before the break, so the answer may differ.
                let Some((lock, answered)) = answered.filter(|_| !due) else { continue };
                let QueryResult::WouldBreak(mut answered) = answered else { panic!("scenario {seed}: another answer") };
                if let Outcome::Broken(report) = &mut answered {
                    if let Some(next) = &report.next {
                        let QueryResult::Lock(view) = watched.machine.query(&Query::Inspect { lock }).answer else {
                            panic!("scenario {seed}: no lock")
                        };
                        let waits = view.waiters.iter().any(|waiter| waiter.sequence == next.sequence);
                        assert!(!waits, "scenario {seed}: {next:?} waits after {one:?}");
                        passed_on += 1;
                    }
                    assert!(!report.done, "scenario {seed}: {one:?}");
                    report.done = true;
                    broken += 1;
                } else {
                    refused += 1;
                }
                assert_eq!(applied.commands[0].outcome, answered, "scenario {seed}: {one:?}");
            }
        }
    }
    assert!(50 < broken && 50 < refused && 0 < passed_on, "{broken} broken, {refused} refused, {passed_on} passed on");
}
