//! The identity of a directory: a small text file with a checksum, written once.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use super::error::OpenError;
use super::fs::sync_directory;

/// The format of a directory that this build writes, and the newest one that it reads.
const FORMAT: u32 = 1;

/// The cluster and the node that a directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster's name, one line.
    pub cluster: String,
    /// The id by which the cluster's nodes recognize each other, see
    /// [`Config::peers_id`](crate::config::Config::peers_id).
    pub peers_id: u128,
    /// Id of the node.
    pub node: u64,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of cluster {} (peers_id {:032x})", self.node, self.cluster, self.peers_id)
    }
}

/// The identity of a directory. Written when the directory is created, and never changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster and the node.
    pub owner: Owner,
    /// Random id of this directory. The cluster recognizes the node by it, and detects a node that lost its directory.
    pub disk: u128,
}

impl Identity {
    fn text(&self) -> String {
        let Self { owner: Owner { cluster, peers_id, node }, disk } = self;
        let mut text = format!(
            "lockkeeper {FORMAT}\ncluster {cluster}\npeers_id {peers_id:032x}\nnode {node}\ndisk {disk:032x}\n"
        );
        let checksum = crc32fast::hash(text.as_bytes());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "checksum {checksum:08x}");
        text
    }

    /// Reads the fields of a text. The first line is the format, which the caller has read. The caller compares the
    /// text with that of the result, because only an equal text is intact.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().skip(1);
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_string);
        let owner = Owner {
            cluster: field("cluster")?,
            peers_id: u128::from_str_radix(&field("peers_id")?, 16).ok()?,
            node: field("node")?.parse().ok()?,
        };
        Some(Self { owner, disk: u128::from_str_radix(&field("disk")?, 16).ok()? })
    }

    /// Writes the file at `path` durably, through a temporary file. A crash leaves all of it or none.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        if self.owner.cluster.contains(char::is_control) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a cluster's name is one line"));
        }
        let temporary = path.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_directory(path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads the file at `path`, which must name `owner`. Returns `None` if there is no such file.
    pub(super) fn load(path: &Path, owner: &Owner) -> Result<Option<Self>, OpenError> {
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
        if identity.owner == *owner {
            return Ok(Some(identity));
        }
        let (found, expected) = (identity.owner.to_string(), owner.to_string());
        Err(OpenError::NotOurs { path: path.to_path_buf(), found, expected })
    }
}
