//! `top`: one frame without a terminal, and the keys on a terminal.

use lockkeeper::model::EventKind;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::{Cluster, PATIENCE};
use crate::doctor::top;
use crate::screen::Screen;
use crate::wait::{wait_for, wait_until};

/// What shows the cursor and the usual screen again.
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

/// Prints frames until one has what each node measured. A busy node may answer one request for its metrics too late.
async fn measured(cluster: &Cluster) -> Value {
    wait_for("all nodes are measured", async || {
        let frame = top(cluster, &[]);
        let is_complete = |node: &Value| {
            ["memory_bytes", "cpu_percent", "behind", "uncounted_ms"].iter().all(|field| node[field].is_u64())
        };
        if frame["nodes"].as_array().expect("nodes").iter().all(is_complete) { Ok(frame) } else { Err(frame) }
    })
    .await
}

/// Without a quorum, a frame says that the locks are not known, and not that none is held.
#[tokio::test]
async fn locks_are_not_known_while_no_node_leads() {
    let mut cluster = Cluster::start().await;
    let held = cluster.client().lock("nightly").acquire().await.unwrap();
    cluster.kill(2);
    cluster.kill(3);
    let frame = wait_for("no node leads", async || {
        // While the last leader is still believed in, the locks cannot be read.
        let printed = cluster.command(&["top", "--delay", "100ms", "--json"]).output().expect("ran");
        let frame: Value = serde_json::from_slice(&printed.stdout).unwrap_or_default();
        let is_complete = frame.is_object() && frame["leader"].is_null();
        if is_complete { Ok(frame) } else { Err(String::from_utf8_lossy(&printed.stderr).into_owned()) }
    })
    .await;
    assert_eq!(frame["locks"], serde_json::json!([]), "{frame}");
    assert!(frame["notes"].to_string().contains("the locks are not known while no node leads"), "{frame}");
    drop(held);
}

/// Under TLS, too, a frame has what each node measured.
#[tokio::test]
async fn nodes_are_measured_under_tls() {
    let cluster = Cluster::start_tls("fast").await;
    let frame = measured(&cluster).await;
    assert_eq!(frame["notes"], serde_json::json!([]), "{frame}");
}

/// A frame has the nodes with what they measured, and the lock with a waiter first. On a terminal the keys filter,
/// explain, ask the holder and end the program, which leaves the terminal as it was.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_locks_are_shown_as_they_change() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let idle = client.lock("archive").acquire().await.unwrap();
    let held = client.lock("nightly").why("rebuild").acquire().await.unwrap();
    let brief = client.lock("nights").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = cluster.client();
        async move { client.lock("nightly").acquire().await.map(drop) }
    });
    wait_until("a waiter", async || !client.inspect("nightly").await.unwrap().value.waiters.is_empty()).await;

    let frame = measured(&cluster).await;
    assert_eq!((&frame["held"], &frame["waiting"]), (&3.into(), &1.into()), "{frame}");
    assert_eq!((&frame["locks"][0]["lock"], &frame["locks"][0]["state"]), (&"nightly".into(), &"live".into()));
    assert!(frame["locks"][0]["longest_wait_ms"].is_u64(), "{frame}");
    let nodes = frame["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.iter().filter(|node| node["role"] == "leader").count(), 1);

    let mut watch = client.watch("nightly", None).await.unwrap();
    let mut screen = Screen::run(cluster.command(&["top", "--delay", "100ms"]));
    screen.shows("> nightly");
    let mut press = |keys: &str, then: &str| {
        screen.forget();
        screen.press(keys);
        screen.shows(then);
    };
    press("s", "longest hold");
    press("farch\r", "LOCK arch*");
    press("f\u{7f}\u{7f}\u{7f}\u{7f}nigh\r", "> nightly");
    press("\r", "is held by");
    press("x", "f filter");
    // The hold of the chosen row ends while a reason for its holder is typed: no other holder is asked.
    press("j", "> nights");
    press("aplea", "ask the holder of nights, with this reason: plea_");
    brief.release().await.unwrap();
    press("se", "> nightly");
    press("\r", "nights is not held");
    press("aplease\r", "asked the holder of nightly");
    let event = tokio::time::timeout(PATIENCE, watch.next()).await.expect("the holder is asked").unwrap();
    assert!(matches!(&event.kind, EventKind::RevokeRequested { why, .. } if why.as_str() == "please"), "{event:?}");
    press("q", LEAVE);
    let ended = screen.program.wait().expect("ended");
    assert_eq!(ended.code(), Some(0));
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    idle.release().await.unwrap();
}

/// A signal that ends it leaves the terminal as it was. Ctrl-Z does so, too, until the program is continued.
#[tokio::test(flavor = "multi_thread")]
async fn signals_leave_the_terminal_as_it_was() {
    let cluster = Cluster::start().await;
    for signal in [Signal::INT, Signal::TERM] {
        let mut screen = Screen::run(cluster.command(&["top", "--delay", "100ms"]));
        screen.shows("f filter");
        let program = Pid::from_child(&screen.program);
        if signal == Signal::INT {
            kill_process(program, Signal::TSTP).unwrap();
            screen.shows(LEAVE);
            // The stop takes effect after the terminal is left.
            wait_until("the terminal is entered again", async || {
                kill_process(program, Signal::CONT).unwrap();
                screen.text().contains(&format!("{LEAVE}\u{1b}[?1049h"))
            })
            .await;
            screen.forget();
            screen.shows("f filter");
            screen.forget();
        }
        kill_process(program, signal).unwrap();
        screen.shows(LEAVE);
        assert_eq!(screen.program.wait().expect("ended").code(), Some(128 + signal.as_raw()));
    }
}
