//! The audit log: acts of operators, and refused callers.

use std::fs::{self, File};

use lockkeeper::audit;
use lockkeeper::model::{EndSession, Manage, Managing, Query, Reason};
use lockkeeper::service::{Freshness, Operation};
use serde_json::Value;

use super::*;

/// Returns the lines of the only node, after a check of their chain.
pub(super) fn lines(guarded: &Guarded) -> Vec<Value> {
    let path = guarded.folder.path().join("n1.jsonl");
    let proof = audit::verify(File::open(&path).expect("a file")).expect("read");
    assert!(proof.is_ok(), "{proof:?}");
    let text = fs::read_to_string(path).expect("read");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the acts with their phases and principals, without those of the node itself.
fn acts(lines: &[Value]) -> Vec<String> {
    let word = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let of = |line: &Value| format!("{} {} {}", word(line, "principal"), word(line, "act"), word(line, "phase"));
    lines.iter().filter(|line| line["principal"] != "local").map(of).collect()
}

/// an act of an operator is written before and after it is executed, with its reason and its result. The log has
/// no handle.
#[tokio::test]
async fn acts_of_operators_are_audited() {
    let guarded = Guarded::start(1).await;
    let node = guarded.cluster.leader().await;
    let operator = named(&node, "admin-all");
    let (session, handle) = open(&named(&node, "other"), 7).await;
    let why = Reason::parse("stuck since noon").expect("legal");
    let end = Command::EndSession(EndSession { namespace: namespace(), session, why });
    operator.submit(Call::new(end)).await.expect("ended");
    let limit = Command::Manage(Manage { lock: key("s"), what: Managing::SetLimit { limit: 3 } });
    operator.submit(Call::new(limit)).await.expect("set");
    let remove = Command::Manage(Manage { lock: key("never"), what: Managing::RemoveLimit });
    operator.submit(Call::new(remove)).await.expect("answered");
    named(&node, "operate").operate(Operation::Transfer(9)).await.expect_err("no such node");
    let lines = lines(&guarded);
    let written = [
        "admin-all end-session asked",
        "admin-all end-session done",
        "admin-all set-limit asked",
        "admin-all set-limit done",
        "admin-all remove-limit asked",
    ];
    assert_eq!(acts(&lines)[..5], written, "{lines:?}");
    assert_eq!(acts(&lines)[6..], ["operate transfer asked", "operate transfer refused"]);
    let ended = lines.iter().find(|line| line["act"] == "end-session").expect("a line");
    assert_eq!((&ended["why"], &ended["namespace"]), (&"stuck since noon".into(), &"prod".into()));
    assert_eq!(ended["session"], session.to_string());
    let refused = lines.iter().find(|line| line["act"] == "transfer" && line["phase"] == "refused").expect("a line");
    assert!(refused["result"].as_str().expect("a text").contains("node"), "{refused}");
    assert!(lines.iter().all(|line| !line.to_string().contains(handle.reveal())), "a handle is in the log");
    assert_eq!((&lines[0]["act"], lines[0]["rules"].is_string()), (&"start".into(), true));
}

/// callers that are refused are written once a second, with their address, and none of their acts is executed or
/// fills the log.
#[tokio::test]
async fn refused_callers_are_audited() {
    let guarded = Guarded::start(1).await;
    let node = guarded.cluster.leader().await;
    let (service, entry) = guarded.token("other", 1);
    let (reader, of_reader) = guarded.token("read", 3);
    guarded.reload(&rules_with(&(entry + &of_reader)));
    let query = Query::Inspect { lock: key("s") };
    assert!(is_forbidden(&reader.query(query, Freshness::Linearizable).await));
    let limit = || Command::Manage(Manage { lock: key("s"), what: Managing::SetLimit { limit: 3 } });
    for _ in 0..50 {
        assert!(is_forbidden(&service.submit(Call::new(limit())).await));
        assert!(is_forbidden(&service.operate(Operation::Transfer(1)).await));
    }
    let (unknown, _) = guarded.token("unlisted", 2);
    unknown.whoami().await.expect_err("no such token");
    let lines = lines(&guarded);
    let refused: Vec<_> = lines.iter().filter(|line| line["phase"] == "refused").collect();
    assert!((2..20).contains(&refused.len()), "{lines:?}");
    assert!(refused.iter().all(|line| line["from"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:"))));
    let by = |principal: &str| refused.iter().find(|line| line["principal"] == principal).expect("a line");
    assert!(by("other")["proof"].as_str().expect("a text").starts_with("token "), "{refused:?}");
    assert_eq!((&by("read")["act"], &by("unknown")["act"]), (&"query".into(), &"login".into()));
    assert!(by("unknown")["result"].as_str().expect("a text").ends_with("the token is not known"), "{refused:?}");
    assert!(acts(&lines).iter().all(|act| !act.ends_with("asked")), "{lines:?}");
    drop(node);
}

/// An act whose line cannot be written is not executed. Other calls are served.
#[tokio::test]
async fn without_the_log_nothing_is_executed() {
    let missing = ClusterOptions { nodes: 1, audit: Some("/proc/none".into()), ..ClusterOptions::default() };
    let refused = Cluster::start_with(missing).await.expect_err("refused").to_string();
    assert!(refused.starts_with("the audit log /proc/none/n1.jsonl cannot be opened: "), "{refused}");
    let folder = tempfile::tempdir().expect("a folder");
    // The kernel accepts only numbers in this file.
    std::os::unix::fs::symlink("/proc/self/oom_score_adj", folder.path().join("n1.jsonl")).expect("linked");
    let options = ClusterOptions { nodes: 1, audit: Some(folder.path().to_owned()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    let leader = cluster.leader().await;
    let limit = Command::Manage(Manage { lock: key("s"), what: Managing::SetLimit { limit: 3 } });
    let refused = leader.submit(Call::new(limit)).await.expect_err("the log is refused").to_string();
    assert!(refused.contains("n1.jsonl cannot be written: ") && refused.contains("nothing was done"), "{refused}");
    open(&leader.service(), 8).await;
}
