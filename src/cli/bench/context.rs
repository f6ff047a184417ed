//! The parts that every workload uses.

use super::options::BenchOptions;
use super::usage::Servers;
use crate::cli::output::Output;
use crate::client::Client;
use crate::service::LockService;

/// The parts that every workload uses.
pub(super) struct Bench<'a, S: LockService> {
    pub(super) options: &'a BenchOptions,
    pub(super) output: &'a Output,
    /// The clients, one for each connection; never empty.
    pub(super) clients: Vec<Client<S>>,
    pub(super) servers: Servers,
    /// Prefix of all lock names of the run, which no other client uses.
    pub(super) name: String,
}
