//! The identity of a directory: a small text file with a checksum, written once.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use super::error::OpenError;
use super::fs::sync_directory;

/// The format of a directory that this build writes, and the newest one that it reads.
const FORMAT: u32 = 1;

/// The cluster and the node that a directory belongs to. Written when the directory is created, and never changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The format of the whole directory.
    pub format: u32,
    /// The cluster's name, one line.
    pub cluster: String,
    /// The id by which the cluster's nodes recognize each other, see
    /// [`Config::peers_id`](crate::config::Config::peers_id).
    pub peers_id: u128,
    /// Id of the node.
    pub node: u64,
    /// Random id of this directory. The cluster recognizes the node by it, and detects a node that lost its directory.
    pub disk: u128,
}

/// The identity that a config expects of a directory. Fields that are `None` are taken from the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The cluster's name.
    pub cluster: String,
    /// Id of the node.
    pub node: u64,
    /// The id by which the cluster's nodes recognize each other, if known.
    pub peers_id: Option<u128>,
}

impl Identity {
    /// Creates the identity of a new directory.
    pub fn new(cluster: String, peers_id: u128, node: u64, disk: u128) -> Self {
        Self { format: FORMAT, cluster, peers_id, node, disk }
    }

    fn shown(&self) -> String {
        let Self { cluster, peers_id, node, .. } = self;
        format!("node {node} of cluster {cluster} (peers_id {peers_id:032x})")
    }

    fn text(&self) -> String {
        let mut text = format!(
            "lockkeeper {}\ncluster {}\npeers_id {:032x}\nnode {}\ndisk {:032x}\n",
            self.format, self.cluster, self.peers_id, self.node, self.disk
        );
        let checksum = crc32fast::hash(text.as_bytes());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "checksum {checksum:08x}");
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_string);
        Some(Self {
            format: field("lockkeeper")?.parse().ok()?,
            cluster: field("cluster")?,
            peers_id: u128::from_str_radix(&field("peers_id")?, 16).ok()?,
            node: field("node")?.parse().ok()?,
            disk: u128::from_str_radix(&field("disk")?, 16).ok()?,
        })
    }

    /// Writes the file at `path` durably, through a temporary file. A crash leaves all of it or none.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        if self.cluster.contains(char::is_control) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a cluster's name is one line"));
        }
        let temporary = path.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_directory(path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads the file at `path` and compares it with `claim`. Returns `None` if there is no such file.
    pub(super) fn load(path: &Path, claim: &Claim) -> Result<Option<Self>, OpenError> {
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::io("read", path, error)),
        };
        let format = text.lines().next().and_then(|line| line.strip_prefix("lockkeeper ")?.parse::<u32>().ok());
        if let Some(found) = format.filter(|format| *format > FORMAT) {
            return Err(OpenError::Newer { path: path.to_path_buf(), found, readable: FORMAT });
        }
        let identity = Self::parse(&text).filter(|identity| identity.text() == text);
        let identity = identity.ok_or_else(|| OpenError::damaged(path, 0, "checksum does not match".to_string()))?;
        if claim.allows(&identity) {
            return Ok(Some(identity));
        }
        Err(OpenError::NotOurs { path: path.to_path_buf(), found: identity.shown(), expected: claim.shown() })
    }
}

impl Claim {
    fn allows(&self, identity: &Identity) -> bool {
        self.cluster == identity.cluster
            && self.node == identity.node
            && self.peers_id.is_none_or(|id| id == identity.peers_id)
    }

    fn shown(&self) -> String {
        let mut shown = format!("node {} of cluster {}", self.node, self.cluster);
        if let Some(id) = self.peers_id {
            let _ = write!(shown, " (peers_id {id:032x})");
        }
        shown
    }
}
