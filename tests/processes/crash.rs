//! Clients contend for a few locks while nodes are killed, cut off and starved, and their disks fail; a checker then judges
//! what was seen. The same run with planted bugs proves that the checker can see.

mod bounds;
mod clients;
mod driver;
mod faults;
mod report;
mod scene;
mod world;

use std::pin::pin;
use std::time::Duration;

use lockkeeper::faults::Fault;
use rustix::process::Signal;
use tokio::time::timeout;

use self::driver::Until;
use self::faults::Blow;
use self::scene::{Scene, lock};
use self::world::World;
use crate::checker::{History, Rule, Violation, check};
use crate::cluster::{Cluster, TURN};

/// The default run; `LOCKKEEPER_CRASH_SECS` sets another.
const RUN: Duration = Duration::from_secs(25);
/// So many grants draw tokens before all nodes are stopped.
const GRANTS_BEFORE_A_STOP: usize = 30;
/// A kind of fault that struck so often must have changed something.
const STRIKES_FOR_A_BITE: usize = 2;
/// A request is on its way to nodes that do not hear it for so long before its leader dies; far less than what it would wait
/// for them.
const UNANSWERED: Duration = Duration::from_millis(60);
/// A planted bug must be found within so long.
const FIND: Duration = Duration::from_secs(90);

/// Eight clients contend for three locks through gRPC while a random node, mostly the leader, sometimes two and once
/// all three are struck by every kind of fault, and go on: every promise is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_held_twice_while_nodes_are_killed() {
    let _turn = TURN.lock().await;
    let blows = Blow::wanted();
    let apart = blows.iter().any(|blow| blow.needs_world());
    let test = "crash::nothing_is_lost_or_held_twice_while_nodes_are_killed";
    if apart && tokio::task::block_in_place(|| world::enter(test)) {
        return;
    }
    let length = std::env::var("LOCKKEEPER_CRASH_SECS").ok().and_then(|text| text.parse().ok());
    let length = length.map_or(RUN, Duration::from_secs);
    let world = apart.then(World::build);
    let places = world.as_ref().map(World::places).unwrap_or_default();
    let mut cluster = Cluster::start_at(places, "fast", None).await;
    let mut scene = Scene::open(&cluster);
    let report = scene.torment((&mut cluster, world.as_ref()), length, &blows, Until::TimeIsUp).await;
    scene.settle(&cluster).await;
    let history = scene.run.history().clone();
    let through = report.through_a_failover(&history);
    let granted = history.beliefs.len();
    eprintln!("{granted} grants, {through} through a failover; {report}\n{}", report.table(&history));
    let violations = check(&history, true);
    assert!(violations.is_empty(), "seed {}:\n{}", scene.seed, listed(&violations));
    // And what was known halfway would have been good, too: the searches for planted bugs look before the end.
    let halfway = History { open: [(0, length / 2)].into(), ..(*history).clone() };
    let violations = check(&halfway, false);
    assert!(violations.is_empty(), "seed {}: halfway:\n{}", scene.seed, listed(&violations));
    let odd = std::mem::take(&mut *lock(&scene.run.odd));
    assert!(odd.is_empty(), "seed {}: unexpected errors: {odd:#?}", scene.seed);
    let toothless = report.toothless(STRIKES_FOR_A_BITE);
    assert!(toothless.is_empty(), "the run proves nothing of what never changed anything: {toothless:?}");
    let all_at_once = blows.iter().any(|blow| report.struck_all(*blow)) || !blows.iter().any(|blow| blow.strikes_all());
    assert!(report.leaders() >= 2 && all_at_once, "the run proves nothing: {report:?}");
    assert!(through > 0 && granted > 100, "the run proves nothing: {granted} grants, {through} through a failover");
}

/// A queue that serves the last first is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_a_queue_that_serves_the_last_first() {
    catches(Fault::LifoQueue, &[Rule::FirstComeFirstServed]).await;
}

/// Nodes that come back without the holders of their checkpoint are found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_forgotten_holders() {
    catches(Fault::ForgottenHolders, &[Rule::OneHolder, Rule::EndsWhatWas]).await;
}

/// Tokens that begin again with the process are found. A planned stop of all nodes writes a last checkpoint on each, so
/// that the next grant of the new processes must show the bug; after a kill, a log that is played again from before the
/// first grant may hide it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_tokens_of_a_process() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start_faulty(Some(Fault::TokensOfThisProcess)).await;
    let scene = Scene::open(&cluster);
    scene.granted(GRANTS_BEFORE_A_STOP).await;
    for node in 1..=3 {
        cluster.stop(node);
    }
    for node in 1..=3 {
        cluster.spawn(node);
    }
    cluster.await_leader().await;
    let found = scene.broken(Rule::TokensGrow).await;
    eprintln!("after {:?}: {found:?}", scene.run.now());
}

/// A request that is executed again when it is repeated is found. The leader dies between what it told the others and its
/// answer: they stand still meanwhile, find the request in their sockets, and it is asked once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_retries_that_run_again() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start_faulty(Some(Fault::RetriesRunAgain)).await;
    let scene = Scene::watch(&cluster);
    let session = cluster.client().session().open().await.expect("a session");
    let found = loop {
        let leader = cluster.await_leader().await;
        let others = [1, 2, 3].into_iter().filter(|node| *node != leader);
        others.clone().for_each(|node| cluster.halt(node));
        let mut acquired = pin!(session.lock("red").acquire());
        let early = timeout(UNANSWERED, &mut acquired).await;
        assert!(early.is_err(), "nobody else hears the leader: {early:?}");
        cluster.kill(leader);
        others.for_each(|node| cluster.signal(node, Signal::CONT));
        cluster.spawn(leader);
        tokio::select! {
            found = scene.broken(Rule::OnceARequest) => break found,
            // It died with the leader, and is answered now as it should be.
            acquired = acquired => drop(acquired.expect("granted").release().await.expect("released")),
        }
        assert!(scene.run.now() < FIND, "seed {}: no request was seen to run again", scene.seed);
    };
    eprintln!("after {:?}: {found:?}", scene.run.now());
}

/// Sessions that end before what their clients were told are found by the search for an order of the clients' calls, which
/// knows nothing else: a client is sure of what others see free, or get.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_sessions_that_end_early() {
    catches(Fault::EarlyExpiry, &[Rule::Linearizable]).await;
}

/// Runs with the planted bug until one of the rules is seen broken.
async fn catches(fault: Fault, rules: &'static [Rule]) {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start_faulty(Some(fault)).await;
    let mut scene = Scene::open(&cluster);
    let report = scene.torment((&mut cluster, None), FIND, &[Blow::Kill], Until::Broken(rules)).await;
    let violations = check(&scene.run.history(), false);
    let found = violations.iter().find(|violation| rules.contains(&violation.rule));
    eprintln!("{fault:?} after {:?} and {report}: {found:?}", scene.run.now());
    assert!(found.is_some(), "seed {}: {fault:?} was not seen:\n{}", scene.seed, listed(&violations));
}

fn listed(violations: &[Violation]) -> String {
    let lines = violations.iter().take(20).map(|violation| format!("  {:?}: {}", violation.rule, violation.what));
    let all = format!("{} broken promises\n", violations.len());
    all + &lines.collect::<Vec<_>>().join("\n")
}
