//! `handover`: makes another session the holder, without a gap.

use clap::Args;

use crate::cli::args::HoldArgs;
use crate::cli::connect::Client;
use crate::cli::error::{Failure, no_hold};
use crate::cli::output::Output;
use crate::model::SessionId;
use crate::shapes::HandedOver;

#[derive(Debug, Args)]
pub(in crate::cli) struct HandOverOptions {
    #[command(flatten)]
    hold: HoldArgs,
    /// Id of the new holder: a session that waits for the lock, or one that accepts hand-overs
    #[arg(long, value_name = "SESSION")]
    to: SessionId,
}

/// Makes another session the holder, and prints the new token.
pub(in crate::cli) async fn run(client: &Client, options: HandOverOptions, output: &Output) -> Result<u8, Failure> {
    let HandOverOptions { hold: HoldArgs { name, token }, to } = options;
    let token = client.hand_over(name.as_str(), token, to).await.map_err(|error| no_hold(error, token))?;
    let (namespace, lock, session) = (client.settings.namespace.to_string(), name.to_string(), to.to_string());
    let answer = HandedOver { namespace, lock, token: token.to_string(), session };
    output.answer(&answer, || token.to_string())
}
