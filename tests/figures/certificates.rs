//! Renewals of every certificate and of the authority, under load.

use std::time::Duration;

use rustix::process::Signal;
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::tls::report;

/// The commands that replace all certificates and their authority, in order.
const STEPS: [&[&str]; 4] = [&["--renew", "all"], &["--new-ca"], &["--renew"], &["--drop-old-ca"]];
/// Within this time the nodes end the connections whose certificates the new files do not accept.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// Replaces everything again and again while 64 clients work. No call fails, and no session ends.
pub(crate) async fn run(seconds: usize) {
    let cluster = Cluster::start_tls("lan").await;
    let seconds = seconds.to_string();
    let mut command = cluster.command(&["bench", "--clients", "64", "--secs", &seconds, "--warm-up", "0s", "--json"]);
    let working = spawn_blocking(move || report(&mut command));
    let mut steps = 0;
    while !working.is_finished() {
        block_in_place(|| cluster.certs(STEPS[steps % STEPS.len()]));
        (1..=3).for_each(|node| cluster.signal(node, Signal::HUP));
        sleep(ENDED_WITHIN).await;
        steps += 1;
    }
    // The clients may have ended during the last step.
    let replaced = (steps - 1) / STEPS.len();
    let figures = working.await.expect("the clients");
    let number = |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("no {name} in {figures}"));
    let (failed, lost) = (number("errors"), number("lost_sessions"));
    eprintln!(
        "every certificate and the authority replaced {replaced} times: {} pairs, {failed} calls failed, {lost} \
         sessions lost, p99 {:.1} ms, the longest pair {:.1} ms",
        number("pairs"),
        number("p99_us") as f64 / 1_000.0,
        number("max_us") as f64 / 1_000.0
    );
    assert_eq!((failed, lost), (0, 0), "{figures}");
}
