//! The cluster and this program: `status transfer features version completions config check`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::YES;
use super::failure::Failure;
use super::options::{self, CompletionsOptions, ConfigCheckOptions, TransferOptions};
use super::output::Output;
use super::parse::duration;
use super::position::cluster_id_text;
use super::shapes::{self, role_word};
use super::who::OWN_PROGRAM;
use crate::client::Client;
use crate::codec::FORMAT;
use crate::config::Config;
use crate::model::Setting;
use crate::rpc;
use crate::service::{ErrorCode as Word, LockService, NodeStatus, Status};

#[derive(Debug, Args)]
pub(super) struct SettingsOptions {
    /// Which setting [default: all]
    pub(super) name: Option<SettingName>,
    /// New value, such as 24h: at most a day, and at least the shortest TTL of a session
    #[arg(value_parser = duration, value_name = "DURATION")]
    pub(super) value: Option<Duration>,
}

/// Settings by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SettingName {
    /// Longest TTL of a session and longest lease; a restore from a backup waits as long before it grants.
    #[value(name = "ttl_max")]
    TtlMax,
}

#[derive(Debug, Args)]
pub(super) struct FeaturesOptions {
    #[command(subcommand)]
    pub(super) command: Option<FeaturesCommand>,
}

#[derive(Debug, Subcommand)]
pub(super) enum FeaturesCommand {
    /// Raise the level; it never falls again, and older builds can no longer join
    Raise {
        /// The new level, which every voter supports
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        level: u32,
    },
}

/// The protocol of the wire, and the versions of it that this program speaks.
const PROTOCOL: (&str, u32, u32) = ("lockkeeper.v1", rpc::PROTOCOL_MIN, rpc::PROTOCOL_MAX);

/// Who leads, and how the nodes are. Without a leader it shows what the asked node sees, and fails all the same.
pub(super) async fn status<S: LockService>(client: &Client<S>, output: &Output) -> Result<u8, Failure> {
    let status = client.status().await?;
    if output.json {
        output.object(&shapes::Cluster::new(&status))?;
    } else {
        status_lines(&status, output)?;
    }
    led(&status).map(|_| YES)
}

/// Who leads; a failure where nobody could be asked who knows how the cluster is.
fn led(status: &Status) -> Result<u64, Failure> {
    let detail = || format!("node {} reaches no leader with a quorum; this is what it sees itself", status.node);
    status.leader.ok_or_else(|| Failure::new(Word::NoLeader, detail()))
}

/// Whether a node is well; `unknown` is not well as far as anybody can tell.
fn health_word(node: &NodeStatus) -> &'static str {
    match node.healthy {
        Some(true) => "healthy",
        Some(false) => "unheard",
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
        let left = super::look::short(status.closed_ms);
        output.line(format!("restored from a backup: nothing is granted for another {left}"))?;
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
    output.table(&["NODE", "ROLE", "HEALTH", "APPLIED", "CLIENT", "PEER", "HTTP", "VERSION", "FEATURES"], &rows)
}

/// Hands leadership over; done once the other node leads.
pub(super) async fn transfer<S: LockService>(
    client: &Client<S>,
    options: &TransferOptions,
    output: &Output,
) -> Result<u8, Failure> {
    client.service().transfer(options.node).await?;
    if output.json {
        output.object(&shapes::Transferred { leader: options.node })?;
    }
    output.remark(&format!("node {} leads", options.node));
    Ok(YES)
}

/// Shows the cluster's feature level and what its nodes support, after raising it where that was asked for.
pub(super) async fn features<S: LockService>(
    client: &Client<S>,
    options: &FeaturesOptions,
    output: &Output,
) -> Result<u8, Failure> {
    if let Some(FeaturesCommand::Raise { level }) = options.command {
        client.service().raise_features(level).await?;
    }
    let status = client.status().await?;
    led(&status)?;
    let levels: Option<Vec<_>> = status.nodes.iter().map(|node| node.features).collect();
    let supported = levels.and_then(|levels| levels.into_iter().min());
    output.answer(&shapes::Features { active: status.features, supported }, || {
        let most = supported.map_or("not every node has said what it supports".to_owned(), |level| {
            format!("every node supports {level}")
        });
        format!("feature level {}; {most}", status.features)
    })?;
    Ok(YES)
}

/// Lists the settings of the whole cluster, after changing one where that was asked for.
pub(super) async fn settings<S: LockService>(
    client: &Client<S>,
    options: &SettingsOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let before = client.status().await?;
    led(&before)?;
    let Some(value) = options.value else { return shown(&before, output) };
    client.change_setting(Setting::TtlMax(shapes::milliseconds(value))).await?;
    let after = client.status().await?;
    if before.ttl_ms_max < after.ttl_ms_max {
        output.remark("make a new backup: a restore of an older one waits for the old value only");
    }
    shown(&after, output)
}

fn shown(status: &Status, output: &Output) -> Result<u8, Failure> {
    let setting = shapes::Setting { name: "ttl_max", value_ms: status.ttl_ms_max };
    output.answer(&setting, || format!("ttl_max {}", super::look::short(status.ttl_ms_max)))?;
    Ok(YES)
}

/// The versions of everything that another version may have to read.
pub(super) fn version(output: &Output) -> Result<u8, Failure> {
    let (protocol, protocol_min, protocol_max) = PROTOCOL;
    let (version, profile) = (env!("CARGO_PKG_VERSION"), env!("LOCKKEEPER_PROFILE"));
    let versions = shapes::Versions { version, profile, protocol, protocol_min, protocol_max, format: FORMAT };
    output.document(&versions, || {
        let formats = format!("protocol {protocol}, versions {protocol_min} to {protocol_max}");
        format!("lockkeeper {version}, built with profile {profile}\n{formats}\nformat of stored bytes {FORMAT}")
    })?;
    Ok(YES)
}

/// Prints a completion script.
pub(super) fn completions(options: &CompletionsOptions, output: &Output) -> Result<u8, Failure> {
    output.as_it_is(script(options.shell).trim_end())?;
    Ok(YES)
}

/// The script completes what a user may type: no hidden command.
pub(super) fn script(shell: clap_complete::Shell) -> String {
    let all = options::command();
    let shown: Vec<_> = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let options: Vec<_> = all.get_arguments().cloned().collect();
    let mut command =
        clap::Command::new(OWN_PROGRAM).version(env!("CARGO_PKG_VERSION")).args(options).subcommands(shown);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, OWN_PROGRAM, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Says what is wrong with a configuration; for a valid one the exit code is enough, but for `--json`.
pub(super) fn config_check(options: &ConfigCheckOptions, output: &Output) -> Result<u8, Failure> {
    let config = Config::from_file(&options.file)?;
    if output.json {
        let (file, cluster) = (options.file.display().to_string(), config.cluster.clone());
        let (node, members) = (config.node, config.members.len());
        output.object(&shapes::ConfigChecked { file, cluster, node, members })?;
    }
    output.remark(&format!(
        "{}: node {} of cluster {}, {} members",
        options.file.display(),
        config.node,
        config.cluster,
        config.members.len()
    ));
    Ok(YES)
}
