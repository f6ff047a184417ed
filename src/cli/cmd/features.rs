//! `features`: shows the feature level of the cluster and what its nodes support, or raises the level.

use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::connect::{Client, led};
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::service::{LockService, Operation};

#[derive(Debug, Args)]
pub(in crate::cli) struct FeaturesOptions {
    #[command(subcommand)]
    command: Option<FeaturesCommand>,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum FeaturesCommand {
    /// Raise the level. It can never be lowered, and older builds can no longer join
    Raise {
        /// The new level, which every voter supports
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        level: u32,
    },
}

/// Raises the feature level if requested, then shows it and the levels that the nodes support.
pub(in crate::cli) async fn run(client: &Client, options: &FeaturesOptions, output: &Output) -> Result<u8, Failure> {
    if let Some(FeaturesCommand::Raise { level }) = options.command {
        client.service().operate(Operation::RaiseFeatures(level)).await?;
    }
    let status = client.status().await?;
    led(&status)?;
    // The lowest level, or null until all nodes have announced one.
    let levels: Option<Vec<_>> = status.nodes.iter().map(|node| node.features).collect();
    let supported = levels.and_then(|levels| levels.into_iter().min());
    output.answer(&json!({ "active": status.features, "supported": supported }), || {
        let most = supported.map_or("not every node has announced its level".to_owned(), |level| {
            format!("every node supports {level}")
        });
        format!("feature level {}; {most}", status.features)
    })
}
