//! Deterministic simulation: the product's own nodes and clients over a simulated network, simulated disks and clocks.
//! A seed decides everything; the same seed is the same run, moment by moment.
//!
//! - `cargo test --test sim` tells every story with its seeds. `LOCKKEEPER_SEEDS=100..200 cargo test --test sim mixed`
//!   tells the mixed story with others. A failure prints one command that brings it back.
//! - Each run has a process of its own: what a library keeps for the whole process would else leak from one run into
//!   the next.
//!
//! What could differ between two runs of one seed, and how it is closed:
//!
//! | source | closed by |
//! | --- | --- |
//! | time | `tokio::time` follows the simulation; everything else reads a `Clock`, here one over simulated time |
//! | secrets, ids, jitter | `Clock::random_u128`, here from the seed |
//! | election timeouts | drawn through `clock::draw`, seeded for the process |
//! | tokio's own choices (`select!`) | its runtime's seed, given by the simulation; needs `tokio_unstable` |
//! | the network: latency, order, ports | the simulation's, from the seed |
//! | order of hash maps | maps whose order wakes anybody are ordered or sorted first; the machine has none |
//! | threads | none: nodes run on their host's runtime, disks are in memory, snapshot files are read in place |
//! | disks | syncs end after a drawn time, in order, on the host's runtime |
//! | the number of the process, which clients say of themselves | they have names instead |
//! | dates in HTTP headers | not closed, and not in the trace: sizes of messages decide nothing here |
//! | for how long `h2` knows that it gave a stream up | not closed: a second of the machine's time, longer than most runs take |

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and says what it saw"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "witnesses look at a few kinds of events")]

#[path = "../checker/mod.rs"]
mod checker;
mod bites;
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
mod stories;
mod sure;
mod world;

/// Clocks go wrong by at most so many millionths: within the margin that clients keep.
const DRIFT_MILLIONTHS: u64 = 4_000;
