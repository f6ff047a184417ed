//! The deadlocks on the overview.

use serde_json::{Value, json};

use super::{Port, rules, token};

/// A session, and how its owner `job` acquires locks.
struct Session<'a> {
    port: &'a Port,
    namespace: &'static str,
    id: String,
    handle: &'static str,
}

impl<'a> Session<'a> {
    async fn open(port: &'a Port, namespace: &'static str, handle: &'static str) -> Self {
        let opened = port.call_in(namespace, "sessions", &json!({"handle": handle, "ttl_ms": 60_000})).await;
        let opened: Value = serde_json::from_str(&opened.body).expect("JSON");
        Self { port, namespace, id: opened["session"].as_str().expect("an id").to_owned(), handle }
    }

    /// Acquires a lock, and waits for it as long as the session lives; for the owner `job` of another session if that
    /// is the parent. Returns the status of the first answer.
    async fn acquire(&self, request: &str, lock: &str, parent: Option<&Session<'_>>) -> u16 {
        let mut body = json!({
            "session": self.id, "handle": self.handle, "request": request, "lock": lock, "owner": "job",
            "wait_ms": 604_800_000, "poll_ms": 1,
        });
        if let Some(parent) = parent {
            body["parent"] = json!({"session": parent.id, "owner": "job"});
        }
        self.port.call_in(self.namespace, "acquire", &body).await.status
    }
}

/// A deadlock that was refused shows its locks, to callers that may read all names of its namespace. The next one of
/// the same locks replaces it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_deadlock_names_its_locks() {
    let port = Port::start(true).await;
    let (one, two) = (Session::open(&port, "default", "s-1").await, Session::open(&port, "default", "s-2").await);
    assert_eq!((one.acquire("1", "db", None).await, two.acquire("1", "cache", None).await), (200, 200));
    let cookie = port.sign_in("eye").await;
    let overview = async |path: &str| port.visit(path, &cookie).await.body;
    assert!(!overview("/").await.contains("deadlock"), "nothing was refused");
    assert_eq!(one.acquire("2", "cache", None).await, 202);
    let cycle = "<a href=\"/lock?lock=cache\">cache</a> ↔ <a href=\"/lock?lock=db\">db</a></li>";
    for request in ["2", "3"] {
        assert_eq!(two.acquire(request, "db", None).await, 409);
        let shown = overview("/").await;
        let parts: Vec<_> = shown.split("deadlock refused at <time datetime=").collect();
        assert_eq!(parts.len(), 2, "{shown}");
        assert!(parts[1].contains(cycle), "{shown}");
    }
    let other = overview("/?ns=other").await;
    assert!(!other.contains("deadlock"), "{other}");

    let tokens = ["ops", "dev", "eye"].map(|name| (name, token(name)));
    let narrow = "{ namespace = \"*\", prefix = \"cache\", right = \"read\" }";
    port.reload(&rules(&tokens).replace("{ namespace = \"*\", right = \"read\" }", narrow));
    let shown = overview("/").await;
    assert!(shown.contains("by their prefix") && !shown.contains("deadlock"), "{shown}");
}

/// A cycle of nested runs may lead through another namespace, whose names are hidden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_another_namespace_are_hidden() {
    let port = Port::start(false).await;
    let (here, there) = (Session::open(&port, "default", "s-1").await, Session::open(&port, "other", "s-2").await);
    let (below, above) = (Session::open(&port, "other", "s-3").await, Session::open(&port, "default", "s-4").await);
    assert_eq!((here.acquire("1", "cache", None).await, there.acquire("1", "secret", None).await), (200, 200));
    assert_eq!(below.acquire("1", "secret", Some(&here)).await, 202);
    assert_eq!(above.acquire("1", "cache", Some(&there)).await, 409);
    let shown = port.get("/").await.body;
    assert!(shown.contains("<a href=\"/lock?lock=cache\">cache</a> ↔ (hidden)</li>"), "{shown}");
    let shown = port.get("/?ns=other").await.body;
    assert!(shown.contains(">secret</a>") && shown.contains("(hidden) ↔"), "{shown}");
}
