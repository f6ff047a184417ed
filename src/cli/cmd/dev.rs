//! `dev`: an embedded cluster on loopback for trying things out.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rustix::fs::{Access, access};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use super::certs;
use crate::cli::args::port_base;
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::cli::server::{self, Instruments, Ports, Server, raise_descriptor_limit};
use crate::cli::sockets::lock_holder;
use crate::config::{Config, Listen, Member, Profile, Protection, Tls, TlsMode};
use crate::http::shell;
use crate::net::{Role, TlsFiles};
use crate::node::{Node, OpenNodeError};
use crate::service::ErrorCode;
use crate::storage::OpenError;

/// Node *n* listens for clients on this port plus *n*.
const PORT_BASE: u16 = 7600;

#[derive(Debug, Args)]
pub(in crate::cli) struct DevOptions {
    /// Number of nodes, 1 to 9
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9), value_name = "COUNT")]
    nodes: u8,
    /// Directory in which the nodes keep their data
    #[arg(long, default_value = ".lockkeeper", value_name = "DIR")]
    dir: PathBuf,
    /// Keep all data in memory, and lose it at the end
    #[arg(long, conflicts_with = "dir")]
    ephemeral: bool,
    /// Timing of heartbeats and elections
    #[arg(long, default_value = "lan", value_enum)]
    profile: DevProfile,
    /// Lowest port: node N listens on PORT+N for clients, PORT+10+N for the other nodes and PORT+20+N for HTTP; 0
    /// chooses free ports, with --ephemeral
    #[arg(long, default_value_t = PORT_BASE, value_parser = port_base, value_name = "PORT")]
    port_base: u16,
    /// Make certificates in the directory, and require TLS on every port
    #[arg(long, conflicts_with = "ephemeral")]
    tls: bool,
    /// Whether clients need a certificate under --tls, also browsers
    #[arg(long, default_value = "required", value_enum, requires = "tls")]
    client_cert: ClientCert,
}

/// Whether each client needs a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ClientCert {
    /// Clients without a certificate are served, too.
    Optional,
    /// Only clients with a certificate of the authority are served.
    Required,
}

/// Timing profiles that make sense on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum DevProfile {
    /// For machines of one site: elections begin after some hundred milliseconds.
    Lan,
    /// For loopback: elections begin as early as a busy machine allows.
    Fast,
}

/// The JSON lines.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum DevLine<'a> {
    /// All nodes run. Without files on disk or TLS, the fields for them are null.
    Started {
        nodes: usize,
        dir: Option<String>,
        endpoints: &'a [String],
        http: &'a [String],
        ca: Option<String>,
        cert: Option<String>,
        key: Option<String>,
    },
    /// Another node leads, or none.
    Leader { leader: Option<u64>, term: u64 },
    /// All nodes stop.
    Stopping,
}

/// Name of the cluster that `dev` runs, and of its client.
const CLUSTER: &str = "dev";

/// Directory of the certificates, below the directory of the data.
const CERTS: &str = "certs";

/// Offset of the ports for peers and HTTP above the port for clients.
const PEER_PORTS: u16 = 10;

const HTTP_PORTS: u16 = 20;

/// Log level of the nodes without `-v`: the command prints its own lines.
const LOG_LEVEL: &str = "warn";

/// Runs the cluster until it is interrupted. A restart with the same directory finds all data again.
pub(in crate::cli) async fn run(options: &DevOptions, output: &Output) -> Result<u8, Failure> {
    if options.port_base == 0 && !options.ephemeral {
        let detail = "--port-base 0 needs --ephemeral: the data of a node belongs to its addresses";
        return Err(Failure::usage("--port-base", detail));
    }
    let mut nodes = plan(options);
    if options.tls {
        protect(&mut nodes, &options.dir.join(CERTS), options.client_cert)?;
    }
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    raise_descriptor_limit();
    let instruments = Instruments::install()?;
    // Binds all ports before it starts the first node, so that a port in use does not leave a part of a cluster
    // running.
    let mut ports = Vec::new();
    for config in &nodes {
        let bound = Ports::bind(&config.listen, "give another --port-base").await;
        ports.push(bound.map_err(|failure| Failure { code: ErrorCode::Invalid, ..failure }.of_field("--port-base"))?);
    }
    if !options.ephemeral {
        usable(&options.dir)?;
    }
    listen_on(&mut nodes, &ports)?;
    let listens: Vec<_> = nodes.iter().map(|node| node.listen.clone()).collect();
    let mut servers = Vec::new();
    for (config, ports) in nodes.into_iter().zip(ports) {
        let started = Server::start(config, ports, options.ephemeral, &instruments, |error| unopened(error, options));
        servers.push(started.await?);
    }
    let mut watching = JoinSet::new();
    let welcomed = welcome(options, &listens, output);
    let ended = match welcomed {
        // If the lines cannot be printed, the nodes stop at once.
        Err(failure) => Err(failure),
        Ok(()) => {
            watching.spawn(print_leadership(servers[0].node.clone(), *output));
            tokio::select! {
                why = any_failed(&mut servers) => Err(Failure::new(ErrorCode::Internal, why)),
                _ = term.recv() => Ok(YES),
                _ = int.recv() => Ok(YES),
                () = instruments.keep() => Ok(YES),
            }
        }
    };
    watching.shutdown().await;
    // The nodes stop even if the line cannot be printed, and what ended them is the result.
    output.answer(&DevLine::Stopping, || "stopping".to_owned()).ok();
    // Stops all nodes at once, so that no node waits for a successor that is about to stop, too.
    let mut stopping = JoinSet::new();
    for server in servers.into_iter().rev() {
        stopping.spawn(server.stop());
    }
    stopping.join_all().await;
    ended
}

/// Makes the nodes members at the addresses of their listeners, which differ from the planned ones if ports are free.
fn listen_on(nodes: &mut [Config], ports: &[Ports]) -> io::Result<()> {
    for (node, ports) in nodes.iter_mut().zip(ports) {
        node.listen = ports.addresses()?;
    }
    let member = |node: &Config| {
        let (client, peer) = (node.listen.client.to_string(), node.listen.peer.to_string());
        (node.node, Member { client, peer })
    };
    let members: BTreeMap<_, _> = nodes.iter().map(member).collect();
    for node in nodes {
        node.members.clone_from(&members);
    }
    Ok(())
}

/// Creates the directory, and refuses one in which this user may not write.
fn usable(dir: &Path) -> Result<(), Failure> {
    let made = std::fs::create_dir_all(dir).and_then(|()| Ok(access(dir, Access::WRITE_OK | Access::EXEC_OK)?));
    made.map_err(|error| {
        let is_file = error.kind() == io::ErrorKind::AlreadyExists;
        let why = if is_file { "it is no directory".to_owned() } else { error.to_string() };
        let detail = format!("--dir {}: {why}; choose a directory in which you can write", dir.display());
        Failure::usage("--dir", detail)
    })
}

/// The failure of a node that did not open. The data of a node belongs to the addresses and the timing of all nodes.
#[allow(clippy::wildcard_enum_match_arm, reason = "every other error is as that of a single node")]
fn unopened(error: OpenNodeError, options: &DevOptions) -> Failure {
    let mut field = "--dir";
    let why = match error {
        OpenNodeError::Directory(OpenError::NotOurs { .. }) => {
            "it has the data of a cluster with other nodes or ports; \
            give the --nodes and --port-base with which it was made, or another --dir"
                .to_owned()
        }
        OpenNodeError::Directory(OpenError::InUse { path }) => {
            let process = lock_holder(&path).unwrap_or_else(|| "another process".to_owned());
            format!("{process} uses it; end it, or give another --dir")
        }
        OpenNodeError::Unfit(why) => {
            field = "--profile";
            why
        }
        error => return server::unopened(error, "--dir"),
    };
    Failure::usage(field, format!("--dir {}: {why}", options.dir.display()))
}

fn welcome(options: &DevOptions, listens: &[Listen], output: &Output) -> Result<(), Failure> {
    let endpoints: Vec<_> = listens.iter().map(|listen| listen.client.to_string()).collect();
    let scheme = if options.tls { "https" } else { "http" };
    let urls: Vec<_> = listens.iter().filter_map(|listen| Some(format!("{scheme}://{}", listen.http?))).collect();
    let certs_dir = options.dir.join(CERTS);
    let certs_dir = std::path::absolute(&certs_dir).unwrap_or(certs_dir);
    let files = certs::files_of(&certs_dir, &Role::Client(CLUSTER.to_owned())).map(|file| file.display().to_string());
    if output.json {
        let [ca, cert, key] = files.map(|file| options.tls.then_some(file));
        let dir = (!options.ephemeral).then(|| options.dir.display().to_string());
        let (nodes, endpoints, http) = (endpoints.len(), &*endpoints, &*urls);
        return output.object(&DevLine::Started { nodes, dir, endpoints, http, ca, cert, key });
    }
    let files = files.map(|file| shell(&file));
    let kept =
        if options.ephemeral { "nothing is kept".to_owned() } else { format!("data in {}", options.dir.display()) };
    output.line(format!("{} nodes on this machine, {kept}; Ctrl-C stops them", endpoints.len()))?;
    output.line(format!("  endpoints {}", endpoints.join(",")))?;
    output.line(format!("  http      {}", urls.join(",")))?;
    if options.tls {
        let names = ["LOCKKEEPER_CA", "LOCKKEEPER_CERT", "LOCKKEEPER_KEY"];
        let set = names.iter().zip(&files).map(|(name, file)| format!("{name}={file}"));
        output.line(format!("  tls       export {}", set.collect::<Vec<_>>().join(" ")))?;
    }
    let standard = options.port_base == PORT_BASE && options.nodes == 3;
    let variable = if standard { String::new() } else { format!("LOCKKEEPER_ENDPOINTS={} ", endpoints.join(",")) };
    output.line(format!("  try       {variable}lockkeeper lock nightly -- echo \"only me\""))?;
    let Some(url) = urls.first() else { return Ok(()) };
    let [ca, cert, key] = files;
    let (files, demand) = match options.client_cert {
        _ if !options.tls => (String::new(), ""),
        ClientCert::Optional => (format!("--cacert {ca} "), ""),
        ClientCert::Required => (
            format!("--cacert {ca} --cert {cert} --key {key} "),
            " (the browser needs the certificate, or start with --client-cert optional)",
        ),
    };
    output.line(format!("  page      {url}/{demand}"))?;
    let (kind, body) = ("content-type:application/json", r#"{"lock":"nightly","lease_ms":5000}"#);
    output.line(format!("  or        curl -sS {files}-H {kind} -d '{body}' {url}/v1/ns/default/acquire"))
}

/// Prints a line whenever leadership changes, from the first leader on.
async fn print_leadership(node: Node, output: Output) {
    let mut leaders = node.info().leader;
    // A cluster that has just started has no leader, which is no news.
    let mut printed = leadership(None, 0);
    loop {
        let leader = leaders.borrow_and_update().as_ref().map(|leader| leader.node);
        let term = node.views().borrow().term;
        let line = leadership(leader, term);
        if line != printed {
            if output.answer(&DevLine::Leader { leader, term }, || line.clone()).is_err() {
                return;
            }
            printed = line;
        }
        if leaders.changed().await.is_err() {
            return;
        }
    }
}

/// Returns the line about the leader. Without one, it is the same in every term.
fn leadership(leader: Option<u64>, term: u64) -> String {
    leader.map_or("no node leads".to_owned(), |node| format!("node {node} leads (term {term})"))
}

async fn any_failed(servers: &mut [Server]) -> String {
    let failing = servers.iter_mut().map(|server| {
        let id = server.node.id();
        Box::pin(async move { format!("node {id} stopped: {}", server.failed().await) })
    });
    futures_util::future::select_all(failing).await.0
}

/// Makes the missing certificates, and sets TLS for every port of each node.
fn protect(nodes: &mut [Config], dir: &Path, client_cert: ClientCert) -> Result<(), Failure> {
    let hosts = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let of_nodes = nodes.iter().map(|config| (Role::Node(config.node), hosts.clone()));
    let roles = of_nodes.chain([(Role::Client(CLUSTER.to_owned()), Vec::new())]);
    certs::make_missing(dir, CLUSTER, roles.collect()).map_err(|failure| failure.of_field("--dir"))?;
    let dir = std::path::absolute(dir)?;
    for config in nodes {
        let [ca, cert, key] = certs::files_of(&dir, &Role::Node(config.node)).map(Some);
        let files = TlsFiles { ca, cert, key, refuse: None };
        let on = |client_cert_required| Protection::Tls {
            mode: TlsMode::Require,
            files: files.clone(),
            client_cert_required,
        };
        let required = client_cert == ClientCert::Required;
        config.tls = Tls { client: on(required), peer: on(false), http: on(required) };
    }
    Ok(())
}

/// Returns the config of each node, still without its members.
fn plan(options: &DevOptions) -> Vec<Config> {
    let port = |id: u64, above: u16| {
        let id = u16::try_from(id).unwrap_or(0);
        // Port 0 is replaced by a free port when the node listens.
        let port = if options.port_base == 0 { 0 } else { options.port_base.saturating_add(above).saturating_add(id) };
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    };
    let profile = match options.profile {
        DevProfile::Lan => Profile::Lan,
        DevProfile::Fast => Profile::Fast,
    };
    let node = |id: u64| {
        let listen = Listen { client: port(id, 0), peer: port(id, PEER_PORTS), http: Some(port(id, HTTP_PORTS)) };
        Config {
            data: options.dir.join(format!("n{id}")),
            timing: profile.timing(),
            log_level: LOG_LEVEL.to_owned(),
            ..Config::new(CLUSTER, id, listen)
        }
    };
    (1..=u64::from(options.nodes)).map(node).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::shapes::tests::value;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: DevOptions,
    }

    fn planned(arguments: &[&str]) -> Vec<Config> {
        plan(&Line::try_parse_from(["dev"].iter().chain(arguments)).unwrap().options)
    }

    /// Three nodes listen on the documented ports.
    #[test]
    fn dev_nodes_listen_on_the_documented_ports() {
        let nodes = planned(&[]);
        assert_eq!(nodes.len(), 3);
        let second = &nodes[1];
        assert_eq!(second.listen.client.to_string(), "127.0.0.1:7602");
        assert_eq!(second.listen.peer.to_string(), "127.0.0.1:7612");
        assert_eq!(second.listen.http.unwrap().to_string(), "127.0.0.1:7622");
        assert_eq!(second.data, Path::new(".lockkeeper/n2"));
    }

    /// Without rules, a certificate is all that a client proves, so each client needs one unless the operator says
    /// otherwise.
    #[test]
    fn dev_clients_need_a_certificate() {
        let options =
            |arguments: &[&str]| Line::try_parse_from(["dev"].iter().chain(arguments)).map(|line| line.options);
        for (words, required) in [(&["--tls"][..], true), (&["--tls", "--client-cert", "optional"], false)] {
            let options = options(words).unwrap();
            let (mut nodes, dir) = (plan(&options), tempfile::tempdir().unwrap());
            protect(&mut nodes, dir.path(), options.client_cert).unwrap();
            let demands = |tls: &Protection| matches!(tls, Protection::Tls { client_cert_required: true, .. });
            assert!(nodes.iter().all(|node| demands(&node.tls.client) == required));
            assert!(nodes.iter().all(|node| demands(&node.tls.http) == required));
        }
        assert!(options(&["--client-cert", "optional"]).is_err(), "there is no TLS");
    }

    /// A line about leadership differs from the last one if another node leads, or the same one again in a later term.
    /// Without a leader, the line is the same in every term.
    #[test]
    fn news_is_another_leader() {
        assert_eq!(leadership(Some(2), 1), "node 2 leads (term 1)");
        assert_ne!(leadership(Some(2), 2), leadership(Some(2), 1));
        assert_eq!((leadership(None, 1), leadership(None, 2)), ("no node leads".into(), "no node leads".into()));
    }

    /// The JSON lines have every field; those that do not apply are null.
    #[test]
    fn the_json_lines_have_every_field() {
        let (nodes, endpoints, http) = (1, &["e".to_owned()][..], &["h".to_owned()][..]);
        let started = DevLine::Started { nodes, dir: None, endpoints, http, ca: None, cert: None, key: None };
        let expected = json!({
            "event": "started", "nodes": 1, "dir": null, "endpoints": ["e"], "http": ["h"], "ca": null, "cert": null,
            "key": null,
        });
        assert_eq!(value(&started), expected);
        let leader = value(&DevLine::Leader { leader: None, term: 4 });
        assert_eq!(leader, json!({"event": "leader", "leader": null, "term": 4}));
        assert_eq!(value(&DevLine::Stopping), json!({"event": "stopping"}));
    }

    /// With port base 0 the nodes have the ports that their listeners got, and each knows those of the others.
    #[tokio::test]
    async fn free_ports_are_known_to_every_node() {
        let mut nodes = planned(&["--nodes", "2", "--port-base", "0", "--ephemeral"]);
        let mut ports = Vec::new();
        for node in &nodes {
            ports.push(Ports::bind(&node.listen, "").await.unwrap());
        }
        listen_on(&mut nodes, &ports).unwrap();
        let [first, second] = &nodes[..] else { panic!("two nodes") };
        assert_ne!(first.listen.client.port(), 0);
        assert_eq!(first.members, second.members);
        assert_eq!(first.members[&2].peer, second.listen.peer.to_string());
        assert_ne!(first.listen.http, second.listen.http);
    }

    /// The port base moves every port. A single node is a cluster, too.
    #[test]
    fn the_port_base_moves_all_ports() {
        let nodes = planned(&["--nodes", "1", "--port-base", "9000", "--profile", "fast", "--ephemeral"]);
        assert_eq!(nodes[0].listen.http.unwrap().port(), 9021);
        assert_eq!(nodes[0].timing, Profile::Fast.timing());
    }
}
