//! Power fails during the installation of a snapshot, at different times. After the next start, the node has the state
//! from before the installation or that of the snapshot, and nothing in between.

use std::time::Duration;

use super::{end_of_scenario, throw_away_logs};
use crate::invariants::coverage;
use crate::run::NODES;
use crate::world::World;

/// Milliseconds from the end of the partition to the power failure.
const MOMENTS: [u64; 4] = [12, 30, 45, 70];

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    (0..2).for_each(|client| world.add_contender(client));
    let (late, third) = ((leader + 1) % NODES, (leader + 2) % NODES);
    let mut cut_short = 0;
    for moment in MOMENTS {
        world.cut_from_peers(late);
        throw_away_logs(world, &[leader, third], late);
        let installs = world.run.notes().installs;
        // The installation waits for the disk, and continues when the disk does.
        world.stall(late, true);
        world.repair_with_peers(late);
        world.pass(Duration::from_millis(moment));
        world.stall(late, false);
        world.pass(Duration::from_millis(moment % 4));
        cut_short += usize::from(world.run.notes().installs == installs);
        world.crash(late);
        world.pass(Duration::from_millis(20));
        world.restart(late);
        world.must("a snapshot", Duration::from_secs(8), |world| installs < world.run.notes().installs);
    }
    if cut_short == 0 {
        world.run.found(coverage::NAME, "every install was finished before the power cut".to_owned());
    }
    end_of_scenario(world);
}
