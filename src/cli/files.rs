//! Files that are written as a whole, and are there after a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

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
    // A node may read the file through a link, or the file that the link names.
    let file = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let next = with_suffix(&file, ".next");
    let written = || {
        // An interrupted run may have left this file.
        let _ = fs::remove_file(&next);
        create(&next, text, mode)?;
        match fs::metadata(&file) {
            Ok(old) => keep_access(&next, &old)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::rename(&next, &file)?;
        sync_parent(&file)
    };
    written().map_err(failed(field, "write", path))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// A file that is opened before a run, and replaced with the outcome of the run. Until then, it keeps its old text.
#[derive(Debug)]
pub(super) struct Outcome {
    path: PathBuf,
    /// The path of the new file until it replaces the old one; `None` for a device, a pipe or a stream of a process,
    /// which is written directly.
    temporary: Option<PathBuf>,
    file: File,
}

impl Outcome {
    /// Opens the file that the path or its links name.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let is_file = match fs::metadata(path) {
            Ok(found) => found.is_file(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(error),
        };
        let mut path = path.to_owned();
        while let (false, Ok(target)) = (is_of_process(&path), fs::read_link(&path)) {
            path = parent(&path).join(target);
        }
        if !is_file || is_of_process(&path) {
            let file = match own_stream(&path).filter(|_| is_file) {
                Some(stream) => File::from(stream?),
                None => File::options().append(true).open(&path)?,
            };
            return Ok(Self { path, temporary: None, file });
        }
        let temporary = with_suffix(&path, &format!(".{}.tmp", std::process::id()));
        let file = File::create(&temporary)?;
        Ok(Self { path, temporary: Some(temporary), file })
    }

    /// Replaces the file atomically. This holds for a crash, too.
    pub(super) fn write(mut self, text: &[u8]) -> io::Result<()> {
        self.file.write_all(text)?;
        let Some(temporary) = &self.temporary else { return Ok(()) };
        self.file.sync_all()?;
        fs::rename(temporary, &self.path)?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Only the first error is reported.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Whether the path names a stream of a process, as `/dev/stdout` does through its links. It may be redirected to a
/// file, which must stay the same file for the other output of the process.
fn is_of_process(path: &Path) -> bool {
    fs::canonicalize(parent(path)).is_ok_and(|directory| directory.starts_with("/proc"))
}

/// Returns a duplicate of standard output or standard error, if the path names one of them. A redirected file that is
/// opened by this path has its own position, so later output would overwrite the outcome.
fn own_stream(path: &Path) -> Option<io::Result<OwnedFd>> {
    if fs::canonicalize(parent(path)).ok()? != fs::canonicalize("/proc/self/fd").ok()? {
        return None;
    }
    match path.file_name()?.to_str()? {
        "1" => Some(io::stdout().as_fd().try_clone_to_owned()),
        "2" => Some(io::stderr().as_fd().try_clone_to_owned()),
        _ => None,
    }
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
        fs::write(with_suffix(&file, ".next"), "half").unwrap();
        replace("<FILE>", &file, "new", PRIVATE).unwrap();
        assert_eq!((mode(), fs::read_to_string(&file).unwrap().as_str()), (0o640, "new"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// A link stays a link: the file that it names is replaced, and no unrelated file.
    #[test]
    fn a_link_leads_to_the_replaced_file() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["auth-v1.toml", "auth.toml", "auth-v1.next"].map(|name| folder.path().join(name));
        let [file, link, unrelated] = &paths;
        fs::write(file, "old").unwrap();
        fs::write(unrelated, "unrelated").unwrap();
        std::os::unix::fs::symlink("auth-v1.toml", link).unwrap();
        replace("<FILE>", link, "new", PRIVATE).unwrap();
        assert!(fs::symlink_metadata(link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(file).unwrap(), "new");
        assert_eq!(fs::read_to_string(unrelated).unwrap(), "unrelated");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    /// An outcome that cannot be opened is an error before the run. One that is never written leaves no file, and a
    /// device is not replaced.
    #[test]
    fn an_unwritable_outcome_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Outcome::open(Path::new("/nonexistent/result.json")).is_err());
        assert!(Outcome::open(folder.path()).is_err());
        let file = folder.path().join("result.json");
        drop(Outcome::open(&file).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(&file, "old").unwrap();
        drop(Outcome::open(&file).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        let null = Path::new("/dev/null");
        Outcome::open(null).unwrap().write(b"new").unwrap();
        assert!(!fs::metadata(null).unwrap().is_file());
    }

    /// The outcome goes to the file that a link names, even if that file does not exist yet. A stream of a process is
    /// written directly, even if it is redirected to a file and behind another link.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_outcome_follows_links() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["link", "result.json", "stream", "redirected"].map(|name| folder.path().join(name));
        let [link, file, stream, redirected] = &paths;
        std::os::unix::fs::symlink("result.json", link).unwrap();
        for text in ["first", "second"] {
            Outcome::open(link).unwrap().write(text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(file).unwrap(), text);
        }
        assert!(fs::symlink_metadata(link).unwrap().is_symlink());
        let mut open = File::create(redirected).unwrap();
        open.write_all(b"output, ").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), stream).unwrap();
        Outcome::open(stream).unwrap().write(b"outcome").unwrap();
        assert_eq!(fs::read_to_string(redirected).unwrap(), "output, outcome");
        assert_eq!(open.metadata().unwrap().ino(), fs::metadata(redirected).unwrap().ino(), "it was replaced");
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
