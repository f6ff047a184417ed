//! Cuts between nodes, and between nodes and clients. The clients' namespace routes the packets of the nodes, and
//! routing rules drop some of them without an error to the sender.

use super::super::sandbox::{installed, tool};

const NODES: [usize; 3] = [1, 2, 3];

/// Returns an error if a program that this needs is not installed.
pub(super) fn possible() -> Result<(), String> {
    installed("ip").and_then(|()| installed("nsenter"))
}

/// A node's address.
pub(crate) fn host(node: usize) -> String {
    format!("10.77.{node}.2")
}

/// The command that starts a program in a node's namespace.
pub(crate) fn launcher(node: usize) -> Vec<String> {
    vec!["nsenter".to_owned(), format!("--net=/run/netns/n{node}")]
}

/// Creates a namespace for each node with a link to this one.
pub(crate) fn build() {
    let mut script = "mkdir -p /run/netns; mount -t tmpfs none /run/netns; ip link set lo up\n".to_owned();
    script += "echo 1 > /proc/sys/net/ipv4/ip_forward\n";
    for node in NODES {
        let (here, there) = (format!("10.77.{node}.1"), host(node));
        script += &format!(
            "ip netns add n{node}; ip link add v{node} type veth peer name eth0 netns n{node}
             ip addr add {here}/24 dev v{node}; ip link set v{node} up; ip -n n{node} link set lo up
             ip -n n{node} addr add {there}/24 dev eth0; ip -n n{node} link set eth0 up
             ip -n n{node} route add default via {here}\n"
        );
    }
    tool("sh", &["-ec", &script]);
}

/// One direction in which all packets are dropped.
#[derive(Debug, Clone)]
pub(in crate::crash) struct Cut(Vec<String>);

impl Cut {
    /// From one node to another.
    fn between(from: usize, to: usize) -> Self {
        Self(["from", &host(from), "to", &host(to), "blackhole"].map(str::to_owned).to_vec())
    }

    /// From the clients to a node.
    fn from_clients(to: usize) -> Self {
        Self(["iif", "lo", "to", &host(to), "blackhole"].map(str::to_owned).to_vec())
    }

    fn rule(&self, does: &str) {
        let arguments: Vec<&str> = ["rule", does].into_iter().chain(self.0.iter().map(String::as_str)).collect();
        tool("ip", &arguments);
    }
}

/// Makes the cuts.
pub(in crate::crash) fn cut(cuts: &[Cut]) {
    cuts.iter().for_each(|cut| cut.rule("add"));
}

/// Removes the cuts again.
pub(in crate::crash) fn heal(cuts: &[Cut]) {
    cuts.iter().for_each(|cut| cut.rule("del"));
}

fn others(node: usize) -> impl Iterator<Item = usize> {
    NODES.into_iter().filter(move |other| *other != node)
}

/// No other node receives anything from the node.
pub(in crate::crash) fn sends_nothing(node: usize) -> Vec<Cut> {
    others(node).map(|other| Cut::between(node, other)).collect()
}

/// The node receives nothing from other nodes.
pub(in crate::crash) fn receives_nothing(node: usize) -> Vec<Cut> {
    others(node).map(|other| Cut::between(other, node)).collect()
}

/// The node is partitioned from the other nodes, but not from clients.
pub(super) fn from_peers(node: usize) -> Vec<Cut> {
    [sends_nothing(node), receives_nothing(node)].concat()
}

/// The node is partitioned from the other nodes and from clients.
pub(super) fn from_all(node: usize) -> Vec<Cut> {
    [from_peers(node), vec![Cut::from_clients(node)]].concat()
}
