//! The audit log: acts of operators, and refused callers.

use std::fs::{self, File};
use std::path::Path;

use futures_util::FutureExt;
use lockkeeper::audit;
use lockkeeper::auth::{ClusterRight, Who};
use lockkeeper::model::{
    DocumentCommand, DocumentId, EndSession, FencingToken, Grab, LeaseRequestId, Manage, Managing, Mode, Patience,
    Principal, ProcessId, Query, QueryResult, Reason, Refusal, SessionClose, TakeLease,
};
use lockkeeper::rpc::pb::admin_client::AdminClient;
use lockkeeper::service::{Freshness, MemberChange, NotSent, Operation};
use serde_json::Value;

use super::own::acquire;
use super::*;
use crate::suite::until;

/// Returns the lines of the only node, after a check of their chain.
pub(super) fn lines(guarded: &Guarded) -> Vec<Value> {
    lines_of(guarded, 1)
}

/// Returns the lines of a node, after a check of their chain.
pub(super) fn lines_of(guarded: &Guarded, node: u64) -> Vec<Value> {
    lines_in(guarded.folder.path(), node)
}

fn lines_in(folder: &Path, node: u64) -> Vec<Value> {
    let path = folder.join(format!("n{node}.jsonl"));
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
    let done = || lines.iter().filter(|line| line["phase"] == "done" && line["principal"] == "admin-all");
    assert!(2 <= done().count() && done().all(|line| line["result"] == "ok"), "{lines:?}");
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
    node.close().await;
    let (written, lines) = (lines, self::lines(&guarded));
    let left_out = |line: &Value| line["refusals_left_out"].as_str().map_or(0, |count| count.parse().expect("a count"));
    let counted = lines.iter().map(left_out).sum::<usize>();
    let refusals = lines.iter().filter(|line| line["phase"] == "refused" && line["act"] != "refusals").count();
    assert_eq!(refusals + counted, 1 + 2 * 50 + 1, "{:?}", &lines[written.len()..]);
}

/// Returns a handle for the calls of a principal over a connection.
fn remote(node: &Node, principal: &str) -> Node {
    let who = Who::Proven(Principal::parse(principal).expect("legal"));
    node.for_caller(Source::Connection(1), None, || Ok(who)).expect("a principal")
}

/// a call that a web page sent is refused, and written once a second, also without rules. The line has nothing
/// that the page chose.
#[tokio::test]
async fn calls_of_web_pages_are_audited() {
    let (guarded, folder) = (Guarded::start(1).await, tempfile::tempdir().expect("a folder"));
    let options = ClusterOptions { nodes: 1, audit: Some(folder.path().to_owned()), ..ClusterOptions::default() };
    let open = Cluster::start_with(options).await.expect("a cluster");
    for (cluster, folder) in [(&guarded.cluster, guarded.folder.path()), (&open, folder.path())] {
        let endpoint = format!("http://{}", cluster.endpoints()[0]);
        let channel = Endpoint::from_shared(endpoint).expect("an address").connect().await.expect("connected");
        let mut client = AdminClient::new(channel);
        for _ in 0..50 {
            let mut request = tonic::Request::new(pb::WhoAmIRequest {});
            request.metadata_mut().insert("origin", "http://evil.example".parse().expect("a header"));
            let refused = client.who_am_i(request).await.expect_err("refused");
            assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        }
        let lines = lines_in(folder, 1);
        let of_pages: Vec<_> = lines.iter().filter(|line| line["act"] == "call-from-page").collect();
        assert!((1..50).contains(&of_pages.len()), "{lines:?}");
        let line = of_pages[0];
        assert_eq!([&line["phase"], &line["principal"]], ["refused", "anonymous"]);
        assert_eq!(line["result"], "not permitted: a web page may not call this port");
        assert!(line["from"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:")), "{line}");
        assert!(lines.iter().all(|line| !line.to_string().contains("evil")), "{lines:?}");
    }
}

/// the line of a refused caller names what it asked for, with the word that a permitted act has.
#[tokio::test]
async fn refused_acts_are_named() {
    let guarded = Guarded::start(1).await;
    let node = guarded.cluster.leader().await;
    assert!(is_forbidden(&remote(&node, "none").operate(Operation::Transfer(1)).await));
    let removal = Operation::ChangeMembers(MemberChange::Remove { node: 1 });
    assert!(is_forbidden(&remote(&node, "read").operate(removal).await));
    assert!(is_forbidden(&remote(&node, "lock").backup().await));
    assert!(is_forbidden(&remote(&node, "admin").permits(ClusterRight::Metrics)));
    let refused =
        ["none transfer refused", "read member-remove refused", "lock backup refused", "admin metrics refused"];
    assert_eq!(acts(&lines(&guarded)), refused);
}

/// X-04, H-17: a wrong handle of a session or of a take is a refusal in the log, without the handle.
#[tokio::test]
async fn wrong_handles_are_audited() {
    let guarded = Guarded::start(1).await;
    let node = guarded.cluster.leader().await;
    let (session, _) = open(&stranger(&node), 7).await;
    let (lock, take, metadata) = (key("a/1"), LeaseRequestId(5), Metadata::default());
    let (handle, access, patience) = (Handle::from_random(5), Mode::Exclusive.into(), Patience::Try);
    let taken = TakeLease { lock, take, handle, access, lease_ms: 60_000, patience, metadata, claim_ms: None };
    stranger(&node).submit(Call::new(Command::TakeLease(taken))).await.expect("taken");
    let wrong = Handle::from_random(9);
    let close = Command::CloseSession { session, end: SessionClose::Done };
    let answered = submit(&remote(&node, "lock-all"), &wrong, close).await;
    assert_eq!(answered, Err(ServiceError::Refused(Refusal::WrongHandle)));
    let cancel = Command::CancelTake { lock: key("a/1"), take, handle: wrong.clone() };
    let answered = remote(&node, "other").submit(Call::new(cancel)).await.map(|reply| reply.outcome);
    assert_ne!(answered, Ok(Outcome::Withdrawn));
    let lines = lines(&guarded);
    assert_eq!(acts(&lines), ["lock-all show-handle refused", "other show-handle refused"]);
    let refused = lines.iter().find(|line| line["act"] == "show-handle").expect("a line");
    assert!(refused["result"].as_str().is_some_and(|text| text.starts_with("the handle ")), "{refused}");
    assert!(lines.iter().all(|line| !line.to_string().contains(wrong.reveal())), "a handle is in the log");
}

/// A hold of a principal, whose session also is the receiver of a hand-over.
struct Held {
    session: SessionId,
    token: FencingToken,
}

async fn hold(node: &Node, principal: &str, number: u64) -> Held {
    let node = named(node, principal);
    let (session, handle) = open(&node, u128::from(number)).await;
    let granted = submit(&node, &handle, acquire(session, 1, &format!("a/{number}"), None)).await;
    let Ok(Outcome::Granted(grant)) = granted else { panic!("{granted:?}") };
    Held { session, token: grant.token }
}

fn hand_over(number: u64, &Held { session, token }: &Held) -> Call {
    let what = Managing::HandOver { token, to: session };
    Call::new(Command::Manage(Manage { lock: key(&format!("a/{number}")), what }))
}

/// a hand-over of another's hold is a refused call and no act. Hand-overs of a principal's own holds are acts.
/// Those beyond the limit, which would fill the log, are refused before they are written.
#[tokio::test]
async fn hand_overs_do_not_fill_the_log() {
    let guarded = Guarded::start(1).await;
    let node = guarded.cluster.leader().await;
    let on = |principal| remote(&node, principal);
    let held = hold(&node, "lock-all", 1).await;
    for _ in 0..50 {
        assert!(is_forbidden(&on("other").submit(hand_over(1, &held)).await));
    }
    let (mut served, mut limited) = (0, 0);
    for _ in 0..200 {
        match on("lock-all").submit(hand_over(1, &held)).await {
            Ok(_) => served += 1,
            Err(ServiceError::NotSent { why: NotSent::LimitReached { limit, .. }, .. }) => {
                assert_eq!(limit, "a caller may send 20 acts a second for the audit log");
                limited += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(0 < limited && 20 <= served, "{served} were served and {limited} refused");
    let acts = acts(&lines(&guarded));
    let count = |line: &str| acts.iter().filter(|act| *act == line).count();
    let refused = count("other hand-over refused");
    assert!((1..50).contains(&refused) && count("other hand-over asked") == 0, "{acts:?}");
    assert_eq!(count("lock-all hand-over asked"), served);
}

/// An ask is an act with its principal and reason. A flood of asks leaves the caller its other acts.
#[tokio::test]
async fn asks_are_audited_next_to_other_acts() {
    let guarded = Guarded::start(1).await;
    let node = guarded.cluster.leader().await;
    let operator = remote(&node, "admin-all");
    let held = hold(&node, "lock-all", 1).await;
    let why = || Reason::parse("please finish").expect("legal");
    let manage = |what| Call::new(Command::Manage(Manage { lock: key("a/1"), what }));
    let (mut served, mut limited) = (0, 0);
    while limited == 0 {
        match operator.submit(manage(Managing::Ask { token: held.token, why: why() })).await {
            Ok(_) => served += 1,
            Err(ServiceError::NotSent { why: NotSent::LimitReached { limit, .. }, .. }) => {
                assert_eq!(limit, "a caller may send 10 asks a second for the audit log");
                limited += 1;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(served < 10_000, "no ask is limited");
    }
    operator.submit(manage(Managing::BreakHold { token: held.token, why: why() })).await.expect("broken");
    let lines = lines(&guarded);
    let acts = acts(&lines);
    let count = |line: &str| acts.iter().filter(|act| *act == line).count();
    assert_eq!((count("admin-all ask asked"), count("admin-all ask done")), (served, served));
    assert_eq!(count("admin-all break done"), 1, "{acts:?}");
    let ask = lines.iter().find(|line| line["act"] == "ask").expect("a line");
    assert_eq!([&ask["why"], &ask["lock"], &ask["namespace"]], ["please finish", "a/1", "prod"]);
    assert_eq!(ask["token"], held.token.to_string());
}

/// A node whose state may be older than a hold does not refuse its owner.
#[tokio::test]
async fn a_new_hold_is_handed_over_through_a_follower() {
    let guarded = Guarded::start(3).await;
    let (leader, follower) = (guarded.cluster.leader().await, guarded.cluster.follower().await);
    for number in 1..=10 {
        let held = hold(&leader, "lock-all", number).await;
        let owner = named(&follower, "lock-all");
        let answered = sent(|| owner.submit(hand_over(number, &held))).await;
        assert!(!is_forbidden(&answered), "{answered:?}");
    }
}

/// The result of an act is written even if its caller disconnects before it has the answer.
#[tokio::test]
async fn the_result_is_written_without_the_caller() {
    let guarded = Guarded::start(1).await;
    let node = guarded.cluster.leader().await;
    let operator = named(&node, "admin-all");
    let set = |limit| Command::Manage(Manage { lock: key("s"), what: Managing::SetLimit { limit } });
    // The answer may arrive before its first poll.
    let left = (1..).find(|limit| operator.submit(Call::new(set(*limit))).now_or_never().is_none());
    let left = left.expect("an act whose caller leaves").to_string();
    let written = async || {
        let of_it = |line: &&Value| line["limit"] == left && line["phase"] == "done";
        lines(&guarded).iter().any(|line| of_it(&line))
    };
    until("the result is in the log", written).await;
}

/// A backup that cannot be made, because no node leads, has no line that says that it was made.
#[tokio::test]
async fn a_backup_that_cannot_be_made_is_not_done() {
    let guarded = Guarded::start(3).await;
    let node = guarded.cluster.follower().await;
    for other in guarded.cluster.nodes().iter().filter(|other| other.id() != node.id()) {
        other.close().await;
    }
    let mut download = named(&node, "backup").backup().await.expect("begun");
    download.next().await.expect_err("no node leads");
    let ended = async || acts(&lines_of(&guarded, node.id())).len() == 2;
    until("the result is in the log", ended).await;
    assert_eq!(acts(&lines_of(&guarded, node.id())), ["backup backup asked", "backup backup refused"]);
}

/// Overtaking or unlocking another's document is an act also at a node whose state may be older than the document.
#[tokio::test]
async fn acts_on_new_documents_are_audited_at_a_follower() {
    let guarded = Guarded::start(3).await;
    let (leader, follower) = (guarded.cluster.leader().await, guarded.cluster.follower().await);
    let (owner, operator) = (named(&leader, "lock-all"), named(&follower, "admin-all"));
    let document = |command| Call::new(Command::Document(command));
    let grab = |name: &str, ts, seen| {
        let metadata = Metadata { process: name.into(), ..Metadata::default() };
        let (lock, ts) = (key(name), DocumentId([ts; 12]));
        document(DocumentCommand::Grab(Grab { lock, ts, metadata, term: None, prepare: false, seen }))
    };
    let acts_of = ["overtake", "unlock", "unlock", "unlock"];
    for (act, ts) in (0..16).zip(1..) {
        let (name, seen) = (format!("a/{act}"), DocumentId([ts; 12]));
        let granted = sent(|| owner.submit(grab(&name, ts, None))).await.expect("answered");
        assert!(matches!(granted.outcome, Outcome::Granted(_)), "{granted:?}");
        let command = match act % 4 {
            0 => grab(&name, 100 + ts, Some(seen)),
            kind @ (1 | 2) => {
                let name = (kind == 1).then(|| key(&name).name);
                document(DocumentCommand::Unlock { namespace: namespace(), ts: seen, name })
            }
            _ => {
                let process = ProcessId::parse(&name).expect("legal");
                document(DocumentCommand::UnlockAll { namespace: namespace(), process, term: None })
            }
        };
        sent(|| operator.submit(command.clone())).await.expect("answered");
        let acts = acts(&lines_of(&guarded, follower.id()));
        let done = format!("admin-all {} done", acts_of[act % 4]);
        let count = acts.iter().filter(|line| **line == done).count();
        let expected = (0..=act).filter(|before| acts_of[before % 4] == acts_of[act % 4]).count();
        assert_eq!(count, expected, "{act}: {acts:?}");
    }
}

/// A line names the proof of its caller: the token, whose first use is written once, or the certificate.
#[tokio::test]
async fn proofs_are_audited() {
    let guarded = Guarded::start(1).await;
    let node = guarded.cluster.leader().await;
    let (service, entry) = guarded.token("admin-all", 1);
    let rules = rules_with(&entry);
    let named = "name = \"admin-all\"\nroles = [\"admin-all\"]\n";
    guarded.reload(&rules.replace(named, &format!("{named}certificate = true\n")));
    let limit = || Call::new(Command::Manage(Manage { lock: key("s"), what: Managing::SetLimit { limit: 3 } }));
    for _ in 0..2 {
        service.submit(limit()).await.expect("set");
    }
    let who = Who::Certificate { name: Principal::parse("admin-all").expect("legal"), digest: "9f".into() };
    let shown = node.for_caller(Source::Connection(1), None, || Ok(who)).expect("a principal");
    shown.submit(limit()).await.expect("set");
    let lines = lines(&guarded);
    let proofs = |act: &str, phase: &str| {
        let of = lines.iter().filter(|line| line["act"] == act && line["phase"] == phase);
        of.map(|line| line["proof"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let token = proofs("first-use", "done");
    assert!(token.len() == 1 && token[0].starts_with("token "), "{lines:?}");
    assert_eq!(proofs("set-limit", "done"), [&*token[0], &token[0], "cert:sha256:9f"]);
}

/// Without rules a remote caller is `anonymous`, with its address and its certificate. `local` is only the application
/// that embeds the node. A token that no rules know proves nothing.
#[tokio::test]
async fn remote_callers_are_not_local_without_rules() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = ClusterOptions { nodes: 1, audit: Some(folder.path().to_owned()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    let node = cluster.leader().await;
    let address = "10.0.0.9:51122".parse().expect("an address");
    let remote = |who| node.for_caller(Source::Connection(1), Some(address), || who).expect("a caller");
    let certificate = Who::Certificate { name: Principal::parse("ci").expect("legal"), digest: "9f".into() };
    let token = Who::Token(TokenHash::of(&new_token([7, 1])).expect("a token"));
    let exposed = ServiceError::Unauthenticated { why: "a token in plain text".to_owned() };
    let callers = [
        remote(Ok(certificate.clone())),
        remote(Ok(token)),
        remote(Err(exposed)),
        named(&node, "billing"),
        node.clone(),
    ];
    let limit = || Command::Manage(Manage { lock: key("s"), what: Managing::SetLimit { limit: 3 } });
    for caller in callers {
        sent(|| caller.submit(Call::new(limit()))).await.expect("set");
    }
    let mut download = remote(Ok(certificate)).backup().await.expect("begun");
    while download.next().await.expect("a part").is_some() {}
    let is_made = |line: &Value| line["act"] == "backup" && line["phase"] == "done";
    until("the result is in the log", async || lines_in(folder.path(), 1).iter().any(is_made)).await;
    let lines = lines_in(folder.path(), 1);
    let word = |line: &Value, name: &str| line[name].as_str().unwrap_or("-").to_owned();
    let of = |line: &Value| ["act", "principal", "certificate", "proof", "from"].map(|name| word(line, name)).join(" ");
    let done = lines.iter().filter(|line| line["phase"] == "done" && line["act"] != "start").map(of);
    let expected = [
        "set-limit anonymous ci cert:sha256:9f 10.0.0.9:51122",
        "set-limit anonymous - - 10.0.0.9:51122",
        "set-limit anonymous - - 10.0.0.9:51122",
        "set-limit billing - - -",
        "set-limit local - - -",
        "backup anonymous ci cert:sha256:9f 10.0.0.9:51122",
    ];
    assert_eq!(done.collect::<Vec<_>>(), expected, "{lines:?}");
}

/// the line of a reload names the principals and tokens that the rules no longer have, and says when their
/// sessions end.
#[tokio::test]
async fn removed_principals_are_audited() {
    let guarded = Guarded::start(1).await;
    let node = guarded.cluster.leader().await;
    let (_, entry) = guarded.token("other", 1);
    guarded.reload(&rules_with(&entry));
    let held = hold(&node, "lock-all", 1).await;
    let removed = rules_with("").replace("name = \"lock-all\"\nroles = [\"lock-all\"]", "name = \"next\"\nroles = []");
    guarded.reload(&removed);
    let lines = lines(&guarded);
    let reloads: Vec<_> = lines.iter().filter(|line| line["act"] == "reload-rules").collect();
    assert_eq!((reloads.len(), reloads[0].get("removed_principals")), (2, None), "{lines:?}");
    let token = TokenHash::of(&new_token([7, 1])).expect("a token").id();
    assert_eq!((&reloads[1]["removed_principals"], &reloads[1]["removed_tokens"]), (&"lock-all".into(), &token.into()));
    assert_eq!(reloads[1]["sessions"], "none ends early: each lives for its TTL");
    let query = Query::Inspect { lock: key("a/1") };
    let answer = node.query(query, Freshness::Linearizable).await.expect("inspected").answer;
    let QueryResult::Lock(view) = answer else { panic!("{answer:?}") };
    assert_eq!(view.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [held.token]);
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
