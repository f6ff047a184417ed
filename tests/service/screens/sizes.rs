//! Screens are small, load nothing from elsewhere, and show parts of what is long.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use lockkeeper::model::{
    Access, Command, Handle, LeaseRequestId, LockKey, LockName, Metadata, Mode, Namespace, Outcome, Patience, TakeLease,
};
use lockkeeper::service::{Call, LockService};
use serde_json::json;
use tokio::time::timeout;

use super::Port;
use crate::suite::PATIENT;

/// Largest size of a screen with all its files, in bytes.
const SCREEN_BYTES_MAX: usize = 60 * 1024;

async fn take(port: &Port, lock: &str, number: u128, mode: Mode) -> Outcome {
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse(lock).expect("legal") };
    let metadata = Metadata { who: format!("worker-{number}").into(), host: "host-17".into(), ..Metadata::default() };
    let take = TakeLease {
        lock,
        take: LeaseRequestId(number),
        handle: Handle::from_random(number),
        access: Access { mode, limit: None },
        lease_ms: 600_000,
        patience: Patience::For { ms: 600_000 },
        metadata,
        claim_ms: None,
    };
    port.node.submit(Call::new(Command::TakeLease(take))).await.expect("answered").outcome
}

/// The policy of a screen, and each file that it loads, by path. Every file is one of this port.
async fn files(port: &Port, path: &str) -> (usize, BTreeSet<String>) {
    let screen = port.get(path).await;
    assert_eq!(screen.status, 200, "{path}: {}", screen.body);
    let policy = screen.header("content-security-policy");
    for part in ["default-src 'none'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
        assert!(policy.contains(part), "{path}: {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("http") && !policy.contains('*'), "{policy}");
    for (name, value) in
        [("x-content-type-options", "nosniff"), ("referrer-policy", "same-origin"), ("cache-control", "no-store")]
    {
        assert_eq!(screen.header(name), value, "{path}");
    }
    for inline in [" style=", "<style", " onclick", " onload", "<script>"] {
        assert!(!screen.body.contains(inline), "{path} has {inline}, which the policy forbids");
    }
    let links = screen.all("href").into_iter().filter(|link| link.starts_with("/page/"));
    let loaded: BTreeSet<_> = links.chain(screen.all("src")).collect();
    assert_eq!(loaded.len(), if path == "/login" { 2 } else { 3 }, "{path}: {loaded:?}");
    let mut bytes = screen.body.len();
    for file in &loaded {
        let answer = port.get(file).await;
        assert_eq!((answer.status, answer.header("cache-control").contains("immutable")), (200, true), "{file}");
        bytes += answer.body.len();
    }
    (bytes, loaded)
}

/// While browsers read all locks of a namespace again and again, locks are granted, and each browser gets its screens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_granted_while_screens_are_read() {
    let port = Port::start(false).await;
    // More locks than a node reads at once.
    let locks = join_all((0..1_200).map(|number| {
        let port = &port;
        async move { take(port, &format!("job-{number:06}"), number + 1, Mode::Exclusive).await }
    }));
    assert!(locks.await.iter().all(|outcome| matches!(outcome, Outcome::Granted(_))));
    let opened = port.call("sessions", json!({"handle": "s", "ttl_ms": 60_000})).await;
    let session = opened["session"].as_str().expect("an id");
    // The last one by its name, so that the screen of the session reads all locks to find it.
    let own = json!({"lock": "zone", "session": session, "handle": "s", "request": "1"});
    port.call("acquire", own).await;
    let paths = ["/locks?show=overdue".to_owned(), format!("/session?id={session}")];
    let shown: [AtomicUsize; 8] = Default::default();
    let (port, paths, shown) = (&port, &paths, &shown);
    let browsing = join_all(shown.iter().zip(paths.iter().cycle()).map(|(shown, path)| async move {
        loop {
            let screen = port.get(path).await;
            assert_eq!(screen.status, 200, "{path}: {}", screen.body);
            assert!(!path.starts_with("/session") || screen.body.contains("/lock?lock=zone"), "{}", screen.body);
            shown.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let locking = async {
        for pair in 0.. {
            if 20 <= pair && shown.iter().all(|shown| 2 <= shown.load(Ordering::Relaxed)) {
                break;
            }
            let granted = port.call("acquire", json!({"lock": "free", "lease_ms": 60_000})).await;
            port.call("release", json!({"lock": "free", "handle": granted["handle"]})).await;
        }
    };
    tokio::select! {
        _ = browsing => unreachable!("browsers read until the test ends"),
        ended = timeout(PATIENT, locking) => ended.expect("locks are granted and screens are shown"),
    }
}

/// With many locks and 10,000 waiters, each screen has 200 rows and a link to more, and stays below its size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_are_shown_in_parts() {
    let port = Port::start(false).await;
    let locks = join_all((0..450).map(|number| {
        let port = &port;
        async move { take(port, &format!("job-{number:06}"), number + 1, Mode::Exclusive).await }
    }));
    assert!(locks.await.iter().all(|outcome| matches!(outcome, Outcome::Granted(_))));
    for thousand in 0..10 {
        let waits =
            (0..1_000).map(|number| take(&port, "job-000007", 10_000 + thousand * 1_000 + number, Mode::Exclusive));
        let queued = join_all(waits).await.iter().filter(|outcome| matches!(outcome, Outcome::Queued(_))).count();
        assert_eq!(queued, 1_000);
    }
    let mut seen = BTreeSet::new();
    let mut path = "/locks".to_owned();
    let mut rows = Vec::new();
    loop {
        let screen = port.get(&path).await;
        let found: Vec<_> = screen.all("href").into_iter().filter(|link| link.starts_with("/lock?")).collect();
        rows.push(found.len());
        seen.extend(found);
        let next = screen.all("href").into_iter().find(|link| link.contains("after="));
        let Some(next) = next else { break };
        path = next;
    }
    assert_eq!((rows, seen.len()), (vec![200, 200, 50], 450));
    let lock = port.get("/lock?lock=job-000007").await;
    assert!(lock.body.contains("1 holding, 10,000 waiting") && lock.body.contains("9800 more"), "{}", lock.body);
    let next = lock.all("href").into_iter().find(|link| link.contains("after=200")).expect("a link");
    assert!(port.get(&next).await.body.contains("<td class=\"n\">201</td>"));
    let overview = port.get("/").await;
    assert!(overview.body.contains("<dd>10,000 <small>for 1 lock"), "{}", overview.body);
    for path in ["/", "/locks", "/lock?lock=job-000007", "/sessions", "/nodes", "/login"] {
        let (bytes, _) = files(&port, path).await;
        assert!(bytes <= SCREEN_BYTES_MAX, "{path}: {bytes} bytes");
    }
}
