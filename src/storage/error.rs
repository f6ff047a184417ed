//! Why a directory was not opened: which file, what was found, and the way out.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

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

/// The same error with its place and the way out; its kind stays.
pub(super) fn explained(doing: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {doing} {}: {error}; {}", path.display(), mend(error)))
}

/// What to do about this error.
pub(super) fn mend(error: &io::Error) -> &'static str {
    use io::ErrorKind;
    let kind = error.kind();
    if Errno::from_io_error(error).is_some_and(|errno| [Errno::MFILE, Errno::NFILE].contains(&errno)) {
        return "let the node open more files (ulimit -n, LimitNOFILE), then start it again";
    }
    if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) {
        return "make room on that disk, then start the node again: what was acknowledged is safe";
    }
    if matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) {
        return "let the node write there, then start it again";
    }
    if kind == ErrorKind::NotFound {
        return "put it back, or put a new node in this one's place: lockkeeper member add";
    }
    "start the node again; if that does not help the disk is failing: put a new node in its place: lockkeeper member add"
}

/// A copy of an error that several callers must hear of: `io::Error` itself cannot be cloned.
pub(super) fn copy_error(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

/// Bytes that are not what was written.
pub(super) fn invalid_data(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full disk, a read-only one, a failing one and a limit of open files each have a line with what, where and the next step.
    #[test]
    fn each_kind_has_its_way_out() {
        let line =
            |errno| explained("write", Path::new("/data/n1/wal"), &io::Error::from_raw_os_error(errno)).to_string();
        let (full, read_only, failing) = (line(28), line(30), line(5));
        let (of_process, of_system) = (line(24), line(23));
        assert!(of_process.contains("ulimit -n") && of_system.contains("ulimit -n"), "{of_process}, {of_system}");
        assert!(full.starts_with("cannot write /data/n1/wal: No space left") && full.contains("make room"), "{full}");
        assert!(read_only.contains("let the node write there"), "{read_only}");
        assert!(failing.contains("Input/output error") && failing.contains("member add"), "{failing}");
    }
}
