//! `serve`: one node, from its configuration.

use super::failure::Failure;
use super::options::ServeOptions;
use crate::config::Config;
use crate::service::Word;

/// Runs the node until it is told to stop.
pub(super) async fn serve(options: &ServeOptions) -> Result<u8, Failure> {
    let config = Config::from_file(&options.config)?;
    run_node(config).await
}

/// The one place where the command line hands a configuration to a node of its own process.
async fn run_node(config: Config) -> Result<u8, Failure> {
    Err(Failure::new(Word::Internal, format!("node {} cannot be run: this build has no node", config.node)))
}
