//! Why a directory was not opened: which file, what was found, and the way out.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::trouble::mend;

/// What to do with a directory whose data is not whole.
const WAY_OUT: &str = "Put back what was removed. Otherwise replace the node: move the directory away, then `lockkeeper member add`; \
     or, where the cluster has no other node, start from the last backup: `lockkeeper restore`";

/// Why a directory was not opened. Nothing in it was changed, but for what a crash had left half-written.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The disk answered with an error.
    #[error("cannot {doing} {}: {error}; {}", path.display(), mend(error))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// Two processes on one directory would destroy it.
    #[error("another process holds {}; stop it, or give this node a directory of its own", path.display())]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
    /// The directory is not this node's.
    #[error("{} belongs to {found}; this config says {expected}; correct the config or choose another directory", path.display())]
    NotOurs {
        /// The identity file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Who asked.
        expected: String,
    },
    /// Written by a build that this one does not know.
    #[error("{} was written by a newer lockkeeper: format {found}, this build reads 1 to {readable}; install the newer build", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format this build reads.
        readable: u32,
    },
    /// A file is not what was written.
    #[error("{} is damaged at offset {offset}: {what}; it may have been acknowledged, so nothing was cut. {}", path.display(), WAY_OUT)]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What was found.
        what: String,
    },
    /// There is data, but no complete state can be made of it.
    #[error("{} cannot be recovered: {what}. {}", path.display(), WAY_OUT)]
    Incomplete {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
}

impl OpenError {
    pub(super) fn io(doing: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Io { doing, path: path.to_path_buf(), error }
    }

    pub(super) fn damaged(path: &Path, offset: u64, what: String) -> Self {
        Self::Damaged { path: path.to_path_buf(), offset, what }
    }
}
