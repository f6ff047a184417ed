//! `wait`: returns when a name is free.

use std::time::Duration;

use clap::Args;

use crate::cli::args::duration;
use crate::cli::blocker::blocker;
use crate::cli::connect::{Client, RetryOption};
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::client::wait_until;
use crate::model::{LockName, Refusal};
use crate::service::ErrorCode;
use crate::shapes::Free;

#[derive(Debug, Args)]
pub(in crate::cli) struct WaitOptions {
    /// Name of the lock
    #[arg(value_parser = LockName::parse)]
    name: LockName,
    /// Longest wait, from the start of the command; 0s checks once [default: no end]
    #[arg(short, long, value_parser = duration, value_name = "DURATION")]
    wait: Option<Duration>,
    #[command(flatten)]
    retry: RetryOption,
}

/// Waits until a name is free. A wait of 0 checks once.
pub(in crate::cli) async fn run(client: &Client, options: WaitOptions, output: &Output) -> Result<u8, Failure> {
    let (client, name) = (options.retry.of(client), options.name.as_str());
    if let Some(wait) = options.wait {
        let clock = &*client.settings.clock;
        let over = clock.now().after(wait);
        let free = tokio::select! {
            biased;
            free = client.wait_free_within(name, wait) => free?,
            // The first read takes longer than the wait if the cluster does not answer.
            () = wait_until(clock, Some(over)), if !wait.is_zero() => false,
        };
        if !free {
            let why = if wait.is_zero() { "is not free" } else { "did not become free in time" };
            let detail = format!("{name} {why}{}", in_the_way(&client, name).await?);
            return Err(Failure::new(ErrorCode::NotAcquired, detail).about(&options.name));
        }
    } else {
        client.wait_free(name).await?;
    }
    let namespace = client.settings.namespace.to_string();
    output.object_only(&Free { namespace, lock: options.name.to_string(), free: true })
}

/// Describes what blocks a name. Fails if the cluster does not answer soon, because then the wait may have ended for
/// that reason.
async fn in_the_way(client: &Client, name: &str) -> Result<String, Failure> {
    let blocked = blocker(client, name).await?;
    let is_free = matches!(blocked, Refusal::Held { holder: None, closed: None, .. });
    Ok(if is_free { String::new() } else { format!(": {blocked}") })
}
