//! `semaphore`: sets or removes the limit of a semaphore.

use clap::Args;

use crate::cli::connect::Client;
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::limits::PERMITS_MAX;
use crate::model::LockName;
use crate::shapes::Semaphore;

#[derive(Debug, Args)]
pub(in crate::cli) struct SemaphoreOptions {
    /// Name of the semaphore
    #[arg(value_parser = LockName::parse)]
    name: LockName,
    /// Number of permits, kept even while none is used [default: none, with --remove]
    #[arg(long, required_unless_present = "remove", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(PERMITS_MAX)))]
    limit: Option<u32>,
    /// Remove the limit when no permit is used
    #[arg(long, conflicts_with = "limit")]
    remove: bool,
}

/// Sets or removes the limit of a semaphore. Prints nothing without `--json`.
pub(in crate::cli) async fn run(client: &Client, options: SemaphoreOptions, output: &Output) -> Result<u8, Failure> {
    match options.limit {
        Some(limit) => client.set_semaphore(options.name.as_str(), limit).await?,
        None => client.remove_semaphore(options.name.as_str()).await?,
    }
    let (namespace, lock) = (client.settings.namespace.to_string(), options.name.to_string());
    output.object_only(&Semaphore { namespace, lock, limit: options.limit })
}
