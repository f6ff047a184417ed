//! Writes the config file of a new node.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::{Member, Profile};

/// The settings of a node that joins a cluster, or founds one from a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// The id by which the cluster's nodes recognize each other.
    pub peers_id: u128,
    /// The node's id.
    pub node: u64,
    /// Directory of the node's data.
    pub data: &'a Path,
    /// The addresses of the node.
    pub member: &'a Member,
    /// The cluster's timing (heartbeat, shortest and longest election timeout), in milliseconds; `None` if the cluster
    /// has no timing yet.
    pub timing_ms: Option<[u64; 3]>,
    /// Whether the cluster uses TLS; `None` if that is not known.
    pub tls: Option<bool>,
    /// Whether the cluster's nodes judge their callers by a file of rules.
    pub auth: bool,
}

impl NodeConfig<'_> {
    /// Returns the text of the config file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let Member { client, peer } = self.member;
        let mut text = format!("cluster = {}\n", quoted(self.cluster));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "peers_id = \"{:032x}\"\nnode = {}", self.peers_id, self.node);
        let _ = writeln!(text, "data = {}", quoted(&self.data.to_string_lossy()));
        let listens = [("client", client), ("peer", peer)].map(|(key, address)| (key, everywhere(address)));
        if listens.iter().any(|(_, address)| address.is_some()) {
            text.push_str("\n[listen]\n");
        }
        for (key, address) in listens {
            if let Some(address) = address {
                let _ = writeln!(text, "{key} = \"{address}\"");
            }
        }
        let _ =
            write!(text, "\n[[member]]\nid = {}\nclient = {}\npeer = {}\n", self.node, quoted(client), quoted(peer));
        if let Some(timing_ms) = self.timing_ms {
            text.push_str(&timing(timing_ms));
        }
        text.push_str(&self.protection(listens));
        if self.auth {
            text.push_str("\n[auth]\nfile = \"auth.toml\"\n\n[audit]\nfile = \"audit.jsonl\"\n");
        }
        text
    }

    /// The section on TLS. Listeners that other machines can reach are protected as those of the other nodes.
    fn protection(&self, listens: [(&str, Option<SocketAddr>); 2]) -> String {
        let addresses = [&self.member.client, &self.member.peer].map(|address| address.parse::<SocketAddr>());
        let on_loopback = addresses.iter().all(|address| address.as_ref().is_ok_and(|at| at.ip().is_loopback()));
        match (self.tls, on_loopback) {
            (Some(true), _) | (None, false) => {
                let node = self.node;
                format!(
                    "\n[tls]\nca = \"certs/ca.pem\"\ncert = \"certs/node-{node}.pem\"\nkey = \"certs/node-{node}.key\"\n\
                     # refuse = \"certs/refused.txt\"\n"
                )
            }
            (Some(false), false) => listens.map(|(key, _)| format!("\n[tls.{key}]\ninsecure = true\n")).concat(),
            (Some(false) | None, true) => String::new(),
        }
    }
}

/// The address to listen on. For a host name it is all addresses of the machine, with the port that follows the name.
fn everywhere(address: &str) -> Option<SocketAddr> {
    if address.parse::<SocketAddr>().is_ok() {
        return None;
    }
    let port = address.rsplit_once(':')?.1.parse().ok()?;
    Some(SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port))
}

fn timing(ms: [u64; 3]) -> String {
    let of = |profile: &Profile| {
        let timing = profile.timing();
        [timing.heartbeat_ms, timing.election_ms_min, timing.election_ms_max] == ms
    };
    match [Profile::Lan, Profile::Fast, Profile::Wan].into_iter().find(of) {
        Some(profile) => format!("\n[timing]\nprofile = \"{}\"\n", profile.name()),
        None => {
            let [heartbeat, min, max] = ms;
            format!(
                "\n[timing]\nheartbeat = \"{heartbeat}ms\"\nelection_min = \"{min}ms\"\nelection_max = \"{max}ms\"\n"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Protection};

    fn read(member: &Member, timing_ms: Option<[u64; 3]>, tls: Option<bool>) -> Config {
        let data = Path::new("/var/lib/lockkeeper \"4\"");
        let auth = tls == Some(true);
        let node_config =
            NodeConfig { cluster: "harbour", peers_id: 0xabc, node: 4, data, member, timing_ms, tls, auth };
        Config::from_toml("n4.toml", &node_config.to_toml(), []).expect("a good config")
    }

    /// The written file reads back as the same settings: with a profile, with custom times, and with host names as
    /// addresses.
    #[test]
    fn the_file_is_a_good_config() {
        let member = |host: &str| Member { client: format!("{host}:7604"), peer: format!("{host}:7614") };
        let config = read(&member("127.0.0.1"), Some([50, 150, 300]), None);
        assert_eq!((config.cluster.as_str(), config.peers_id, config.node), ("harbour", Some(0xabc), 4));
        assert_eq!((config.timing, config.data), (Profile::Lan.timing(), "/var/lib/lockkeeper \"4\"".into()));
        assert_eq!(config.listen.client.to_string(), "127.0.0.1:7604");
        let config = read(&member("n4.example"), Some([70, 200, 400]), Some(true));
        assert!(matches!(config.tls.peer, Protection::Tls { .. }));
        assert_eq!((config.auth, config.audit), (Some("auth.toml".into()), Some("audit.jsonl".into())));
        assert_eq!((config.listen.peer.to_string(), config.timing.heartbeat_ms), ("0.0.0.0:7614".to_owned(), 70));
        assert_eq!(config.members[&4], member("n4.example"));
        let open = read(&member("n4.example"), None, Some(false)).tls.client;
        assert_eq!(open, Protection::Plain { insecure: true });
        assert_eq!(read(&member("[::1]"), None, None).listen.client.to_string(), "[::1]:7604");
    }

    /// An invalid id is refused with its line and with a text that says where to get the id.
    #[test]
    fn a_wrong_peers_id_is_refused() {
        let text = "cluster = \"harbour\"\npeers_id = \"0xabc\"\nnode = 1\ndata = \"d\"\n\
                    [[member]]\nid = 1\nclient = \"127.0.0.1:7601\"\npeer = \"127.0.0.1:7611\"\n";
        let refused = Config::from_toml("n1.toml", text, []).expect_err("no id").to_string();
        assert!(refused.starts_with("n1.toml:2: peers_id must be 32"), "{refused}");
    }
}
