//! `bench` against a running cluster: every workload prints its figures. The values themselves are not checked.

use std::process::{Output, Stdio};

use serde_json::Value;

use crate::cluster::Cluster;

fn ran(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    serde_json::from_slice(&output.stdout).expect("one object")
}

fn number(object: &Value, field: &str) -> u64 {
    object[field].as_u64().unwrap_or_else(|| panic!("{field} is no count in {object}"))
}

/// Runs all workloads at the same time: each counts its operations, none fails, and the nodes' processes are found.
/// Everything is free again afterwards.
#[tokio::test]
async fn every_workload_prints_its_figures() {
    let cluster = Cluster::start().await;
    let short = ["--secs", "1", "--warm-up", "0s", "--clients", "4", "--json"];
    let runs: [(&[&str], &[&str]); 6] = [
        (&["--workload", "pairs", "--rate", "40", "--in-flight", "2", "--connections", "2"], &["pairs", "p999_us"]),
        (&["--workload", "handoff"], &["pairs", "handoffs", "gap_p99_us", "log_entries"]),
        (&["--workload", "drain"], &["rounds", "drained_per_second", "gap_max_us"]),
        (&["--workload", "sessions", "--ttl", "2s"], &["opened_per_second", "closed_per_second"]),
        (&["--workload", "held", "--held", "50"], &["pairs", "held", "taken_per_second", "let_go_per_second"]),
        (&["--workload", "affinity", "--foreign", "25"], &["foreign_percent", "log_entries"]),
    ];
    let start = |(arguments, _): &(&[&str], &[&str])| {
        let arguments = [&["bench"], *arguments, &short].concat();
        cluster.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a bench")
    };
    let started: Vec<_> = runs.iter().map(start).collect();
    for ((arguments, counted), bench) in runs.iter().zip(started) {
        let object = ran(&bench.wait_with_output().expect("it ends"));
        for field in *counted {
            assert!(0 < number(&object, field), "{field} of {arguments:?}: {object}");
        }
        assert_eq!((number(&object, "errors"), number(&object, "lost_sessions")), (0, 0), "{arguments:?}: {object}");
        assert_eq!(object["servers"].as_array().map(Vec::len), Some(3), "{arguments:?}: {object}");
        assert!(object["server_cores"].is_f64(), "{arguments:?}: {object}");
        for holds in ["cached", "uncached"].into_iter().filter(|_| arguments.contains(&"affinity")) {
            assert!(0 < number(&object[holds], "uses_per_second"), "{arguments:?}: {object}");
        }
    }
    are_refused_or_shown(&cluster);
    let left = cluster.client().totals().await.expect("it serves").value;
    assert_eq!((left.locks, left.sessions), (0, 0), "everything is released");
}

/// Options that exclude each other and unknown process ids are refused before any request is sent. Without `--json` the
/// figures are a table.
fn are_refused_or_shown(cluster: &Cluster) {
    let refused = cluster.command(&["bench", "--workload", "drain", "--rate", "5"]).output().expect("ran");
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(64), "{printed}");
    assert!(printed.contains("rate: only with the workloads pairs, held and failover, got 5"), "{printed}");
    let gone = cluster.command(&["bench", "--pids", "4294967295"]).output().expect("ran");
    assert_eq!(gone.status.code(), Some(64), "no such process");
    let shown = cluster.command(&["bench", "--secs", "1", "--warm-up", "0s", "--clients", "2"]).output().expect("ran");
    let printed = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(printed.contains("PAIRS/S") && printed.contains("(bench)"), "{printed}");
}

/// When the leader dies, the outage has a length, no client loses its session, and the CPU of all nodes together is
/// unknown.
#[tokio::test]
async fn a_killed_leader_is_an_outage() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.await_leader().await;
    let arguments = ["bench", "--workload", "failover", "--secs", "2", "--warm-up", "0s", "--clients", "4"];
    let mut command = cluster.command(&[&arguments[..], &["--gap", "20ms", "--json"]].concat());
    let bench = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a bench");
    let client = cluster.client();
    while client.totals().await.expect("it serves").value.grants == 0 {
        tokio::task::yield_now().await;
    }
    cluster.kill(leader);
    let object = ran(&bench.wait_with_output().expect("it ends"));
    assert!(0 < number(&object, "outages") && 0 < number(&object, "longest_ms"), "{object}");
    assert_eq!(number(&object, "lost_sessions"), 0, "{object}");
    assert!(object["server_cores"].is_null(), "one process has ended: {object}");
    assert_eq!(object["servers"].as_array().map(Vec::len), Some(2), "{object}");
}
