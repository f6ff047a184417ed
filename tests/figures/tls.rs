//! The cost of TLS: pairs a second and the time after a killed leader, with TLS on every port and without, in turns.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tokio::task::block_in_place;

use crate::cluster::Cluster;
use crate::leader::{figures, kills_with};

/// Measurements of each kind.
const ROUNDS: usize = 7;
/// Kills of a leader in each measurement.
const KILLS: usize = 10;

/// Pairs a second and latencies of one run of `bench`.
struct Pairs {
    a_second: f64,
    p99_ms: f64,
}

fn pairs(cluster: &Cluster, token: Option<&Path>, seconds: usize) -> Pairs {
    let seconds = seconds.to_string();
    let arguments = ["bench", "--clients", "64", "--secs", &seconds, "--workload", "pairs", "--json"];
    let mut bench = cluster.command(&arguments);
    bench.envs(token.map(|token| ("LOCKKEEPER_AUTH_TOKEN_FILE", token)));
    let figures = block_in_place(|| report(&mut bench));
    let number = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("no {name} in {figures}"));
    Pairs { a_second: number("pairs_per_second"), p99_ms: number("p99_ms") }
}

/// Runs the command `bench`, and returns what it prints.
pub(crate) fn report(bench: &mut Command) -> Value {
    let measured = bench.stderr(Stdio::inherit()).output().expect("bench");
    let text = String::from_utf8(measured.stdout).expect("text");
    let line = text.lines().last().unwrap_or_else(|| panic!("bench printed nothing"));
    serde_json::from_str(line).expect("JSON")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures two clusters in turns, each with the token that its clients show, and prints the medians and the median of
/// the ratios.
pub(crate) fn in_turns(clusters: [(&str, &Cluster, Option<&Path>); 2], seconds: usize) {
    let names = clusters.map(|(name, ..)| name);
    let mut measured = [Vec::new(), Vec::new()];
    for round in 1..=ROUNDS {
        for ((_, cluster, token), into) in clusters.into_iter().zip(&mut measured) {
            into.push(pairs(cluster, token, seconds));
        }
        let [first, second] = [0, 1].map(|kind| measured[kind][round - 1].a_second);
        eprintln!("round {round}: {} {first:.0} pairs/s, {} {second:.0}", names[0], names[1]);
    }
    for (name, of) in names.into_iter().zip(&measured) {
        let rate = median(of.iter().map(|pairs| pairs.a_second).collect());
        let p99 = median(of.iter().map(|pairs| pairs.p99_ms).collect());
        eprintln!("{name}: {rate:.0} pairs/s of 64 clients, p99 {p99:.1} ms");
    }
    let ratios = measured[0].iter().zip(&measured[1]).map(|(first, second)| second.a_second / first.a_second);
    eprintln!("{}: {:.2} of the pairs {}", names[1], median(ratios.collect()), names[0]);
}

/// Measures the pairs of both clusters, and then new clusters whose leaders are killed.
pub(crate) async fn run(seconds: usize) {
    let clusters = [Cluster::start_with("lan").await, Cluster::start_tls("lan").await];
    in_turns([("without TLS", &clusters[0], None), ("with TLS", &clusters[1], None)], seconds);
    drop(clusters);
    for (name, cluster) in
        [("without TLS", Cluster::start_with("lan").await), ("with TLS", Cluster::start_tls("lan").await)]
    {
        let (mut next, mut last) = kills_with(cluster, KILLS).await;
        eprintln!("{name}: leader killed {KILLS} times");
        eprintln!("  next grant after          {}", figures(&mut next));
        eprintln!("  last client served after  {}", figures(&mut last));
    }
}
