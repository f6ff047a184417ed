//! What happens in a run: the mixed story, which is long and left to chance, and directed ones, which are short.

mod answer_lost;
mod cut_off_leader;
mod leaders_in_turn;
mod mass_expiry;
mod mixed;
mod power_cut_of_all;
mod restarted_voter;
mod slow_majority;
mod tail_replaced;

use std::time::Duration;

use lockkeeper::model::Mode;
use tokio::time::sleep;

use crate::checker::Belief;
use crate::clients::{CLIENT_HOSTS, Caller, TTL};
use crate::clock::truth;
use crate::settle::settle;
use crate::world::World;

/// A story's name, and what happens in it.
pub(crate) type Story = (&'static str, fn(&mut World));

/// Every one.
pub(crate) const ALL: &[Story] = &[
    ("mixed", mixed::tell),
    ("cut_off_leader", cut_off_leader::tell),
    ("power_cut_of_all", power_cut_of_all::tell),
    ("restarted_voter", restarted_voter::tell),
    ("leaders_in_turn", leaders_in_turn::tell),
    ("mass_expiry", mass_expiry::tell),
    ("answer_lost", answer_lost::tell),
    ("tail_replaced", tail_replaced::tell),
    ("slow_majority", slow_majority::tell),
];

/// The last client host, which stories leave free.
const LAST: usize = CLIENT_HOSTS.len() - 1;

/// Everything is healed: the cluster serves a contender, and comes to rest.
fn end_of_story(world: &mut World) {
    world.add_contender(LAST - 1);
    settle(world, LAST);
}

/// Opens a session, waits for the lock, and holds it so long, or until it is lost. Says what it believed.
async fn holds_until_lost(caller: Caller, name: &'static str, length: Duration) {
    let connection = caller.connect();
    let session = loop {
        match connection.session().ttl(TTL).open().await {
            Ok(session) => break session,
            Err(error) => caller.run.met("open", &error),
        }
    };
    let asked = truth();
    let guard = loop {
        match session.lock(name).acquire().await {
            Ok(guard) => break guard,
            Err(error) if session.valid_for().is_zero() => return caller.run.met("acquire", &error),
            Err(error) => caller.run.met("acquire", &error),
        }
    };
    let begin = truth();
    let mut until = begin;
    while truth() < begin.saturating_add(length) {
        let left = guard.valid_for();
        if left.is_zero() {
            break;
        }
        until = truth() + caller.clock.in_truth(left);
        caller.sure(&session);
        tokio::select! {
            biased;
            _ = guard.lost() => break,
            () = sleep(Duration::from_millis(5)) => (),
        }
    }
    let (lock, token, of) = (guard.name().clone(), guard.token(), guard.session());
    let (client, end) = (caller.index, truth().min(until));
    caller.run.trace(CLIENT_HOSTS[client], || format!("held {lock} by {token} from {begin:?} to {end:?}"));
    let belief = Belief { client, lock, token, session: of, mode: Mode::Exclusive, asked, begin, end };
    caller.run.notes().history.beliefs.push(belief);
    if let Err(error) = guard.release().await {
        caller.run.met("release", &error);
    }
    if let Err(error) = session.close().await {
        caller.run.met("close", &error);
    }
}
