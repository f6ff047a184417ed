//! Properties of records: equal logs give equal records, and a machine that is made from records continues like the
//! original.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for two kinds of record")]

use super::mirror::Watched;
use super::random::Scenario;
use crate::machine::Machine;
use crate::state::Record;

const ENTRIES: u64 = 300;

/// Two machines that apply the same entries give the same answers and have equal records after every entry.
#[test]
fn equal_logs_give_equal_records() {
    for seed in 1_000..1_010 {
        let (mut scenario, mut first, mut second) = (Scenario::new(seed), Watched::default(), Machine::new());
        for index in 1..=ENTRIES {
            let entry = scenario.entry(first.machine.next_deadline());
            let applied = first.apply(&entry);
            assert_eq!(applied, second.apply(index, &entry), "scenario {seed}, entry {index}");
            assert!(
                first.machine.state().records().eq(second.state().records()),
                "records of scenario {seed}, entry {index}"
            );
            scenario.learn(&entry, &applied);
        }
    }
}

/// A machine that is restored from its records in the middle of a random scenario gives the same answers and events for
/// the rest of the scenario. So the records contain all deadlines of holds and closed names.
#[test]
fn a_restored_machine_continues_like_the_first() {
    let (mut ending, mut closed, mut recalled) = (0, 0, 0);
    for seed in 2_000..2_010 {
        let (mut scenario, mut first) = (Scenario::new(seed), Watched::default());
        let mut restored = None;
        for index in 1..=ENTRIES {
            let entry = scenario.entry(first.machine.next_deadline());
            let applied = first.apply(&entry);
            if let Some(restored) = &mut restored {
                let machine: &mut Machine = restored;
                assert_eq!(applied, machine.apply(index, &entry), "scenario {seed}, entry {index}");
                assert!(
                    first.machine.state().records().eq(machine.state().records()),
                    "records of scenario {seed}, entry {index}"
                );
            }
            if index % 40 == 0 {
                restored = Some(first.compare_mirror());
                for (_, record) in first.machine.state().records() {
                    match record {
                        Record::Holder(holder) => {
                            ending += usize::from(holder.ends().is_some());
                            recalled += usize::from(holder.is_recalled());
                        }
                        Record::Delay(delayed) => closed += usize::from(delayed.holder.closed_until().is_some()),
                        _ => {}
                    }
                }
            }
            scenario.learn(&entry, &applied);
        }
    }
    assert!(0 < ending && 0 < closed, "{ending} holds with at_most and {closed} names with at_least were restored");
    assert!(0 < recalled, "no recalled hold was restored");
}
