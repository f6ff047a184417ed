//! One node with its ports. `serve` runs one of them, and `dev` runs several in one process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::error::Failure;
use super::exposition;
use super::sockets::{holder, listen};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Listen, Protection};
use crate::http::{self, Render};
use crate::limits;
use crate::net::{CertificateEnd, Port, PortTls, TlsError};
use crate::node::{Node, NodeOptions, OpenNodeError};
use crate::rpc;
use crate::service::ErrorCode;

/// A running node and its servers.
pub(super) struct Server {
    pub(super) node: Node,
    /// TLS of the ports for clients, and the names of the ports.
    tls: Vec<(&'static str, PortTls)>,
    /// Warnings about the listeners, which stay until the node stops.
    exposed: Vec<String>,
    /// All warnings that the node's status shows.
    warnings: Vec<String>,
    /// How the rules of other nodes differed at the last look. They do for a moment while a file is copied.
    differing: Vec<String>,
    stop: watch::Sender<bool>,
    servers: JoinSet<Result<(), String>>,
}

/// The metrics of the process, installed once.
pub(super) struct Instruments {
    handle: PrometheusHandle,
}

/// Raises the soft limit of file descriptors to the hard limit, because each connection needs one and the usual soft
/// limit is small.
pub(super) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::debug!(from = limit.current, to = limit.maximum, "descriptors that this process may have"),
        Err(error) => tracing::debug!(limit = limit.current, %error, "the limit of descriptors stays as it is"),
    }
}

impl Instruments {
    /// Installs the metrics recorder. Nodes must be opened after this.
    pub(super) fn install() -> Result<Self, Failure> {
        let buckets = |builder: PrometheusBuilder, name: &str, bounds: &[f64]| {
            builder.set_buckets_for_metric(Matcher::Suffix(name.to_owned()), bounds)
        };
        let in_log_time = |builder: PrometheusBuilder, name: &str| {
            builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), limits::LOG_SECONDS_BUCKETS)
        };
        let builder = buckets(PrometheusBuilder::new(), "_duration_seconds", limits::SECONDS_BUCKETS)
            .and_then(|builder| buckets(builder, "_commands", limits::COUNT_BUCKETS))
            .and_then(|builder| in_log_time(builder, "lockkeeper_wait_duration_seconds"))
            .and_then(|builder| in_log_time(builder, "lockkeeper_hold_duration_seconds"));
        let installed = builder.and_then(PrometheusBuilder::install_recorder);
        let handle = installed.map_err(|error| Failure::new(ErrorCode::Internal, format!("metrics: {error}")))?;
        Ok(Self { handle })
    }

    /// Returns what renders the metrics of a node of this process.
    fn render(&self, node: u64) -> Render {
        let handle = self.handle.clone();
        Arc::new(move || exposition::of_node(&(handle.render() + &exposition::of_process()), node))
    }

    /// Merges recorded values from time to time, so that their number does not grow on a node whose metrics are never
    /// read.
    pub(super) async fn keep(&self) {
        loop {
            tokio::time::sleep(Duration::from_millis(limits::METRICS_UPKEEP_MS)).await;
            self.handle.run_upkeep();
        }
    }
}

/// The listeners of one node, which are bound before the node starts.
pub(super) struct Ports {
    peer: std::net::TcpListener,
    client: TcpListener,
    http: Option<TcpListener>,
}

impl Ports {
    /// Binds all ports of a node. The error names the first one that is in use, and ends with the next step `instead`.
    pub(super) async fn bind(listen: &Listen, instead: &str) -> Result<Self, Failure> {
        let peer = bind(listen.peer, "the other nodes", instead).await?.into_std()?;
        let client = bind(listen.client, "clients", instead).await?;
        let http = match listen.http {
            Some(address) => Some(bind(address, "HTTP", instead).await?),
            None => None,
        };
        Ok(Self { peer, client, http })
    }

    /// Returns the addresses of the listeners. They have the ports that were chosen in place of port 0.
    pub(super) fn addresses(&self) -> io::Result<Listen> {
        let http = self.http.as_ref().map(TcpListener::local_addr).transpose()?;
        Ok(Listen { client: self.client.local_addr()?, peer: self.peer.local_addr()?, http })
    }
}

/// The failure of a node that did not open. It is one of the command line if another config would help, which this
/// option names.
pub(super) fn unopened(error: OpenNodeError, option: &str) -> Failure {
    let in_config = matches!(
        error,
        OpenNodeError::Tls(_) | OpenNodeError::Exposed(_) | OpenNodeError::Auth(_) | OpenNodeError::Audit { .. }
    );
    let stopped = Failure::stopped(error.to_string());
    if in_config { Failure { code: ErrorCode::Invalid, ..stopped }.of_field(option) } else { stopped }
}

impl Server {
    /// Opens the node and serves on its ports. `unopened` makes the failure of a node that does not open.
    pub(super) async fn start(
        config: Config,
        ports: Ports,
        ephemeral: bool,
        instruments: &Instruments,
        unopened: impl FnOnce(OpenNodeError) -> Failure,
    ) -> Result<Self, Failure> {
        let Ports { peer, client, http } = ports;
        let listeners = config.listeners();
        let has_auth = config.auth.is_some();
        let warning = |(name, protection, address): (&str, &Protection, _)| protection.warning(name, address, has_auth);
        let exposed = listeners.filter_map(warning).collect();
        let hosts = config.hosts().collect();
        let (client_tls, http_tls) = (tls(&config, Port::Client)?, tls(&config, Port::Http)?);
        let options = NodeOptions { ephemeral, peer_listener: Some(peer), ..NodeOptions::default() };
        let node = Node::open_with(config, options).await.map_err(unopened)?;
        let by_port = [(Port::Client, &client_tls), (Port::Http, &http_tls)];
        let tls: Vec<_> = by_port.into_iter().filter_map(|(port, tls)| Some((port.name(), tls.clone()?))).collect();
        tls.iter().for_each(|(_, tls)| node.audit_port(tls));
        let (stop, stopped) = watch::channel(false);
        let mut servers = JoinSet::new();
        let routes = rpc::routes(node.service(), node.info(), stopped.clone());
        let routes = routes.map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
        let ended = stopped.clone();
        servers.spawn(
            async move { rpc::serve(routes, client, client_tls, ended).await.map_err(|error| error.to_string()) },
        );
        if let Some(listener) = http {
            let (service, info, render) = (node.service(), node.info(), instruments.render(node.id()));
            servers.spawn(async move {
                http::serve(listener, http_tls, service, info, render, hosts, stopped)
                    .await
                    .map_err(|error| error.to_string())
            });
        }
        let mut server = Self { node, tls, exposed, warnings: Vec::new(), differing: Vec::new(), stop, servers };
        server.update_warnings([]);
        Ok(server)
    }

    /// Reads the files of rules and certificates again, and uses those that have changed. If the files of a port cannot
    /// be used, the other ports use their new files. A warning names each file that cannot be used.
    pub(super) fn reload_files(&mut self) {
        let unused = self.reload_certificates();
        let rules = self.node.reload_auth().err();
        let rules = rules.map(|error| format!("the changed rules are not in use: {error}"));
        self.update_warnings(unused.into_iter().chain(rules));
        let differing = self.node.differing_rules();
        for lasting in differing.iter().filter(|one| self.differing.contains(one)) {
            tracing::warn!("{lasting}");
        }
        self.differing = differing;
    }

    /// Reloads the certificates of each port. Returns a warning for each one that cannot be used.
    fn reload_certificates(&self) -> Vec<String> {
        let mut reloaded = vec![self.node.reload_certificates()];
        reloaded.extend(self.tls.iter().map(|(_, tls)| tls.reload()));
        if reloaded.contains(&Ok(true)) {
            tracing::info!("the changed certificates are in use");
            self.node.audit_certificates(self.tls.iter().map(|(_, tls)| tls.digest()));
        }
        let errors = reloaded.into_iter().filter_map(Result::err);
        errors.map(|error| format!("the changed certificates are not in use: {error}")).collect()
    }

    /// Logs the warnings that are new, and shows all of them in the node's status.
    fn update_warnings(&mut self, unused: impl IntoIterator<Item = String>) {
        let now = SystemClock::new().wall().0 / 1_000;
        let ending = self.certificates().filter_map(|(port, own)| {
            own.record(port);
            own.warning(now)
        });
        let warnings = distinct(self.exposed.iter().cloned().chain(unused).chain(ending));
        for new in warnings.iter().filter(|warning| !self.warnings.contains(warning)) {
            tracing::warn!("{new}");
        }
        self.node.set_certificate_end(self.tls.iter().filter_map(|(_, tls)| tls.own().seconds).min());
        self.node.set_warnings(warnings.clone());
        self.warnings = warnings;
    }

    fn certificates(&self) -> impl Iterator<Item = (&'static str, CertificateEnd)> {
        let peer = self.node.certificate().map(|own| (Port::Peer.name(), own));
        peer.into_iter().chain(self.tls.iter().map(|(port, tls)| (*port, tls.own())))
    }

    /// Waits until the node or one of its servers fails, and returns the reason.
    pub(super) async fn failed(&mut self) -> String {
        tokio::select! {
            why = self.node.failed() => why,
            Some(ended) = self.servers.join_next() => match ended {
                Ok(Ok(())) => "a server ended unexpectedly".to_owned(),
                Ok(Err(why)) => why,
                Err(error) => error.to_string(),
            },
        }
    }

    /// Transfers leadership while the node still works, moves clients to other nodes, and then closes the node's files.
    pub(super) async fn stop(mut self) {
        self.node.hand_over().await;
        self.stop.send_replace(true);
        let grace = Duration::from_millis(limits::CLOSE_WAIT_MS);
        let ended = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::warn!(node = self.node.id(), "some connections did not end in time");
        }
        self.node.close().await;
    }
}

/// Returns each warning once: ports may share files.
fn distinct(warnings: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    for warning in warnings {
        if !kept.contains(&warning) {
            kept.push(warning);
        }
    }
    kept
}

/// Reads the files of all certificates as a start does, and returns the certificate of each port.
pub(super) fn check_certificates(config: &Config) -> Result<Vec<CertificateEnd>, Failure> {
    let mut own = Vec::new();
    if let Protection::Tls { files, .. } = &config.tls.peer {
        let checked = PortTls::for_nodes(files, &config.cluster, config.node, false);
        own.push(checked.map_err(|error| wrong_files(&error))?.own());
    }
    for port in [Port::Client, Port::Http] {
        own.extend(tls(config, port)?.map(|tls| tls.own()));
    }
    Ok(own)
}

/// Returns the TLS of a port for clients.
pub(super) fn tls(config: &Config, port: Port) -> Result<Option<PortTls>, Failure> {
    let protection = if port == Port::Http { &config.tls.http } else { &config.tls.client };
    let Protection::Tls { mode, files, client_cert_required } = protection else { return Ok(None) };
    let (required, plain) = (*client_cert_required, mode.accepts_plain());
    let tls = PortTls::for_clients(port, files, &config.cluster, config.node, required, plain);
    tls.map(Some).map_err(|error| wrong_files(&error))
}

fn wrong_files(error: &TlsError) -> Failure {
    Failure::usage("--config", error.to_string())
}

async fn bind(address: SocketAddr, peers: &str, instead: &str) -> Result<TcpListener, Failure> {
    listen(address, holder).await.map_err(|error| {
        let next = match holder(address) {
            Some(holder) => format!("{holder} listens there: end it, or {instead}"),
            None => instead.to_owned(),
        };
        let detail = format!("cannot listen on {address} for {peers}: {error}; {next}");
        Failure::with_next_step(ErrorCode::Unreachable, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and the last port share files that cannot be used, and the one between them has others: each error is
    /// a warning once.
    #[test]
    fn ports_that_share_files_share_their_error() {
        assert_eq!(distinct(["shared", "own", "shared"].map(str::to_owned).into_iter()), ["shared", "own"]);
    }
}
