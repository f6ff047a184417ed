//! Files that are written as a whole, and are there after a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::cli::error::Failure;

/// The mode of a file that only its owner can read.
pub(super) const PRIVATE: u32 = 0o600;

/// Creates a file that does not exist, with this mode less what the umask removes.
pub(super) fn create(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Replaces a file at once: a process that reads it meanwhile gets the old text or the new one. A new file gets this
/// mode, and an existing one keeps its own.
pub(super) fn replace(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let next = path.with_extension("next");
    let written = || {
        // An interrupted run may have left this file.
        let _ = fs::remove_file(&next);
        create(&next, text, mode)?;
        if let Ok(old) = fs::metadata(path) {
            fs::set_permissions(&next, old.permissions())?;
        }
        fs::rename(&next, path)?;
        sync_parent(path)
    };
    written().map_err(failed("write", path))
}

/// Makes the name of a new file durable.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

/// Returns the directory of a file.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the failure of an operation on a path that the command line names.
pub(super) fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.display().to_string();
    move |error| Failure::usage(format!("cannot {doing} {path}: {error}; check the path and its owner"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A new file gets the mode of its kind. The mode that an operator gave it stays when the file is replaced.
    #[test]
    fn a_replaced_file_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node-1.key");
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        replace(&file, "old", PRIVATE).unwrap();
        assert_eq!(mode(), PRIVATE);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        // What a run leaves that was interrupted.
        fs::write(file.with_extension("next"), "half").unwrap();
        replace(&file, "new", PRIVATE).unwrap();
        assert_eq!((mode(), fs::read_to_string(&file).unwrap().as_str()), (0o640, "new"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
