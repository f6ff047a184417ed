//! One node's settings: reads a TOML file and environment variables, and returns a checked [`Config`], or an error that
//! names the file, the line and the fix.
//!
//! Knows: limits, model, and net's paths of certificates. Never: sockets, disks beyond the one file, the modules that
//! use the settings.

mod check;
mod draft;
mod limits;
mod metrics;
mod place;
mod quota;
mod render;
mod timing;
mod tls;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use self::draft::Draft;
use self::place::{Refused, Source};
pub use crate::model::Member;
pub use limits::Limits;
pub use metrics::{LockClass, MetricsLabels};
pub use place::ConfigError;
pub use quota::Rates;
pub use render::NodeConfig;
pub use timing::{Profile, Timing};
pub use tls::{Protection, Tls, TlsMode};

/// The checked settings of a node: no field contradicts another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The cluster's name, the same on every node.
    pub cluster: String,
    /// The id by which the nodes of the cluster recognize each other, for a node that joins or was restored. `None` for
    /// a founding member, whose id follows from the cluster's name and members. Clients use another id, the
    /// `cluster_id`.
    pub peers_id: Option<u128>,
    /// This node's id. The node is one of the members.
    pub node: u64,
    /// Directory of the node's data. A relative path starts at the working directory.
    pub data: PathBuf,
    /// The addresses on which the node listens.
    pub listen: Listen,
    /// The founding members by id, the same on every node. The file of a node that joins lists only that node.
    pub members: BTreeMap<u64, Member>,
    /// Raft's timing, the same on every node.
    pub timing: Timing,
    /// The log level on standard error: off, error, warn, info, debug or trace.
    pub log_level: String,
    /// How many commands per second each namespace may send.
    pub rates: Rates,
    /// How many connections and watches the node serves.
    pub limits: Limits,
    /// Which namespaces and classes of locks have their own metrics.
    pub metrics: MetricsLabels,
    /// The protection of the listeners.
    pub tls: Tls,
    /// Host names under which the HTTP listener is reached, besides those of the members, `localhost` and IP addresses.
    pub http_hosts: Vec<String>,
    /// File of principals and rules; `None` if every caller may do everything. A relative path starts at the working
    /// directory.
    pub auth: Option<PathBuf>,
    /// The audit log; `None` writes none.
    pub audit: Option<PathBuf>,
}

/// The addresses on which a node listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Listener for clients (gRPC).
    pub client: SocketAddr,
    /// Listener for the other nodes.
    pub peer: SocketAddr,
    /// Listener for health and metrics over HTTP; `None` opens no such port.
    pub http: Option<SocketAddr>,
}

/// Reads only the name of the cluster and its founding members from a file.
///
/// # Errors
/// The file cannot be read, or these settings are not valid.
pub fn founders(path: &Path) -> Result<(String, BTreeMap<u64, Member>), ConfigError> {
    let (name, text) = (path.display().to_string(), text_of(path)?);
    let source = Source { name: &name, text: &text };
    check::founders(&Draft::parse(source)?, source).map_err(|refused| source.error(refused))
}

fn text_of(path: &Path) -> Result<String, ConfigError> {
    let refused = |problem, fix: &str| ConfigError { place: path.display().to_string(), problem, fix: fix.to_owned() };
    let unread = |error| refused(format!("cannot be read: {error}"), "check the path");
    String::from_utf8(std::fs::read(path).map_err(unread)?).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count();
        refused(format!("line {line} is not in UTF-8"), "save the file in UTF-8")
    })
}

impl Config {
    /// Creates the settings of a node that listens at these addresses. All others have their defaults. There are
    /// no members yet, and `data` is empty, which suits only a node in memory.
    #[must_use]
    pub fn new(cluster: &str, node: u64, listen: Listen) -> Self {
        Self {
            cluster: cluster.to_owned(),
            peers_id: None,
            node,
            data: PathBuf::new(),
            listen,
            members: BTreeMap::new(),
            timing: Timing::default(),
            log_level: "info".to_owned(),
            rates: Rates::default(),
            limits: Limits::default(),
            metrics: MetricsLabels::default(),
            tls: Tls::default(),
            http_hosts: Vec::new(),
            auth: None,
            audit: None,
        }
    }

    /// Reads and checks a file. `LOCKKEEPER_SECTION__KEY` variables of the environment replace its values. The files of
    /// `[tls]` and `[auth]` that it names must exist.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let (name, text) = (path.display().to_string(), text_of(path)?);
        // The names of the settings are ASCII.
        let variables = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Self::checked(Source { name: &name, text: &text }, variables, tls::check_files)
    }

    /// Checks a text, whose name in errors is `name`. A variable for a scalar key (such as `LOCKKEEPER_NODE` or
    /// `LOCKKEEPER_LISTEN__PEER`) replaces the value in the text. Other variables without a section, such as
    /// `LOCKKEEPER_ENDPOINTS`, are ignored.
    ///
    /// # Errors
    /// The text or a value is not valid. Or a variable with a section names an unknown key, or one that only the file
    /// can set.
    pub fn from_toml(
        name: &str,
        text: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let variables = variables.into_iter().map(|(name, value)| (name, value.into()));
        Self::checked(Source { name, text }, variables, |_| Ok(()))
    }

    fn checked(
        source: Source<'_>,
        variables: impl IntoIterator<Item = (String, OsString)>,
        check_files: fn(&mut Draft) -> Result<(), Refused>,
    ) -> Result<Self, ConfigError> {
        let mut draft = Draft::parse(source)?;
        let checked = draft.overlay(variables).and_then(|()| check_files(&mut draft));
        checked.and_then(|()| check::check(draft, source)).map_err(|refused| source.error(refused))
    }

    /// Returns the name, protection and address of each listener.
    #[cfg(feature = "cli")]
    pub(crate) fn listeners(&self) -> impl Iterator<Item = (&'static str, &Protection, SocketAddr)> {
        let Self { listen, tls, .. } = self;
        let http = listen.http.map(|address| ("http", &tls.http, address));
        [("client", &tls.client, listen.client), ("peer", &tls.peer, listen.peer)].into_iter().chain(http)
    }

    /// Returns the host names under which the HTTP listener is reached.
    #[cfg(feature = "cli")]
    pub(crate) fn hosts(&self) -> impl Iterator<Item = String> {
        let addresses = self.members.values().flat_map(|member| [&member.client, &member.peer]);
        let of_members = addresses.filter_map(|address| Some(address.rsplit_once(':')?.0.to_owned()));
        of_members.chain(self.http_hosts.iter().cloned())
    }

    /// This node's own entry among the members.
    #[must_use]
    pub fn member(&self) -> Option<&Member> {
        self.members.get(&self.node)
    }
}

#[cfg(test)]
mod tests;
