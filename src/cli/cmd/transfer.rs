//! `transfer`: hands leadership to another node.

use clap::Args;
use serde_json::json;

use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::service::{LockService, Operation};

#[derive(Debug, Args)]
pub(in crate::cli) struct TransferOptions {
    /// Id of the next leader
    node: u64,
}

/// Transfers leadership, and waits until the other node leads.
pub(in crate::cli) async fn run(client: &Client, options: &TransferOptions, output: &Output) -> Result<u8, Failure> {
    client.service().operate(Operation::Transfer(options.node)).await?;
    output.object_only(&json!({ "leader": options.node }))?;
    output.remark(&format!("node {} leads", options.node));
    Ok(YES)
}
