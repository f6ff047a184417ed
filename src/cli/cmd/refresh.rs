//! `refresh`: extends a lease by its handle.

use std::time::Duration;

use clap::Args;

use crate::cli::args::{HandleOption, duration};
use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::model::{LockName, Namespace};
use crate::shapes::{Leased, milliseconds};

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
pub(in crate::cli) async fn run(
    client: &Client,
    namespace: &Namespace,
    options: RefreshOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let handle = options.handle.read()?;
    let refreshed = client.refresh(options.name.as_str(), &handle, options.duration).await?;
    if output.json {
        output.object(&Leased {
            namespace: namespace.to_string(),
            lock: options.name.to_string(),
            token: refreshed.token.map(|token| token.to_string()),
            handle: handle.reveal().to_owned(),
            remaining_ms: milliseconds(refreshed.valid_for),
        })?;
    }
    Ok(YES)
}
