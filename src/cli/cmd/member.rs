//! `member ls | add | promote | remove`: the nodes of the cluster.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;

use crate::cli::args::{Common, duration};
use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::cli::text::short;
use crate::clock::{Clock, SystemClock, millis};
use crate::config::{Member, NodeConfig};
use crate::limits;
use crate::service::{Advice, ErrorCode, LockService, MemberChange, NodeStatus, Operation, Role, Status};
use crate::shapes::{self, behind, cluster_id_text, role_word};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum MemberCommand {
    /// List the members
    Ls,
    /// Add a node without a vote; prints the config to start it with
    Add(AddOptions),
    /// Give a node a vote when it has caught up
    Promote(PromoteOptions),
    /// Remove a node; its id is never used again
    Remove {
        /// Id of the node
        node: u64,
    },
}

#[derive(Debug, Args)]
pub(in crate::cli) struct AddOptions {
    /// Id of the node, which no node of this cluster ever had
    node: u64,
    /// Address for clients
    #[arg(long, value_name = "HOST:PORT")]
    client: String,
    /// Address for the other nodes
    #[arg(long, value_name = "HOST:PORT")]
    peer: String,
    /// Directory of its data, for its config [default: data/nID]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct PromoteOptions {
    /// Id of the node
    node: u64,
    /// Remove the node with this id in the same step [default: none]
    #[arg(long, value_name = "ID")]
    instead_of: Option<u64>,
    /// Longest wait until the node has caught up
    #[arg(short, long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    wait: Duration,
}

#[derive(Serialize)]
struct AddedLine<'a> {
    node: u64,
    cluster: &'a str,
    cluster_id: String,
    config: &'a str,
}

/// Runs a command about members.
pub(in crate::cli) async fn run(
    client: &Client,
    common: &Common,
    command: MemberCommand,
    output: &Output,
) -> Result<u8, Failure> {
    match command {
        MemberCommand::Ls => list(client, output).await,
        MemberCommand::Add(options) => add(client, common, options, output).await,
        MemberCommand::Promote(options) => promote(client, &options, output).await,
        MemberCommand::Remove { node } => {
            change(client, MemberChange::Remove { node }).await?;
            changed(client, node, output, "is no longer a member; stop it, if it runs").await
        }
    }
}

/// Changes the members. A node that the change removes may stop before it answers; then the members show whether the
/// change was made.
async fn change(client: &Client, change: MemberChange) -> Result<(), Failure> {
    match client.service().operate(Operation::ChangeMembers(change.clone())).await {
        Err(error) if error.advice() == Advice::Ask && is_made(&led_status(client).await?, &change) => Ok(()),
        made => Ok(made?),
    }
}

fn is_made(status: &Status, change: &MemberChange) -> bool {
    let role = |id: u64| status.nodes.iter().find(|member| member.id == id).map(|member| member.role);
    match change {
        MemberChange::Add { node, .. } => role(*node).is_some(),
        MemberChange::Remove { node } => role(*node).is_none(),
        MemberChange::Promote { node, instead_of } => {
            role(*node).is_some_and(|role| role != Role::Learner)
                && instead_of.is_none_or(|other| role(other).is_none())
        }
    }
}

/// Returns the status from the leader, because only the leader knows which nodes have caught up. A node that was just
/// removed, or has just lost its leader, knows no leader; in that case another node is asked, for as long as a request
/// may take.
async fn led_status(client: &Client) -> Result<Status, Failure> {
    let (clock, tick) = (SystemClock::new(), Duration::from_millis(limits::PROGRESS_TICK_MS));
    let end = clock.now().after(client.settings.request_wait);
    let mut seen = None;
    loop {
        let left = end.since(clock.now()).max(tick);
        let node = match client.clone().request_wait(left).status().await {
            Ok(status) if status.leader.is_some() => return Ok(status),
            Ok(status) => status.node,
            Err(error) => seen.ok_or(error)?,
        };
        if end < clock.now().after(tick) {
            let detail = format!("node {node} reaches no leader with a quorum");
            return Err(Failure::new(ErrorCode::NoLeader, detail));
        }
        seen = Some(node);
        tokio::time::sleep(tick).await;
    }
}

async fn list(client: &Client, output: &Output) -> Result<u8, Failure> {
    let status = led_status(client).await?;
    let row = |node: &NodeStatus| {
        vec![
            node.id.to_string(),
            role_word(node.role).to_owned(),
            if node.role == Role::Learner { "no" } else { "yes" }.to_owned(),
            if node.healthy == Some(true) { "healthy" } else { "unreachable" }.to_owned(),
            behind(&status, node).map_or("?".to_owned(), |behind| behind.to_string()),
            node.client.clone(),
            node.peer.clone(),
        ]
    };
    let objects = status.nodes.iter().map(|node| shapes::Member::new(&status, node));
    let heading = ["NODE", "ROLE", "VOTES", "HEALTH", "BEHIND", "CLIENT", "PEER"];
    output.list(objects, &heading, status.nodes.iter().map(row))
}

async fn add(client: &Client, common: &Common, options: AddOptions, output: &Output) -> Result<u8, Failure> {
    let AddOptions { node, client: at, peer, data } = options;
    change(client, MemberChange::Add { node, client: at.clone(), peer: peer.clone() }).await?;
    let status = led_status(client).await?;
    let data = data.unwrap_or_else(|| PathBuf::from(format!("data/n{node}")));
    let member = Member { client: at, peer };
    let node_config = NodeConfig {
        cluster: &status.cluster,
        peers_id: status.peers_id,
        node,
        data: &data,
        member: &member,
        timing_ms: Some(status.timing_ms),
        tls: Some(common.ca.is_some()),
        auth: status.nodes.iter().any(|node| node.rules.is_some()),
    };
    let config = node_config.to_toml();
    let line = AddedLine {
        node,
        cluster: &status.cluster,
        cluster_id: cluster_id_text(client.cluster_id().await?),
        config: &config,
    };
    output.document(&line, || {
        format!(
            "# Node {node}, added to {}. Start it with this file, then: lockkeeper member promote {node}\n{config}",
            status.cluster
        )
    })
}

/// Waits until the node has caught up, then gives it a vote.
async fn promote(client: &Client, options: &PromoteOptions, output: &Output) -> Result<u8, Failure> {
    let node = options.node;
    let wait = tokio::time::timeout(options.wait, caught_up(client, node, output));
    match wait.await {
        Ok(caught_up) => caught_up?,
        Err(_) => {
            let waited = short(millis(options.wait));
            let detail = format!("node {node} has not caught up within {waited}; see `lockkeeper member ls`");
            return Err(Failure::with_next_step(ErrorCode::MembersUnfit, detail));
        }
    }
    change(client, MemberChange::Promote { node, instead_of: options.instead_of }).await?;
    changed(client, node, output, "votes").await
}

/// Shows the progress of the node until it has nearly all entries. The cluster refuses a node that is not a member.
async fn caught_up(client: &Client, node: u64, output: &Output) -> Result<(), Failure> {
    let bar = output.progress("{msg} {wide_bar} {pos}/{len} log entries ({elapsed})");
    bar.set_message(format!("node {node}"));
    loop {
        let status = led_status(client).await?;
        let Some(member) = status.nodes.iter().find(|member| member.id == node) else { break };
        bar.set_length(status.applied);
        bar.set_position(member.applied.unwrap_or_default().min(status.applied));
        let near = behind(&status, member).is_some_and(|behind| behind <= limits::PROMOTE_LAG_ENTRIES_MAX);
        if member.role != Role::Learner || (near && member.healthy == Some(true)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(limits::PROGRESS_TICK_MS)).await;
    }
    bar.finish_and_clear();
    Ok(())
}

async fn changed(client: &Client, node: u64, output: &Output, what: &str) -> Result<u8, Failure> {
    if output.json {
        let status = led_status(client).await?;
        let voters = status.nodes.iter().filter(|node| node.role != Role::Learner).map(|node| node.id);
        output.object(&json!({ "node": node, "voters": voters.collect::<Vec<_>>() }))?;
    }
    output.remark(&format!("node {node} {what}"));
    Ok(YES)
}
