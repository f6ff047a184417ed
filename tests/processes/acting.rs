//! Commands for the locks and sessions of other clients, and elections, against a running cluster.

use std::process::Stdio;

use serde_json::Value;

use crate::lock_command::{cluster_tests, code, count, holder, lockkeeper, object, output, release_holder, shown};
use crate::wait::block_until;

cluster_tests! {
    others_locks_are_broken
    others_locks_are_handed_over
    a_leader_is_elected
    a_session_is_ended
}

fn token(endpoints: &str, name: &str) -> String {
    shown(endpoints, name)["holders"][0]["token"].as_str().expect("held").to_owned()
}

fn printed(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A dry run and a stale token change nothing, and a holder that receives a request keeps its lock. A break ends the
/// command of the holder, which exits with 76.
fn others_locks_are_broken(endpoints: &str) {
    let command = ["lock", "ac/break", "--value", "v1", "--delay", "30s", "--", "sleep", "1000"];
    let mut held = lockkeeper(endpoints, &command).spawn().unwrap();
    block_until("a holder", || count(endpoints, "ac/break", "holders") == 1);
    assert_eq!(shown(endpoints, "ac/break")["value"], Value::from("v1"));
    let token = token(endpoints, "ac/break");
    let listed = object(&output(endpoints, &["ls", "ac/break", "--json"]).stdout);
    assert_eq!((&listed["value"], &listed["holders"]), (&Value::from("v1"), &Value::from(1)));

    assert_eq!(code(endpoints, &["ask", "ac/break", &token, "maintenance"]), Some(0));
    let dry = output(endpoints, &["break", "ac/break", &token, "--why", "it hangs", "--dry-run", "--json"]);
    let dry = object(&dry.stdout);
    assert_eq!((&dry["broken"], &dry["holder"]["token"]), (&Value::from(false), &Value::from(token.as_str())));
    let stale = output(endpoints, &["break", "ac/break", "999999", "--why", "it hangs", "--json"]);
    assert_eq!((stale.status.code(), &object(&stale.stderr)["error"]), (Some(65), &Value::from("held-by-other")));
    assert_eq!(count(endpoints, "ac/break", "holders"), 1);

    let broken = output(endpoints, &["break", "ac/break", &token, "--why", "it hangs"]);
    let text = printed(&broken);
    assert!(text.contains("broken; no client waits"), "{text}");
    assert_eq!(held.wait().unwrap().code(), Some(76));
    assert_eq!(shown(endpoints, "ac/break")["kind"], Value::Null, "a break leaves no lock-delay");
    let gone = output(endpoints, &["ask", "ac/break", &token, "too late", "--json"]);
    assert_eq!((gone.status.code(), &object(&gone.stderr)["error"]), (Some(65), &Value::from("not-held")));
}

/// A hold can be handed over only to a session that waits for it. A semaphore keeps the limit that was set.
fn others_locks_are_handed_over(endpoints: &str) {
    let mut first = holder(endpoints, "ac/hand");
    let mut successor = lockkeeper(endpoints, &["lock", "--hold", "ac/hand"]).stdin(Stdio::piped()).spawn().unwrap();
    block_until("a waiter", || count(endpoints, "ac/hand", "waiters") == 1);
    let session = shown(endpoints, "ac/hand")["waiters"][0]["session"].as_str().unwrap().to_owned();
    let before = shown(endpoints, "ac/hand")["holders"][0].clone();
    let (own, old) = (before["session"].as_str().unwrap(), token(endpoints, "ac/hand"));
    assert_eq!(code(endpoints, &["handover", "ac/hand", &old, "--to", own]), Some(65));
    let handed = output(endpoints, &["handover", "ac/hand", &old, "--to", &session]);
    assert_eq!((handed.status.code(), printed(&handed).trim()), (Some(0), token(endpoints, "ac/hand").as_str()));
    assert_eq!(first.wait().unwrap().code(), Some(76));
    assert_eq!(shown(endpoints, "ac/hand")["holders"][0]["session"], Value::from(session));
    drop(successor.stdin.take());
    assert_eq!(successor.wait().unwrap().code(), Some(0));

    assert_eq!(code(endpoints, &["semaphore", "ac/limit", "--limit", "2"]), Some(0));
    assert_eq!(shown(endpoints, "ac/limit")["limit"], Value::from(2));
    assert_eq!(code(endpoints, &["lock", "ac/limit", "--permits", "3", "--", "true"]), Some(65));
    assert_eq!(code(endpoints, &["lock", "ac/limit", "--permits", "2", "--unfair", "--", "true"]), Some(0));
    assert_eq!(code(endpoints, &["semaphore", "ac/limit", "--remove"]), Some(0));
    assert_eq!(shown(endpoints, "ac/limit")["kind"], Value::Null);
    let lock = holder(endpoints, "ac/lock");
    assert_eq!(code(endpoints, &["semaphore", "ac/lock", "--limit", "2"]), Some(65), "it is a lock");
    release_holder(lock);
}

/// `leader` exits with 1 while there is no leader. The elected candidate leads under its value, and a second candidate
/// times out.
fn a_leader_is_elected(endpoints: &str) {
    let vacant = output(endpoints, &["leader", "ac/office", "--json"]);
    assert_eq!((vacant.status.code(), &object(&vacant.stdout)["token"]), (Some(1), &Value::Null));
    let command = ["elect", "ac/office", "--value", "n1:80", "-c", "cat >/dev/null; exit 7"];
    let mut leads = lockkeeper(endpoints, &command).stdin(Stdio::piped()).spawn().unwrap();
    block_until("a leader", || code(endpoints, &["leader", "ac/office"]) == Some(0));
    assert_eq!(printed(&output(endpoints, &["leader", "ac/office"])), "n1:80\n");
    let second = ["elect", "ac/office", "--value", "n2:80", "-w", "200ms", "--", "true"];
    assert_eq!(code(endpoints, &second), Some(75));
    drop(leads.stdin.take());
    assert_eq!(leads.wait().unwrap().code(), Some(7));
    assert_eq!(code(endpoints, &["elect", "ac/office", "--value", "n2:80", "--", "true"]), Some(0));
    assert_eq!(code(endpoints, &["leader", "ac/office"]), Some(1));
}

/// An operator ends a session by its public id: its command is stopped with 76 and prints the reason, and its locks are
/// free at once. Ending the session again is an error.
fn a_session_is_ended(endpoints: &str) {
    let command = ["lock", "ac/end", "--delay", "30s", "--", "sleep", "1000"];
    let held = lockkeeper(endpoints, &command).spawn().unwrap();
    block_until("a holder", || count(endpoints, "ac/end", "holders") == 1);
    let id = shown(endpoints, "ac/end")["holders"][0]["session"].as_str().unwrap().to_owned();
    assert_eq!(code(endpoints, &["session", "end", &id]), Some(64), "the reason is required");
    let ended = output(endpoints, &["session", "end", &id, "--why", "host replaced", "--json"]);
    let ended = object(&ended.stdout);
    assert_eq!((&ended["session"], &ended["ended"]), (&Value::from(id.as_str()), &Value::from(true)));
    let held = held.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&held.stderr);
    assert!(held.status.code() == Some(76) && stderr.contains("host replaced"), "{:?}: {stderr}", held.status);
    assert_eq!(shown(endpoints, "ac/end")["kind"], Value::Null, "no lock-delay");
    let again = output(endpoints, &["session", "end", &id, "--why", "host replaced", "--json"]);
    assert_eq!((again.status.code(), &object(&again.stderr)["error"]), (Some(65), &Value::from("session-ended")));
}
