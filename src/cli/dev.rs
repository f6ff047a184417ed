//! `dev`: an embedded cluster on loopback to try things on.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use super::failure::Failure;
use super::options::DevOptions;
use super::output::Output;
use crate::config::{Config, Listen, Member, Profile};
use crate::service::Word;

/// Name of the cluster that `dev` runs.
const CLUSTER: &str = "dev";
/// Node *n* listens on the port base + *n* for clients, and so much above it for peers and HTTP.
const PEER_PORTS: u16 = 10;
const HTTP_PORTS: u16 = 20;

/// What `dev` runs: the nodes' settings, and whether anything is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DevCluster {
    /// One for each node.
    pub(super) nodes: Vec<Config>,
    /// Nothing is written; the data directories are names only.
    pub(super) ephemeral: bool,
}

/// Runs the cluster until it is interrupted.
pub(super) async fn dev(options: &DevOptions, output: &Output) -> Result<u8, Failure> {
    run_cluster(plan(options), output).await
}

/// The one place where the command line hands a cluster to nodes of its own process.
async fn run_cluster(cluster: DevCluster, _output: &Output) -> Result<u8, Failure> {
    let kept = if cluster.ephemeral { "in memory" } else { "on disk" };
    let detail = format!("{} nodes {kept} cannot be run: this build has no node", cluster.nodes.len());
    Err(Failure::new(Word::Internal, detail))
}

fn plan(options: &DevOptions) -> DevCluster {
    let port = |id: u64, above: u16| {
        let id = u16::try_from(id).unwrap_or(0);
        SocketAddr::from((Ipv4Addr::LOCALHOST, options.port_base.saturating_add(above).saturating_add(id)))
    };
    let ids = 1..=u64::from(options.nodes);
    let members: BTreeMap<u64, Member> = ids
        .clone()
        .map(|id| (id, Member { client: port(id, 0).to_string(), peer: port(id, PEER_PORTS).to_string() }))
        .collect();
    let node = |id: u64| Config {
        cluster: CLUSTER.to_owned(),
        node: id,
        data: Path::new(&options.dir).join(format!("n{id}")),
        listen: Listen { client: port(id, 0), peer: port(id, PEER_PORTS), http: Some(port(id, HTTP_PORTS)) },
        members: members.clone(),
        timing: Profile::from(options.profile).timing(),
    };
    DevCluster { nodes: ids.map(node).collect(), ephemeral: options.ephemeral }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::options::{Command, Options};

    fn planned(arguments: &[&str]) -> DevCluster {
        let all = ["lockkeeper", "dev"].iter().chain(arguments);
        let Command::Dev(options) = Options::try_parse_from(all).unwrap().command else { unreachable!() };
        plan(&options)
    }

    /// Three nodes listen where the documentation says, and every one knows all of them.
    #[test]
    fn dev_nodes_listen_on_the_documented_ports() {
        let cluster = planned(&[]);
        assert_eq!((cluster.nodes.len(), cluster.ephemeral), (3, false));
        let second = &cluster.nodes[1];
        assert_eq!(second.listen.client.to_string(), "127.0.0.1:7602");
        assert_eq!(second.listen.peer.to_string(), "127.0.0.1:7612");
        assert_eq!(second.listen.http.unwrap().to_string(), "127.0.0.1:7622");
        assert_eq!(second.data, Path::new(".lockkeeper/n2"));
        assert_eq!(second.members.len(), 3);
        assert_eq!(second.members[&3].peer, "127.0.0.1:7613");
    }

    /// The base moves every port, and a single node is a cluster too.
    #[test]
    fn the_port_base_moves_all_ports() {
        let cluster = planned(&["--nodes", "1", "--port-base", "9000", "--profile", "fast", "--ephemeral"]);
        assert_eq!(cluster.nodes[0].listen.http.unwrap().port(), 9021);
        assert_eq!(cluster.nodes[0].timing, Profile::Fast.timing());
        assert!(cluster.ephemeral);
    }
}
