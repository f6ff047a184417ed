//! `status`: the leader, the health of the nodes, and the totals of the cluster.

use crate::cli::connect::{Client, led};
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::cli::text::{closed_for, counted};
use crate::service::{NodeStatus, Status};
use crate::shapes::{Cluster, certificate_expires, cluster_id_text, role_word};

/// Shows the leader and the health of the nodes. Without a leader it shows the view of one node, and fails.
pub(in crate::cli) async fn run(client: &Client, output: &Output) -> Result<u8, Failure> {
    let status = client.status().await?;
    Failure::unless_closed(if output.json {
        output.object(&Cluster::new(&status))
    } else {
        status_lines(&status, output)
    })?;
    led(&status).map(|_| YES)
}

/// Health of a node, as one word.
fn health_word(node: &NodeStatus) -> &'static str {
    match node.healthy {
        Some(true) => "healthy",
        Some(false) => "unreachable",
        None => "unknown",
    }
}

fn status_lines(status: &Status, output: &Output) -> Result<(), Failure> {
    let leader = status.leader.map_or("no node leads".to_owned(), |leader| format!("node {leader} leads"));
    let totals = &status.totals;
    let named = status.cluster_id.map_or_else(|| "not fixed yet".to_owned(), cluster_id_text);
    output.line(format!("cluster_id {named}"))?;
    output.line(format!(
        "{}: {leader}, term {}, feature level {}; {}, {}, {}",
        status.cluster,
        status.term,
        status.features,
        counted(totals.sessions, "session"),
        counted(totals.locks, "lock"),
        counted(totals.waiters, "waiter")
    ))?;
    if status.closed_ms != 0 {
        output.line(closed_for(status.closed_ms))?;
    }
    for warning in &status.warnings {
        output.line(format!("node {} warns: {warning}", status.node))?;
    }
    let mut heading = vec!["NODE", "ROLE", "HEALTH", "APPLIED", "CLIENT", "PEER", "HTTP", "VERSION", "FEATURES"];
    let mut rows: Vec<_> = status.nodes.iter().map(row).collect();
    if status.nodes.iter().any(|node| node.certificate_ends.is_some()) {
        heading.push("CERTIFICATE UNTIL");
        for (row, node) in rows.iter_mut().zip(&status.nodes) {
            row.push(certificate_expires(node).unwrap_or_default().chars().take(10).collect());
        }
    }
    output.table(&heading, &rows)
}

/// The row of a node, without the end of its certificate.
fn row(node: &NodeStatus) -> Vec<String> {
    vec![
        node.id.to_string(),
        role_word(node.role).to_owned(),
        health_word(node).to_owned(),
        node.applied.map_or("?".to_owned(), |applied| applied.to_string()),
        node.client.clone(),
        node.peer.clone(),
        node.http.clone(),
        node.version.clone().unwrap_or_default(),
        node.features.map_or("?".to_owned(), |level| level.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{LogTime, Totals};
    use crate::service::Role;
    use crate::shapes::tests::value;

    /// The status has every promised field; `leader` is null if there is no leader.
    #[test]
    fn status_has_every_field() {
        let node = NodeStatus {
            id: 2,
            role: Role::Follower,
            client: "c".into(),
            peer: "p".into(),
            http: "h".into(),
            applied: None,
            healthy: None,
            version: None,
            features: None,
            rules: Some(0xab),
            certificate_ends: Some(1_826_755_200),
        };
        let status = Status {
            cluster: "harbour".into(),
            cluster_id: Some(0xabc),
            peers_id: 0xdef,
            node: 2,
            leader: None,
            term: 4,
            log_time: LogTime(9),
            applied: 7,
            nodes: vec![node],
            totals: Totals { sessions: 1, locks: 2, holders: 2, waiters: 3, grants: 4 },
            ttl_ms_min: 1,
            ttl_ms_max: 2,
            features: 1,
            timing_ms: [50, 150, 300],
            closed_ms: 8,
            led_ms: 0,
            uncounted_ms: 6,
            warnings: vec!["w".to_owned()],
        };
        let expected = json!({
            "cluster": "harbour", "cluster_id": "00000000000000000000000000000abc", "leader": null, "term": 4,
            "log_time_ms": 9, "sessions": 1, "locks": 2, "waiters": 3,
            "nodes": [{"id": 2, "role": "follower", "client": "c", "peer": "p", "http": "h", "applied": null, "healthy": false,
                "version": null, "features": null, "rules": "00000000000000ab",
                "certificate_expires": "2027-11-21T00:00:00Z"}], "features": 1, "closed_ms": 8, "led_ms": 0, "uncounted_ms": 6,
            "warnings": ["w"],
        });
        assert_eq!(value(&Cluster::new(&status)), expected);
    }
}
