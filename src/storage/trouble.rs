//! Errors of the disk, told so that somebody can act on them: what was tried, where, and what to do next.

use std::io;
use std::path::Path;

use rustix::io::Errno;

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
