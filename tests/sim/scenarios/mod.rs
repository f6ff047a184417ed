//! The scenarios: a mixed one, which is long and random, and directed ones, which are short.

mod acquire_after_its_cancel;
mod answer_lost;
mod asked_again_after_a_snapshot;
mod cut_off_leader;
mod dead_connection;
mod disconnect_grace;
mod failover;
mod first_leader;
mod grant_meets_cancel;
mod install_cut_short;
mod leaders_clock;
mod leaders_in_turn;
mod late_answers;
mod lease_renewed;
mod lost_tail;
mod mass_expiry;
mod mixed;
mod parked_through_a_snapshot;
mod power_cut_after_a_purge;
mod power_cut_of_all;
mod recalled;
mod renewal_answer_lost;
mod renewals_left_behind;
mod restarted_voter;
mod slow_majority;
mod tail_replaced;

use std::time::Duration;

use lockkeeper::client::{LockRequest, Session, SessionBuilder};
use lockkeeper::model::Mode;
use lockkeeper::rpc::RemoteService;
use tokio::time::sleep;

use crate::checker::Belief;
use crate::clients::{CLIENT_HOSTS, Caller, TTL};
use crate::clock::truth;
use crate::nodes::Order;
use crate::settle::settle;
use crate::sure::SessionOrHold;
use crate::world::World;

/// The name of a scenario and its function.
pub(crate) type Scenario = (&'static str, fn(&mut World));

/// All scenarios by name.
pub(crate) const ALL: &[Scenario] = &[
    ("mixed", mixed::run),
    ("cut_off_leader", cut_off_leader::run),
    ("power_cut_of_all", power_cut_of_all::run),
    ("power_cut_after_a_purge", power_cut_after_a_purge::run),
    ("restarted_voter", restarted_voter::run),
    ("leaders_in_turn", leaders_in_turn::run),
    ("first_leader", first_leader::run),
    ("mass_expiry", mass_expiry::run),
    ("answer_lost", answer_lost::run),
    ("tail_replaced", tail_replaced::run),
    ("slow_majority", slow_majority::run),
    ("renewal_answer_lost", renewal_answer_lost::run),
    ("acquire_after_its_cancel", acquire_after_its_cancel::run),
    ("grant_meets_cancel", grant_meets_cancel::run),
    ("dead_connection", dead_connection::run),
    ("disconnect_grace", disconnect_grace::run),
    ("parked_through_a_snapshot", parked_through_a_snapshot::run),
    ("asked_again_after_a_snapshot", asked_again_after_a_snapshot::run),
    ("install_cut_short", install_cut_short::run),
    ("leaders_clock", leaders_clock::run),
    ("lease_renewed", lease_renewed::run),
    ("late_answers", late_answers::of_renewals),
    ("late_answers_with_grace", late_answers::of_a_broken_stream),
    ("renewals_left_behind", renewals_left_behind::run),
    ("killed_leader", failover::of_a_killed_leader),
    ("restarted_leader", failover::of_a_restarted_leader),
    ("silent_leader", failover::of_a_silent_leader),
    ("wrong_observer", failover::of_one_wrong_observer),
    ("recalled", recalled::run),
    ("lost_tail", lost_tail::of_one),
    ("lost_tail_of_two", lost_tail::of_two),
];

/// The last client host, which scenarios do not use.
const LAST: usize = CLIENT_HOSTS.len() - 1;

/// Ends a scenario after all faults. The cluster must serve a contending client and become idle.
fn end_of_scenario(world: &mut World) {
    world.add_contender(LAST - 1);
    settle(world, LAST);
}

/// Makes these nodes purge their logs until `behind` cannot catch up from the logs.
fn throw_away_logs(world: &mut World, nodes: &[usize], behind: usize) {
    world.must("logs without the entries that it lacks", Duration::from_secs(20), |world| {
        if world.now().as_millis().is_multiple_of(200) {
            nodes.iter().for_each(|node| world.order(*node, Order::WriteSnapshot));
        }
        nodes.iter().all(|node| world.log_of(behind).0 < world.purged_of(*node))
    });
}

/// Opens a session, waits for the lock, and holds it for this duration or until it is lost. Records how long the client
/// was sure of it.
async fn holds_until_lost(caller: Caller, name: &'static str, length: Duration) {
    let connection = caller.connect();
    let session = opened(&caller, || connection.session().ttl(TTL)).await;
    holds_in(caller, session, name, length).await;
}

/// Opens a session, with retries.
async fn opened(caller: &Caller, ask: impl Fn() -> SessionBuilder<RemoteService>) -> Session<RemoteService> {
    loop {
        match ask().open().await {
            Ok(session) => return session,
            Err(error) => caller.run.note_error("open", &error),
        }
    }
}

/// Like [`holds_until_lost`], but in an open session.
async fn holds_in(caller: Caller, session: Session<RemoteService>, name: &'static str, length: Duration) {
    holds_as(caller, session, |session| session.lock(name), length).await;
}

/// Like [`holds_in`], but with the given request.
async fn holds_as(
    caller: Caller,
    session: Session<RemoteService>,
    ask: impl Fn(&Session<RemoteService>) -> LockRequest<RemoteService>,
    length: Duration,
) {
    let asked = truth();
    let guard = loop {
        match ask(&session).acquire().await {
            Ok(guard) => break guard,
            Err(error) if session.valid_for().is_zero() => return caller.run.note_error("acquire", &error),
            Err(error) => caller.run.note_error("acquire", &error),
        }
    };
    let begin = truth();
    let mut until = begin;
    let own = SessionOrHold::Hold(guard.token());
    while truth() < begin.saturating_add(length) {
        let left = guard.valid_for();
        if left.is_zero() {
            break;
        }
        until = caller.sure_of(own, left);
        caller.sure(&session);
        tokio::select! {
            biased;
            _ = guard.lost() => break,
            () = sleep(Duration::from_millis(5)) => (),
        }
    }
    let (lock, token, of) = (guard.name().clone(), guard.token(), guard.session());
    let (client, end) = (caller.index, truth().min(until));
    caller.sure_of(own, Duration::ZERO);
    caller.run.trace(CLIENT_HOSTS[client], || format!("held {lock} by {token} from {begin:?} to {end:?}"));
    let belief = Belief { client, lock, token, session: of, mode: Mode::Exclusive, asked, begin, end };
    caller.run.notes().history.beliefs.push(belief);
    // A hold that ended because of its own lease is not released.
    let lost = guard.valid_for().is_zero() && !session.valid_for().is_zero();
    if lost {
        drop(guard);
    } else if let Err(error) = guard.release().await {
        caller.run.note_error("release", &error);
    }
    if let Err(error) = session.close().await {
        caller.run.note_error("close", &error);
    }
}
