//! Deterministic simulation: the product's own nodes and clients on a simulated network, simulated disks and clocks.
//! The seed decides everything, so the same seed gives the same run.
//!
//! - `cargo test --test sim` runs every scenario with its seeds. `LOCKKEEPER_SEEDS=100..200 cargo test --test sim
//!   mixed` runs the mixed scenario with other seeds. A failure prints a command that reproduces it.
//! - Each run has a separate process, because libraries keep state for the whole process, which would leak from one run
//!   into the next.
//!
//! Sources of differences between two runs with one seed, and how each is prevented:
//!
//! | source | prevented by |
//! | --- | --- |
//! | time | `tokio::time` follows the simulation; everything else reads a `Clock`, here one with simulated time |
//! | secrets, ids, jitter | `Clock::random_u128`, here from the seed |
//! | election timeouts | drawn through `clock::draw`, seeded for the process |
//! | tokio's own choices (`select!`) | its runtime's seed, set by the simulation; needs `tokio_unstable` |
//! | the network: latency, order, ports | simulated, from the seed |
//! | order of hash maps | maps whose order decides which task is woken are ordered or sorted first; the machine has none |
//! | threads | none: nodes run on their host's runtime, disks are in memory, snapshot files are read directly |
//! | disks | syncs end after a random time, in order, on the host's runtime |
//! | the process id in the metadata of clients | clients have names instead |
//! | dates in HTTP headers | not prevented, and not in the trace: sizes of messages decide nothing here |
//! | how long `h2` remembers a cancelled stream | not prevented: a second of real time, longer than most runs take |

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it saw"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "the checks need only a few kinds of events")]

#[path = "../checker/mod.rs"]
mod checker;
mod injected;
mod clients;
mod clock;
mod invariants;
mod manual;
mod net;
mod nodes;
mod planted;
mod processes;
mod random;
mod run;
mod settle;
mod scenarios;
mod sure;
mod world;

/// Clock rates differ from true time by at most this many millionths, which is within the margin of clients.
const DRIFT_MILLIONTHS: u64 = 4_000;
