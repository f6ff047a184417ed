//! Two schedulers run the same jobs, one scheduler at a time, under a token that the active one refreshes.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::cluster::Cluster;
use crate::wait::{wait_for, wait_until};

/// The loop of a scheduler: it acquires a lease, works while its refreshes succeed, and ends when the stop flag exists.
/// It waits for longer than the expiry, so that it is in the queue when the lease of the other one ends.
const LOOP: &str = r#"
round=0
while [ ! -e "$STOP" ]; do
    round=$((round + 1))
    got=$("$LOCKKEEPER" acquire scheduler --for 10s --handle "$0-$$-$round" -w 30s) || continue
    while [ ! -e "$STOP" ] && "$LOCKKEEPER" refresh scheduler "$0-$$-$round" --for 10s > /dev/null; do
        echo "$0 ${got%% *}" >> "$JOURNAL"
        sleep 0.1
    done
    "$LOCKKEEPER" release scheduler "$0-$$-$round" > /dev/null
done
"#;

/// The expiry of the lease in [`LOOP`].
const EXPIRY_MS: u64 = 10_000;

fn scheduler(cluster: &Cluster, name: &str) -> Child {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", LOOP, name]).stdin(Stdio::null()).stderr(Stdio::null());
    command
        .env("LOCKKEEPER", env!("CARGO_BIN_EXE_lockkeeper"))
        .env("LOCKKEEPER_ENDPOINTS", cluster.endpoints().join(","));
    command.env("JOURNAL", cluster.folder().join("journal")).env("STOP", cluster.folder().join("stop"));
    command.spawn().expect("a scheduler")
}

/// The name and token of each job that ran, in order.
fn journal(path: &Path) -> Vec<(String, u64)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let entry = |line: &str| {
        let (who, token) = line.split_once(' ').expect("a name and a token");
        (who.to_owned(), token.parse().expect("a token"))
    };
    text.lines().map(entry).collect()
}

/// R-TOK-12: the active scheduler is killed with SIGKILL. The other one takes over after the lease expires and within
/// one more expiry, in log time, under a larger token. The two never work at the same time. The stop flag ends it, and
/// nothing is held afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_tok_12_the_other_scheduler_takes_over() {
    let cluster = Cluster::start().await;
    let (client, path) = (cluster.client(), cluster.folder().join("journal"));
    let worked = |name: &str| journal(&path).iter().filter(|(who, _)| who == name).count();
    let mut active = scheduler(&cluster, "a");
    wait_until("the first one works", async || 3 <= worked("a")).await;
    let mut standby = scheduler(&cluster, "b");
    wait_until("the second one waits", async || {
        !client.inspect("scheduler").await.expect("inspected").value.waiters.is_empty()
    })
    .await;
    assert_eq!(worked("b"), 0, "the first scheduler holds the lease");
    let lease = async || client.inspect("scheduler").await.expect("inspected").value.holders.into_iter().next();
    active.kill().expect("killed");
    active.wait().expect("ended");
    let mut last = lease().await.expect("held");
    let next = wait_for("the second one holds the lease", async || {
        let held = lease().await.ok_or("it is free")?;
        if held.token == last.token {
            // A refresh that was sent before the kill may move the end.
            last = held;
            return Err("the first one holds it");
        }
        let by_standby = journal(&path).iter().any(|(who, token)| who == "b" && *token == held.token.as_u64());
        if by_standby { Ok(held) } else { Err("the second one has not worked under this token") }
    })
    .await;
    let end = last.deadline.expect("a lease");
    assert!(end < next.since && next.since <= end.after_ms(EXPIRY_MS), "it took over at {}, not {end}", next.since);
    wait_until("the second one works", async || 3 <= worked("b")).await;
    fs::write(cluster.folder().join("stop"), "").expect("a flag");
    assert!(standby.wait().expect("ended").success());
    let lines = journal(&path);
    let handed = lines.iter().position(|(who, _)| who == "b").expect("it worked");
    assert!(lines[handed..].iter().all(|(who, _)| who == "b"), "both worked: {lines:?}");
    assert!(lines.is_sorted_by_key(|(_, token)| *token), "{lines:?}");
    assert!(lines[handed - 1].1 < lines[handed].1, "another grant: {lines:?}");
    assert!(client.inspect("scheduler").await.expect("inspected").value.holders.is_empty(), "the lease is released");
}
