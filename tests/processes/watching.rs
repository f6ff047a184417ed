//! `watch` and `wait` while nodes die, and how they end.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use lockkeeper::model::{self, SessionClose};
use lockkeeper::service::{Call, LockService, Proof};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::lock_command::{cluster_tests, code, holder, lockkeeper, object, output, release_holder};
use crate::wait::block_until;

/// A `watch` process whose events a test reads one by one.
struct Watcher {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watcher {
    fn start(endpoints: &str, prefix: &str, options: &[&str]) -> Self {
        let arguments = [&["watch", prefix, "--json"], options].concat();
        let mut child = lockkeeper(endpoints, &arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Reads events up to the grant of token `last`. Returns the tokens of all grants, in order, and checks that
    /// positions grow.
    fn grants_up_to(&mut self, last: u64) -> Vec<u64> {
        let (mut grants, mut before) = (Vec::new(), (0, 0));
        while grants.last().is_none_or(|token| *token < last) {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the watch has ended");
            let event: Value = serde_json::from_str(&line).unwrap();
            let position = event["position"].as_str().unwrap().split_once('.').unwrap();
            let position = (position.0.parse::<u64>().unwrap(), position.1.parse::<u32>().unwrap());
            assert!(before < position, "{before:?} before {line}");
            before = position;
            if event["event"] == "granted" {
                grants.push(event["token"].as_str().unwrap().parse().unwrap());
            }
        }
        grants
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Acquires and releases a lock `count` times. Returns the tokens.
async fn grants(cluster: &Cluster, count: usize) -> Vec<u64> {
    let client = cluster.client().request_wait(crate::cluster::PATIENCE);
    let mut tokens = Vec::new();
    for _ in 0..count {
        let guard = client.lock("wa/tch").acquire().await.expect("free");
        tokens.push(guard.token().as_u64());
        guard.release().await.expect("held");
    }
    tokens
}

/// A watch from a position continues automatically after the leader dies and, with `--retry forever`, after an outage
/// of the whole cluster that is longer than `--timeout`. No grant is missing or repeated.
#[tokio::test]
async fn a_watch_continues_through_outages() {
    let mut cluster = Cluster::start().await;
    let endpoints = cluster.endpoints().join(",");
    let options = ["--from", "0.0", "--retry", "forever", "--timeout", "300ms"];
    let mut watcher = Watcher::start(&endpoints, "wa/tch", &options);
    let mut expected = grants(&cluster, 3).await;
    let leader = cluster.await_leader().await;
    cluster.kill(leader);
    cluster.await_leader().await;
    expected.extend(grants(&cluster, 3).await);
    cluster.spawn(leader);
    cluster.await_answer(leader).await;
    let before = expected.clone();
    let (watcher_back, seen) = tokio::task::spawn_blocking(move || {
        let seen = watcher.grants_up_to(*before.last().unwrap());
        (watcher, seen)
    })
    .await
    .expect("read");
    assert_eq!(seen, expected, "after the leader died");
    let mut watcher = watcher_back;
    for node in 1..=3 {
        cluster.kill(node);
    }
    // A single call fails during the outage, so the outage is longer than the timeout.
    let gave_up = cluster.command(&["status", "--timeout", "300ms"]).output().unwrap();
    assert_eq!(gave_up.status.code(), Some(69));
    for node in 1..=3 {
        cluster.spawn(node);
    }
    cluster.await_leader().await;
    let expected = grants(&cluster, 2).await;
    let last = expected[1];
    let seen = tokio::task::spawn_blocking(move || watcher.grants_up_to(last)).await.expect("read");
    assert_eq!(seen, expected, "after the outage of all nodes");
}

cluster_tests! { a_watch_and_a_wait_end }

/// A watch exits with 0 as soon as its reader closes the pipe, even without an event. A wait that times out exits with
/// 75; a wait for a name that becomes free exits with 0.
fn a_watch_and_a_wait_end(endpoints: &str) {
    let mut watch = lockkeeper(endpoints, &["watch"]).spawn().unwrap();
    drop(watch.stdout.take());
    block_until("the watch to end", || watch.try_wait().unwrap().is_some());
    assert_eq!(watch.wait().unwrap().code(), Some(0));

    let holder = holder(endpoints, "wa/it");
    let refused = output(endpoints, &["wait", "wa/it", "-w", "300ms", "--json"]);
    assert_eq!((refused.status.code(), &object(&refused.stderr)["error"]), (Some(75), &"not-acquired".into()));
    assert_eq!(code(endpoints, &["wait", "wa/it", "--wait", "0s"]), Some(75));
    let mut waits =
        lockkeeper(endpoints, &["wait", "wa/it", "-w", "1m", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(waits.try_wait().unwrap().is_none(), "it is held");
    release_holder(holder);
    assert_eq!(waits.wait().unwrap().code(), Some(0));
    assert_eq!(code(endpoints, &["wait", "wa/it", "-w", "0s"]), Some(0));
}

/// `wait -w 0s` checks once, and `wait -w D` waits up to D. Both exit with 75 if the name is held, if one permit of a
/// semaphore is taken, or if a lock-delay keeps the name closed, and with 0 if the name was never used.
#[tokio::test]
async fn a_wait_with_a_limit_says_whether_the_name_is_free() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let _held = client.lock("wa/held").acquire().await.expect("free");
    let _permit = client.lock("wa/pool").permits(1, 3).acquire().await.expect("free");
    let lost = client.session().open().await.expect("a session");
    let guard = lost.lock("wa/closed").delay(Duration::from_secs(60)).acquire().await.expect("free");
    let close = model::Command::CloseSession { session: lost.id(), end: SessionClose::Lost };
    let proof = Proof::Handle { handle: lost.handle().clone(), namespace: lost.namespace().clone() };
    // The stream may end before the answer arrives. The guard still detects the end of its session.
    drop(client.service().submit(Call { proof, ..Call::new(close) }).await);
    guard.lost().await;
    let free = |name: &str, longest: &str| {
        let output = cluster.command(&["wait", name, "-w", longest, "--json"]).output().unwrap();
        let answer = if output.status.success() { object(&output.stdout) } else { object(&output.stderr) };
        (output.status.code(), answer)
    };
    for longest in ["0s", "100ms"] {
        for name in ["wa/held", "wa/pool", "wa/closed"] {
            let (code, answer) = free(name, longest);
            assert_eq!((code, &answer["error"]), (Some(75), &"not-acquired".into()), "{name} within {longest}");
        }
        let (code, answer) = free("wa/never", longest);
        assert_eq!((code, &answer["free"]), (Some(0), &true.into()), "{answer}");
    }
}

/// A wait continues after the leader dies, and returns once the name is free.
#[tokio::test]
async fn a_wait_continues_after_the_leader_dies() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client().request_wait(crate::cluster::PATIENCE);
    let guard = client.session().open().await.expect("a session").lock("wa/it").acquire().await.expect("free");
    let mut waits = cluster.command(&["wait", "wa/it", "--retry", "20s"]).spawn().unwrap();
    let leader = cluster.await_leader().await;
    cluster.kill(leader);
    cluster.await_leader().await;
    assert!(waits.try_wait().unwrap().is_none(), "it is held");
    guard.release().await.expect("still held");
    let code = tokio::task::spawn_blocking(move || waits.wait().unwrap().code()).await.expect("waited");
    assert_eq!(code, Some(0));
}
