//! `refresh`: extends a lease by its handle.

use std::time::Duration;

use clap::Args;

use crate::cli::args::{HandleOption, duration};
use crate::cli::connect::Client;
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::clock::millis;
use crate::model::LockName;
use crate::shapes::Leased;

#[derive(Debug, Args)]
pub(in crate::cli) struct RefreshOptions {
    /// Name of the lock
    #[arg(value_parser = LockName::parse)]
    name: LockName,
    #[command(flatten)]
    handle: HandleOption,
    /// Length of the lease from now, such as 30s
    #[arg(long = "for", value_parser = duration, value_name = "DURATION")]
    duration: Duration,
}

/// Extends a lease. Prints nothing without `--json`.
pub(in crate::cli) async fn run(client: &Client, options: RefreshOptions, output: &Output) -> Result<u8, Failure> {
    let handle = options.handle.read()?;
    let refreshed = client.refresh(options.name.as_str(), &handle, options.duration).await;
    let refreshed = refreshed.map_err(|error| Failure::from(error).about(&options.name))?;
    output.object_only(&Leased {
        namespace: client.settings.namespace.to_string(),
        lock: options.name.to_string(),
        token: refreshed.token.map(|token| token.to_string()),
        handle: handle.reveal().to_owned(),
        remaining_ms: millis(refreshed.valid_for),
    })
}
