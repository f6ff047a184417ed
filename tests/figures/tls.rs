//! The cost of TLS: pairs a second and the time after a killed leader, with TLS on every port and without, in turns.

use std::process::Stdio;

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

fn pairs(cluster: &Cluster, seconds: usize) -> Pairs {
    let seconds = seconds.to_string();
    let arguments = ["bench", "--clients", "64", "--secs", &seconds, "--workload", "pairs", "--json"];
    let measured = block_in_place(|| cluster.command(&arguments).stderr(Stdio::inherit()).output().expect("bench"));
    let text = String::from_utf8(measured.stdout).expect("text");
    let line = text.lines().last().unwrap_or_else(|| panic!("bench printed nothing"));
    let figures: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let number = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("no {name} in {line}"));
    Pairs { a_second: number("pairs_per_second"), p99_ms: number("p99_ms") }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures both clusters in turns, and prints the medians and the median of the ratios.
pub(crate) async fn run(seconds: usize) {
    let clusters = [Cluster::start_with("lan").await, Cluster::start_tls("lan").await];
    let mut measured = [Vec::new(), Vec::new()];
    for round in 1..=ROUNDS {
        for (cluster, into) in clusters.iter().zip(&mut measured) {
            into.push(pairs(cluster, seconds));
        }
        let [plain, tls] = [0, 1].map(|kind| measured[kind][round - 1].a_second);
        eprintln!("round {round}: plain {plain:.0} pairs/s, TLS {tls:.0}");
    }
    for (name, of) in ["plain", "TLS"].into_iter().zip(&measured) {
        let rate = median(of.iter().map(|pairs| pairs.a_second).collect());
        let p99 = median(of.iter().map(|pairs| pairs.p99_ms).collect());
        eprintln!("{name}: {rate:.0} pairs/s of 64 clients, p99 {p99:.1} ms");
    }
    let ratios = measured[0].iter().zip(&measured[1]).map(|(plain, tls)| tls.a_second / plain.a_second);
    eprintln!("TLS serves {:.2} of the pairs without TLS", median(ratios.collect()));
    drop(clusters);
    for (name, cluster) in [("plain", Cluster::start_with("lan").await), ("TLS", Cluster::start_tls("lan").await)] {
        let (mut next, mut last) = kills_with(cluster, KILLS).await;
        eprintln!("{name}: leader killed {KILLS} times");
        eprintln!("  next grant after          {}", figures(&mut next));
        eprintln!("  last client served after  {}", figures(&mut last));
    }
}
