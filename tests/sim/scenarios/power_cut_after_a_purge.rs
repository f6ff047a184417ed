//! All nodes purge their logs up to a snapshot file, and then power fails on all of them at once. A hold whose grant is
//! in no log any more is still there afterwards.

use std::time::Duration;

use super::{end_of_scenario, holds_in, opened};
use crate::checker::Belief;
use crate::invariants::{as_documented, coverage};
use crate::nodes::Order;
use crate::run::NODES;
use crate::world::World;

/// How long the client holds, which is longer than the purge, the power cut and the next election take.
const HELD: Duration = Duration::from_secs(8);

pub(super) fn run(world: &mut World) {
    world.await_leader();
    let holds = world.add_client(0, |caller| async move {
        let connection = caller.connect();
        let session = opened(&caller, || connection.session().ttl(3 * HELD)).await;
        holds_in(caller, session, "gate", HELD).await;
    });
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    let granted_by = (0..NODES).map(|node| world.log_of(node).0).max().unwrap_or_default();
    (1..3).for_each(|client| world.add_contender(client));
    world.must("logs without the grant", HELD, |world| {
        if world.now().as_millis().is_multiple_of(200) {
            (0..NODES).for_each(|node| world.order(node, Order::WriteSnapshot));
        }
        (0..NODES).all(|node| granted_by < world.purged_of(node))
    });
    // The purges become durable, and the nodes report every event that their snapshot files cover.
    world.pass(Duration::from_millis(50));
    if holds.is_done() {
        world.run.found(coverage::NAME, "the hold ended before the power cut".to_owned());
    }
    (0..NODES).for_each(|node| world.crash(node));
    (0..NODES).for_each(|node| world.restart(node));
    world.must("the end of the hold", 2 * HELD, |_| holds.is_done());
    let whole = |belief: &Belief| belief.client == 0 && HELD <= belief.end - belief.begin;
    let kept = world.run.notes().history.beliefs.iter().any(whole);
    if !kept {
        world.run.found(as_documented::NAME, "the hold was lost in the power cut".to_owned());
    }
    end_of_scenario(world);
}
