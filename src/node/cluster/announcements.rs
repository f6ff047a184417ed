//! Announcements of the members: the leader asks each member for its build and addresses, and puts changes into the
//! replicated state.

use std::time::Duration;

use futures_util::future::join_all;

use crate::config::Config;
use crate::limits;
use crate::machine::Machine;
use crate::model::{Announcement, Command};
use crate::node::Node;
use crate::node::forward::{Forward, Forwarded};

/// Returns what this node announces about itself.
pub(in crate::node) fn own(config: &Config, disk: u128) -> Announcement {
    Announcement {
        node: config.node,
        disk,
        features: limits::FEATURE_LEVEL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        http: http(config),
        rules: None,
    }
}

/// Returns the address at which other hosts reach the HTTP port. A port that listens on all interfaces is reached at
/// the host that clients use.
fn http(config: &Config) -> Option<String> {
    let listen = config.listen.http?;
    let host = config.member().and_then(|member| Some(member.client.rsplit_once(':')?.0));
    match host {
        Some(host) if listen.ip().is_unspecified() => Some(format!("{host}:{}", listen.port())),
        Some(_) | None => Some(listen.to_string()),
    }
}

/// Asks the members as soon as this node can propose in a term, and then every [`limits::WATCH_MS`] while it leads.
/// Asks again sooner while the state lacks this node's own announcement or the cluster's settings: the queue drops
/// commands that no follower acknowledges.
pub(in crate::node) async fn keep(node: Node) {
    // Each term opens the queue again.
    let mut opened = node.core.queue.opened();
    loop {
        if *opened.borrow_and_update() {
            node.core.configure();
            tokio::select! {
                () = node.update_announcements() => {}
                () = node.core.stopped() => return,
            }
        }
        tokio::select! {
            changed = opened.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(node.next_request()) => {}
            () = node.core.stopped() => return,
        }
    }
}

impl Node {
    /// Returns what this node announces now.
    pub(in crate::node) fn announcement(&self) -> Announcement {
        let rules = self.core.auth.as_ref().map(|auth| auth.rules().digest());
        Announcement { rules, ..self.core.announcement.clone() }
    }

    /// Returns when the first certificate of this node's ports expires, in seconds since 1970.
    pub(in crate::node) fn certificate_end(&self) -> Option<u64> {
        let of_peers = self.certificate().and_then(|own| own.seconds);
        [of_peers, *self.core.port_certificate_end.lock()].into_iter().flatten().min()
    }

    /// Returns how the rules of other members differ from those of this node, one sentence for each member. The leader
    /// judges most calls, so a difference shows when the leader changes.
    #[must_use]
    pub fn differing_rules(&self) -> Vec<String> {
        let (own, members) = (self.announcement(), self.core.members());
        self.core.consensus.machine(|machine| {
            let others = machine.announcements().filter(|other| other.node != own.node);
            let others = others.filter(|other| members.contains_key(&other.node));
            others.filter_map(|other| difference(own.rules, other)).collect()
        })
    }

    fn next_request(&self) -> Duration {
        let own = self.announcement();
        let complete = |machine: &Machine| machine.announced(own.node) == Some(&own) && machine.settings().is_some();
        let complete = self.core.consensus.machine(complete);
        let again = !complete && self.core.queue.is_open();
        Duration::from_millis(if again { limits::ANNOUNCE_AGAIN_MS } else { limits::WATCH_MS })
    }

    /// Asks every member at once; a member that does not answer is asked again the next time.
    async fn update_announcements(&self) {
        let members = self.core.consensus.watch().borrow().members.clone();
        join_all(members.keys().map(|id| self.update_announcement(*id))).await;
    }

    async fn update_announcement(&self, member: u64) {
        let Some(announced) = self.announcement_of(member).await else { return };
        self.update_certificate_end(member).await;
        let known = self.core.consensus.machine(|machine| machine.announced(member).cloned());
        if known.as_ref() != Some(&announced) {
            tracing::info!(node = member, version = announced.version, features = announced.features, "announced");
            self.core.submit_internal(Command::Announce(announced));
        }
    }

    /// Asks a member when its first certificate expires. Only this node's memory has the answer, for the status: it is
    /// no part of the replicated state.
    async fn update_certificate_end(&self, member: u64) {
        if member == self.core.id {
            return;
        }
        let answer = self.ask(member, &Forward::CertificateEnd, limits::ANNOUNCE_WAIT_MS).await;
        if let Some(Forwarded::CertificateEnd(end)) = answer {
            self.core.certificate_ends.lock().insert(member, end);
        }
    }

    async fn announcement_of(&self, member: u64) -> Option<Announcement> {
        if member == self.core.id {
            return Some(self.announcement());
        }
        let asked = self.core.clock.now();
        let answer = self.ask(member, &Forward::Hello, limits::ANNOUNCE_WAIT_MS).await?;
        self.core.shared.metrics.peers.answered(member, self.core.clock.now().since(asked));
        let Forwarded::Hello(announced) = answer else { return None };
        match announced.checked() {
            Ok(announced) => (announced.node == member).then_some(announced),
            Err(invalid) => {
                tracing::warn!(node = member, %invalid, "its announcement is refused");
                None
            }
        }
    }
}

/// Returns how the rules of another node differ from those of this node.
fn difference(own: Option<u64>, other: &Announcement) -> Option<String> {
    let node = other.node;
    match (own, other.rules) {
        (Some(own), Some(of_other)) if own != of_other => Some(format!(
            "the rules of node {node} differ from this node's ({of_other:016x}, here {own:016x}): \
             copy one file to every node"
        )),
        (Some(_), None) => {
            Some(format!("node {node} has no [auth], and permits everything while it leads: set it there"))
        }
        (None, Some(_)) => Some(format!("node {node} has [auth], and this node permits everything: set it here")),
        (Some(_), Some(_)) | (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::testing::Cluster;

    /// The queue drops the first commands of a new cluster, as it does when its leader has no followers for a moment.
    /// The leader proposes the settings again, so the cluster gets its id.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_cluster_whose_first_commands_were_dropped_gets_its_id() {
        let cluster = Cluster::start(2, None).await.expect("a cluster");
        let (nodes, mut found) = (cluster.nodes(), cluster.nodes()[0].info().cluster_id);
        let mut opened = None;
        while opened.is_none_or(|opened: Instant| opened.elapsed() < Duration::from_millis(limits::ANNOUNCE_AGAIN_MS)) {
            nodes.iter().for_each(|node| node.core.queue.reject_all(None));
            opened = opened.or_else(|| nodes.iter().any(|node| node.core.queue.is_open()).then(Instant::now));
        }
        let found = tokio::time::timeout(Duration::from_secs(10), found.wait_for(Option::is_some)).await;
        assert!(found.is_ok_and(|found| found.is_ok()), "the cluster has no id");
    }

    fn announced(listen: &str) -> Option<String> {
        let text = format!(
            "cluster = \"harbour\"\nnode = 2\ndata = \"d\"\n[listen]\nclient = \"0.0.0.0:7600\"\n\
             peer = \"0.0.0.0:7610\"\n{listen}\n\
             [[member]]\nid = 2\nclient = \"n2.example:7600\"\npeer = \"n2.example:7610\"\n\
             [tls]\nca = \"ca.pem\"\ncert = \"n2.pem\"\nkey = \"n2.key\"\n"
        );
        own(&Config::from_toml("n2.toml", &text, []).expect("a good config"), 5).http
    }

    /// Other hosts can reach the announced HTTP address: it names the node's own host in place of a wildcard.
    #[test]
    fn the_http_address_can_be_reached_by_others() {
        assert_eq!(announced("http = \"0.0.0.0:7620\"").as_deref(), Some("n2.example:7620"));
        assert_eq!(announced("http = \"10.0.0.2:7620\"").as_deref(), Some("10.0.0.2:7620"));
        assert_eq!(announced(""), None);
    }
}
