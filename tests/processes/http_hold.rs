//! `hold` over HTTP: a lock that lives with its connection, while connections, nodes and networks break.

mod contention;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{Cluster, PATIENCE};
use crate::http::{EventReader, HttpPort, ports};

/// The body of a hold that can be continued.
fn named(lock: &str, ttl_ms: u64) -> Value {
    json!({"lock": lock, "ttl_ms": ttl_ms, "request": "00000000-0000-4000-8000-000000000001", "handle": "mine"})
}

/// A hold is granted, refused to others, waited for, asked for, and reported as lost when it is broken. Its successor
/// gets it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_reports_what_happens_to_it() {
    let cluster = Cluster::start().await;
    let [one, two, three] = ports(&cluster);
    let mut first = one.hold(&json!({"lock": "a", "ttl_ms": 2_000, "who": "ann"}));
    let granted = first.next().expect("a grant");
    assert_eq!([&granted["event"], &granted["resumed"]], [&json!("granted"), &json!(false)]);
    assert_eq!([&granted["beat_ms"], &granted["silence_ms"]], [&json!(400), &json!(1_200)]);
    assert_eq!(granted["remaining_ms"], 2_000);
    for _ in 0..10 {
        assert_eq!(first.next().expect("an event")["event"], "alive");
    }
    let before = one.get("locks");
    let refused = two.post("hold", json!({"lock": "a", "wait_ms": 0}));
    refused.is_problem(409, "not-acquired", "retry");
    assert_eq!(refused.body["holder"]["who"], "ann");
    let mut named_hold = one.hold(&named("named", 60_000));
    named_hold.until("granted");
    let reused = two.post("hold", named("another", 60_000));
    reused.is_problem(400, "request-reused", "give_up");
    assert_eq!(reused.body["detail"], "this `request` was used before with other fields");
    for header in ["lockkeeper-index", "lockkeeper-log-time"] {
        let [known, refused, reused] =
            [&before, &refused, &reused].map(|answer| answer.header(header).and_then(|at| at.parse::<u64>().ok()));
        assert!(known.is_some() && known <= refused && refused <= reused, "{header}: {refused:?}, {reused:?}");
    }
    two.post("hold", json!({"lock": "a", "handle": "h"})).is_problem(400, "invalid", "give_up");
    two.post("hold", json!({"lock": "a", "max_ms": 86_400_001})).is_problem(400, "invalid", "give_up");
    let mut over = two.hold(&json!({"lock": "a", "wait_ms": 300, "ttl_ms": 60_000}));
    assert_eq!(over.until("lost")["reason"], "not-acquired");
    let mut second = two.hold(&json!({"lock": "a", "ttl_ms": 2_000}));
    let waiting = second.next().expect("a place");
    assert_eq!([&waiting["event"], &waiting["place"]], [&json!("waiting"), &json!(1)]);
    assert_eq!(waiting["held_by"]["who"], "ann");
    second.until("alive");
    three.post("ask", json!({"lock": "a", "token": granted["token"], "why": "please finish"}));
    let asked = first.until("asked");
    assert_eq!(
        [&asked["lock"], &asked["by"], &asked["why"]],
        [&json!("a"), &json!("anonymous"), &json!("please finish")]
    );
    three.post("break", json!({"lock": "a", "token": granted["token"], "why": "dead host"}));
    let last = first.rest().pop().expect("a last event");
    assert_eq!(
        [&last["event"], &last["reason"], &last["why"]],
        [&json!("lost"), &json!("broken"), &json!("dead host")]
    );
    let next = second.until("granted");
    assert!(granted["token"].as_str() < next["token"].as_str());
    let mut set = three.hold(&json!({"locks": [{"lock": "b"}, {"lock": "c", "mode": "shared"}]}));
    let set = set.next().expect("a grant");
    assert_eq!(set["token"], Value::Null);
    assert_eq!(set["locks"].as_array().map(Vec::len), Some(2), "{set}");
    // The hold of a session can be given back by any call.
    let closed = one.post(
        &format!("sessions/{}/close", next["session"].as_str().expect("an id")),
        json!({"handle": next["handle"]}),
    );
    assert_eq!(closed.status, 200, "{}", closed.body);
    assert_eq!(second.until("released")["reason"], "released");
}

/// A stream that breaks leaves the lock held until the deadline; with `release`, the lock is soon free. A place in the
/// queue does not outlive its session either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_ends_a_hold_as_it_was_asked_for() {
    let cluster = Cluster::start().await;
    let [one, two, _] = ports(&cluster);
    let mut expires = one.hold(&json!({"lock": "a", "ttl_ms": 3_000}));
    let mut released = one.hold(&json!({"lock": "b", "ttl_ms": 600_000, "on_close": "release"}));
    let mut short = one.hold(&json!({"lock": "c", "ttl_ms": 10_000, "on_close": "release"}));
    let mut long = one.hold(&json!({"lock": "d", "ttl_ms": 20_000, "on_close": "release"}));
    for stream in [&mut expires, &mut released, &mut short, &mut long] {
        stream.until("granted");
    }
    let mut waits = two.hold(&json!({"lock": "b", "ttl_ms": 10_000, "on_close": "release"}));
    waits.until("waiting");
    drop(waits);
    drop(expires);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(two.count("a", "holders"), 1, "it stays held until its deadline");
    let begun = Instant::now();
    drop(short);
    two.await_count("c", "holders", 0);
    assert!(begun.elapsed() < Duration::from_secs(5), "free after {:?}", begun.elapsed());
    two.await_count("a", "holders", 0);
    // A client that is partitioned from its proxy may believe in a hold for longer than the kernel needs to notice.
    drop(long);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(two.count("d", "holders"), 1, "free after {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    two.await_count("d", "holders", 0);
    assert_eq!(two.count("b", "waiters"), 0, "no waiter is left");
    assert_eq!(two.count("b", "holders"), 1);
}

/// A set whose stream reports that one lock was lost keeps the others until its deadline, because the report may never
/// arrive. A client that has the report gives them back at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_lost_a_lock_keeps_the_others_until_the_deadline() {
    let cluster = Cluster::start().await;
    let [one, two, _] = ports(&cluster);
    let lost = |name: &str, on_close: &str| {
        let (broken, kept) = (format!("{name}-broken"), format!("{name}-kept"));
        let locks = json!([{"lock": broken}, {"lock": kept}]);
        let mut stream = one.hold(&json!({"locks": locks, "ttl_ms": 8_000, "on_close": on_close}));
        let granted = stream.until("granted");
        two.post("break", json!({"lock": broken, "token": granted["locks"][0]["token"], "why": "dead host"}));
        let last = stream.rest().pop().expect("a last event");
        assert_eq!([&last["event"], &last["lock"]], [&json!("lost"), &json!(broken)]);
        (granted, kept)
    };
    let (granted, kept) = lost("c", "release");
    let session = granted["session"].as_str().expect("an id");
    assert_eq!(two.post(&format!("sessions/{session}/close"), json!({"handle": granted["handle"]})).status, 200);
    assert_eq!(two.count(&kept, "holders"), 0, "the client gave it back");
    let [(_, expires), (_, released)] = [lost("a", "expire"), lost("b", "release")];
    let ends = Instant::now() + Duration::from_secs(2);
    while Instant::now() < ends {
        for kept in [&expires, &released] {
            assert_eq!(two.count(kept, "holders"), 1, "{kept}: a client without the report believes in it");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    two.await_count(&expires, "holders", 0);
    two.await_count(&released, "holders", 0);
}

/// The same body at another node continues a hold with its token, and a place in the queue. The older stream ends with
/// `moved`, and its break releases nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_stream_continues_a_hold() {
    let cluster = Cluster::start().await;
    let [one, two, three] = ports(&cluster);
    let mut body = named("a", 2_000);
    body["on_close"] = json!("release");
    let mut first = one.hold(&body);
    let granted = first.until("granted");
    for port in [&two, &one, &one, &three] {
        let mut next = port.hold(&body);
        let again = next.until("granted");
        assert_eq!([&again["token"], &again["session"]], [&granted["token"], &granted["session"]]);
        assert_eq!(again["resumed"], true);
        assert_eq!(first.rest().pop().expect("a last event")["event"], "moved");
        first = next;
    }
    // The break of an older stream, which has not learned of the newer one, releases nothing either.
    let mut last = two.hold(&body);
    drop(first);
    last.until("granted");
    let ends = Instant::now() + Duration::from_secs(4);
    while Instant::now() < ends {
        assert_eq!(last.next().expect("an event")["event"], "alive");
    }
    let mut waits = named("a", 2_000);
    waits["request"] = json!("00000000-0000-4000-8000-000000000002");
    waits["handle"] = json!("other");
    let mut first = one.hold(&waits);
    assert_eq!(first.until("waiting")["place"], 1);
    let mut second = three.hold(&waits);
    assert_eq!(second.until("waiting")["place"], 1);
    assert_eq!(first.rest().pop().expect("a last event")["event"], "moved");
    assert_eq!(one.get("locks?lock=a").body["waiters"].as_array().map(Vec::len), Some(1));
    drop(last);
    assert_eq!(second.until("granted")["resumed"], true);
    waits["request"] = json!("00000000-0000-4000-8000-000000000003");
    one.post("hold", waits).is_problem(409, "already-open", "give_up");
}

/// The request of a hold with other fields is refused, and the stream that has the hold or its place keeps it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_with_other_fields_is_refused() {
    let cluster = Cluster::start().await;
    let [one, two, three] = ports(&cluster);
    let holds = named("a", 3_000);
    let mut waits = holds.clone();
    waits["request"] = json!("00000000-0000-4000-8000-000000000002");
    waits["handle"] = json!("other");
    let mut holder = one.hold(&holds);
    holder.until("granted");
    let mut waiter = two.hold(&waits);
    waiter.until("waiting");
    let others = [
        ("pid", json!(2)),
        ("why", json!("other work")),
        ("mode", json!("shared")),
        ("lease_ms", json!(60_000)),
        ("lock", json!("b")),
    ];
    for (field, value) in others {
        for body in [&holds, &waits] {
            let mut differs = body.clone();
            differs[field] = value.clone();
            three.post("hold", differs).is_problem(400, "request-reused", "give_up");
        }
    }
    for stream in [&mut holder, &mut waiter] {
        // Some events may have arrived before the refusals. A place is reported again after a wait that failed.
        for _ in 0..8 {
            let event = stream.next().expect("an event");
            assert!([json!("alive"), json!("waiting")].contains(&event["event"]), "{event}");
        }
    }
    assert_eq!(one.get("locks?lock=a").body["waiters"].as_array().map(Vec::len), Some(1));
    drop(holder);
    waiter.until("granted");
}

/// Of two holds that begin at the same moment with one request and different fields, one gets the lock and keeps it,
/// and the other is refused, as if it had come later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_simultaneous_holds_is_refused() {
    let cluster = Cluster::start().await;
    let ports = ports(&cluster);
    let mut held = Vec::new();
    for round in 0..20 {
        let bodies = [1, 2].map(|pid| {
            let mut body = named(&format!("a{round}"), 3_000);
            (body["handle"], body["pid"]) = (json!(format!("secret {round}")), json!(pid));
            body
        });
        let both = Barrier::new(2);
        let begin = |port: &HttpPort, body: &Value| {
            both.wait();
            port.hold(body)
        };
        let streams = std::thread::scope(|scope| {
            let begun = [(&ports[0], &bodies[0]), (&ports[round % 3], &bodies[1])]
                .map(|(port, body)| scope.spawn(move || begin(port, body)));
            begun.map(|begun| begun.join().expect("an answer"))
        });
        let (granted, mut refused): (Vec<_>, Vec<_>) = streams.into_iter().partition(|stream| stream.status == 200);
        assert_eq!((granted.len(), refused.len()), (1, 1), "round {round}");
        let problem = refused[0].next().expect("a problem");
        assert_eq!((refused[0].status, &problem["type"]), (400, &json!("/v1/errors#request-reused")), "{problem}");
        held.extend(granted);
    }
    for stream in &mut held {
        stream.until("granted");
        // A hold that was taken over ends with its next renewal or the one after.
        for _ in 0..4 {
            assert_eq!(stream.next().expect("an event")["event"], "alive");
        }
    }
}

/// A hold lasts while the leader is killed. A node that stops sends its holds to another node, where they keep their
/// tokens; so does a hold whose node was killed, if its client returns in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_survive_their_nodes() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.await_leader().await;
    let node = cluster.a_follower().await;
    let port = HttpPort::new(&cluster.http(node));
    let body = named("a", 10_000);
    let mut stream = port.hold(&body);
    let granted = stream.until("granted");
    cluster.kill(leader);
    cluster.await_leader().await;
    for _ in 0..4 {
        assert_eq!(stream.next().expect("an event")["event"], "alive", "it survives the leader");
    }
    cluster.spawn(leader);
    cluster.await_answer(leader).await;
    // A restarted node announces its HTTP address a moment after it answers.
    cluster.status_when(node, |status| status.nodes.iter().all(|node| !node.http.is_empty())).await;
    let ending = std::thread::spawn(move || stream.rest().pop().expect("a last event"));
    assert_eq!(cluster.stop(node), Some(0));
    let last = ending.join().expect("read");
    assert_eq!(last["event"], "move", "{last}");
    let endpoints: Vec<_> = last["endpoints"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(endpoints.len(), 2, "{endpoints:?}");
    let next = HttpPort::new(endpoints[0]);
    let mut stream = next.hold(&body);
    assert_eq!(stream.until("granted")["token"], granted["token"], "after the stop");
    let at = (1..=3).find(|node| cluster.http(*node) == endpoints[0]).expect("a node");
    cluster.spawn(node);
    cluster.await_answer(node).await;
    cluster.kill(at);
    assert!(stream.rest().iter().all(|event| event["event"] == "alive"));
    cluster.await_leader().await;
    let mut stream = port.hold(&body);
    let again = stream.until("granted");
    assert_eq!([&again["token"], &again["resumed"]], [&granted["token"], &json!(true)], "after the kill");
}

/// The stream of a node without a quorum reports the loss although no node can grant the lock to another client yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_reports_the_loss() {
    let cluster = Cluster::start().await;
    let node = cluster.a_follower().await;
    let others: Vec<_> = (1..=3).filter(|other| *other != node).collect();
    let port = HttpPort::new(&cluster.http(node));
    let mut stream = port.hold(&named("a", 2_000));
    let mut waits = port.hold(&json!({"lock": "b", "ttl_ms": 2_000}));
    stream.until("granted");
    waits.until("granted");
    others.iter().for_each(|other| cluster.halt(*other));
    let last = stream.rest().pop().expect("a last event");
    assert_eq!([&last["event"], &last["reason"]], [&json!("lost"), &json!("deadline")]);
    assert_eq!(waits.rest().pop().expect("a last event")["event"], "lost");
    others.iter().for_each(|other| cluster.signal(*other, Signal::CONT));
    cluster.await_leader().await;
    let mut next = HttpPort::new(&cluster.http(others[0])).hold(&json!({"lock": "a", "ttl_ms": 2_000}));
    next.until("granted");
}

/// A client that is stopped keeps its connection, and so its lock, until `max_ms`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_client_holds_until_the_longest_time() {
    let cluster = Cluster::start().await;
    let [one, two, _] = ports(&cluster);
    let url = format!("http://{}/v1/ns/default/hold", cluster.http(1));
    let body = json!({"lock": "a", "ttl_ms": 2_000, "max_ms": 6_000}).to_string();
    let mut curl = std::process::Command::new("curl");
    curl.args([
        "-sSN",
        "-H",
        "content-type: application/json",
        "-H",
        "accept: application/x-ndjson",
        "-d",
        &body,
        &url,
    ]);
    let curl = curl.stdout(std::process::Stdio::piped()).spawn().expect("curl");
    one.await_count("a", "holders", 1);
    let pid = rustix::process::Pid::from_child(&curl);
    rustix::process::kill_process(pid, Signal::STOP).expect("stopped");
    std::thread::sleep(Duration::from_millis(3_500));
    assert_eq!(two.count("a", "holders"), 1, "longer than its TTL");
    two.await_count("a", "holders", 0);
    rustix::process::kill_process(pid, Signal::CONT).expect("continued");
    let output = curl.wait_with_output().expect("ended");
    let text = String::from_utf8(output.stdout).expect("a text");
    let words: Vec<_> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["event"].clone()).collect();
    assert!(words.contains(&json!("ending")), "{words:?}");
    assert_eq!(words.last(), Some(&json!("released")));
}
