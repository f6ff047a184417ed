//! The web page of a node: what each screen shows, what it refuses, and that looking changes nothing.

mod acts;
mod deadlocks;
mod names;
mod sizes;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use lockkeeper::auth::{TokenHash, new_token};
use lockkeeper::http::{Hosts, serve};
use lockkeeper::node::Node;
use lockkeeper::testing::{Cluster, ClusterOptions};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::suite::PATIENT;

/// Paths of the screens that need no lock.
const SCREENS: [&str; 5] = ["/", "/locks", "/sessions", "/nodes", "/login"];

/// Name of the file with the rules.
const RULES: &str = "auth.toml";

/// A node with its HTTP port.
struct Port {
    address: String,
    node: Node,
    stop: watch::Sender<bool>,
    _cluster: Cluster,
    folder: tempfile::TempDir,
}

/// An answer as text.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    /// Returns the value of a header.
    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    /// Returns the values of an attribute.
    fn all(&self, attribute: &str) -> Vec<String> {
        let begin = format!(" {attribute}=\"");
        let values = self.body.split(&begin).skip(1).filter_map(|rest| rest.split('"').next());
        values.map(|value| value.replace("&#38;", "&")).collect()
    }

    /// Returns the secret of the form of an act.
    fn secret(&self) -> String {
        let main = self.body.split("<main").nth(1).unwrap_or_default();
        let field = main.split("name=\"secret\" value=\"").nth(1).unwrap_or_else(|| panic!("no form: {}", self.body));
        field.split('"').next().expect("a value").to_owned()
    }
}

/// The rules of a cluster that knows its callers: `ops` may do everything to locks and may read the metrics, `dev` may
/// lock, `eye` may read.
fn rules(tokens: &[(&str, String)]) -> String {
    let mut text = "version = 1\n".to_owned();
    for (name, right, cluster) in [("ops", "admin", "\"metrics\""), ("dev", "lock", ""), ("eye", "read", "")] {
        text += &format!(
            "[[role]]\nname = \"{right}\"\nrules = [{{ namespace = \"*\", right = \"{right}\" }}]\n\
             cluster = [{cluster}]\n[[principal]]\nname = \"{name}\"\nroles = [\"{right}\"]\n"
        );
    }
    for (principal, token) in tokens {
        let hash = TokenHash::of(token).expect("a token");
        text += &format!(
            "[[token]]\nprincipal = \"{principal}\"\nsha256 = \"{hash}\"\nexpires = \"2035-01-01T00:00:00Z\"\n"
        );
    }
    text
}

/// Metrics of the node.
fn metrics() -> String {
    let names = ["wait_duration_seconds", "raft_commit_duration_seconds", "wal_fsync_duration_seconds"];
    let buckets = names.map(|name| {
        ["0.1", "+Inf"].map(|le| format!("lockkeeper_{name}_bucket{{node=\"1\",le=\"{le}\"}} 9\n")).concat()
    });
    let others = [("refusals_total", 3), ("log_time_uncounted_seconds_total", 2), ("raft_is_leader", 1)];
    buckets.concat() + &others.map(|(name, value)| format!("lockkeeper_{name}{{node=\"1\"}} {value}\n")).concat()
}

/// The token of a principal in [`rules`].
fn token(principal: &str) -> String {
    new_token([9, principal.len() as u128 * 1_000 + u128::from(principal.as_bytes()[0])])
}

impl Port {
    /// Starts a node; with principals if `guarded`.
    async fn start(guarded: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = ClusterOptions { nodes: 1, ..ClusterOptions::default() };
        if guarded {
            let file = folder.path().join(RULES);
            let tokens = ["ops", "dev", "eye"].map(|name| (name, token(name)));
            fs::write(&file, rules(&tokens)).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
            options = ClusterOptions { auth: Some(file), audit: Some(folder.path().to_owned()), ..options };
        }
        let cluster = Cluster::start_with(options).await.expect("a cluster");
        let node = cluster.leader().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let (stop, stopped) = watch::channel(false);
        let (service, info) = (node.service(), node.info());
        tokio::spawn(serve(listener, None, service, info, Arc::new(metrics), Hosts::default(), stopped));
        Self { address, node, stop, _cluster: cluster, folder }
    }

    /// Replaces the rules of the node.
    fn reload(&self, rules: &str) {
        fs::write(self.folder.path().join(RULES), rules).expect("written");
        self.node.reload_auth().expect("good rules");
    }

    /// Returns the audit log.
    fn audit(&self) -> PathBuf {
        self.folder.path().join("n1.jsonl")
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).await.expect("the port answers");
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
        if method == "POST" {
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("answered");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a header");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    /// Calls the port as a program does, with the token of a principal if the node has some.
    async fn call_in(&self, namespace: &str, call: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {}", token("dev"));
        let headers = [("Content-Type", "application/json"), ("Authorization", &*bearer)];
        let headers = &headers[..if self.audit().exists() { 2 } else { 1 }];
        self.send("POST", &format!("/v1/ns/{namespace}/{call}"), headers, &body.to_string()).await
    }

    /// Makes a call in the default namespace that is answered.
    async fn call(&self, call: &str, body: Value) -> Value {
        let answer = self.call_in("default", call, &body).await;
        assert!(answer.status < 300, "{answer:?}");
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// Signs in as a browser does, and returns the cookie.
    async fn sign_in(&self, principal: &str) -> String {
        let answer = self.post("/login", "", &format!("token={}", token(principal))).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = answer.header("set-cookie");
        for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains("lkt_"), "the cookie has the token");
        cookie.split(';').next().expect("a cookie").to_owned()
    }

    /// Shows a screen to a browser that has signed in.
    async fn visit(&self, path: &str, cookie: &str) -> Answer {
        self.send("GET", path, &[("Cookie", cookie)], "").await
    }

    /// Sends a form as a browser does.
    async fn post(&self, path: &str, cookie: &str, form: &str) -> Answer {
        let origin = format!("http://{}", self.address);
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        self.send("POST", path, &[("Cookie", cookie), ("Origin", &origin), kind], form).await
    }
}

/// A screen is notified of a change, and its stream ends with the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_screen_is_notified_and_ends() {
    let port = Port::start(false).await;
    let mut stream = TcpStream::connect(&port.address).await.expect("the port answers");
    let request = format!("GET /page/live HTTP/1.1\r\nHost: {}\r\n\r\n", port.address);
    stream.write_all(request.as_bytes()).await.expect("sent");
    let (mut seen, mut part) = (String::new(), [0; 1_024]);
    for wanted in 1..=2 {
        while seen.matches("data: ").count() < wanted {
            let read = stream.read(&mut part).await.expect("open");
            assert_ne!(read, 0, "the stream ended: {seen}");
            seen += std::str::from_utf8(&part[..read]).expect("text");
        }
        port.call("acquire", serde_json::json!({"lock": format!("a-{wanted}"), "lease_ms": 60_000})).await;
    }
    assert!(seen.contains("text/event-stream"), "{seen}");
    port.stop.send_replace(true);
    while stream.read(&mut part).await.is_ok_and(|read| read != 0) {}
}

/// Without scripts a browser reads each screen again. The form that signs in stays, because its text would be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_without_scripts_reloads_screens() {
    let port = Port::start(false).await;
    for screen in SCREENS {
        let body = port.get(screen).await.body;
        let reloads = body.contains("<noscript><meta http-equiv=\"refresh\" content=\"10\"></noscript>");
        assert_eq!(reloads, screen != "/login", "{screen}: {body}");
    }
}

/// The record of a release names the holder, which only the record of the grant has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_of_a_hold_names_its_holder() {
    let port = Port::start(false).await;
    let lease = port.call("acquire", serde_json::json!({"lock": "dam", "lease_ms": 60_000, "who": "ann"})).await;
    port.call("release", serde_json::json!({"lock": "dam", "handle": lease["handle"]})).await;
    for screen in ["/lock?lock=dam", "/"] {
        let page = port.get(screen).await.body;
        let released = page.split("<tr>").find(|row| row.contains(">released<")).expect("a record");
        assert!(released.contains("<b>ann</b>"), "{screen}: {released}");
    }
}

/// A browser that has not signed in is sent to the form, and returns to the screen afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_screen_without_principal_leads_to_the_sign_in() {
    let port = Port::start(true).await;
    for screen in ["/", "/locks", "/lock?lock=a", "/break?lock=a&token=1"] {
        let answer = port.get(screen).await;
        assert_eq!(answer.status, 303, "{screen}");
        assert!(answer.header("location").starts_with("/login?next=%2F"), "{answer:?}");
    }
    assert_eq!(port.send("POST", "/ask?lock=a&token=1", &[], "").await.status, 401);
    let answer = port.get("/login?next=%2Flock%3Flock%3Da").await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("type=\"password\""), "{}", answer.body);
}

/// A browser at a mistyped address gets a screen with links to the others. A program, and every call, gets a problem.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistyped_address_shows_the_screens() {
    let port = Port::start(false).await;
    let browser = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    for (path, status) in [("/nodes/", 404), ("/foo%3Cb%3E", 404), ("/logout", 405)] {
        let screen = port.send("GET", path, &browser, "").await;
        assert_eq!((screen.status, screen.header("content-type")), (status, "text/html; charset=utf-8"), "{path}");
        assert!(screen.body.contains(&format!("this port has no GET {path}")), "{}", screen.body);
        assert!(screen.all("href").contains(&"/nodes".to_owned()), "{}", screen.body);
        assert!(screen.header("content-security-policy").contains("form-action 'self'"), "{screen:?}");
        assert_eq!(port.get(path).await.header("content-type"), "application/problem+json", "{path}");
    }
    let call = port.send("GET", "/v1/foo", &browser, "").await;
    assert_eq!((call.status, call.header("content-type")), (404, "application/problem+json"));
}

/// The list of locks ends with the commands for the same list, and its form keeps each filter of its link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_a_list_return_it() {
    let port = Port::start(false).await;
    for (query, cli, call) in [
        ("prefix=-a", "ls -- -a", "locks?prefix=-a"),
        (
            "prefix=-a&show=held&older_than_ms=5000",
            "ls --held --older-than 5000ms -- -a",
            "locks?prefix=-a&show=held&older_than_ms=5000",
        ),
        ("show=overdue", "ls --overdue", "locks?show=overdue"),
    ] {
        let list = port.get(&format!("/locks?{query}")).await.body.replace("&#38;", "&").replace("&#39;", "'");
        assert!(list.contains(&format!("<code>lockkeeper {cli}</code>")), "{query}: {list}");
        assert!(list.contains(&format!("/v1/ns/default/{call}'</code>")), "{query}: {list}");
        let kept = list.contains("<option value=\"5000\" selected>");
        assert_eq!(kept, query.contains("5000"), "{query}: {list}");
    }
}

/// The overview shows what the node has measured, of all namespaces, to a caller that may read the metrics. The look of
/// another caller is no refused act.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measured_figures_need_the_right_to_read_metrics() {
    let port = Port::start(true).await;
    for (principal, shown) in [("ops", true), ("eye", false)] {
        let overview = port.visit("/", &port.sign_in(principal).await).await.body;
        assert!(overview.contains("locks held"), "{principal}: {overview}");
        for figure in ["wait p99", "commit p99", "fsync p99", "refused"] {
            assert_eq!(overview.contains(figure), shown, "{principal}, {figure}: {overview}");
        }
    }
    let audited = fs::read_to_string(port.audit()).expect("a log");
    assert!(!audited.contains("refused"), "{audited}");
}

/// a request that a page of another site sent is in the audit log. The line has nothing that the page chose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_other_sites_are_audited() {
    let port = Port::start(true).await;
    for (path, header) in
        [("/evil", ("Sec-Fetch-Site", "cross-site")), ("/v1/errors", ("Origin", "http://evil.example"))]
    {
        assert_eq!(port.send("GET", path, &[header], "").await.status, 403, "{path}");
    }
    let audited = fs::read_to_string(port.audit()).expect("a log");
    let lines: Vec<Value> = audited.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let line = lines.iter().find(|line| line["act"] == "call-from-page").expect("a line");
    assert_eq!([&line["phase"], &line["principal"]], ["refused", "unknown"]);
    assert_eq!(line["result"], "not permitted: a page of another site may not send requests to this port");
    assert!(line["from"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:")), "{line}");
    assert!(!audited.contains("evil"), "{audited}");
}

/// A request that its header shows to be refused is answered before its body arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_needs_no_body() {
    let (guarded, open) = (Port::start(true).await, Port::start(false).await);
    let (json, form) = ("content-type: application/json", "content-type: application/x-www-form-urlencoded");
    let (call, own) = ("/v1/ns/default/acquire", format!("origin: http://{}", guarded.address));
    let unknown = format!("{json}\r\nauthorization: Bearer {}", token("unknown"));
    let dev = format!("authorization: Bearer {}", token("dev"));
    for (port, path, header, status) in [
        (&guarded, call, json.to_owned(), 401),
        (&guarded, call, unknown, 401),
        (&guarded, call, format!("content-type: text/plain\r\n{dev}"), 415),
        (&guarded, call, format!("{json}\r\n{dev}\r\norigin: http://evil.example"), 403),
        (&guarded, "/break?lock=a&token=1", format!("{form}\r\n{own}"), 401),
        (&guarded, "/break?lock=a&token=1", format!("{form}\r\n{own}\r\n{dev}"), 303),
        (&open, "/login", format!("{form}\r\norigin: http://{}", open.address), 403),
        (&open, "/break?lock=a&token=1", format!("{form}\r\norigin: http://{}", open.address), 403),
    ] {
        let mut stream = TcpStream::connect(&port.address).await.expect("the port answers");
        let request =
            format!("POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 9\r\n{header}\r\n\r\n", port.address);
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut begin = [0; 12];
        // A port that waits for the body refuses it in the end, with another status.
        let read = timeout(PATIENT, stream.read_exact(&mut begin)).await;
        read.unwrap_or_else(|_| panic!("{path} waits for its body: {header}")).expect("an answer");
        assert_eq!(begin, *format!("HTTP/1.1 {status}").as_bytes(), "{path}: {header}");
    }
}
