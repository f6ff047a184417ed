//! What a workload has to work with.

use super::options::BenchOptions;
use super::usage::Servers;
use crate::cli::output::Output;
use crate::client::Client;
use crate::service::LockService;

/// What a workload has to work with.
pub(super) struct Bench<'a, S: LockService> {
    pub(super) options: &'a BenchOptions,
    pub(super) output: &'a Output,
    /// One for each connection; never empty.
    pub(super) clients: Vec<Client<S>>,
    pub(super) servers: Servers,
    /// The beginning of all its lock names, which nobody else uses.
    pub(super) name: String,
}
