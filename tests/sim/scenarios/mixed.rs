//! Clients contend during faults. First there are all kinds of fault, one after the other and some concurrently, then
//! none.

use std::sync::Arc;
use std::time::Duration;

use crate::clients::CLIENT_HOSTS;
use crate::injected;
use crate::invariants::coverage;
use crate::nodes::Order;
use crate::run::{NODE_HOSTS, NODES};
use crate::settle::settle;
use crate::world::World;

/// Number of contending clients; the last host is reserved for the driver.
const CLIENTS: usize = 4;
const FAULT_TIME: Duration = Duration::from_secs(10);
/// Number of node crashes in every run.
const CRASHES: usize = 3;

/// The action that ends a fault.
#[derive(Debug, Clone)]
enum Remedy {
    Restart(usize),
    Join(Vec<(&'static str, &'static str)>),
    Release(&'static str, &'static str),
    Unstall(usize),
    /// Nothing needs to be done.
    ClockResumes,
}

/// Faults that every run injects before the random ones.
const FIRST: [u64; 11] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12];

/// Kinds of fault that must take effect in every run, and their numbers in [`inject`].
const EFFECTIVE: [(injected::Kind, u64); 5] = [
    (injected::NODES_APART, 2),
    (injected::ONE_WAY, 3),
    (injected::HELD, 4),
    (injected::FAR_BEHIND, 8),
    (injected::NODE_CLOCK_STANDS, 12),
];
/// How often such a fault is injected again.
const INJECTIONS_MAX: usize = 5;

pub(super) fn run(world: &mut World) {
    for client in 0..CLIENTS {
        world.add_contender(client);
    }
    world.add_looker(CLIENTS + 1);
    world.await_leader();
    world.pass(Duration::from_millis(300));
    let mut remedies: Vec<(Duration, Remedy)> = Vec::new();
    let mut first = FIRST.to_vec();
    let end = world.now() + FAULT_TIME;
    while world.now() < end || !first.is_empty() {
        let pause = world.random.ms(200, 1_200);
        pass(world, &mut remedies, pause);
        let kind = if first.is_empty() {
            world.random.below(13)
        } else {
            let next = world.random.below(first.len() as u64) as usize;
            first.swap_remove(next)
        };
        inject(world, kind, &mut remedies);
    }
    all_ended(world, &mut remedies);
    // A crash of a node that was not running does not count.
    while world.actions.crashes < CRASHES {
        inject(world, 0, &mut remedies);
        all_ended(world, &mut remedies);
    }
    all_take_effect(world, &mut remedies);
    one_expires(world);
    world.healed = world.now();
    settle(world, CLIENTS);
    cover(world);
}

/// Repeats the faults of these kinds that had no effect, because a node may have been down at the random time.
fn all_take_effect(world: &mut World, remedies: &mut Vec<(Duration, Remedy)>) {
    for (kind, nth) in EFFECTIVE {
        for _ in 0..INJECTIONS_MAX {
            world.look_at_clocks();
            if world.run.notes().injected.counts().get(kind).is_none_or(|(_, effective)| 0 < *effective) {
                break;
            }
            inject(world, nth, remedies);
            all_ended(world, remedies);
        }
    }
}

/// Runs until all faults have ended.
fn all_ended(world: &mut World, remedies: &mut Vec<(Duration, Remedy)>) {
    while !remedies.is_empty() {
        pass(world, remedies, Duration::from_millis(10));
    }
}

/// Runs for this time, and ends the faults that are due.
fn pass(world: &mut World, remedies: &mut Vec<(Duration, Remedy)>, time: Duration) {
    let until = world.now() + time;
    while world.now() < until {
        world.step();
        let now = world.now();
        while let Some(due) = remedies.iter().position(|(at, _)| *at <= now) {
            let (_, remedy) = remedies.remove(due);
            undo(world, remedy);
        }
    }
}

fn undo(world: &mut World, remedy: Remedy) {
    match remedy {
        Remedy::Restart(node) => world.restart(node),
        Remedy::Join(pairs) => pairs.into_iter().for_each(|(one, other)| world.repair(one, other)),
        Remedy::Release(one, other) => world.release(one, other),
        Remedy::Unstall(node) => world.stall(node, false),
        Remedy::ClockResumes => {}
    }
}

/// Injects a fault of this kind, into the leader more often than into other nodes.
fn inject(world: &mut World, kind: u64, remedies: &mut Vec<(Duration, Remedy)>) {
    let leader = world.leader().unwrap_or_else(|| world.random.below(NODES as u64) as usize);
    let other = (leader + 1 + world.random.below(NODES as u64 - 1) as usize) % NODES;
    let victim = if world.random.below(100) < 60 { leader } else { other };
    let short = world.now() + world.random.ms(100, 600);
    let long = world.now() + world.random.ms(500, 2_000);
    let client = CLIENT_HOSTS[world.random.below(CLIENTS as u64) as usize];
    match kind {
        0 => crash(world, &[victim], short, remedies),
        1 => crash(world, &[leader, other], short, remedies),
        2 => {
            // Partitioned from the other nodes, but not from its clients.
            world.cut_from_peers(leader);
            remedies.push((long, Remedy::Join(peers_of(leader))));
        }
        3 => {
            let (from, to) = if world.random.below(2) == 0 { (leader, other) } else { (other, leader) };
            world.cut_one_way(NODE_HOSTS[from], NODE_HOSTS[to]);
            remedies.push((long, Remedy::Join(vec![(NODE_HOSTS[from], NODE_HOSTS[to])])));
        }
        4 => {
            world.hold(NODE_HOSTS[leader], NODE_HOSTS[other]);
            remedies.push((short, Remedy::Release(NODE_HOSTS[leader], NODE_HOSTS[other])));
        }
        5 => {
            world.stall(victim, true);
            remedies.push((short, Remedy::Unstall(victim)));
        }
        6 => {
            world.order(leader, Order::HandOver);
        }
        7 => {
            // Longer than the TTL of the client's sessions.
            let pairs: Vec<_> = NODE_HOSTS.iter().map(|node| (client, *node)).collect();
            pairs.iter().for_each(|(client, node)| world.cut(client, node));
            remedies.push((world.now() + world.random.ms(2_000, 2_800), Remedy::Join(pairs)));
        }
        8 => far_behind(world, other, remedies),
        9 => crash(world, &[0, 1, 2], short, remedies),
        10 => clocks(world),
        11 => world.order(victim, Order::WriteSnapshot),
        _ => node_clocks(world, leader, other, remedies),
    }
}

fn peers_of(node: usize) -> Vec<(&'static str, &'static str)> {
    let others = (0..NODES).filter(|other| *other != node);
    others.map(|other| (NODE_HOSTS[node], NODE_HOSTS[other])).collect()
}

fn crash(world: &mut World, nodes: &[usize], until: Duration, remedies: &mut Vec<(Duration, Remedy)>) {
    for node in nodes {
        let waits = remedies.iter().any(|(_, remedy)| matches!(remedy, Remedy::Restart(down) if down == node));
        if !waits {
            world.stall(*node, true);
        }
    }
    // Entries that are written during this time are lost.
    world.until(Duration::from_millis(300), |world| {
        nodes.iter().any(|node| {
            let (last, synced) = world.log_of(*node);
            synced < last
        })
    });
    for node in nodes {
        let waits = remedies.iter().any(|(_, remedy)| matches!(remedy, Remedy::Restart(down) if down == node));
        if !waits {
            // Every second node loses only its process.
            if world.actions.crashes.is_multiple_of(2) {
                world.kill(*node);
            } else {
                world.crash(*node);
            }
            remedies.push((until, Remedy::Restart(*node)));
        }
    }
}

/// Partitions a follower until the others have purged the log that it lacks.
fn far_behind(world: &mut World, node: usize, remedies: &mut Vec<(Duration, Remedy)>) {
    world.run.notes().injected.tried(injected::FAR_BEHIND);
    world.cut_from_peers(node);
    let others = (0..NODES).filter(|other| *other != node);
    stays_apart(node, remedies);
    // Another fault may deprive the others of a quorum for some time. All such faults end within this limit.
    let limit = world.now() + Duration::from_secs(8);
    while world.now() < limit && !others.clone().all(|other| world.log_of(node).0 < world.purged_of(other)) {
        others.clone().for_each(|other| world.order(other, Order::WriteSnapshot));
        pass(world, remedies, Duration::from_millis(200));
    }
    remedies.push((world.now(), Remedy::Join(peers_of(node))));
}

/// Makes sure that a session expires. If elections stopped log time whenever a client was partitioned, none has expired
/// yet. Then a client is partitioned until one has.
fn one_expires(world: &mut World) {
    let none = |world: &World| world.run.notes().expired.is_empty();
    if !none(world) {
        return;
    }
    NODE_HOSTS.iter().for_each(|node| world.cut(CLIENT_HOSTS[0], node));
    world.until(Duration::from_secs(10), |world| !none(world));
    NODE_HOSTS.iter().for_each(|node| world.repair(CLIENT_HOSTS[0], node));
}

/// Removes this node from the partitions that other remedies end, so that it remains partitioned and does not catch up.
fn stays_apart(node: usize, remedies: &mut [(Duration, Remedy)]) {
    let at = NODE_HOSTS[node];
    let of_peers = |(one, other): &(&str, &str)| NODE_HOSTS.contains(one) && [*one, *other].contains(&at);
    for (_, remedy) in remedies {
        if let Remedy::Join(pairs) = remedy {
            pairs.retain(|pair| !of_peers(pair));
        }
    }
}

/// Changes wall clocks, and moves the clock of a client forward.
fn clocks(world: &mut World) {
    let forward = world.random.below(2) == 0;
    let node = Arc::clone(&world.places[world.random.below(NODES as u64) as usize].clock);
    world.set_clock(injected::WALL_CLOCK, &node, |clock| clock.set_wall(forward));
    let (client, slept) = (world.random.below(CLIENTS as u64) as usize, world.random.ms(100, 3_000));
    let client = Arc::clone(&world.clocks[client]);
    world.set_clock(injected::CLIENT_CLOCK, &client, |clock| {
        clock.set_wall(!forward);
        clock.jump(slept);
    });
}

/// Stops the clock of the leader for a while, like that of a suspended machine, and moves the clock of a follower
/// forward, like that of a migrated machine. (A jump of the leader's clock has its own scenario.)
fn node_clocks(world: &mut World, leader: usize, other: usize, remedies: &mut Vec<(Duration, Remedy)>) {
    let (slept, jumped) = (world.random.ms(100, 2_000), world.random.ms(1_000, 60_000));
    let [leader, other] = [leader, other].map(|node| Arc::clone(&world.places[node].clock));
    world.set_clock(injected::NODE_CLOCK_STANDS, &leader, |clock| clock.stand_still(slept));
    world.set_clock(injected::NODE_CLOCK, &other, |clock| clock.jump(jumped));
    remedies.push((world.now() + slept, Remedy::ClockResumes));
}

/// Checks what a run of this scenario must have covered.
fn cover(world: &mut World) {
    let (granted, leaders, installs, expired) = {
        let notes = world.run.notes();
        (notes.granted, notes.leaders.len(), notes.installs, notes.expired.len())
    };
    let asked = [
        ("grants", granted, 60),
        ("new leaders", leaders, 3),
        ("snapshots installed", installs, 1),
        ("sessions that expired", expired, 1),
        ("crashes", world.actions.crashes, CRASHES),
        ("entries lost in crashes", world.actions.entries_lost as usize, 1),
    ];
    world.look_at_clocks();
    let counts = world.run.notes().injected.counts();
    let words: Vec<String> =
        counts.iter().map(|(kind, (tried, effective))| format!("{kind}={tried}/{effective}")).collect();
    println!("FAULTS {}", words.join(" "));
    // Other kinds may have no effect in one run. All runs together must have effects of all kinds.
    for (kind, _) in EFFECTIVE {
        if let Some((tried, 0)) = counts.get(kind) {
            world.run.found(coverage::NAME, format!("{kind}: injected {tried} times without effect"));
        }
    }
    for (what, found, least) in asked {
        if found < least {
            world.run.found(coverage::NAME, format!("{found} {what}, and at least {least} should be"));
        }
    }
}
