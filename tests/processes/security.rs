//! A cluster of real processes with TLS on every port.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use lockkeeper::client::Client;
use lockkeeper::service::Status;
use rustix::process::Signal;

use crate::cluster::{Cluster, PATIENCE, TURN};
use crate::wait::wait_until;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Restarts the nodes with rules. Returns the file with the token of a principal that may do everything.
async fn add_rules(cluster: &mut Cluster) -> String {
    let [rules, token] = ["auth.toml", "token"].map(|name| cluster.folder().join(name).display().to_string());
    let roles = "version = 1\n[[role]]\nname = \"all\"\nrules = [{ namespace = \"*\", right = \"admin\" }]\n\
                 cluster = [\"metrics\"]\n[[principal]]\nname = \"ci\"\nroles = [\"all\"]\ncertificate = true\n\
                 [[principal]]\nname = \"ops\"\nroles = [\"all\"]\n";
    fs::write(&rules, roles).expect("rules");
    fs::set_permissions(&rules, Permissions::from_mode(0o600)).expect("private");
    let made = cluster.command(&["auth", "token", &rules, "ops", "--out", &token]).status().expect("ran");
    assert!(made.success());
    for node in 1..=3 {
        cluster.stop(node);
        let config = fs::read_to_string(cluster.config(node)).expect("a configuration");
        fs::write(cluster.config(node), config + &format!("[auth]\nfile = {rules:?}\n")).expect("a configuration");
    }
    for node in 1..=3 {
        cluster.spawn(node);
    }
    cluster.await_leader().await;
    for node in 1..=3 {
        cluster.await_answer(node).await;
    }
    token
}

/// no log, audit log, metric or command line of a process shows a secret while it is in use: the token and the
/// private key of a command, or the handle of a session.
async fn no_secret_is_shown(cluster: &mut Cluster) {
    if Command::new("curl").arg("--version").output().is_err() {
        return eprintln!("not run: there is no curl");
    }
    let file = add_rules(cluster).await;
    let token = fs::read_to_string(&file).expect("a token").trim().to_owned();
    let (certs, header) = (cluster.folder().join("certs"), cluster.folder().join("header"));
    let key = fs::read_to_string(certs.join("client-ci.key")).expect("a key");
    let key = key.lines().nth(1).expect("a line of the key");
    let holds = ["lock", "--auth-token-file", &file, "guarded", "--", "sleep", "60"];
    let mut holding = cluster.command(&holds).spawn().expect("a command");
    let client = cluster.client();
    let session = client.session().open().await.expect("a session");
    wait_until("the command holds", async || session.lock("guarded").try_once().acquire().await.is_err()).await;

    let lines = fs::read_dir("/proc").expect("processes").flatten().map(|entry| fs::read(entry.path().join("cmdline")));
    let lines: Vec<_> = lines.flatten().map(|line| text(&line)).collect();
    let folder = cluster.folder().to_str().expect("a path");
    let of_cluster = lines.iter().filter(|line| line.contains(folder)).count();
    assert!(4 <= of_cluster, "three nodes and the command: {lines:?}");
    fs::write(&header, format!("authorization: Bearer {token}\n")).expect("written");
    let mut curl = Command::new("curl");
    curl.arg("-sS").arg("--cacert").arg(certs.join("ca.pem")).arg("-H").arg(format!("@{}", header.display()));
    let metrics = curl.arg(format!("https://{}/metrics", cluster.http(1))).output().expect("curl");
    let mut shown = vec![lines.join("\n"), text(&metrics.stdout)];
    assert!(shown[1].contains("lockkeeper_raft_term"), "{} {}", shown[1], text(&metrics.stderr));
    for node in 1..=3 {
        shown.push(cluster.log(node));
        shown.push(fs::read_to_string(cluster.folder().join(format!("audit-{node}.jsonl"))).expect("an audit log"));
    }
    for secret in [token.as_str(), key, session.handle().reveal()] {
        let showing = shown.iter().find(|text| text.contains(secret));
        assert!(20 < secret.len() && showing.is_none(), "{secret} is shown: {showing:?}");
    }
    holding.kill().expect("killed");
    holding.wait().expect("ended");
}

/// with TLS on every port the commands work with a certificate, and are refused without one. A killed
/// leader is replaced, and a killed node joins again. No secret is shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_tls_serves_only_its_clients() {
    let _turn = TURN.lock().await;
    let mut cluster = Cluster::start_tls("fast").await;
    let locked = cluster.command(&["lock", "nightly", "--", "true"]).output().expect("a command");
    assert!(locked.status.success(), "{}", text(&locked.stderr));
    let refused = |command: &mut std::process::Command, exit: i32, holds: &str| {
        let ended = command.output().expect("a command");
        assert_eq!(ended.status.code(), Some(exit), "{}", text(&ended.stderr));
        assert!(text(&ended.stderr).contains(holds), "{}", text(&ended.stderr));
    };
    let without = |names: &[&str]| {
        let mut command = cluster.command(&["status", "--timeout", "2s"]);
        for name in names {
            command.env_remove(name);
        }
        command
    };
    let certificate = ["LOCKKEEPER_CERT", "LOCKKEEPER_KEY"];
    refused(&mut without(&certificate), 77, "demands a certificate: give --cert and --key");
    refused(&mut without(&["LOCKKEEPER_CA", certificate[0], certificate[1]]), 69, "if it uses TLS, give --ca");
    let node = |extension: &str| cluster.folder().join(format!("certs/node-1.{extension}"));
    let mut as_node = without(&[]);
    as_node.env("LOCKKEEPER_CERT", node("pem")).env("LOCKKEEPER_KEY", node("key"));
    refused(&mut as_node, 77, "refused the name in");

    let leader = cluster.await_leader().await;
    cluster.kill(leader);
    assert_ne!(cluster.await_leader().await, leader);
    cluster.spawn(leader);
    cluster.await_answer(leader).await;
    let log = cluster.log(leader);
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    no_secret_is_shown(&mut cluster).await;
}

/// The listeners for clients, nodes and HTTP close a connection in plain text without an answer. The log and the audit
/// log name the first of them in a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_text_gets_no_answer() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start_tls("fast").await;
    let peer = cluster.peer(1);
    for address in [&cluster.endpoints()[0], &peer, &cluster.http(1)] {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n").expect("sent");
        let mut answer = Vec::new();
        // A reset is an end, too.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{address}: {}", text(&answer));
    }
    wait_until("a log line", async || cluster.log(1).contains("sent plain text; this port requires TLS")).await;
    // The ports notice the connections in any order, and a caller has at most one line a second.
    let mut refused = None;
    wait_until("a line of the audit log", async || {
        let audit = std::fs::read_to_string(cluster.folder().join("audit-1.jsonl")).expect("an audit log");
        let is_refused = |line: &&str| line.contains("\"act\":\"connect\",\"phase\":\"refused\"");
        refused = audit.lines().find(is_refused).map(|line| serde_json::from_str(line).expect("JSON"));
        refused.is_some()
    })
    .await;
    let refused: serde_json::Value = refused.expect("a line");
    assert_eq!(refused["result"], "sent plain text; this port requires TLS");
    assert!(refused["from"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:")), "{refused}");
    assert!(["client", "peer", "http"].contains(&refused["port"].as_str().unwrap_or_default()), "{refused}");
}

/// while clients work, every certificate is renewed and the authority is replaced. No call fails, and no session
/// ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_and_authority_are_replaced_under_load() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start_tls("fast").await;
    let client = cluster.client();
    let session = client.session().ttl(Duration::from_secs(5)).open().await.expect("a session");
    let kept = session.lock("kept").acquire().await.expect("a lock");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let other = client.session().ttl(Duration::from_secs(5)).open().await.expect("a session");
    let working = tokio::spawn(async move {
        let mut pairs = 0;
        while !stopped.load(Ordering::Relaxed) {
            let guard = other.lock("busy").acquire().await.expect("an acquire");
            guard.release().await.expect("a release");
            pairs += 1;
        }
        pairs
    });
    let reload = || (1..=3).for_each(|node| cluster.signal(node, Signal::HUP));
    for step in [&["--renew", "node-1"][..], &["--new-ca"], &["--renew"], &["--drop-old-ca"]] {
        cluster.certs(step);
        reload();
        // A new connection to each node uses the new files.
        for node in 1..=3 {
            cluster.await_answer(node).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(0 < working.await.expect("the worker"));
    kept.release().await.expect("the kept lock");
}

/// The status of every node shows until when the certificates of all nodes are valid, and warns of one that expires
/// soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_warns_of_a_certificate_that_expires_soon() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start_tls("fast").await;
    let warning = |status: &Status| {
        let mut warnings = status.warnings.iter();
        warnings.find(|warning| warning.starts_with("the certificate of node 2 expires on ")).cloned()
    };
    let status = cluster.status_when(1, |status| status.nodes.iter().all(|node| node.certificate_ends.is_some())).await;
    assert_eq!(warning(&status), None);
    cluster.certs(&["--renew", "node-2", "--days", "20"]);
    cluster.signal(2, Signal::HUP);
    for node in [1, 3] {
        let status = cluster.status_when(node, |status| warning(status).is_some()).await;
        let warning = warning(&status).expect("a warning");
        assert!(warning.ends_with(", in less than 30 days; renew it"), "{warning}");
    }
    let shown = cluster.command(&["status"]).output().expect("a command");
    let (shown, end) = (text(&shown.stdout), status.nodes[0].certificate_ends.expect("an end"));
    let day = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(end)).to_string();
    assert!(shown.contains("CERTIFICATE UNTIL") && shown.contains(&day[..10]), "{shown}");
}

/// A node that reads a renewed certificate writes its digest to the audit log, as `certs` lists it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_audits_the_certificate_in_use() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start_tls("fast").await;
    cluster.certs(&["--renew", "node-1"]);
    let mut certs = std::process::Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    let listed = certs.args(["--json", "certs"]).arg(cluster.folder().join("certs")).output().expect("a command");
    let rows = text(&listed.stdout);
    let mut rows = rows.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).expect("JSON"));
    let renewed = rows.find(|row| row["name"] == "node-1").expect("the certificate of node 1");
    let fact = format!("\"certificates\":\"{}\"", &renewed["sha256"].as_str().expect("a digest")[..12]);
    cluster.signal(1, Signal::HUP);
    wait_until("the line of the reload", async || {
        let audit = std::fs::read_to_string(cluster.folder().join("audit-1.jsonl")).expect("an audit log");
        audit.lines().any(|line| line.contains("\"act\":\"reload-certificates\"") && line.contains(&fact))
    })
    .await;
}

/// a refused certificate loses its connections within seconds. Its session is kept, its grace does not begin, and
/// it passes its lock on at the end of its TTL. Clients with other certificates do not notice. A changed file that a
/// node cannot use is a warning in its status.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_client_loses_its_sessions_by_time_only() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start_tls("fast").await;
    cluster.certs(&["--client", "lost"]);
    let lost = |arguments: &[&str]| {
        let file = |extension: &str| cluster.folder().join(format!("certs/client-lost.{extension}"));
        let mut command = cluster.command(arguments);
        command.env("LOCKKEEPER_CERT", file("pem")).env("LOCKKEEPER_KEY", file("key"));
        command
    };
    // A busy machine stalls for less than the grace, and half of the TTL is longer than the grace.
    let ttl = Duration::from_secs(12);
    let holds = ["lock", "--ttl", "12s", "--disconnect-grace", "3s", "contended", "--", "sleep", "60"];
    let mut holding = lost(&holds).spawn().expect("a command");
    let client = cluster.client();
    let session = client.session().ttl(Duration::from_secs(5)).open().await.expect("a session");
    wait_until("the command holds", async || session.lock("contended").try_once().acquire().await.is_err()).await;
    cluster.certs(&["--refuse", "client-lost"]);
    let refused = Instant::now();
    (1..=3).for_each(|node| cluster.signal(node, Signal::HUP));
    let _next = session.lock("contended").acquire().await.expect("the next holder");
    assert!(ttl / 2 < refused.elapsed(), "the session ended before its TTL");
    let ended = lost(&["status"]).output().expect("a command");
    assert_eq!(ended.status.code(), Some(77), "{}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("it was revoked"), "{}", text(&ended.stderr));
    holding.kill().expect("killed");
    holding.wait().expect("ended");

    std::fs::write(cluster.folder().join("certs/node-1.key"), "no key").expect("written");
    cluster.signal(1, Signal::HUP);
    let warning = "the changed certificates are not in use: ";
    cluster.status_when(1, |status| status.warnings.iter().any(|text| text.starts_with(warning))).await;
}

/// H-20 `rebinding_reads_nothing`: a name that an attacker points to the node reads nothing, and neither does a page of
/// another site.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebinding_reads_nothing() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start().await;
    let address = cluster.http(1);
    let answer = |headers: &str| {
        let mut stream = TcpStream::connect(&address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let request = format!("GET /metrics HTTP/1.1\r\nconnection: close\r\n{headers}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let own = answer(&format!("host: {address}"));
    assert!(own.starts_with("HTTP/1.1 200") && own.contains("lockkeeper_raft_term"), "{own}");
    assert!(own.contains("content-security-policy: default-src 'none'") && own.contains("nosniff"), "{own}");
    let rebound = answer("host: evil.example:7621");
    assert!(rebound.starts_with("HTTP/1.1 421") && !rebound.contains("lockkeeper_raft_term"), "{rebound}");
    let elsewhere = answer(&format!("host: {address}\r\norigin: http://evil.example"));
    assert!(elsewhere.starts_with("HTTP/1.1 403") && !elsewhere.contains("lockkeeper_raft_term"), "{elsewhere}");
}

/// a client that opens connections to the port for the other nodes as fast as it can, each with a handshake that
/// is refused at its end, causes no election.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_handshakes_cause_no_election() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start_tls("lan").await;
    // A busy machine can cause an election during one flood, but not during each of them.
    for _ in 0..5 {
        let leader = cluster.await_leader().await;
        let term = cluster.status_when(leader, |status| status.leader == Some(leader as u64)).await.term;
        let mut attempts = tokio::task::JoinSet::new();
        for _ in 0..400 {
            let settings = cluster.settings([cluster.peer(leader)]);
            attempts.spawn(async move { Client::connect_with(settings).await.is_err() });
        }
        assert!(attempts.join_all().await.into_iter().all(|refused| refused));
        let after = cluster.status_when(leader, |status| status.leader.is_some()).await;
        if (after.term, after.leader) == (term, Some(leader as u64)) {
            return;
        }
    }
    panic!("each flood caused an election");
}

/// A name is refused with all certificates that it had. A certificate gets other hosts only when it is renewed, and
/// `all` renews every one. An older authority stays while one of its certificates is here. To list a directory creates
/// nothing.
#[test]
fn certificates_are_renewed_and_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let certs = folder.path().join("certs");
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(["--json", "certs"]).arg(&certs).args(words).output().expect("a command")
    };
    let listed = |words: &[&str]| {
        let done = run(words);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let rows = text(&done.stdout);
        let row = |row: &str| serde_json::from_str::<serde_json::Value>(row).expect("JSON");
        rows.lines()
            .map(row)
            .map(|row| (row["name"].as_str().unwrap_or_default().to_owned(), row))
            .collect::<BTreeMap<_, _>>()
    };
    let none = run(&[]);
    assert!(text(&none.stderr).contains("there are no certificates of nodes or clients in "), "{}", text(&none.stderr));
    assert!(none.status.code() == Some(64) && !certs.exists());
    let first = listed(&["--cluster", "harbour", "--node", "1=db1,db2", "--client", "ci"]);
    let second = listed(&["--renew", "client-ci"]);
    let refused = listed(&["--refuse", "client-ci"]);
    assert_eq!((&refused["client-ci"]["refused"], &refused["node-1"]["refused"]), (&true.into(), &false.into()));
    let list = std::fs::read_to_string(certs.join("refused.txt")).expect("a list");
    for digest in [&first["client-ci"]["sha256"], &second["client-ci"]["sha256"]] {
        assert!(list.contains(digest.as_str().expect("a digest")), "{digest} is not in {list}");
    }
    // A line without an end stays a line, and a certificate that only a comment names is not refused.
    let digest = |name: &str| second[name]["sha256"].as_str().expect("a digest").to_owned();
    let (laptop, node) = ("sha256:".to_owned() + &"a".repeat(64) + "  laptop", digest("node-1"));
    std::fs::write(certs.join("refused.txt"), format!("# sha256:{node}  node-1\n{laptop}")).expect("written");
    assert_eq!(listed(&[])["node-1"]["refused"], false);
    assert_eq!(listed(&["--refuse", "node-1"])["node-1"]["refused"], true);
    let lines = std::fs::read_to_string(certs.join("refused.txt")).expect("a list");
    assert_eq!(lines.lines().skip(1).collect::<Vec<_>>(), [laptop, format!("sha256:{node}  node-1")]);
    std::fs::write(certs.join("refused.txt"), "a word\n").expect("written");
    assert!(text(&run(&["--refuse", "node-1"]).stderr).contains("refused.txt:1 names no certificate"));
    std::fs::remove_file(certs.join("refused.txt")).expect("removed");
    assert_eq!(listed(&["--node", "1=db2,db1"])["node-1"]["sha256"], first["node-1"]["sha256"]);
    let others = run(&["--node", "1=db1,db3"]);
    let printed = text(&others.stderr);
    assert!(printed.contains("node-1.pem is for db1,db2, not for db1,db3; add --renew node-1"), "{printed}");
    assert_eq!(others.status.code(), Some(64));
    let renewed = listed(&["--node", "1=db1,db3", "--renew", "node-1"]);
    assert_eq!(renewed["node-1"]["hosts"], serde_json::json!(["db1", "db3"]));
    let all = listed(&["--renew", "all"]);
    assert!(["node-1", "client-ci"].iter().all(|name| all[*name]["sha256"] != renewed[*name]["sha256"]), "{all:?}");
    assert_eq!(all["node-1"]["hosts"], renewed["node-1"]["hosts"]);
    listed(&["--new-ca"]);
    let both = std::fs::read_to_string(certs.join("ca.pem")).expect("authorities");
    let early = run(&["--drop-old-ca"]);
    let printed = text(&early.stderr);
    assert!(printed.contains("client-ci.pem, node-1.pem") && printed.contains("--renew"), "{printed}");
    assert_eq!(early.status.code(), Some(64));
    assert_eq!(std::fs::read_to_string(certs.join("ca.pem")).expect("authorities"), both);
    listed(&["--renew"]);
    listed(&["--drop-old-ca"]);
    assert!(std::fs::read_to_string(certs.join("ca.pem")).expect("an authority").len() < both.len());
}
