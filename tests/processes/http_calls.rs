//! The calls of the HTTP port, at a follower: what each answers, and which error each returns.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::http::{Answer, HttpPort};

/// One cluster for all tests of this file, because none of them harms it.
async fn at_a_follower() -> (Cluster, HttpPort) {
    let cluster = Cluster::start().await;
    let port = HttpPort::new(&cluster.http(cluster.a_follower().await));
    (cluster, port)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

fn ms(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

const UUID: &str = "7f1e0c3a-52d4-4b0e-9a55-0b3a3f6b9d11";

/// A lease is taken, refused to others, refreshed, checked and given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_taken_and_given_back() {
    let (_cluster, port) = at_a_follower().await;
    let taken = port.post("acquire", json!({"lock": "nightly", "lease_ms": 60_000, "who": "ann", "why": "rebuild"}));
    assert_eq!((taken.status, &taken.body["state"], &taken.body["lock"]), (200, &json!("granted"), &json!("nightly")));
    let (token, handle) = (text(&taken.body["token"]).to_owned(), text(&taken.body["handle"]).to_owned());
    assert_eq!(ms(&taken.body["deadline_ms"]) - ms(&taken.body["log_time_ms"]), 60_000);
    assert_eq!(ms(&taken.body["remaining_ms"]), 60_000);
    for header in ["lockkeeper-node", "lockkeeper-cluster", "lockkeeper-index", "lockkeeper-log-time"] {
        assert!(taken.header(header).is_some(), "no header {header}");
    }
    let refused = port.post("acquire", json!({"lock": "nightly", "lease_ms": 60_000}));
    refused.is_problem(409, "not-acquired", "retry");
    let at = |answer: &Answer, header: &str| answer.header(header).and_then(|at| at.parse::<u64>().ok());
    for header in ["lockkeeper-index", "lockkeeper-log-time"] {
        assert!(at(&taken, header).is_some() && at(&taken, header) <= at(&refused, header), "{header}");
    }
    assert_eq!(refused.body["holder"]["who"], "ann");
    assert_eq!(refused.body["type"], "/v1/errors#not-acquired");
    let shown = port.get("locks?lock=nightly");
    assert_eq!(shown.body["holders"][0]["token"], token);
    assert!(!shown.body.to_string().contains(&handle), "a handle is a secret");
    let refreshed = port.post("refresh", json!({"lock": "nightly", "handle": handle, "lease_ms": 120_000}));
    assert_eq!((refreshed.status, &refreshed.body["token"]), (200, &json!(token)));
    assert_eq!(ms(&refreshed.body["remaining_ms"]), 120_000);
    let valid = |token: &str| port.post("check", json!({"lock": "nightly", "token": token})).body;
    assert_eq!(valid(&token), json!({"state": "valid", "valid": true, "lowest_valid": token}));
    let begun = std::time::Instant::now();
    assert_eq!(port.post("wait", json!({"lock": "nightly", "poll_ms": 50})).body["free"], false);
    assert!(begun.elapsed() < std::time::Duration::from_secs(3), "waited for {:?}", begun.elapsed());
    let given = port.post("release", json!({"lock": "nightly", "handle": handle}));
    assert_eq!((given.status, given.body), (200, json!({"released": true, "left": 0})));
    assert_eq!(valid(&token)["state"], "stale");
    assert_eq!(port.post("wait", json!({"lock": "nightly"})).body["free"], true);
    let again = port.post("release", json!({"lock": "nightly", "handle": handle}));
    again.is_problem(409, "not-held", "give_up");
}

/// A request that does not wait is granted as soon as the session of a cached hold has released it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_gets_the_lock_of_a_cached_hold() {
    let (cluster, port) = at_a_follower().await;
    let session = cluster.client().session().open().await.expect("a session");
    let mut granted = false;
    // On a busy machine the release may take longer than the cluster lets a request without a wait stand.
    for round in 0..10 {
        let in_use = session.lock("kept").cached().acquire().await.expect("granted");
        in_use.release().await.expect("released");
        // The recall of the last try may still arrive, and then no hold is kept.
        if port.get("locks?lock=kept").body["holders"][0]["cached"] != true {
            assert_ne!(round, 0, "the hold is not kept");
            continue;
        }
        let tried = port.post("acquire", json!({"lock": "kept", "lease_ms": 60_000}));
        granted = tried.status == 200 && tried.body["state"] == "granted";
        if granted {
            break;
        }
        tried.is_problem(409, "not-acquired", "retry");
    }
    assert!(granted, "no try was granted");
    session.close().await.expect("closed");
}

/// The same request gets the first answer. Other fields under the same request are refused, but not another wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_gets_the_first_answer() {
    let (cluster, port) = at_a_follower().await;
    let since: u64 = port.get("locks").header("lockkeeper-log-time").expect("a time").parse().expect("a number");
    let asked = json!({"lock": "a", "lease_ms": 60_000, "request": UUID, "handle": "h", "since_ms": since});
    let first = port.post("acquire", asked.clone());
    let other = HttpPort::new(&cluster.http(cluster.await_leader().await));
    for port in [&port, &other] {
        let again = port.post("acquire", asked.clone());
        assert_eq!((again.status, &again.body["token"]), (200, &first.body["token"]));
    }
    // A copy may differ in its wait.
    for wait_ms in [0, 1_000] {
        let mut waits = asked.clone();
        waits["wait_ms"] = json!(wait_ms);
        assert_eq!(port.post("acquire", waits).body["token"], first.body["token"], "{wait_ms}");
    }
    let mut differs = asked.clone();
    differs["lease_ms"] = json!(30_000);
    port.post("acquire", differs).is_problem(400, "request-reused", "give_up");
    port.post("release", json!({"lock": "a", "handle": "h"}));
    port.post("acquire", asked).is_problem(409, "lost", "give_up");
    for call in ["acquire", "hold"] {
        for (given, value, missing) in [("request", UUID, "handle"), ("handle", "h", "request")] {
            let half = port.post(call, json!({"lock": "a", "lease_ms": 1_000, given: value}));
            half.is_problem(400, "invalid", "give_up");
            assert_eq!(half.body["field"], missing, "{call}: {}", half.body);
        }
    }
}

/// A request that waits is answered after each poll with its place; the same body keeps the place, and the poll that
/// finds the grant has the whole lease. An absent waiter keeps the lock only for the claim lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_polls_for_its_place() {
    let (cluster, port) = at_a_follower().await;
    let other = HttpPort::new(&cluster.http(cluster.await_leader().await));
    let held = port.post("acquire", json!({"lock": "a", "lease_ms": 60_000, "who": "ann"}));
    let asked = json!({
        "lock": "a", "lease_ms": 50_000, "wait_ms": 60_000, "poll_ms": 100, "request": UUID, "handle": "mine"
    });
    let (first, again) = (port.post("acquire", asked.clone()), other.post("acquire", asked.clone()));
    for waiting in [&first, &again] {
        assert_eq!(
            (waiting.status, &waiting.body["state"], &waiting.body["place"]),
            (202, &json!("waiting"), &json!(1))
        );
        assert_eq!(waiting.body["held_by"]["who"], "ann");
        assert_eq!((&waiting.body["request"], &waiting.body["handle"]), (&json!(UUID), &json!("mine")));
    }
    assert_eq!(first.body["sequence"], again.body["sequence"]);
    let mut longer = asked.clone();
    longer["lease_ms"] = json!(55_000);
    other.post("acquire", longer).is_problem(400, "request-reused", "give_up");
    assert_eq!(port.get("locks?lock=a").body["waiters"].as_array().map(Vec::len), Some(1), "one place");
    port.post("release", json!({"lock": "a", "handle": held.body["handle"]}));
    let absent = ms(&port.get("locks?lock=a").body["holders"][0]["remaining_ms"]);
    assert!(absent <= 15_000, "an absent waiter has the lock for {absent} ms");
    let granted = other.post("acquire", asked);
    assert_eq!((granted.status, &granted.body["state"]), (200, &json!("granted")));
    assert!(ms(&granted.body["remaining_ms"]) > 45_000, "{}", granted.body);
    assert!(ms(&port.get("locks?lock=a").body["holders"][0]["remaining_ms"]) > 45_000);
    let over = port.post("acquire", json!({"lock": "a", "lease_ms": 1_000, "wait_ms": 200}));
    over.is_problem(409, "not-acquired", "retry");
    let long = port.post("acquire", json!({"lock": "a", "lease_ms": 86_400_000, "wait_ms": 200}));
    long.is_problem(400, "invalid", "give_up");
    assert_eq!(long.body["field"], "lease_ms");
}

/// A waiter whose connection breaks keeps its place if it can come back, and leaves no place otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_keeps_only_a_place_that_has_an_owner() {
    let (_cluster, port) = at_a_follower().await;
    port.post("acquire", json!({"lock": "a", "lease_ms": 60_000}));
    let named = json!({"lock": "a", "lease_ms": 1_000, "wait_ms": 60_000, "request": UUID, "handle": "h"});
    let broken = [
        port.begin("acquire", &named),
        port.begin("acquire", &json!({"lock": "a", "lease_ms": 1_000, "wait_ms": 60_000})),
    ];
    port.await_count("a", "waiters", 2);
    drop(broken);
    port.await_count("a", "waiters", 1);
    std::thread::sleep(std::time::Duration::from_millis(300));
    port.await_count("a", "waiters", 1);
    let withdrawn = port.post("withdraw", json!({"lock": "a", "request": UUID, "handle": "h"}));
    assert_eq!((withdrawn.status, withdrawn.body), (200, json!({"state": "withdrawn"})));
    port.await_count("a", "waiters", 0);
}

/// A session is opened, renewed, holds locks and sets, changes its holds, and is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_holds_locks() {
    let (_cluster, port) = at_a_follower().await;
    let opened = port.post("sessions", json!({"handle": "s", "instance": UUID, "ttl_ms": 60_000, "who": "bob"}));
    assert_eq!(
        (opened.status, &opened.body["ttl_ms"], &opened.body["remaining_ms"]),
        (201, &json!(60_000), &json!(60_000))
    );
    let session = text(&opened.body["session"]).to_owned();
    let again = port.post("sessions", json!({"handle": "s", "instance": UUID, "ttl_ms": 60_000, "who": "bob"}));
    assert_eq!(again.body["session"], session);
    let own = |mut fields: Value| {
        fields["session"] = json!(session);
        fields["handle"] = json!("s");
        fields
    };
    let renewed = port.post("renew", own(json!({"attempt": 7})));
    assert_eq!((&renewed.body["session"], &renewed.body["attempt"]), (&json!(session), &json!(7)));
    let held = port.post("acquire", own(json!({"lock": "a", "mode": "shared", "request": "1", "value": "10.0.0.7"})));
    assert_eq!((held.status, &held.body["request"], &held.body["deadline_ms"]), (200, &json!("1"), &Value::Null));
    let token = text(&held.body["token"]).to_owned();
    let repeated =
        port.post("acquire", own(json!({"lock": "a", "mode": "shared", "request": "1", "value": "10.0.0.7"})));
    assert_eq!(repeated.body["token"], token);
    assert_eq!(port.get("leader?lock=a").body["value"], "10.0.0.7");
    let alone = port.post("upgrade", own(json!({"lock": "a", "token": token, "request": "2"})));
    assert_eq!((alone.status, &alone.body["state"]), (200, &json!("granted")));
    let token = text(&alone.body["token"]).to_owned();
    let value = port.post("value", own(json!({"lock": "a", "token": token, "value": null})));
    assert_eq!(value.body["state"], "done");
    port.post("value", own(json!({"lock": "a", "token": token}))).is_problem(400, "invalid", "give_up");
    let shared = port.post("downgrade", own(json!({"lock": "a", "token": token})));
    assert_eq!(shared.body["state"], "downgraded");
    let set = port.post(
        "acquire",
        own(json!({"locks": [{"lock": "b"}, {"lock": "c", "mode": "permits", "permits": 2, "limit": 3}]})),
    );
    let names: Vec<_> = set.body["locks"].as_array().expect("a set").iter().map(|member| &member["lock"]).collect();
    assert_eq!(names, ["b", "c"]);
    let permits = own(json!({"lock": "c", "token": set.body["locks"][1]["token"], "permits": 1}));
    let released = port.post("release", permits);
    assert_eq!((&released.body["released"], &released.body["left"]), (&json!(true), &json!(1)));
    // The numbers that the node draws grow.
    let number = |body: &Value| text(&body["request"]).parse::<u64>().expect("a number");
    let drawn = [&value, &shared, &set, &released].map(|answer| number(&answer.body));
    assert!(drawn.is_sorted_by(|one, next| one < next), "{drawn:?}");
    let listed = port.get(&format!("sessions/{session}"));
    assert_eq!((&listed.body["who"], &listed.body["holds"]), (&json!("bob"), &json!(3)));
    assert_eq!(port.get("sessions").body["sessions"][0]["session"], session);
    assert_eq!(port.post("release", own(json!({"lock": "a", "token": token}))).body["left"], 0);
    let closed = port.post(&format!("sessions/{session}/close"), json!({"handle": "s"}));
    assert_eq!((closed.status, closed.body), (200, json!({"closed": true})));
    let ended = port.post("renew", own(json!({})));
    ended.is_problem(409, "session-ended", "give_up");
    assert_eq!(ended.body["reason"], "released");
    port.get(&format!("sessions/{session}")).is_problem(404, "invalid", "give_up");
}

/// A hold of a session is refreshed under its token, and a refresh that another one overtook changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_of_a_session_is_refreshed() {
    let (_cluster, port) = at_a_follower().await;
    let session = port.post("sessions", json!({"handle": "s", "ttl_ms": 60_000})).body["session"].clone();
    let own = json!({"session": session, "handle": "s", "lock": "a", "lease_ms": 20_000});
    let token = port.post("acquire", own.clone()).body["token"].clone();
    let refresh = |lease_ms: u64, attempt: u64, token: &Value| {
        let mut fields = own.clone();
        (fields["lease_ms"], fields["attempt"], fields["token"]) = (json!(lease_ms), json!(attempt), token.clone());
        port.post("refresh", fields)
    };
    let second = refresh(50_000, 2, &token);
    assert_eq!((second.status, &second.body["token"]), (200, &token), "{}", second.body);
    assert_eq!(ms(&second.body["remaining_ms"]), 50_000);
    let first = refresh(30_000, 1, &token);
    assert_eq!((first.status, &first.body["deadline_ms"]), (200, &second.body["deadline_ms"]), "{}", first.body);
    let third = refresh(30_000, 3, &token);
    assert_eq!(ms(&third.body["remaining_ms"]), 30_000);
    refresh(30_000, 4, &json!("999")).is_problem(409, "not-held", "give_up");
}

/// A session that its client closes as lost keeps its lock closed for the lock-delay. Another session takes the hold
/// over with the lost session's secret, under a new token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_hold_is_resumed() {
    let (_cluster, port) = at_a_follower().await;
    let [lost, next] = ["old", "new"].map(|handle| {
        let opened = port.post("sessions", json!({"handle": handle, "ttl_ms": 60_000}));
        text(&opened.body["session"]).to_owned()
    });
    let held = port.post("acquire", json!({"session": lost, "handle": "old", "lock": "a", "delay_ms": 60_000}));
    let token = held.body["token"].clone();
    let closed = port.post(&format!("sessions/{lost}/close"), json!({"handle": "old", "lost": true}));
    assert_eq!((closed.status, closed.body), (200, json!({"closed": true})));
    let own = json!({"session": next, "handle": "new", "lock": "a"});
    port.post("acquire", own.clone()).is_problem(409, "not-acquired", "retry");
    let resume = |secret: &str| {
        let mut fields = own.clone();
        (fields["token"], fields["lost_handle"]) = (token.clone(), json!(secret));
        port.post("resume", fields)
    };
    resume("wrong").is_problem(403, "wrong-handle", "give_up");
    let resumed = resume("old");
    assert_eq!((resumed.status, &resumed.body["state"]), (200, &json!("granted")), "{}", resumed.body);
    assert_ne!(resumed.body["token"], token);
    let valid = port.post("check", json!({"lock": "a", "token": resumed.body["token"]})).body;
    assert_eq!(valid["valid"], true, "{valid}");
}

/// The longest wait in a session ends with the session, so it is refused if it would close a cycle of owners. A shorter
/// wait ends in any case, and is queued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_wait_in_a_session_can_close_a_cycle() {
    const WEEK_MS: u64 = 604_800_000;
    let (_cluster, port) = at_a_follower().await;
    let sessions = ["h0", "h1"].map(|handle| {
        let opened = port.post("sessions", json!({"handle": handle, "ttl_ms": 60_000}));
        text(&opened.body["session"]).to_owned()
    });
    let asks = |of: usize, request: &str, lock: &str, wait_ms: u64| {
        let (session, handle) = (&sessions[of], format!("h{of}"));
        let own = json!({"session": session, "handle": handle, "request": request, "owner": "o"});
        let Value::Object(mut fields) = own else { panic!("an object") };
        fields.extend([("lock".to_owned(), json!(lock)), ("wait_ms".to_owned(), json!(wait_ms))]);
        fields.extend((wait_ms != 0).then(|| ("poll_ms".to_owned(), json!(50))));
        port.post("acquire", Value::Object(fields))
    };
    assert_eq!((asks(0, "1", "a", 0).status, asks(1, "1", "b", 0).status), (200, 200));
    assert_eq!(asks(0, "2", "b", WEEK_MS).status, 202);
    assert_eq!(asks(1, "2", "a", 60_000).status, 202);
    port.post("withdraw", json!({"session": sessions[1], "handle": "h1", "request": "2"}));
    let refused = asks(1, "3", "a", WEEK_MS);
    refused.is_problem(409, "deadlock", "give_up");
    assert_eq!(refused.body["cycle"].as_array().map(Vec::len), Some(2), "{}", refused.body);
}

/// Operators see who holds what, and act on the locks and sessions of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_act_on_locks_of_others() {
    let (_cluster, port) = at_a_follower().await;
    assert_eq!(port.post("semaphore", json!({"lock": "builders", "limit": 4})).body["limit"], 4);
    let permit = port.post("acquire", json!({"lock": "builders", "mode": "permits", "lease_ms": 60_000}));
    assert_eq!(permit.status, 200, "{}", permit.body);
    assert_eq!(port.get("locks?prefix=build&show=held&rows=5").body["locks"][0]["limit"], 4);
    let held = port.post("acquire", json!({"lock": "a", "lease_ms": 60_000, "who": "ann"}));
    let token = text(&held.body["token"]).to_owned();
    let opened = port.post("sessions", json!({"handle": "s", "ttl_ms": 60_000, "accepts_hand_over": true}));
    let session = text(&opened.body["session"]).to_owned();
    let waiting =
        json!({"lock": "a", "session": session, "handle": "s", "request": "1", "wait_ms": 60_000, "poll_ms": 50});
    assert_eq!(port.post("acquire", waiting.clone()).status, 202);
    assert_eq!(port.get("explain?lock=a").body["freed_by"][0]["who"], "ann");
    assert_eq!(port.get(&format!("explain?session={session}")).body["chain"][0]["lock"], "a");
    port.get("explain?session=999999").is_problem(409, "session-ended", "give_up");
    assert_eq!(port.post("ask", json!({"lock": "a", "token": token, "why": "please"})).body["asked"], true);
    let asked = json!({"lock": "a", "token": token, "why": "dead host", "dry_run": true});
    let would = port.post("break", asked.clone());
    assert_eq!((&would.body["broken"], &would.body["holder"]["who"]), (&json!(false), &json!("ann")));
    assert_eq!(port.get("locks?lock=a").body["holders"][0]["token"], token, "a dry run changes nothing");
    let mut asked = asked;
    asked["dry_run"] = json!(false);
    assert_eq!(port.post("break", asked.clone()).body["broken"], true);
    port.post("break", asked).is_problem(409, "held-by-other", "give_up");
    let got = port.post("acquire", waiting);
    assert_eq!(got.status, 200, "{}", got.body);
    let tokens = port.get("tokens?lock=a").body;
    assert_eq!((&tokens["valid"], &tokens["floor"]), (&json!([got.body["token"]]), &got.body["token"]));
    let next = port.post("sessions", json!({"handle": "t", "ttl_ms": 60_000, "accepts_hand_over": true}));
    let over = port.post("handover", json!({"lock": "a", "token": got.body["token"], "to": next.body["session"]}));
    assert_eq!((over.status, &over.body["session"]), (200, &next.body["session"]), "{}", over.body);
    let history = port.get("history?lock=a").body;
    let events: Vec<_> = history["records"].as_array().expect("records").iter().map(|line| &line["event"]).collect();
    assert_eq!(events, ["granted", "broken", "granted", "handed-over"]);
    let after = text(&history["records"][1]["position"]).to_owned();
    assert_eq!(port.get(&format!("history?lock=a&from={after}")).body["records"].as_array().map(Vec::len), Some(2));
    let ended = port.post(&format!("sessions/{session}/end"), json!({"why": "its host is dead"}));
    assert_eq!((ended.status, &ended.body["ended"]), (200, &json!(true)));
    let renewed = port.post("renew", json!({"session": session, "handle": "s"}));
    renewed.is_problem(409, "session-ended", "give_up");
    let renewed = port.post("renew", json!({"session": "999", "handle": "s"}));
    renewed.is_problem(409, "session-ended", "give_up");
    assert_eq!(renewed.body["detail"], "session 999 is not open: it has expired, or never existed");
    assert_eq!(port.post("semaphore", json!({"lock": "builders", "limit": null})).body["limit"], Value::Null);
}

/// The cluster, its members and the errors are shown, and the description has every path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_and_the_calls_are_described() {
    let (_cluster, port) = at_a_follower().await;
    let status = port.at("GET", "/v1/status", None).body;
    assert_eq!((&status["cluster"], status["nodes"].as_array().map(Vec::len)), (&json!("test"), Some(3)));
    let members = port.at("GET", "/v1/members", None).body;
    assert_eq!(members["members"][2]["voter"], true);
    let errors = port.at("GET", "/v1/errors", None).body;
    assert!(
        errors["errors"].as_array().expect("errors").iter().any(|row| row["error"] == "lost" && row["status"] == 409)
    );
    let described = port.at("GET", "/v1/openapi.json", None).body;
    assert_eq!(described["paths"]["/v1/ns/{namespace}/acquire"]["post"]["operationId"], "acquire");
}

/// Requests that no call has get a problem with the exact status, and change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_requests_get_exact_statuses() {
    let (_cluster, port) = at_a_follower().await;
    let ns = "/v1/ns/default";
    let body = r#"{"lock":"a","lease_ms":1000}"#;
    let status = |answer: Answer, status: u16, code: &str| {
        answer.is_problem(status, code, "give_up");
        for header in ["lockkeeper-node", "lockkeeper-cluster"] {
            assert!(answer.header(header).is_some(), "no header {header} with {status}: {}", answer.body);
        }
        // No page of another site may read an answer.
        assert_eq!(answer.header("access-control-allow-origin"), None, "{status}: {}", answer.body);
        answer.body
    };
    let shown = |problem: &Value| ["field", "value"].map(|name| text(&problem[name]).to_owned());
    let problem = status(port.at("GET", &format!("{ns}/nothing"), None), 404, "invalid");
    assert_eq!(shown(&problem), ["path", "/v1/ns/default/nothing"]);
    status(port.at("POST", "/v2/acquire", Some(("application/json", "{}"))), 404, "invalid");
    let wrong = port.at("GET", &format!("{ns}/acquire"), None);
    assert_eq!(wrong.header("allow"), Some("POST"));
    status(wrong, 405, "invalid");
    let problem = status(port.at("DELETE", &format!("{ns}/locks"), None), 405, "invalid");
    assert_eq!(shown(&problem), ["method", "DELETE"]);
    status(port.at("POST", "/metrics", Some(("application/json", "{}"))), 405, "invalid");
    status(port.at("POST", &format!("{ns}/acquire"), Some(("text/plain", body))), 415, "invalid");
    status(port.at("POST", &format!("{ns}/acquire?x=1"), Some(("application/json", body))), 400, "invalid");
    let long = format!("{{\"lock\":\"{}\"}}", "x".repeat(70_000));
    status(port.at("POST", &format!("{ns}/acquire"), Some(("application/json", &long))), 413, "invalid");
    let problem = status(port.with_host("evil.example").at("GET", &format!("{ns}/locks"), None), 421, "invalid");
    assert_eq!(shown(&problem), ["host", "\"evil.example\""]);
    status(
        port.with_header("origin: http://evil.example").at("GET", &format!("{ns}/locks"), None),
        403,
        "not-permitted",
    );
    for (path, named) in [
        ("/v1/ns/Default/locks", ["namespace", "\"Default\""]),
        ("/v1/ns/%ff/locks", ["namespace", "/v1/ns/%ff/locks"]),
        ("/v1/ns/default/sessions/x", ["id", "\"x\""]),
        ("/v1/ns/default/locks?lock=%ff", ["lock", "%ff"]),
        ("/v1/ns/default/sessions?after=x", ["after", "\"x\""]),
        ("/v1/ns/default/history?from=x", ["from", "\"x\""]),
        ("/v1/ns/default/watch?from=x", ["from", "\"x\""]),
    ] {
        assert_eq!(shown(&status(port.at("GET", path, None), 400, "invalid")), named, "{path}");
    }
    for (asked, field) in [
        (json!({"lock": "a", "lease_ms": 1_000, "color": 1}), "color"),
        (json!({"lock": "a", "lease_ms": "1000"}), "lease_ms"),
        (json!({"lock": "a"}), "lease_ms"),
        (json!({"lease_ms": 1_000}), "lock"),
        (json!({"lock": "", "lease_ms": 1_000}), "lock"),
        (json!({"lock": "a", "lease_ms": 1_000, "request": "x", "handle": "h"}), "request"),
        (json!({"lock": "a", "lease_ms": 1_000, "permits": 2}), "permits"),
        (json!({"lock": "a", "lease_ms": 1_000, "owner": "o"}), "owner"),
        (json!({"lock": "a", "lease_ms": 1_000, "wait_ms": 1_000_000_000}), "wait_ms"),
        (json!({"lock": "a", "lease_ms": 1_000, "wait_ms": 1, "poll_ms": 600_001}), "poll_ms"),
        (json!({"lock": "a", "session": "1", "handle": "h", "since_ms": 1}), "since_ms"),
        (json!({"lock": "a", "session": "x", "handle": "h"}), "session"),
        (json!({"lock": "a", "locks": [], "session": "1", "handle": "h"}), "lock"),
        (json!({"locks": [], "session": "1", "handle": "h"}), "locks"),
    ] {
        let answer = port.post("acquire", asked.clone());
        answer.is_problem(400, "invalid", "give_up");
        assert_eq!(answer.body["field"], field, "{asked}: {}", answer.body);
    }
    let problem = status(port.post("hold", json!({"lock": "a", "request": "x", "handle": "h"})), 400, "invalid");
    assert_eq!(shown(&problem), ["request", "\"x\""]);
    assert_eq!(port.get("locks").body, json!({"locks": [], "more": false}), "nothing was taken");
}
