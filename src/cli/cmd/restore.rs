//! `restore`: creates the first node of a new cluster from a backup.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::cli::args::ttl_max;
use crate::cli::error::{Failure, REFUSED, YES};
use crate::cli::output::Output;
use crate::cli::text::short;
use crate::clock::{SystemClock, millis};
use crate::config::{Member, NodeConfig};
use crate::limits::EPOCH_MAX;
use crate::node::backup::{BackupView, Restore, RestoreError, Restored, restore};
use crate::shapes::cluster_id_text;

#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreOptions {
    /// Path of the backup
    file: PathBuf,
    /// Directory of the first node of the new cluster, which is created
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Lowest epoch of the tokens of the new cluster, as a number
    #[arg(long, default_value_t = 0, value_name = "EPOCH", value_parser = clap::value_parser!(u16).range(0..=i64::from(EPOCH_MAX)))]
    epoch: u16,
    /// Refuse a backup of a cluster with another name [default: any]
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) cluster: Option<String>,
    /// Id of the first node [default: the lowest of the backup's members]
    #[arg(long, value_name = "ID")]
    node: Option<u64>,
    /// Address for clients [default: as in the backup]
    #[arg(long, value_name = "HOST:PORT", requires = "peer")]
    client: Option<String>,
    /// Address for other nodes [default: as in the backup]
    #[arg(long, value_name = "HOST:PORT", requires = "client")]
    peer: Option<String>,
    /// Shortest time before the first grant: the setting ttl_max, if it was raised after the backup was made
    /// [default: the largest value that the backup knows]
    #[arg(long, value_parser = ttl_max, value_name = "DURATION", conflicts_with = "grant_immediately")]
    ttl_max: Option<Duration>,
    /// Grant at once. Holders that were granted a lock after the backup may still use it: then two clients hold it
    #[arg(long, alias = "now")]
    grant_immediately: bool,
}

#[derive(Serialize)]
struct RestoreLine<'a> {
    data: String,
    cluster: &'a str,
    cluster_id: String,
    node: u64,
    epoch: u16,
    sessions_ended: u64,
    closed_ms: u64,
    config: &'a str,
}

/// Creates the first node of a new cluster from a backup, and prints its config.
pub(in crate::cli) fn run(options: &RestoreOptions, output: &Output) -> Result<u8, Failure> {
    let member = options.client.clone().zip(options.peer.clone()).map(|(client, peer)| Member { client, peer });
    let asked = Restore {
        file: options.file.clone(),
        data: options.data.clone(),
        cluster: options.cluster.clone(),
        node: options.node,
        member,
        epoch_min: options.epoch,
        at_once: options.grant_immediately,
        ttl_ms_max: options.ttl_max.map_or(0, millis),
    };
    let restored = restore(&asked, &SystemClock::new())?;
    let data = std::path::absolute(&options.data)?;
    let Restored { backup, cluster_id, node, member, epoch, closed_ms } = &restored;
    let node_config = NodeConfig {
        cluster: &backup.cluster,
        peers_id: *cluster_id,
        node: *node,
        data: &data,
        member,
        timing_ms: None,
        tls: None,
        auth: false,
    };
    let config = node_config.to_toml();
    let line = RestoreLine {
        data: data.display().to_string(),
        cluster: &backup.cluster,
        cluster_id: cluster_id_text(*cluster_id),
        node: *node,
        epoch: *epoch,
        sessions_ended: backup.sessions,
        closed_ms: *closed_ms,
        config: &config,
    };
    output.document(&line, || format!("{}{config}", comment(&restored)))?;
    if options.grant_immediately {
        output.warn(
            "WARNING: grants begin at once. Clients that were granted a lock after the backup was made may still use it: \
             make sure that all of them have stopped",
        );
    }
    Ok(YES)
}

/// The comment at the head of the config.
fn comment(restored: &Restored) -> String {
    let Restored { backup, node, epoch, closed_ms, .. } = restored;
    let BackupView { cluster, index, sessions, .. } = backup;
    let closed = if *closed_ms == 0 {
        "Grants begin at once.".to_owned()
    } else {
        format!("Nothing is granted for its first {} of log time.", short(*closed_ms))
    };
    format!(
        "# Node {node} of a new cluster {cluster}, restored from a backup at log index {index}.\n\
         # {sessions} sessions were ended; tokens begin with epoch {epoch}. {closed}\n\
         # Start it with this file, then add others: lockkeeper member add\n"
    )
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Invalid(invalid) => {
                let option = format!("--{}", invalid.field);
                Failure::from(invalid).of_field(&option)
            }
            error @ RestoreError::Backup(_) => {
                let exit = error.is_damage().then_some(REFUSED);
                Failure { exit, ..Failure::usage("<FILE>", error.to_string()) }
            }
        }
    }
}
