//! Programs that use HTTP while leaders are killed: requests are repeated until they are answered, at any node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cluster::{Cluster, PATIENCE};
use crate::http::{Answer, HttpPort};
use crate::wait::wait_until;

/// What all programs of the test see.
#[derive(Default)]
struct Seen {
    held: AtomicBool,
    newest: AtomicU64,
    grants: AtomicUsize,
    /// Answers that asked for a retry.
    retries: AtomicUsize,
    stop: AtomicBool,
}

/// One program: it takes the lock again and again, and repeats each request, at the next node, until it is answered.
struct Program {
    number: usize,
    ports: Vec<HttpPort>,
    at: usize,
    seen: Arc<Seen>,
}

impl Program {
    /// Sends the same body until it is answered. Returns the answer, and whether it was sent several times.
    fn call(&mut self, call: &str, body: &str) -> (Answer, bool) {
        let begun = Instant::now();
        for tries in 1.. {
            let path = format!("/v1/ns/default/{call}");
            let answer = self.ports[self.at].try_at("POST", &path, Some(("application/json", body)));
            match answer {
                Ok(answer) if !["retry", "ask"].contains(&answer.body["advice"].as_str().unwrap_or_default()) => {
                    return (answer, tries > 1);
                }
                Ok(answer) => {
                    assert!([409, 429, 503, 504].contains(&answer.status), "{}", answer.body);
                    if answer.status == 409 {
                        return (answer, tries > 1);
                    }
                }
                Err(_) => {}
            }
            self.seen.retries.fetch_add(1, Ordering::Relaxed);
            self.at = (self.at + 1) % self.ports.len();
            assert!(begun.elapsed() < PATIENCE, "{call} is not answered");
            std::thread::sleep(Duration::from_millis(20));
        }
        unreachable!("the loop has no end")
    }

    fn run(mut self) {
        for round in 0.. {
            if self.seen.stop.load(Ordering::Relaxed) {
                return;
            }
            let request = format!("{:08x}-0000-4000-8000-{round:012x}", self.number);
            let (handle, lock) = (format!("secret-{}-{round}", self.number), "shared");
            let body = json!({
                "lock": lock, "lease_ms": 60_000, "wait_ms": 60_000, "poll_ms": 300, "request": request, "handle": handle
            });
            let granted = loop {
                let (answer, _) = self.call("acquire", &body.to_string());
                assert!([200, 202].contains(&answer.status), "{}", answer.body);
                if answer.status == 200 {
                    break answer;
                }
            };
            let token: u64 = granted.body["token"].as_str().expect("a token").parse().expect("a number");
            assert!(!self.seen.held.swap(true, Ordering::SeqCst), "two holders");
            let before = self.seen.newest.swap(token, Ordering::SeqCst);
            assert!(before < token, "token {token} after {before}");
            let (again, _) = self.call("acquire", &body.to_string());
            assert_eq!(again.body["token"], granted.body["token"], "the first answer");
            self.seen.held.store(false, Ordering::SeqCst);
            let (released, repeated) = self.call("release", &json!({"lock": lock, "handle": handle}).to_string());
            // The first copy released it, and another program may hold it since.
            let gone = ["not-held", "held-by-other"].map(|word| released.body["error"] == word).contains(&true);
            let gone = repeated && gone;
            assert!(released.status == 200 || gone, "{}", released.body);
            self.seen.grants.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Four programs share a lock over HTTP while the leader is killed twice: it never has two holders, tokens grow, each
/// repeated request has its first answer, and no answer is an error that a program cannot act on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_survive_the_kill_of_the_leader() {
    let mut cluster = Cluster::start().await;
    let seen = Arc::new(Seen::default());
    let ports: Vec<_> = (1..=3).map(|node| HttpPort::new(&cluster.http(node))).collect();
    let programs: Vec<_> = (0..4)
        .map(|number| Program { number, ports: ports.clone(), at: number % 3, seen: Arc::clone(&seen) })
        .map(|program| tokio::task::spawn_blocking(move || program.run()))
        .collect();
    let grants = || seen.grants.load(Ordering::Relaxed);
    let more_grants = async || {
        let before = grants();
        wait_until("twenty more grants", async || before + 20 <= grants()).await;
    };
    for _ in 0..2 {
        more_grants().await;
        let leader = cluster.await_leader().await;
        cluster.kill(leader);
        cluster.await_leader().await;
        cluster.spawn(leader);
        cluster.await_answer(leader).await;
    }
    more_grants().await;
    seen.stop.store(true, Ordering::Relaxed);
    for program in programs {
        program.await.expect("no program failed");
    }
    assert!(0 < seen.retries.load(Ordering::Relaxed), "no program noticed that a leader was killed");
}

/// A program at a follower that repeats nothing gets an answer while the leader dies, because the node retries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_answers_while_the_leader_dies() {
    let mut cluster = Cluster::start().await;
    let port = HttpPort::new(&cluster.http(cluster.a_follower().await));
    let held = port.post("acquire", json!({"lock": "a", "lease_ms": 60_000}));
    let leader = cluster.await_leader().await;
    cluster.kill(leader);
    let taken = port.post("acquire", json!({"lock": "b", "lease_ms": 60_000}));
    assert_eq!(taken.status, 200, "{}", taken.body);
    let shown = port.get("locks?lock=a");
    assert_eq!(shown.body["holders"][0]["token"], held.body["token"]);
    let given = port.post("release", json!({"lock": "a", "handle": held.body["handle"]}));
    assert_eq!(given.status, 200, "{}", given.body);
}

/// A node that stops answers its waiters at once; a waiter that named its request has its place at another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_waits_and_keeps_places() {
    let mut cluster = Cluster::start().await;
    let follower = cluster.a_follower().await;
    let leader = HttpPort::new(&cluster.http(cluster.await_leader().await));
    leader.post("acquire", json!({"lock": "a", "lease_ms": 60_000}));
    let port = HttpPort::new(&cluster.http(follower));
    let body = json!({
        "lock": "a", "lease_ms": 1_000, "wait_ms": 60_000, "handle": "h",
        "request": "00000000-0000-4000-8000-000000000001"
    });
    let asked = body.clone();
    let waiting = tokio::task::spawn_blocking(move || port.post("acquire", asked));
    leader.await_count("a", "waiters", 1);
    let begun = Instant::now();
    assert_eq!(cluster.stop(follower), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(2), "stopped after {:?}", begun.elapsed());
    // The caller must repeat this request, and no other one.
    waiting.await.expect("answered").is_problem(504, "unknown", "ask");
    let mut again = body;
    again["poll_ms"] = json!(50);
    assert_eq!(leader.post("acquire", again).body["place"], 1);
}
