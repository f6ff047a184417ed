//! `serve`: one node, from its configuration.

use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use super::host::{Host, Instruments, Ports, raise_descriptor_limit};
use super::options::ServeOptions;
use crate::config::Config;

/// Runs the node until it is told to stop: TERM and INT hand leadership over first, HUP reads the log level
/// and the rates of `[quota]` anew.
pub(super) async fn serve(options: &ServeOptions) -> Result<u8, Failure> {
    let config = Config::from_file(&options.config)?;
    super::logging::set_level(&config.log_level);
    raise_descriptor_limit();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hup = signal(SignalKind::hangup())?;
    let instruments = Instruments::install()?;
    let (node, client) = (config.node, config.listen.client);
    let ports = Ports::bind(&config.listen).await?;
    let mut host = Host::start(config, ports, false, &instruments).await?;
    tracing::info!(node, %client, "serving");
    let ended = loop {
        tokio::select! {
            why = host.failed() => break Err(Failure::stopped(format!("node {node} stopped: {why}"))),
            _ = term.recv() => break Ok(super::YES),
            _ = int.recv() => break Ok(super::YES),
            _ = hup.recv() => reload(options, &host),
            () = instruments.keep() => {}
        }
    };
    if ended.is_ok() {
        tracing::info!(node, "stopping");
    }
    host.stop().await;
    ended
}

/// What can change while a node runs: its log level, and how many commands a second each namespace may send. A config
/// that does not read leaves everything as it was.
fn reload(options: &ServeOptions, host: &Host) {
    match Config::from_file(&options.config) {
        Ok(config) => {
            super::logging::set_level(&config.log_level);
            host.node.set_rates(config.rates);
            tracing::info!(level = config.log_level, "read the config anew");
        }
        Err(error) => tracing::warn!(%error, "the config was not read anew"),
    }
}
