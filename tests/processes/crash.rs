//! Clients contend for a few locks while nodes are killed, partitioned and starved, and their disks fail. A checker
//! then verifies the recorded history. Runs with injected bugs prove that the checker detects violations.

mod clients;
mod driver;
pub(crate) mod faults;
mod report;
mod workload;
pub(crate) mod sandbox;

use std::pin::pin;
use std::time::Duration;

use lockkeeper::faults::Fault;
use rustix::process::Signal;
use tokio::time::timeout;

use self::driver::Until;
use self::faults::FaultKind;
use self::sandbox::Sandbox;
use self::workload::{Workload, lock};
use crate::checker::{History, Rule, Violation, check};
use crate::cluster::{Cluster, TURN};

/// The default length of a run; `LOCKKEEPER_CRASH_SECS` sets another.
const RUN: Duration = Duration::from_secs(25);
/// The number of grants before all nodes are stopped.
const GRANTS_BEFORE_A_STOP: usize = 30;
/// How long a request waits for stopped followers before its leader is killed. Far shorter than the timeout of the
/// request.
const UNANSWERED: Duration = Duration::from_millis(60);
/// The time within which an injected bug must be detected.
const FIND: Duration = Duration::from_secs(90);

/// Eight clients contend for three locks over gRPC. Every kind of fault is injected into a random node, mostly the
/// leader, sometimes into two nodes, and once into all three. Every guarantee holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_held_twice_while_nodes_are_killed() {
    let _turn = TURN.lock().await;
    let kinds = FaultKind::wanted();
    let apart = kinds.iter().any(|kind| kind.needs_sandbox());
    let test = "crash::nothing_is_lost_or_held_twice_while_nodes_are_killed";
    let again = ["--exact", test, "--nocapture"];
    if apart && tokio::task::block_in_place(|| sandbox::enter(&again)) {
        return;
    }
    let length = std::env::var("LOCKKEEPER_CRASH_SECS").ok().and_then(|text| text.parse().ok());
    let length = length.map_or(RUN, Duration::from_secs);
    let sandbox = apart.then(Sandbox::build);
    let places = sandbox.as_ref().map(Sandbox::places).unwrap_or_default();
    let mut cluster = Cluster::start_at(places, "fast", None).await;
    let mut workload = Workload::open(&cluster);
    let report = workload.inject_faults((&mut cluster, sandbox.as_ref()), length, &kinds, Until::TimeIsUp).await;
    workload.settle(&cluster).await;
    let history = workload.run.history().clone();
    let through = report.through_a_failover(&history);
    let granted = history.beliefs.len();
    eprintln!("{granted} grants, {through} through a failover; {report}\n{}", report.table(&history));
    let violations = check(&history, true);
    assert!(violations.is_empty(), "seed {}:\n{}", workload.seed, listed(&violations));
    // The history of the first half must pass as well, because the runs with injected bugs check a history before its
    // end.
    let halfway = History { open: [(0, length / 2)].into(), ..(*history).clone() };
    let violations = check(&halfway, false);
    assert!(violations.is_empty(), "seed {}, first half:\n{}", workload.seed, listed(&violations));
    let unexpected = std::mem::take(&mut *lock(&workload.run.unexpected));
    assert!(unexpected.is_empty(), "seed {}: unexpected errors: {unexpected:#?}", workload.seed);
    let without_effect = report.without_effect();
    assert!(
        without_effect.is_empty(),
        "these faults never took effect, so the run does not test them: {without_effect:?}"
    );
    let all_at_once = kinds.iter().any(|kind| report.hit(*kind, 3)) || !kinds.iter().any(|kind| kind.may_hit_all());
    assert!(report.leaders() >= 2 && all_at_once, "the run did not hit two leaders, or all nodes at once: {report:?}");
    let mut in_two = kinds.iter().filter(|kind| kind.may_hit_several() && !kind.may_hit_all());
    assert!(in_two.all(|kind| report.hit(*kind, 2)), "the run did not hit two nodes at once: {report:?}");
    assert!(
        through > 0 && granted > 100,
        "too few grants to test anything: {granted} grants, {through} through a failover"
    );
}

/// A sandbox in which no test runs is a failure, although the test binary ends without an error.
#[test]
fn a_sandbox_without_a_test_is_a_failure() {
    if let Err(why) = sandbox::possible() {
        sandbox::skipped("a sandbox without a test", &why);
        return;
    }
    let entered = std::panic::catch_unwind(|| sandbox::enter(&["--exact", "crash::no_test_has_this_name"]));
    assert!(entered.is_err(), "the sandbox reports a run: {entered:?}");
}

/// The checker detects a queue that serves the last waiter first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_a_queue_that_serves_the_last_first() {
    catches(Fault::LifoQueue, &[Rule::FirstComeFirstServed]).await;
}

/// The checker detects nodes that restart without the holders of their checkpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_forgotten_holders() {
    catches(Fault::ForgottenHolders, &[Rule::OneHolder, Rule::EndsWhatWas]).await;
}

/// The checker detects tokens that start again with the process. A planned stop of all nodes writes a last checkpoint
/// on each, so that the next grant of the new processes must show the bug. After a kill, a log that is replayed from
/// before the first grant could hide it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_tokens_of_a_process() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start_faulty(Some(Fault::TokensOfThisProcess)).await;
    let workload = Workload::open(&cluster);
    workload.granted(GRANTS_BEFORE_A_STOP).await;
    for node in 1..=3 {
        cluster.stop(node);
    }
    for node in 1..=3 {
        cluster.spawn(node);
    }
    cluster.await_leader().await;
    let found = workload.await_violation(Rule::TokensGrow).await;
    eprintln!("after {:?}: {found:?}", workload.run.now());
}

/// The checker detects a request that is executed again when it is repeated. The followers are stopped when the leader
/// sends them the entry, and the leader is killed before it can answer. When the followers continue, they read the
/// entry from their sockets, and the client repeats its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_retries_that_run_again() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start_faulty(Some(Fault::RetriesRunAgain)).await;
    let workload = Workload::watch(&cluster);
    let session = cluster.client().session().open().await.expect("a session");
    let found = loop {
        let leader = cluster.await_leader().await;
        let others = [1, 2, 3].into_iter().filter(|node| *node != leader);
        others.clone().for_each(|node| cluster.halt(node));
        let mut acquired = pin!(session.lock("red").acquire());
        let early = timeout(UNANSWERED, &mut acquired).await;
        assert!(early.is_err(), "answered without a quorum: {early:?}");
        cluster.kill(leader);
        others.for_each(|node| cluster.signal(node, Signal::CONT));
        cluster.spawn(leader);
        tokio::select! {
            found = workload.await_violation(Rule::OnceARequest) => break found,
            // The request was lost with the leader, and this is a correct first answer.
            acquired = acquired => drop(acquired.expect("granted").release().await.expect("released")),
        }
        assert!(workload.run.now() < FIND, "seed {}: no request was executed twice", workload.seed);
    };
    eprintln!("after {:?}: {found:?}", workload.run.now());
}

/// The checker detects sessions that end before the time for which their clients were promised them. It uses only the
/// search for a linearizable order of the clients' calls: another client finds the lock free, or acquires it, while its
/// holder is still sure of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_catches_sessions_that_end_early() {
    catches(Fault::EarlyExpiry, &[Rule::Linearizable]).await;
}

/// Runs with the injected bug until the checker reports one of the rules as broken.
async fn catches(fault: Fault, rules: &'static [Rule]) {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start_faulty(Some(fault)).await;
    let mut workload = Workload::open(&cluster);
    let report = workload.inject_faults((&mut cluster, None), FIND, &[FaultKind::Kill], Until::Broken(rules)).await;
    let violations = check(&workload.run.history(), false);
    let found = violations.iter().find(|violation| rules.contains(&violation.rule));
    eprintln!("{fault:?} after {:?} and {report}: {found:?}", workload.run.now());
    assert!(found.is_some(), "seed {}: {fault:?} was not detected:\n{}", workload.seed, listed(&violations));
}

fn listed(violations: &[Violation]) -> String {
    let lines = violations.iter().take(20).map(|violation| format!("  {:?}: {}", violation.rule, violation.what));
    let all = format!("{} violations\n", violations.len());
    all + &lines.collect::<Vec<_>>().join("\n")
}
