//! Clients of all nodes contend for a lock over HTTP while nodes are killed.

use super::*;
use crate::wait::block_until;

/// What all clients of the contention see.
#[derive(Default)]
struct Seen {
    /// The times in which a client believed that it held the lock.
    beliefs: Mutex<Vec<(Instant, Instant)>>,
    newest: AtomicU64,
    grants: AtomicUsize,
    resumed: AtomicUsize,
    stop: AtomicBool,
}

const TTL_MS: u64 = 3_000;
const SILENCE: Duration = Duration::from_millis(TTL_MS * 6 / 10);

/// A hold as its client sees it.
struct Held<'a> {
    seen: &'a Seen,
    token: Option<u64>,
    session: Value,
    alive: usize,
    /// Since when the client believes in it, and the last event that says so.
    since: Option<(Instant, Instant)>,
}

impl Held<'_> {
    fn event(&mut self) {
        let now = Instant::now();
        match &mut self.since {
            Some((_, last)) if now.duration_since(*last) < SILENCE => *last = now,
            Some(_) => {
                self.over();
                self.since = Some((now, now));
            }
            None => self.since = Some((now, now)),
        }
    }

    /// The client no longer believes in it.
    fn over(&mut self) {
        if let Some((begun, last)) = self.since.take() {
            self.seen.beliefs.lock().expect("not poisoned").push((begun, Instant::now().min(last + SILENCE)));
        }
    }

    fn granted(&mut self, event: &Value) {
        let granted: u64 = event["token"].as_str().expect("a token").parse().expect("a number");
        self.session = event["session"].clone();
        if let Some(token) = self.token {
            assert_eq!(token, granted, "the hold continues");
            self.seen.resumed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        assert!(self.seen.newest.swap(granted, Ordering::SeqCst) < granted, "an older token");
        self.token = Some(granted);
    }

    /// Follows one stream. Returns true if the client is done with the hold.
    fn follow(&mut self, stream: &mut EventReader, breaks: bool) -> bool {
        while let Some(event) = stream.next() {
            match event["event"].as_str().expect("a word") {
                "granted" => {
                    self.granted(&event);
                    self.event();
                }
                "alive" if self.token.is_some() => {
                    self.event();
                    self.alive += 1;
                    if self.alive == 1 && breaks {
                        return false;
                    }
                    if 2 <= self.alive {
                        return true;
                    }
                }
                "lost" | "released" => return true,
                _ => {}
            }
        }
        false
    }
}

/// One client: it holds the lock for some events again and again, and continues a hold at the next node if its stream
/// breaks, or if it breaks it itself.
fn contend(number: usize, ports: &[HttpPort], seen: &Seen) {
    for round in 0.. {
        if seen.stop.load(Ordering::Relaxed) {
            return;
        }
        let body = json!({
            "lock": "shared", "ttl_ms": TTL_MS, "handle": format!("secret-{number}-{round}"),
            "request": format!("{number:08x}-0000-4000-8000-{round:012x}"),
        });
        let text = body.to_string();
        let mut held = Held { seen, token: None, session: Value::Null, alive: 0, since: None };
        let begun = Instant::now();
        for at in number.. {
            assert!(begun.elapsed() < 3 * PATIENCE, "client {number} gets no lock");
            let Ok(mut stream) = ports[at % 3].try_stream("POST", "hold", Some(("application/json", &text))) else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            let is_over = match stream.status {
                200 => held.follow(&mut stream, at % 2 == 0),
                _ => stream.next().is_some_and(|problem| problem["advice"] == "give_up"),
            };
            if is_over {
                break;
            }
        }
        held.over();
        seen.grants.fetch_add(usize::from(held.token.is_some()), Ordering::Relaxed);
        let call = format!("/v1/ns/default/sessions/{}/close", held.session.as_str().unwrap_or("1"));
        let close = json!({"handle": body["handle"]}).to_string();
        let closed = |port: &HttpPort| port.try_at("POST", &call, Some(("application/json", &close))).is_ok();
        let _ = ports.iter().any(closed);
    }
}

/// Clients hold a lock in turn while the leader is killed and streams break: no two clients believe in it at the same
/// time, tokens grow, and the history is sound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_never_has_two_holders() {
    let mut cluster = Cluster::start().await;
    let seen = Arc::new(Seen::default());
    let ports = Arc::new(ports(&cluster));
    let clients: Vec<_> = (0..3)
        .map(|number| {
            let (ports, seen) = (Arc::clone(&ports), Arc::clone(&seen));
            tokio::task::spawn_blocking(move || contend(number, &*ports, &seen))
        })
        .collect();
    let until = |count: &AtomicUsize, more: usize| {
        let before = count.load(Ordering::Relaxed);
        block_until(format_args!("{more} more than {before}"), || before + more <= count.load(Ordering::Relaxed));
    };
    for _ in 0..2 {
        until(&seen.grants, 3);
        let leader = cluster.await_leader().await;
        cluster.kill(leader);
        cluster.await_leader().await;
        cluster.spawn(leader);
        cluster.await_answer(leader).await;
    }
    until(&seen.resumed, 1);
    seen.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("no client failed");
    }
    let mut beliefs = seen.beliefs.lock().expect("not poisoned").clone();
    beliefs.sort();
    assert!(6 <= beliefs.len(), "{beliefs:?}");
    for pair in beliefs.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two clients believed in the lock: {pair:?}");
    }
    let export = cluster.folder().join("history.jsonl");
    let history = cluster.command(&["history", "--json"]).output().expect("the history");
    std::fs::write(&export, history.stdout).expect("written");
    let verified = cluster.command(&["verify", &export.to_string_lossy()]).output().expect("verified");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}
