//! The streams of the HTTP port: watches that continue at other nodes, the events of a session, valid tokens, and what
//! streams may cost others.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{Cluster, PATIENCE};
use crate::http::{EventReader, HttpPort, ports};

/// Takes a lease of each lock, and returns the tokens.
fn take(port: &HttpPort, locks: &[&str]) -> Vec<Value> {
    let taken = locks.iter().map(|lock| {
        port.post(
            "acquire",
            json!({"lock": lock, "lease_ms": 60_000, "handle": "h",
        "request": format!("{:032x}", lock.bytes().fold(0_u128, |all, byte| all << 8 | u128::from(byte)))}),
        )
    });
    taken.map(|answer| answer.body["token"].clone()).collect()
}

/// A watch continues at another node after the last event that its caller has received, without loss or repetition. A
/// position of another cluster, or one that a restarted node no longer has, is refused with a position to continue
/// from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_continues_at_another_node() {
    let mut cluster = Cluster::start().await;
    let [one, two, _] = ports(&cluster);
    let mut first = one.follow("watch?prefix=night");
    assert_eq!(first.status, 200);
    let tokens = take(&two, &["night-1", "other", "night-2"]);
    let (a, b) = (first.until("granted"), first.until("granted"));
    assert_eq!([&a["token"], &b["token"]], [&tokens[0], &tokens[2]], "only names with the prefix");
    drop(first);
    let later = take(&one, &["night-3"]);
    let id = format!("{}@{}", a["position"].as_str().expect("a position"), a["cluster_id"].as_str().expect("an id"));
    for mut resumed in [
        two.follow(&format!("watch?prefix=night&from={id}")),
        two.with_header(&format!("Last-Event-ID: {id}")).follow("watch?prefix=night"),
    ] {
        assert_eq!(resumed.until("granted"), b);
        assert_eq!(resumed.until("granted")["token"], later[0]);
    }
    // The grants of a set are events of one entry, and the next entry follows at once.
    let mut all = one.follow("watch?prefix=set-");
    let opened = one.post("sessions", json!({"handle": "s", "ttl_ms": 60_000}));
    let locks = ["set-1", "set-2", "set-3"].map(|lock| json!({"lock": lock}));
    one.post("acquire", json!({"session": opened.body["session"], "handle": "s", "locks": locks}));
    take(&one, &["set-4"]);
    let granted: Vec<_> = (0..4).map(|_| all.until("granted")).collect();
    for (at, event) in granted.iter().enumerate() {
        let position = event["position"].as_str().expect("a position");
        let mut resumed = two.follow(&format!("watch?prefix=set-&from={position}"));
        assert!(granted[at + 1..].iter().all(|later| resumed.until("granted") == *later), "after {position}");
    }
    // A position after the end of the log is of a cluster whose data was lost.
    for from in ["3.0@00000000", "99999.0"] {
        for call in ["watch", "history"] {
            let mut foreign = two.follow(&format!("{call}?from={from}"));
            let problem = foreign.next().expect("a problem");
            assert_eq!((foreign.status, &problem["error"]), (410, &json!("events-missed")), "{call}: {problem}");
            assert!(problem["resume"].is_string(), "{problem}");
        }
    }
    assert_eq!(two.get("history?from=99999.0&stale=true").status, 200, "another node may have more of the log");
    let records = two.get(&format!("history?from={id}"));
    assert_eq!((records.status, &records.body["records"][0]["lock"]), (200, &json!("other")), "{}", records.body);
    let unreadable = two.get("watch?from=x");
    unreadable.is_problem(400, "invalid", "give_up");
    assert_eq!(unreadable.body["bound"], "INDEX.N[@CLUSTER]");
    let node = cluster.a_follower().await;
    assert_eq!(cluster.stop(node), Some(0));
    cluster.spawn(node);
    cluster.await_answer(node).await;
    let old = HttpPort::new(&cluster.http(node)).follow("watch?from=0.0");
    assert_eq!(old.status, 410, "it has no events from before its start");
}

/// Reads an event. If it grants the first lock, its token is added. Returns the position in `events-missed`.
fn read_slowly(slow: &mut EventReader, tokens: &mut Vec<Value>) -> Option<String> {
    let event = slow.next().expect("an event");
    if event["event"] == "granted" && event["lock"] == "slow-00" {
        tokens.push(event["token"].clone());
    }
    (event["event"] == "events-missed").then(|| event["resume"].as_str().expect("a position").to_owned())
}

/// A caller that reads too slowly gets the events that were kept for it, then `events-missed`, and continues at another
/// node from the position in that event, without loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_caller_continues_after_missed_events() {
    /// Events that are read for each round, which has more than a hundred. A connection whose caller reads nothing for
    /// 10 s is closed.
    const READ: usize = 32;
    let cluster = Cluster::start().await;
    let [one, two, _] = ports(&cluster);
    let mut slow = one.follow("watch?prefix=slow-");
    let locks: Vec<_> = (0..64).map(|lock| json!({"lock": format!("slow-{lock:02}")})).collect();
    let (mut granted, mut tokens) = (Vec::new(), Vec::new());
    let mut write = || {
        let handle = format!("h-{}", granted.len());
        let opened = two.post("sessions", json!({"handle": handle, "ttl_ms": 60_000}));
        let session = opened.body["session"].as_str().expect("an id").to_owned();
        let acquired = two.post("acquire", json!({"session": session, "handle": handle, "locks": locks}));
        two.post(&format!("sessions/{session}/close"), json!({"handle": handle}));
        granted.push(acquired.body["locks"][0]["token"].clone());
        granted.len()
    };
    // The kernel keeps events, too, usually about as many bytes as a hundred rounds have. If it keeps more, the node
    // misses none, and the caller falls further behind.
    let (mut rounds, begun) = (250, Instant::now());
    let resume = 'missed: loop {
        let mut written = 0;
        for _ in 0..rounds {
            assert!(begun.elapsed() < 3 * PATIENCE, "no missed events after {written} rounds");
            written = write();
            if let Some(resume) = (0..READ).find_map(|_| read_slowly(&mut slow, &mut tokens)) {
                break 'missed resume;
            }
        }
        while tokens.len() < written {
            if let Some(resume) = read_slowly(&mut slow, &mut tokens) {
                break 'missed resume;
            }
        }
        rounds *= 2;
    };
    assert!(slow.next().is_none(), "it is the last event");
    let mut rest = two.follow(&format!("watch?prefix=slow-&from={resume}"));
    while tokens.len() < granted.len() {
        assert_eq!(read_slowly(&mut rest, &mut tokens), None, "the rest is kept");
    }
    assert_eq!(tokens, granted);
}

/// Without a header `Accept`, events are server-sent: with an id, a name and an object in one line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_server_sent_by_default() {
    let cluster = Cluster::start().await;
    let [one, ..] = ports(&cluster);
    let curl = |seconds: &str, call: &str| {
        let url = format!("http://{}/v1/ns/default/{call}", cluster.http(1));
        let output = std::process::Command::new("curl").args(["-sSNi", "--max-time", seconds, &url]).output();
        String::from_utf8(output.expect("curl").stdout).expect("a text")
    };
    take(&one, &["a"]);
    let text = curl("1", "watch?from=0.0");
    assert!(text.to_lowercase().contains("content-type: text/event-stream"), "{text}");
    assert!(text.to_lowercase().contains("cache-control: no-store"), "{text}");
    let granted = text.split("\n\n").find(|event| event.contains("event: granted")).expect("a grant");
    let id = granted.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id");
    let data = granted.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
    let data: Value = serde_json::from_str(data).expect("an object");
    assert_eq!((&data["event"], &data["lock"]), (&json!("granted"), &json!("a")));
    assert_eq!(id.split('@').next(), data["position"].as_str());
}

/// The events of a session are what others do to its holds, and its end is the last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_events() {
    let cluster = Cluster::start().await;
    let [one, two, three] = ports(&cluster);
    let open = |handle: &str| {
        let opened = one.post("sessions", json!({"handle": handle, "ttl_ms": 60_000, "accepts_hand_over": true}));
        opened.body["session"].as_str().expect("a session").to_owned()
    };
    let (session, other) = (open("s"), open("t"));
    let mut events = two.follow(&format!("sessions/{session}/events"));
    assert_eq!(events.status, 200);
    let token = |lock: &str| {
        one.post("acquire", json!({"session": session, "handle": "s", "lock": lock})).body["token"].clone()
    };
    let (a, b) = (token("a"), token("b"));
    three.post("ask", json!({"lock": "a", "token": a, "why": "please"}));
    let asked = events.next().expect("an event");
    assert_eq!(
        [&asked["event"], &asked["token"], &asked["reason"], &asked["by"]],
        [&json!("revoke-requested"), &a, &json!("please"), &json!("anonymous")]
    );
    three.post("break", json!({"lock": "a", "token": a, "why": "dead host"}));
    let broken = events.next().expect("an event");
    assert_eq!([&broken["event"], &broken["token"], &broken["why"]], [&json!("broken"), &a, &json!("dead host")]);
    three.post("handover", json!({"lock": "b", "token": b, "to": other}));
    let over = events.next().expect("an event");
    assert_eq!([&over["event"], &over["from"], &over["session"]], [&json!("handed-over"), &b, &json!(other)]);
    assert_eq!(over["was_session"], json!(session));
    // A reason in the words of an operator is never read as the reason of the cluster.
    three.post(&format!("sessions/{session}/end"), json!({"why": "released"}));
    let last = events.rest();
    assert_eq!(last.len(), 1, "{last:?}");
    assert_eq!([&last[0]["event"], &last[0]["reason"]], [&json!("session-ended"), &json!("broken")]);
    assert_eq!(last[0]["why"], "released");
    let ended = two.get(&format!("sessions/{session}/events"));
    ended.is_problem(409, "session-ended", "give_up");
    two.get("sessions/999/events").is_problem(409, "session-ended", "give_up");
}

/// A caller that accepts a stream gets the valid tokens, and all of them again after each change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valid_tokens_are_streamed() {
    let mut cluster = Cluster::start().await;
    let follower = cluster.a_follower().await;
    let port = HttpPort::new(&cluster.http(follower));
    assert_eq!(port.get("tokens?lock=a").body["valid"], json!([]));
    let mut tokens = port.follow("tokens?lock=a");
    assert_eq!(tokens.next().expect("the first")["valid"], json!([]));
    let first = take(&port, &["a"]);
    assert_eq!(tokens.next().expect("a grant")["valid"], json!(first));
    let leader = cluster.await_leader().await;
    cluster.kill(leader);
    cluster.await_leader().await;
    port.post("release", json!({"lock": "a", "handle": "h"}));
    assert_eq!(tokens.until("tokens")["valid"], json!([]));
}

/// A thousand polls that break leave no place in the queue and no lock behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_broken_polls_leave_nothing() {
    let cluster = Cluster::start().await;
    let port = HttpPort::new(&cluster.http(cluster.a_follower().await));
    take(&port, &["a"]);
    let poll = json!({"lock": "a", "lease_ms": 60_000, "wait_ms": 600_000, "poll_ms": 600_000});
    for _ in 0..5 {
        let polls: Vec<_> = (0..200).map(|_| port.begin("acquire", &poll)).collect();
        port.await_count("a", "waiters", polls.len());
        drop(polls);
        port.await_count("a", "waiters", 0);
    }
    port.post("release", json!({"lock": "a", "handle": "h"}));
    let free = port.post("wait", json!({"lock": "a", "poll_ms": 0}));
    assert_eq!(free.body["free"], true, "{}", free.body);
    assert!(port.get("sessions").body["sessions"].as_array().is_some_and(Vec::is_empty));
}

/// A node that stops ends 500 streams of each kind at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_all_streams() {
    let mut cluster = Cluster::start().await;
    let node = cluster.a_follower().await;
    let port = HttpPort::new(&cluster.http(node));
    let mut streams: Vec<_> = (0..500)
        .map(|at| match at % 3 {
            0 => port.follow("watch"),
            1 => port.follow("tokens?lock=a"),
            _ => port.hold(&json!({"lock": format!("a-{at}"), "ttl_ms": 60_000})),
        })
        .collect();
    assert!(streams.iter().all(|stream| stream.status == 200));
    let full = (0..20).map(|_| port.follow("watch")).collect::<Vec<_>>();
    assert!(full.iter().any(|stream| stream.status == 429), "half of the connections stay free for other requests");
    assert_eq!(port.get("locks").status, 200);
    let begun = Instant::now();
    assert_eq!(cluster.stop(node), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(2), "stopped after {:?}", begun.elapsed());
    let last: Vec<_> = streams.iter_mut().map(|stream| stream.rest().pop().expect("a last event")).collect();
    for (at, last) in last.iter().enumerate() {
        let word = if at % 3 == 2 { "move" } else { "stopping" };
        assert_eq!(last["event"], word, "{last}");
    }
    assert_eq!(last[2]["endpoints"].as_array().map(Vec::len), Some(2), "{}", last[2]);
}

/// Streams whose callers read nothing, and requests that never become complete, do not delay other callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_callers_delay_no_others() {
    let cluster = Cluster::start().await;
    let node = cluster.a_follower().await;
    let port = HttpPort::new(&cluster.http(node));
    let unread: Vec<_> = (0..100).map(|_| port.follow("watch?from=0.0")).collect();
    let half: Vec<_> = (0..40)
        .map(|at| {
            let mut stream = TcpStream::connect(cluster.http(node)).expect("connected");
            let head = if at % 2 == 0 { "GET /v1/ns/default/watch HTTP/1.1\r\nHost: a" } else { "P" };
            stream.write_all(head.as_bytes()).expect("sent");
            stream
        })
        .collect();
    for round in 0..50 {
        let name = format!("slow-{round}");
        take(&port, &[&name]);
        let released = port.post("release", json!({"lock": name, "handle": "h"}));
        assert_eq!(released.status, 200, "{}", released.body);
    }
    let mut reads = port.follow("watch?prefix=slow-&from=0.0");
    let last = (0..50).map(|_| reads.until("released")).last().expect("the last");
    assert_eq!(last["lock"], "slow-49");
    drop((unread, half));
}
