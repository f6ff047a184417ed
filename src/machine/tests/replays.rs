//! Compares the replay with the naive model: both must agree about every owner in every state of random scenarios.

use std::collections::BTreeMap;

use super::cycles::{COMMANDS_A_SCENARIO, SESSIONS, Scenario, open, set_limit, waiting_all_the_same};
use super::mirror::entry;
use super::naive::Naive;
use super::random::Random;
use crate::machine::Machine;
use crate::machine::cycle::Search;
use crate::model::*;
use crate::state::OwnerKey;

const SCENARIOS: u64 = 150;
/// The number of the first scenario of this test.
const FIRST: u64 = 1_000_000;

/// The cycle of an owner, found by a replay of everything that it depends on.
fn cycle_of(machine: &Machine, owner: &OwnerKey) -> Option<Vec<DeadlockLink>> {
    let mut steps = usize::MAX;
    let replay = machine.replay([owner], &mut steps).expect("there are enough steps");
    let cycle = Search::of(&replay, steps).cycle(replay.known(owner)?);
    assert!(cycle.is_none() || machine.cycle_is_possible(owner, &mut usize::MAX.clone()), "{owner:?} is in {cycle:#?}");
    cycle
}

/// After every command of a scenario and for every owner, the naive model agrees with a replay for that owner alone and
/// with a replay for all owners. Each reported cycle exists in the naive model. In half of the scenarios, requests wait
/// even in cycles, so that cycles remain. `LOCKKEEPER_REPLAYS` sets another number of scenarios, and
/// `LOCKKEEPER_REPLAYS_FIRST` the first one.
#[test]
fn a_replay_and_the_naive_model_agree() {
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (wanted, first) = (set("LOCKKEEPER_REPLAYS"), set("LOCKKEEPER_REPLAYS_FIRST").unwrap_or(FIRST));
    let (mut compared, mut cycles, mut reasons) = (0_u64, 0_u64, BTreeMap::new());
    for seed in first..first + wanted.unwrap_or(SCENARIOS) {
        let (mut machine, mut naive) = (Machine::new(), Naive::default());
        let (mut scenario, mut random) = (Scenario::new(seed), Random(seed ^ 0xACE));
        let opens = entry(0, vec![], (1..=SESSIONS).map(open).chain([set_limit(3)]).collect());
        machine.apply(1, &opens);
        naive.apply(&opens);
        for at in 0..COMMANDS_A_SCENARIO {
            let command = scenario.command(&machine);
            let waits = Some(()).filter(|()| seed % 2 == 1 && random.below(2) == 0);
            let command = waits.and_then(|()| waiting_all_the_same(&command)).unwrap_or(command);
            let entry = entry(scenario.stamp(at), vec![], vec![command]);
            machine.apply(machine.applied() + 1, &entry);
            naive.apply(&entry);
            let mut owners: Vec<OwnerKey> = machine.state.index.owners.keys().cloned().collect();
            owners.sort();
            let mut steps = usize::MAX;
            let together = machine.replay(&owners, &mut steps).expect("there are enough steps");
            let mut search = Search::of(&together, steps);
            let expected = naive.in_cycles();
            for owner in &owners {
                let alone = cycle_of(&machine, owner);
                let of_all = search.cycle(together.known(owner).expect("it is part of it"));
                let is = expected.contains(owner);
                let answers = (alone.is_some(), of_all.is_some());
                assert_eq!(answers, (is, is), "scenario {seed}, {at}: {owner:?}: {alone:#?}");
                for cycle in alone.iter().chain(&of_all) {
                    assert!(naive.is_way_round(cycle), "scenario {seed}, {at}: {owner:?}: {cycle:#?}");
                    cycle.iter().for_each(|link| *reasons.entry(link.why.to_string()).or_insert(0) += 1);
                }
                compared += 1;
                cycles += u64::from(is);
            }
        }
    }
    println!("{compared} compared, {cycles} in a cycle, of links {reasons:?}");
    assert!(wanted.is_some() || compared / 500 < cycles, "too rare: {cycles} of {compared}");
}
