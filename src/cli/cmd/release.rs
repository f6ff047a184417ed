//! `release`: releases a lease by its handle.

use clap::Args;
use serde::Serialize;

use crate::cli::args::HandleOption;
use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::client::ClientError;
use crate::model::LockName;
use crate::service::ErrorCode;

#[derive(Debug, Args)]
pub(in crate::cli) struct ReleaseOptions {
    /// Name of the lock
    #[arg(value_parser = LockName::parse)]
    name: LockName,
    #[command(flatten)]
    handle: HandleOption,
}

/// The JSON line.
#[derive(Debug, Serialize)]
struct Released {
    released: bool,
    reason: Option<String>,
}

/// Releases a lease. Fails if the lease is not held, or no longer held.
pub(in crate::cli) async fn run(client: &Client, options: ReleaseOptions, output: &Output) -> Result<u8, Failure> {
    let released = client.release(options.name.as_str(), &options.handle.read()?).await;
    if output.json
        && let Some(answer) = release_answer(&released)
    {
        Failure::unless_closed(output.object(&answer))?;
    }
    released.map_err(|error| Failure::from(error).about(&options.name))?;
    Ok(YES)
}

fn release_answer<T>(released: &Result<T, ClientError>) -> Option<Released> {
    let reason = match released {
        Ok(_) => None,
        Err(ClientError::Refused(refusal)) => Some(ErrorCode::of_refusal(refusal).row().text.to_owned()),
        Err(_) => return None,
    };
    Some(Released { released: reason.is_none(), reason })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::shapes::tests::value;

    /// The output of a release has the fields that the manual lists.
    #[test]
    fn a_release_has_every_field() {
        assert_eq!(value(&Released { released: true, reason: None }), json!({"released": true, "reason": null}));
    }
}
