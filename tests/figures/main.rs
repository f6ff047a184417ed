//! Measurements with real processes, whose figures the manual quotes: `cargo bench --bench figures -- NAME SIZE`. They
//! check only what must hold in any case, such as that no acknowledged hold is lost.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a measurement prints figures, and panics on failure")]
#![allow(dead_code, reason = "some modules belong to tests/processes, which uses more of them")]

#[path = "../processes/cluster.rs"]
mod cluster;
#[allow(unused_imports, reason = "its test is not compiled here")]
#[path = "../processes/http.rs"]
mod http;
#[path = "../processes/ports.rs"]
mod ports;
#[path = "../sim/random.rs"]
mod random;
#[path = "../processes/wait.rs"]
mod wait;

mod auth;
mod certificates;
mod clients;
mod false_alarms;
mod leader;
mod tls;
mod waiting;

/// The faults of the process tests.
#[path = "../processes/crash"]
mod crash {
    pub(crate) mod faults;
    #[path = "../../figures/faults.rs"]
    pub(crate) mod figures;
    pub(crate) mod sandbox;
}

use tokio::runtime::Builder;

const USAGE: &str = "cargo bench --bench figures -- NAME SIZE
  killed_leader KILLS       time from the kill of a leader to the next grant, with 64 clients
  tls SECONDS               pairs a second with TLS and without, and the same after killed leaders
  certificates SECONDS      calls that fail while every certificate and the authority are replaced
  auth SECONDS              pairs a second with [auth] and a token, and with neither
  false_alarms SECONDS      elections without a cause, while connections between live nodes fail
  power_cuts ROUNDS         acknowledged holds that a power cut of all nodes loses
  leader_changes SECONDS    changes of leader while links are cut or a disk is slow
  sessions COUNT            time until sessions end whose process died
  connections COUNT         resources that dead clients leave on the nodes
  waiting COUNT             latency of others while many wait and one session is renewed too often
  transfers COUNT           calls that fail while leadership is transferred";

fn main() {
    // Cargo adds options such as `--bench`.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let size = words.get(1).and_then(|size| size.parse().ok()).filter(|size| 0 < *size);
    let (Some(name), Some(size)) = (words.first(), size) else {
        eprintln!("{USAGE}");
        return;
    };
    let runtime = Builder::new_multi_thread().worker_threads(3).enable_all().build().expect("threads");
    runtime.block_on(async {
        match name.as_str() {
            "killed_leader" => leader::kills(size).await,
            "tls" => tls::run(size).await,
            "certificates" => certificates::run(size).await,
            "auth" => auth::run(size).await,
            "false_alarms" => false_alarms::run(size).await,
            "power_cuts" => crash::figures::power_cuts(size).await,
            "leader_changes" => crash::figures::leader_changes(size).await,
            "sessions" => clients::sessions(size).await,
            "connections" => clients::connections(size).await,
            "waiting" => waiting::run(size).await,
            "transfers" => clients::transfers(size).await,
            unknown => panic!("no measurement {unknown}\n{USAGE}"),
        }
    });
}
