//! Twenty jobs under one lock while the leader is killed.

use std::fs;
use std::process::Stdio;

use crate::cluster::Cluster;
use crate::wait::wait_until;

const JOBS: usize = 20;

/// Twenty `lock -- sh` jobs queue for one lock, and the leader is killed twice while they work. No two jobs overlap.
/// Each job runs once, in the order in which it queued, under a larger token than the job before.
#[tokio::test]
async fn twenty_jobs_run_one_by_one_in_order_through_leader_kills() {
    let mut cluster = Cluster::start().await;
    let journal = cluster.folder().join("journal");
    let script = format!(
        "echo start $0 $LOCKKEEPER_TOKEN >> {0}; sleep 0.15; echo end $0 $LOCKKEEPER_TOKEN >> {0}",
        journal.display()
    );
    let client = cluster.client();
    let gate = client.lock("nightly").acquire().await.expect("the gate");
    let mut jobs = Vec::new();
    for job in 0..JOBS {
        let mut command = cluster.command(&["lock", "nightly", "--", "sh", "-c", &script, &job.to_string()]);
        jobs.push(command.stdin(Stdio::null()).spawn().expect("a job"));
        wait_until(format_args!("job {job} queues"), async || {
            job < client.inspect("nightly").await.expect("inspect").value.waiters.len()
        })
        .await;
    }
    gate.release().await.expect("the gate is released");
    for round in 1..=2 {
        let lines = || fs::read_to_string(&journal).unwrap_or_default().lines().count();
        wait_until("the jobs make progress", async || round * 10 <= lines()).await;
        let leader = cluster.await_leader().await;
        cluster.kill(leader);
        cluster.await_leader().await;
        cluster.spawn(leader);
    }
    for mut job in jobs {
        assert!(job.wait().expect("a job").success());
    }
    check(&fs::read_to_string(&journal).expect("a journal"));
}

fn check(journal: &str) {
    let lines: Vec<Vec<&str>> = journal.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 2 * JOBS, "each job ran once:\n{journal}");
    let mut last = 0;
    for (job, pair) in lines.chunks(2).enumerate() {
        let [start, end] = pair else { panic!("an odd line:\n{journal}") };
        assert_eq!((start[0], end[0]), ("start", "end"), "jobs overlapped:\n{journal}");
        assert_eq!(
            (start[1], end[1]),
            (job.to_string().as_str(), job.to_string().as_str()),
            "out of order:\n{journal}"
        );
        let token: u64 = start[2].parse().expect("a token");
        assert!(last < token, "a token did not grow:\n{journal}");
        last = token;
    }
}
