//! Tests what a node measures: the sizes, in random scenarios, and the waits that hand-overs end.

use super::costs::acquire;
use super::cycles::open;
use super::mirror::{Watched, entry};
use super::random::Scenario;
use crate::machine::{Machine, NamespaceSizes};
use crate::model::{Command, FencingToken, LockKey, LockName, Manage, Managing, Namespace, OpenSession, SessionId};

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

/// A hand-over to a session that waits ends its wait, and the results of the entry have its length. A hand-over to a
/// session that does not wait ends no wait.
#[test]
fn a_hand_over_reports_the_wait_that_it_ends() {
    let mut machine = Machine::new();
    let accepting = |number| {
        let Command::OpenSession(open) = open(number) else { panic!("an open") };
        Command::OpenSession(OpenSession { accepts_hand_over: true, ..open })
    };
    let commands = vec![accepting(1), accepting(2), acquire(1, 1, "a", None), acquire(2, 1, "a", None)];
    machine.apply(1, &entry(0, vec![], commands));
    let mut hand_over = |stamp, token, to| {
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("a").expect("legal") };
        let what = Managing::HandOver { token: FencingToken::new(0, token), to: SessionId::new(0, to) };
        let index = machine.applied() + 1;
        machine.apply(index, &entry(stamp, vec![], vec![Command::Manage(Manage { lock, what })])).handed_over
    };
    assert_eq!(hand_over(700, 1, 2), [Some(700)]);
    assert_eq!(hand_over(900, 2, 1), [None::<u64>]);
}
