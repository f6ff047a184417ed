//! `status`, `transfer`, `features` and `settings`: the nodes of the cluster, and what all of them agree on.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::cli::args::duration;
use crate::cli::connect::{Client, led};
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::cli::text::{closed_for, short};
use crate::clock::millis;
use crate::model;
use crate::service::{LockService, NodeStatus, Operation, Status};
use crate::shapes::{Cluster, cluster_id_text, role_word};

/// Shows the leader and the health of the nodes. Without a leader it shows the view of one node, and fails.
pub(in crate::cli) async fn status(client: &Client, output: &Output) -> Result<u8, Failure> {
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
        "{}: {leader}, term {}, feature level {}; {} sessions, {} locks, {} waiters",
        status.cluster, status.term, status.features, totals.sessions, totals.locks, totals.waiters
    ))?;
    if status.closed_ms != 0 {
        output.line(closed_for(status.closed_ms))?;
    }
    let rows: Vec<_> = status
        .nodes
        .iter()
        .map(|node| {
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
        })
        .collect();
    for warning in &status.warnings {
        output.line(format!("node {} warns: {warning}", status.node))?;
    }
    output.table(&["NODE", "ROLE", "HEALTH", "APPLIED", "CLIENT", "PEER", "HTTP", "VERSION", "FEATURES"], &rows)
}

#[derive(Debug, Args)]
pub(in crate::cli) struct TransferOptions {
    /// Id of the next leader
    node: u64,
}

/// The JSON line.
#[derive(Debug, Serialize)]
struct Transferred {
    leader: u64,
}

/// Transfers leadership, and waits until the other node leads.
pub(in crate::cli) async fn transfer(
    client: &Client,
    options: &TransferOptions,
    output: &Output,
) -> Result<u8, Failure> {
    client.service().operate(Operation::Transfer(options.node)).await?;
    output.object_only(&Transferred { leader: options.node })?;
    output.remark(&format!("node {} leads", options.node));
    Ok(YES)
}

#[derive(Debug, Args)]
pub(in crate::cli) struct FeaturesOptions {
    #[command(subcommand)]
    command: Option<FeaturesCommand>,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum FeaturesCommand {
    /// Raise the level. It can never be lowered, and older builds can no longer join
    Raise {
        /// The new level, which every voter supports
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        level: u32,
    },
}

/// The JSON line.
#[derive(Debug, Serialize)]
struct Features {
    active: u32,
    /// The lowest level that a node announced; null until all nodes have announced one.
    supported: Option<u32>,
}

/// Raises the feature level if requested, then shows it and the levels that the nodes support.
pub(in crate::cli) async fn features(
    client: &Client,
    options: &FeaturesOptions,
    output: &Output,
) -> Result<u8, Failure> {
    if let Some(FeaturesCommand::Raise { level }) = options.command {
        client.service().operate(Operation::RaiseFeatures(level)).await?;
    }
    let status = client.status().await?;
    led(&status)?;
    let levels: Option<Vec<_>> = status.nodes.iter().map(|node| node.features).collect();
    let supported = levels.and_then(|levels| levels.into_iter().min());
    output.answer(&Features { active: status.features, supported }, || {
        let most = supported.map_or("not every node has announced its level".to_owned(), |level| {
            format!("every node supports {level}")
        });
        format!("feature level {}; {most}", status.features)
    })
}

#[derive(Debug, Args)]
pub(in crate::cli) struct SettingsOptions {
    /// Name of the setting [default: all]
    name: Option<SettingName>,
    /// New value, such as 24h; at most a day, and at least the shortest TTL of a session
    #[arg(value_parser = duration, value_name = "DURATION")]
    value: Option<Duration>,
}

/// Settings by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum SettingName {
    /// Longest TTL of a session and longest lease; a restore from a backup waits for this time before it grants.
    #[value(name = "ttl_max")]
    TtlMax,
}

/// The JSON line of one setting.
#[derive(Debug, Serialize)]
struct Setting {
    name: &'static str,
    value_ms: u64,
}

/// Changes a setting if requested, then lists the settings of the cluster.
pub(in crate::cli) async fn settings(
    client: &Client,
    options: &SettingsOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let before = client.status().await?;
    led(&before)?;
    let Some(value) = options.value else { return shown(&before, output) };
    client.change_setting(model::Setting::TtlMax(millis(value))).await?;
    let after = client.status().await?;
    if before.ttl_ms_max < after.ttl_ms_max {
        output.remark("make a new backup: a restore of an older one waits for the old value only");
    }
    shown(&after, output)
}

fn shown(status: &Status, output: &Output) -> Result<u8, Failure> {
    let setting = Setting { name: "ttl_max", value_ms: status.ttl_ms_max };
    output.answer(&setting, || format!("ttl_max {}", short(status.ttl_ms_max)))
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
                "version": null, "features": null, "rules": "00000000000000ab"}], "features": 1, "closed_ms": 8, "led_ms": 0, "uncounted_ms": 6,
            "warnings": ["w"],
        });
        assert_eq!(value(&Cluster::new(&status)), expected);
    }
}
