//! `config check`: prints the first error of a configuration.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde::Serialize;

use crate::auth::Access;
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::cli::server::check_certificates;
use crate::clock::{Clock, SystemClock};
use crate::config::Config;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ConfigCommand {
    /// Check whether a file is a valid configuration, and print the first error
    Check {
        /// Path of the file
        file: PathBuf,
    },
}

/// The value of the command line that names the file.
const FILE: &str = "<FILE>";

/// The JSON line of a valid file.
#[derive(Debug, Serialize)]
struct ConfigChecked {
    file: String,
    cluster: String,
    node: u64,
    members: usize,
}

/// Reports the first error of a configuration and of the files that it names. Prints nothing for a valid one, except
/// with `--json`.
pub(in crate::cli) fn check(file: &Path, output: &Output) -> Result<u8, Failure> {
    let config = Config::from_file(file).map_err(|error| Failure::config(FILE, &error))?;
    check_certificates(&config).map_err(|failure| failure.of_field(FILE))?;
    if let Some(rules) = &config.auth {
        Access::from_file(rules, SystemClock::new().wall())?;
    }
    let Config { cluster, node, members, .. } = config;
    let (file, members) = (file.display().to_string(), members.len());
    output.remark(&format!("{file}: node {node} of cluster {cluster}, {members} members"));
    output.object_only(&ConfigChecked { file, cluster, node, members })
}
