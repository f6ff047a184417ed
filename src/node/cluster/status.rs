//! Status of the cluster: only the leader has the whole view, so every node asks it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::millis;
use crate::limits;
use crate::net::CertificateEnd;
use crate::node::Node;
use crate::node::cluster::consistency::DECIDE;
use crate::node::forward::{Forward, Forwarded};
use crate::service::{NodeStatus, Role, STATES_DIFFER, ServiceError, Status};

impl Node {
    /// Returns the leader's view, or this node's own view if no leader answers within [`limits::STATUS_WAIT_MS`].
    pub(in crate::node) async fn status_from_leader(&self) -> Status {
        let wait = Duration::from_millis(limits::STATUS_WAIT_MS);
        let answer = tokio::time::timeout(wait, self.leaders_status()).await;
        let status = answer.unwrap_or_else(|_| self.status_here());
        let mut warnings = status.warnings;
        warnings.extend(self.core.warnings.lock().clone());
        warnings.extend(self.differing_rules());
        warnings.extend(self.ending_certificates(&status.nodes));
        Status { node: self.core.id, warnings, ..status }
    }

    /// Warns about certificates of other nodes that expire soon. The own warnings of this node name their files.
    fn ending_certificates(&self, nodes: &[NodeStatus]) -> impl Iterator<Item = String> {
        let now = self.core.clock.wall().0 / 1_000;
        let others = nodes.iter().filter(|node| node.id != self.core.id);
        others.filter_map(move |node| CertificateEnd::of_node(node.id, node.certificate_ends).warning(now))
    }

    /// Asks the current leader until a leader has answered. A leader with other rules may refuse the caller: then this
    /// node's own view has to do, because this node's rules permit it.
    async fn leaders_status(&self) -> Status {
        let mut views = self.core.consensus.watch();
        loop {
            views.borrow_and_update();
            if self.leads() {
                return self.status_here();
            }
            match self.send_to_leader(Forward::Status, None).await {
                Ok(Forwarded::Status(status)) => return status,
                Err(error @ (ServiceError::Unauthenticated { .. } | ServiceError::Forbidden { .. })) => {
                    let warning = format!("the leader refuses to show this caller the cluster: {error}");
                    return Status { warnings: vec![warning], ..self.status_here() };
                }
                Ok(_) | Err(_) => {}
            }
            // Leadership may have moved, or the connection to the leader may have failed: wait for a change of the
            // view, or for a short pause.
            let pause = Duration::from_millis(limits::RETRY_MS_MIN);
            tokio::select! {
                changed = views.changed() => if changed.is_err() { std::future::pending::<()>().await },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns this node's own view. Unless it leads with a quorum, the view names no leader and contains the health of
    /// this node alone.
    pub(in crate::node) fn status_here(&self) -> Status {
        let core = &self.core;
        let leads = self.leads();
        let view = core.consensus.watch().borrow().clone();
        // All of this is of the state after one entry.
        let (announced, log_time, totals, features, ttl_ms_max, closed_ms) = core.consensus.machine(|machine| {
            let announced: BTreeMap<_, _> = machine.announcements().map(|own| (own.node, own.clone())).collect();
            let (_, ttl_ms_max) = machine.ttl_ms_bounds();
            (announced, machine.now(), machine.totals(), machine.feature_level(), ttl_ms_max, machine.closed_ms())
        });
        let leader = leads.then_some(core.id);
        let members = core.members();
        let nodes = members.iter().map(|(id, member)| {
            let progress = view.members.get(id);
            let itself = *id == core.id;
            let announcement = announced.get(id);
            let in_contact =
                progress.and_then(|peer| peer.last_contact).is_some_and(|at| at.elapsed() <= core.election_max);
            NodeStatus {
                id: *id,
                role: match progress {
                    _ if leader == Some(*id) => Role::Leader,
                    Some(member) if !member.voter => Role::Learner,
                    Some(_) | None => Role::Follower,
                },
                client: member.client.clone(),
                peer: member.peer.clone(),
                http: announcement.and_then(|own| own.http.clone()).unwrap_or_default(),
                applied: if itself { view.applied } else { progress.and_then(|peer| peer.matched) },
                healthy: if itself { Some(view.fatal.is_none()) } else { leads.then_some(in_contact) },
                version: announcement.map(|own| own.version.clone()),
                features: announcement.map(|own| own.features),
                rules: announcement.and_then(|own| own.rules),
                certificate_ends: if itself {
                    self.certificate_end()
                } else {
                    core.certificate_ends.lock().get(id).copied().flatten()
                },
            }
        });
        Status {
            cluster: core.cluster.clone(),
            cluster_id: *core.consensus.cluster_id().borrow(),
            peers_id: core.peers_id,
            node: core.id,
            leader,
            term: view.term,
            log_time,
            applied: view.applied.unwrap_or_default(),
            nodes: nodes.collect(),
            totals,
            ttl_ms_min: core.settings.ttl_ms_min,
            ttl_ms_max,
            features,
            timing_ms: core.settings.timing_ms,
            closed_ms,
            led_ms: if leads { core.led_ms() } else { 0 },
            uncounted_ms: if leads { millis(core.queue.uncounted(core.clock.now())) } else { 0 },
            warnings: if leads { self.split_states().into_iter().collect() } else { Vec::new() },
        }
    }

    /// The warning that the states of the voters differ.
    fn split_states(&self) -> Option<String> {
        let at = self.core.split.load(Ordering::Relaxed);
        (at != 0).then(|| format!("{STATES_DIFFER} at log entry {at}, and no digest has a majority; {DECIDE}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use crate::service::LockService;
    use crate::testing::{Cluster, ClusterOptions};

    /// The rules of the leader do not have a principal yet, so it refuses its requests. The status that the principal
    /// gets from a node with newer rules is that node's own view, and names the refusal.
    #[tokio::test]
    async fn a_status_that_the_leader_refuses_is_of_the_asked_node() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = folder.path().join("auth.toml");
        let write = |principal: &str| {
            let text = format!("version = 1\n[[principal]]\nname = \"{principal}\"\nroles = []\n");
            fs::write(&rules, text).expect("written");
            fs::set_permissions(&rules, fs::Permissions::from_mode(0o600)).expect("set");
        };
        write("old");
        let options = ClusterOptions { nodes: 3, auth: Some(rules.clone()), ..ClusterOptions::default() };
        let cluster = Cluster::start_with(options).await.expect("a cluster");
        write("new");
        let refused = async {
            loop {
                let asked = cluster.follower().await;
                asked.reload_auth().expect("good rules");
                let status = asked.service_as("new").expect("a principal").status().await.expect("a status");
                let warning = "the leader refuses to show this caller the cluster: not authenticated: ";
                if status.warnings.iter().any(|text| text.starts_with(warning)) {
                    return (status.node == asked.id(), status.leader);
                }
            }
        };
        // The leader may not answer in time on a slow machine, so it is asked again.
        let refused = tokio::time::timeout(Duration::from_secs(60), refused).await;
        assert_eq!(refused.expect("the leader refuses"), (true, None));
    }
}
