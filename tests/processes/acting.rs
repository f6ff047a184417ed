//! The commands that act on others' locks, and elections, against a running cluster.

use std::process::Stdio;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::lock_command::{code, count, holder, let_go, lockkeeper, object, output, shown, until};

/// Runs a behaviour that waits for processes against a cluster of its own.
pub(crate) async fn against_a_cluster(behaviour: fn(&str)) {
    let cluster = Cluster::start().await;
    let endpoints = cluster.endpoints().join(",");
    tokio::task::spawn_blocking(move || behaviour(&endpoints)).await.expect("the behaviour holds");
}

fn token(endpoints: &str, name: &str) -> String {
    shown(endpoints, name)["holders"][0]["token"].as_str().expect("held").to_owned()
}

fn printed(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A dry run and a stale token change nothing; a break ends the command of the holder, which exits with 76, and a holder
/// that is asked keeps its lock.
fn others_locks_are_broken(endpoints: &str) {
    let command = ["lock", "ac/break", "--value", "v1", "--delay", "30s", "--", "sleep", "1000"];
    let mut held = lockkeeper(endpoints, &command).spawn().unwrap();
    until("a holder", || count(endpoints, "ac/break", "holders") == 1);
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
    assert!(text.contains("broken; nobody waits"), "{text}");
    assert_eq!(held.wait().unwrap().code(), Some(76));
    assert_eq!(shown(endpoints, "ac/break")["kind"], Value::Null, "a break leaves no lock-delay");
    let gone = output(endpoints, &["ask", "ac/break", &token, "too late", "--json"]);
    assert_eq!((gone.status.code(), &object(&gone.stderr)["error"]), (Some(65), &Value::from("not-held")));
}

/// A hold goes to a session that waits for it, and only to such a one; a semaphore keeps the limit that was set.
fn others_locks_are_handed_over(endpoints: &str) {
    let mut first = holder(endpoints, "ac/hand");
    let mut heir = lockkeeper(endpoints, &["lock", "--hold", "ac/hand"]).stdin(Stdio::piped()).spawn().unwrap();
    until("a waiter", || count(endpoints, "ac/hand", "waiters") == 1);
    let session = shown(endpoints, "ac/hand")["waiters"][0]["session"].as_str().unwrap().to_owned();
    let before = shown(endpoints, "ac/hand")["holders"][0].clone();
    let (own, old) = (before["session"].as_str().unwrap(), token(endpoints, "ac/hand"));
    assert_eq!(code(endpoints, &["handover", "ac/hand", &old, "--to", own]), Some(65));
    let handed = output(endpoints, &["handover", "ac/hand", &old, "--to", &session]);
    assert_eq!((handed.status.code(), printed(&handed).trim()), (Some(0), token(endpoints, "ac/hand").as_str()));
    assert_eq!(first.wait().unwrap().code(), Some(76));
    assert_eq!(shown(endpoints, "ac/hand")["holders"][0]["session"], Value::from(session));
    drop(heir.stdin.take());
    assert_eq!(heir.wait().unwrap().code(), Some(0));

    assert_eq!(code(endpoints, &["semaphore", "ac/limit", "--limit", "2"]), Some(0));
    assert_eq!(shown(endpoints, "ac/limit")["limit"], Value::from(2));
    assert_eq!(code(endpoints, &["lock", "ac/limit", "--permits", "3", "--", "true"]), Some(65));
    assert_eq!(code(endpoints, &["lock", "ac/limit", "--permits", "2", "--unfair", "--", "true"]), Some(0));
    assert_eq!(code(endpoints, &["semaphore", "ac/limit", "--remove"]), Some(0));
    assert_eq!(shown(endpoints, "ac/limit")["kind"], Value::Null);
    let lock = holder(endpoints, "ac/lock");
    assert_eq!(code(endpoints, &["semaphore", "ac/lock", "--limit", "2"]), Some(65), "it is a lock");
    let_go(lock);
}

/// Nobody leads at first (1); then who runs leads under its value, and a second candidate waits in vain.
fn a_leader_is_elected(endpoints: &str) {
    let nobody = output(endpoints, &["leader", "ac/office", "--json"]);
    assert_eq!((nobody.status.code(), &object(&nobody.stdout)["token"]), (Some(1), &Value::Null));
    let command = ["elect", "ac/office", "--value", "n1:80", "-c", "cat >/dev/null; exit 7"];
    let mut leads = lockkeeper(endpoints, &command).stdin(Stdio::piped()).spawn().unwrap();
    until("a leader", || code(endpoints, &["leader", "ac/office"]) == Some(0));
    assert_eq!(printed(&output(endpoints, &["leader", "ac/office"])), "n1:80\n");
    let second = ["elect", "ac/office", "--value", "n2:80", "-w", "200ms", "--", "true"];
    assert_eq!(code(endpoints, &second), Some(75));
    drop(leads.stdin.take());
    assert_eq!(leads.wait().unwrap().code(), Some(7));
    assert_eq!(code(endpoints, &second), Some(0));
    assert_eq!(code(endpoints, &["leader", "ac/office"]), Some(1));
}

/// A session is ended by its public id: its command is stopped with 76 and says why, its locks are free at once, and a
/// session that has ended already is an error.
fn a_session_is_ended(endpoints: &str) {
    let command = ["lock", "ac/end", "--delay", "30s", "--", "sleep", "1000"];
    let held = lockkeeper(endpoints, &command).spawn().unwrap();
    until("a holder", || count(endpoints, "ac/end", "holders") == 1);
    let id = shown(endpoints, "ac/end")["holders"][0]["session"].as_str().unwrap().to_owned();
    assert_eq!(code(endpoints, &["session", "end", &id]), Some(64), "why?");
    let ended = output(endpoints, &["session", "end", &id, "--why", "host replaced", "--json"]);
    let ended = object(&ended.stdout);
    assert_eq!((&ended["session"], &ended["ended"]), (&Value::from(id.as_str()), &Value::from(true)));
    let held = held.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&held.stderr);
    assert!(held.status.code() == Some(76) && said.contains("host replaced"), "{:?}: {said}", held.status);
    assert_eq!(shown(endpoints, "ac/end")["kind"], Value::Null, "no lock-delay");
    let again = output(endpoints, &["session", "end", &id, "--why", "host replaced", "--json"]);
    assert_eq!((again.status.code(), &object(&again.stderr)["error"]), (Some(65), &Value::from("session-ended")));
}

/// See [`a_session_is_ended`].
#[tokio::test]
async fn an_operator_ends_a_session() {
    against_a_cluster(a_session_is_ended).await;
}

/// See [`others_locks_are_broken`].
#[tokio::test]
async fn a_break_ends_the_holders_command() {
    against_a_cluster(others_locks_are_broken).await;
}

/// See [`others_locks_are_handed_over`].
#[tokio::test]
async fn a_hand_over_names_the_heir() {
    against_a_cluster(others_locks_are_handed_over).await;
}

/// See [`a_leader_is_elected`].
#[tokio::test]
async fn an_election_has_one_leader() {
    against_a_cluster(a_leader_is_elected).await;
}
