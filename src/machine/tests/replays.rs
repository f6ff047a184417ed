//! The replay, against the search that it replaces: both say the same of every owner, in every state of random stories.

use super::circles::{COMMANDS_A_STORY, SESSIONS, Story, open, set_limit, waiting_all_the_same};
use super::mirror::entry;
use super::random::Random;
use crate::machine::Machine;
use crate::machine::cycle::Search;
use crate::machine::owners::{OwnerKey, endless_hold};
use crate::machine::state::Purpose;
use crate::model::*;

const STORIES: u64 = 300;
/// The stories of this test begin here.
const FIRST: u64 = 1_000_000;

/// Whether an owner is in a cycle, by a replay of what it depends on.
fn in_cycle(machine: &Machine, owner: &OwnerKey) -> Option<Vec<CircleLink>> {
    let mut steps = usize::MAX;
    let replay = machine.replay([owner], &mut steps).expect("there are enough steps");
    let number = replay.known(owner)?;
    Search::of(&replay, steps).cycle(number)
}

/// Whether the older search means the same by a claim that ends by itself: it takes an upgrade of a leased hold and a nested
/// run that is leased for endless, and what a wait for a leased hold keeps.
fn is_comparable(machine: &Machine) -> bool {
    machine.locks.values().all(|lock| {
        let holders = lock.holders.values().all(|holder| {
            let nested = holder.extras.as_ref().is_some_and(|extras| extras.parent.is_some());
            endless_hold(holder).is_some() || holder.owner.is_none() || !nested
        });
        let waiters = lock.queue.values().all(|waiter| {
            let upgrade = matches!(waiter.purpose, Purpose::Upgrade(_));
            let endless = lock.endless_wait(waiter).is_some();
            waiter.owner.is_none()
                || (!waiter.is_leased() && (endless || !upgrade && waiter.choices().parent.is_none()))
        });
        holders && waiters
    })
}

/// After every command of a story, for every owner: the older search without a bound says the same as a replay for that
/// owner alone, and as one for all owners.
#[test]
fn a_replay_and_the_older_search_agree() {
    let wanted = std::env::var("LOCKKEEPER_REPLAYS").ok().and_then(|text| text.parse().ok());
    let (mut compared, mut cycles) = (0_u64, 0_u64);
    for seed in FIRST..FIRST + wanted.unwrap_or(STORIES) {
        let (mut machine, mut story, mut random) = (Machine::new(), Story::new(seed), Random(seed ^ 0xACE));
        let opens = (1..=SESSIONS).map(open).chain([set_limit(3)]).collect();
        machine.apply(1, &entry(0, vec![], opens));
        for at in 0..COMMANDS_A_STORY {
            let command = story.command(&machine);
            let waits = Some(()).filter(|()| seed % 2 == 1 && random.below(2) == 0);
            let command = waits.and_then(|()| waiting_all_the_same(&command)).unwrap_or(command);
            machine.apply(machine.applied() + 1, &entry(story.stamp(at), vec![], vec![command]));
            if !is_comparable(&machine) {
                continue;
            }
            let owners: Vec<OwnerKey> = machine.owners.keys().cloned().collect();
            let mut steps = usize::MAX;
            let together = machine.replay(&owners, &mut steps).expect("there are enough steps");
            let mut search = Search::of(&together, steps);
            for owner in &owners {
                let older = machine.circle_of(owner, &mut usize::MAX.clone()).is_some();
                let alone = in_cycle(&machine, owner);
                let of_all = search.cycle(together.known(owner).expect("it is part of it"));
                let answers = (alone.is_some(), of_all.is_some());
                assert_eq!(answers, (older, older), "story {seed}, {at}: {owner:?}: {alone:#?}");
                compared += 1;
                cycles += u64::from(older);
            }
        }
    }
    println!("{compared} compared, {cycles} in a cycle");
    assert!(compared / 500 < cycles, "too rare: {cycles} of {compared}");
}
