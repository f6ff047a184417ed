//! Tests the sizes that a node measures, in random scenarios.

use super::mirror::Watched;
use super::random::Scenario;
use crate::machine::{Machine, NamespaceSizes};
use crate::model::Namespace;

/// The longest wait of each lock, found among all its waiters.
fn longest(machine: &Machine) -> Vec<(Namespace, u64)> {
    let now = machine.now();
    let waits = machine.state.locks.iter().filter_map(|(key, lock)| {
        let longest = lock.queue.values().map(|waiter| now.ms_since(waiter.since)).max()?;
        Some((key.namespace.clone(), longest))
    });
    waits.collect()
}

/// The sizes of all namespaces add up to the totals, and the longest wait of each lock is that of its oldest waiter,
/// also if the state is looked at in small parts.
#[test]
fn parts_add_up_to_the_whole() {
    let (mut namespaces, mut waiting) = (0, 0);
    for seed in 9_000..9_020 {
        let (mut scenario, mut watched) = (Scenario::new(seed), Watched::default());
        for _ in 0..200 {
            let next = scenario.entry(watched.machine.next_deadline());
            let applied = watched.apply(&next);
            scenario.learn(&next, &applied);
            let machine = &watched.machine;
            let (mut sum, mut after) = (NamespaceSizes::default(), None);
            while let Some((namespace, sizes)) = machine.sizes_after(after.as_ref(), 1).pop() {
                assert!(sizes.used.iter().all(|used| (0.0..=1.0).contains(used)), "{sizes:?}");
                sum.add(&sizes);
                after = Some(namespace);
                namespaces += 1;
            }
            let totals = machine.totals();
            let expected = (totals.sessions, totals.locks, totals.holders, totals.waiters);
            assert_eq!((sum.sessions, sum.locks, sum.holders, sum.waiters), expected, "scenario {seed}");
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let waits = machine.waits_after(after.as_ref(), 2);
                found.extend(waits.longest);
                after = waits.more_after;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, longest(machine), "scenario {seed}");
            waiting += found.len();
        }
    }
    assert!(4_000 < namespaces && 1_000 < waiting, "{namespaces} namespaces, {waiting} locks with waiters");
}
