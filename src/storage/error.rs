//! Errors of storage: the file, what was found there, and what to do next.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

/// What to do when data of a directory is missing or damaged.
const NEXT_STEP: &str = "Restore what was removed. Otherwise replace the node: move the directory away, then \
     `lockkeeper member add ID` with an id that no node had; or, where the cluster has no other node, start from the last backup: `lockkeeper restore`";

/// Why a directory was not opened. Nothing in it was changed, except files that a crash had left incomplete.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The system returned an error.
    #[error("{}", explained_text(doing, path, error))]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Another process has locked the directory.
    #[error("another process holds {}; stop it, or give this node another directory", path.display())]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
    /// The directory belongs to another node.
    #[error("{} belongs to {found}; this config says {expected}; correct the config or choose another directory", path.display())]
    NotOurs {
        /// The identity file.
        path: PathBuf,
        /// The cluster and the node that the directory belongs to.
        found: String,
        /// The node that tried to open it.
        expected: String,
    },
    /// A newer build wrote the file.
    #[error("{} was written by a newer lockkeeper: format {found}, this build reads 1 to {readable}; install the newer build", path.display())]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// Format of the file.
        found: u32,
        /// The newest format this build reads.
        readable: u32,
    },
    /// The content of a file is not what was written to it.
    #[error("{} is damaged at offset {offset}: {what}; it may have been acknowledged, so nothing was cut. {}", path.display(), NEXT_STEP)]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// What was found.
        what: String,
    },
    /// The data does not make a complete state.
    #[error("{} cannot be recovered: {what}. {}", path.display(), NEXT_STEP)]
    Incomplete {
        /// Path of the directory.
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

/// The text of an error that ends with the next step.
#[derive(Debug, Clone, Error)]
#[error("{0}")]
struct Explained(String);

/// Returns the error with its path and the next step in its text. The kind stays the same.
pub(super) fn explained(doing: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), Explained(explained_text(doing, path, error)))
}

/// Describes the error with the next step at the end. The text of `error` may end with it already.
fn explained_text(doing: &str, path: &Path, error: &io::Error) -> String {
    let what = format!("cannot {doing} {}: {error}", path.display());
    if cause::<Explained>(error).is_some() { what } else { format!("{what}; {}", next_step(error)) }
}

/// Returns the inner error of this type, if there is one.
fn cause<E: std::error::Error + 'static>(error: &io::Error) -> Option<&E> {
    error.get_ref()?.downcast_ref()
}

/// Returns what an operator should do about this error.
fn next_step(error: &io::Error) -> &'static str {
    use io::ErrorKind;
    let kind = error.kind();
    if Errno::from_io_error(error).is_some_and(|errno| [Errno::MFILE, Errno::NFILE].contains(&errno)) {
        return "let the node open more files (ulimit -n, LimitNOFILE), then start it again";
    }
    if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) {
        return "free space on that disk, then start the node again: all acknowledged data is safe";
    }
    if matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) {
        return "let the node write there, then start it again";
    }
    if kind == ErrorKind::NotFound {
        return "restore the file or replace this node: `lockkeeper member add ID` with an id that no node had";
    }
    "start the node again; if that does not help the disk is failing, so replace the node: \
     `lockkeeper member add ID` with an id that no node had"
}

/// Copies an error for one of several callers, because `io::Error` cannot be cloned.
pub(super) fn copy_error(error: &io::Error) -> io::Error {
    match cause::<Explained>(error) {
        Some(explained) => io::Error::new(error.kind(), explained.clone()),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// The error for bytes that differ from what was written.
pub(super) fn invalid_data(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of a full disk, a read-only disk, a failing disk and the limit of open files each have a line that
    /// names the operation, the path and the next step.
    #[test]
    fn each_kind_names_the_next_step() {
        let line =
            |errno| explained("write", Path::new("/data/n1/wal"), &io::Error::from_raw_os_error(errno)).to_string();
        let (full, read_only, failing) = (line(28), line(30), line(5));
        let (of_process, of_system) = (line(24), line(23));
        assert!(of_process.contains("ulimit -n") && of_system.contains("ulimit -n"), "{of_process}, {of_system}");
        assert!(full.starts_with("cannot write /data/n1/wal: No space left") && full.contains("free space"), "{full}");
        assert!(read_only.contains("let the node write there"), "{read_only}");
        assert!(failing.contains("Input/output error") && failing.contains("member add"), "{failing}");
    }

    /// An error that passes through several callers names the next step once.
    #[test]
    fn the_next_step_is_given_once() {
        let full = io::Error::from_raw_os_error(28);
        let log = explained("sync the log in", Path::new("/data/n1/wal"), &full);
        let error = OpenError::io("open the log in", Path::new("/data/n1/wal"), copy_error(&log));
        let expected = format!("cannot open the log in /data/n1/wal: {log}");
        assert_eq!((error.to_string(), log.kind()), (expected, full.kind()));
        assert_eq!(log.to_string().matches("free space").count(), 1, "{log}");
    }
}
