//! `serve`: runs one node from its configuration.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::error::{Failure, YES};
use crate::cli::server::{Instruments, Ports, Server, raise_descriptor_limit, unopened};
use crate::cli::{logging, systemd};
use crate::config::Config;
use crate::limits::CERTIFICATE_LOOK_MS;

#[derive(Debug, Args)]
pub(in crate::cli) struct ServeOptions {
    /// Configuration of the node
    #[arg(long, value_name = "FILE", env = "LOCKKEEPER_CONFIG")]
    config: PathBuf,
}

/// Runs the node until a signal: TERM and INT transfer leadership and stop the node, HUP reloads the log level, the
/// rates of `[quota]`, the certificates and the rules of `[auth]`. Also reads the files of certificates and rules again
/// from time to time. Reports to systemd if systemd started the node.
pub(in crate::cli) async fn run(options: &ServeOptions) -> Result<u8, Failure> {
    let config = Config::from_file(&options.config)?;
    logging::set_level(&config.log_level);
    raise_descriptor_limit();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hup = signal(SignalKind::hangup())?;
    let instruments = Instruments::install()?;
    let (node, client) = (config.node, config.listen.client);
    let ports = Ports::bind(&config.listen, "give this node another address to listen on").await?;
    let mut server = Server::start(config, ports, false, &instruments, |error| unopened(error, "--config")).await?;
    tracing::info!(node, %client, "serving");
    let mut supervised = pin!(systemd::supervise(server.node.clone()));
    let mut look = tokio::time::interval(Duration::from_millis(CERTIFICATE_LOOK_MS));
    let ended = loop {
        tokio::select! {
            why = server.failed() => break Err(Failure::stopped(format!("node {node} stopped: {why}"))),
            _ = term.recv() => break Ok(YES),
            _ = int.recv() => break Ok(YES),
            _ = hup.recv() => systemd::reloading(|| reload(options, &mut server)),
            _ = look.tick() => server.reload_files(),
            () = instruments.keep() => {}
            never = &mut supervised => match never {},
        }
    };
    if ended.is_ok() {
        tracing::info!(node, "stopping");
    }
    systemd::stopping();
    server.stop().await;
    ended
}

/// Reloads what can change while a node runs: its log level, the rates of namespaces, and the contents of the files of
/// certificates and rules. An invalid config changes nothing.
fn reload(options: &ServeOptions, server: &mut Server) {
    match Config::from_file(&options.config) {
        Ok(config) => {
            logging::set_level(&config.log_level);
            server.node.set_rates(config.rates);
            server.reload_files();
            tracing::info!(level = config.log_level, "reloaded the config");
        }
        Err(error) => tracing::warn!(%error, "the config was not reloaded"),
    }
}
