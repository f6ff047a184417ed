//! Files that are written as a whole, and are there after a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
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
/// mode, and an existing one keeps its own, with its owner and its group: a node of another user must read it. `field`
/// is the option or the value that names the path.
pub(super) fn replace(field: &'static str, path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let next = path.with_extension("next");
    let written = || {
        // An interrupted run may have left this file.
        let _ = fs::remove_file(&next);
        create(&next, text, mode)?;
        match fs::metadata(path) {
            Ok(old) => keep_access(&next, &old)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::rename(&next, path)?;
        sync_parent(path)
    };
    written().map_err(failed(field, "write", path))
}

/// Gives a new file the owner, the group and the mode of the file that it replaces.
fn keep_access(next: &Path, old: &fs::Metadata) -> io::Result<()> {
    let (new, owner, group) = (fs::metadata(next)?, old.uid(), old.gid());
    if (new.uid(), new.gid()) != (owner, group) {
        // A change of the owner resets bits of the mode, so it comes first.
        chown(next, Some(owner), Some(group)).map_err(|error| {
            // The file keeps its old text, so the other one is of no use.
            let _ = fs::remove_file(next);
            let why = format!("its owner {owner} and group {group} cannot be kept ({error}); run this as that user");
            io::Error::new(error.kind(), why)
        })?;
    }
    fs::set_permissions(next, old.permissions())
}

/// Locks a file against other commands that change it, until the returned file is dropped. Waits for them.
pub(super) fn locked(path: &Path) -> io::Result<File> {
    loop {
        let file = File::open(path)?;
        file.lock()?;
        // The command that had the lock has replaced the file, perhaps.
        let (locked, named) = (file.metadata()?, fs::metadata(path)?);
        if (locked.dev(), locked.ino()) == (named.dev(), named.ino()) {
            return Ok(file);
        }
    }
}

/// Makes the name of a new file durable.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

/// Returns the directory of a file.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the failure of an operation on a path that this option or value of the command line names.
pub(super) fn failed(field: &'static str, doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.display().to_string();
    move |error: io::Error| {
        let exists = error.kind() == io::ErrorKind::AlreadyExists;
        let next = if exists { "choose another path" } else { "check the path and its owner" };
        Failure::usage(field, format!("cannot {doing} {path}: {error}; {next}"))
    }
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
        replace("<FILE>", &file, "old", PRIVATE).unwrap();
        assert_eq!(mode(), PRIVATE);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        // What a run leaves that was interrupted.
        fs::write(file.with_extension("next"), "half").unwrap();
        replace("<FILE>", &file, "new", PRIVATE).unwrap();
        assert_eq!((mode(), fs::read_to_string(&file).unwrap().as_str()), (0o640, "new"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// A replaced file keeps its owner and its group, so that a node of another user can read it. Only root may give a
    /// file to another user; others may give it to a group of theirs.
    #[test]
    fn a_replaced_file_keeps_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("auth.toml");
        replace("<FILE>", &file, "old", PRIVATE).unwrap();
        let access = || {
            let found = fs::metadata(&file).unwrap();
            (found.uid(), found.gid(), found.mode() & 0o777)
        };
        let own = access();
        let is_root = rustix::process::geteuid().is_root();
        let groups = rustix::process::getgroups().unwrap();
        let other = groups.iter().map(|group| group.as_raw()).find(|group| *group != own.1);
        let given = if is_root { (own.0 + 1, own.1 + 1, 0o640) } else { (own.0, other.unwrap_or(own.1), 0o640) };
        chown(&file, Some(given.0), Some(given.1)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(given.2)).unwrap();
        replace("<FILE>", &file, "new", PRIVATE).unwrap();
        assert_eq!((access(), fs::read_to_string(&file).unwrap().as_str()), (given, "new"));
    }

    /// The failure of a path that exists already proposes another path, and any other failure to check this one. Both
    /// name what gave the path.
    #[test]
    fn the_next_step_fits_the_failure() {
        let of = |kind: io::ErrorKind| failed("--out", "make", Path::new("a.token"))(kind.into());
        for (kind, next) in [
            (io::ErrorKind::AlreadyExists, "; choose another path"),
            (io::ErrorKind::PermissionDenied, "; check the path and its owner"),
        ] {
            let failure = of(kind);
            assert!(failure.detail.ends_with(next), "{}", failure.detail);
            assert_eq!(failure.more.invalid.map(|invalid| invalid.field).as_deref(), Some("--out"));
        }
    }
}
