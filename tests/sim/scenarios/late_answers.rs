//! Requests arrive immediately, and their answers arrive late, by a large part of the promised time. Then their client
//! is partitioned. A promise counts from the time of the request, so nothing ends, or is granted to another client,
//! while the client is sure of it.

use std::time::Duration;

use lockkeeper::model::EventKind;
use tokio::time::{sleep, timeout};

use super::{end_of_scenario, holds_as, holds_in, holds_until_lost, opened};
use crate::clients::{CLIENT_HOSTS, Caller};
use crate::clock::truth;
use crate::invariants::coverage;
use crate::run::NODE_HOSTS;
use crate::sure::SessionOrHold;
use crate::world::World;

/// TTL of a session whose lock has no lease.
const TTL: Duration = Duration::from_secs(4);
/// Length of a hold's lease and of a token lease. An answer to a hold's renewal counts if it arrives within a third of
/// it.
const LEASE: Duration = Duration::from_secs(3);
/// TTL of a session that outlives its holds.
const LONG: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(3);
/// Longer than a node takes to send an answer.
const ANSWERED: Duration = Duration::from_millis(20);

/// Late answers for a session, for the lease of a hold and for a token lease.
pub(super) fn of_renewals(world: &mut World) {
    world.await_leader();
    let mut held = Vec::new();
    held.push(world.add_client(0, |caller| async move {
        let connection = caller.connect();
        let (brief, long) = (
            opened(&caller, || connection.session().ttl(TTL)).await,
            opened(&caller, || connection.session().ttl(LONG)).await,
        );
        tokio::join!(
            holds_in(caller.clone(), brief, "red", Duration::MAX),
            holds_as(caller.clone(), long, |session| session.lock("green").lease(LEASE), Duration::MAX),
            refreshes(caller.clone(), "blue"),
        );
    }));
    world.must("the grants", Duration::from_secs(5), |world| world.run.notes().granted == 3);
    for (client, name) in ["red", "green", "blue"].into_iter().enumerate() {
        held.push(world.add_client(client + 1, move |caller| holds_until_lost(caller, name, ANSWERED)));
    }
    let late = world.random.ms(500, 900);
    let whole = world.random.ms(2_000, 4_000);
    answers_late(world, late, whole);
    cut_off(world);
    world.must("the next holders", Duration::from_secs(12), |world| 6 <= world.run.notes().granted);
    heal(world);
    world.must("the end of all", LONG, |_| held.iter().all(|task| task.is_done()));
    let expired = world.run.notes().log().filter(|(_, event)| matches!(event.kind, EventKind::Expired { .. })).count();
    if expired != 3 {
        world.run.found(coverage::NAME, format!("{expired} holds expired instead of three"));
    }
    end_of_scenario(world);
}

/// The disconnect grace of a session whose stream breaks, which only its node detects, while an answer is in transit.
pub(super) fn of_a_broken_stream(world: &mut World) {
    let leader = world.await_leader();
    let holds = world.add_client(0, |caller| async move {
        let connection = caller.connect();
        let session = opened(&caller, || connection.session().ttl(LONG).disconnect_grace(GRACE)).await;
        holds_in(caller, session, "red", Duration::MAX).await;
    });
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    // The client makes an attempt at a third of the grace, and another one if no answer arrives within half of that
    // time.
    let late = world.random.ms(300, 450);
    let whole = world.random.ms(1_000, 3_000);
    answers_late(world, late, whole);
    let before = world.arrivals_at(leader);
    world.must("a renewal", GRACE, |world| before < world.arrivals_at(leader));
    world.pass(ANSWERED);
    world.reset(Some(CLIENT_HOSTS[0]));
    cut_off(world);
    let next = world.add_client(1, |caller| holds_until_lost(caller, "red", ANSWERED));
    world.must("the next holder", 2 * GRACE, |_| next.is_done());
    world.reset(None);
    heal(world);
    world.must("the end of the first", LONG, |_| holds.is_done());
    end_of_scenario(world);
}

/// Delays every answer to the first client from now on, and runs for this time.
fn answers_late(world: &mut World, late: Duration, time: Duration) {
    for node in NODE_HOSTS {
        world.delay(node, CLIENT_HOSTS[0], late);
    }
    world.pass(time);
    if world.run.notes().late_arrivals == 0 {
        world.run.found(coverage::NAME, "no answer was late".to_owned());
    }
}

/// Partitions the first client. Data that has already arrived there is still read, late.
fn cut_off(world: &mut World) {
    for node in NODE_HOSTS {
        world.cut(CLIENT_HOSTS[0], node);
    }
}

fn heal(world: &mut World) {
    for node in NODE_HOSTS {
        world.repair(CLIENT_HOSTS[0], node);
    }
    world.run.notes().late.clear();
}

/// Takes a token lease and refreshes it until it ends.
async fn refreshes(caller: Caller, name: &'static str) {
    let connection = caller.connect();
    let mut lease = loop {
        match connection.lease(name).duration(LEASE).take().await {
            Ok(lease) => break lease,
            Err(error) => caller.run.note_error("take", &error),
        }
    };
    let own = SessionOrHold::Hold(lease.token());
    let mut due = truth() + LEASE / 3;
    while !lease.valid_for().is_zero() {
        caller.sure_of(own, lease.valid_for());
        if due <= truth() {
            due = truth() + LEASE / 3;
            // A refresh that gets no answer is dropped, because the next one may get an answer.
            if let Ok(Err(error)) = timeout(LEASE / 3, lease.refresh()).await {
                caller.run.note_error("refresh", &error);
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
    caller.sure_of(own, Duration::ZERO);
}
