//! A data directory is restored from an older copy, so its log lacks entries that the node has acknowledged. If this
//! happens to one follower, it stops and the others serve. If it happens to both followers, both stop and the cluster
//! does not serve. After their newest directories are restored, the cluster continues.

use std::time::Duration;

use lockkeeper::storage::{MemoryDisk, Wal};

use super::end_of_scenario;
use crate::invariants::{as_documented, coverage};
use crate::run::NODES;
use crate::world::World;

pub(super) fn of_one(world: &mut World) {
    run(world, 1);
}

pub(super) fn of_two(world: &mut World) {
    run(world, 2);
}

fn run(world: &mut World, count: usize) {
    let leader = world.await_leader();
    (0..2).for_each(|client| world.add_contender(client));
    world.pass(Duration::from_millis(300));
    let victims: Vec<usize> = (0..NODES).filter(|node| *node != leader).take(count).collect();
    let disks: Vec<_> = victims.iter().map(|node| world.places[*node].disk.clone()).collect();
    let older: Vec<_> = disks.iter().map(|disk| disk.copy()).collect();
    world.pass(Duration::from_millis(500));
    let newest: Vec<_> = disks.iter().map(|disk| disk.copy()).collect();
    if newest.iter().zip(&older).any(|(newest, older)| newest.wal.synced() == older.wal.synced()) {
        world.run.found(coverage::NAME, "an older copy lacks nothing".to_owned());
    }
    for (node, copy) in victims.iter().zip(&older) {
        restore(world, *node, copy);
    }
    world
        .must("those with older copies stop", Duration::from_secs(5), |world| count <= world.run.notes().stopped.len());
    let reasons = std::mem::take(&mut world.run.notes().stopped);
    if !reasons.iter().all(|why| why.contains("its data directory is an older copy")) {
        world.run.found(as_documented::NAME, format!("the nodes stopped for another reason: {reasons:?}"));
    }
    let granted = world.run.notes().granted;
    let leaders = world.run.notes().leaders.len();
    let patience = if count == 1 { Duration::from_secs(5) } else { Duration::from_millis(700) };
    let serves = world.until(patience, |world| granted + 3 < world.run.notes().granted);
    if serves != (count == 1) {
        world.run.found(
            as_documented::NAME,
            format!("{count} followers stopped, and whether the cluster serves is {serves}"),
        );
    }
    if leaders != 1 {
        world
            .run
            .found(as_documented::NAME, format!("{leaders} leaders: a node with a short log was elected or voted"));
    }
    for (node, copy) in victims.iter().zip(&newest) {
        restore(world, *node, copy);
    }
    end_of_scenario(world);
}

fn restore(world: &mut World, node: usize, copy: &MemoryDisk) {
    world.crash(node);
    world.places[node].disk.restore(copy);
    world.restart(node);
}
