//! Operations on directories whose results survive a power cut.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::faults::{self, Fault};

/// Mode of a new directory: only its owner may list it or open its files, which contain the handles of clients.
const PRIVATE: u32 = 0o700;

/// Makes creations, renames and removals of names in `dir` durable.
pub(super) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()?;
    #[cfg(test)]
    durable::note_names(dir)?;
    Ok(())
}

/// Makes the content of a snapshot file durable.
pub(super) fn sync_snapshot(file: &File) -> io::Result<()> {
    if faults::on(Fault::SnapshotUnsynced) {
        return Ok(());
    }
    file.sync_all()?;
    #[cfg(test)]
    durable::note_bytes(file)?;
    Ok(())
}

/// Creates `dir` and its missing parents for their owner alone, and makes each durable in its parent directory.
pub(super) fn create_directory(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_directory(parent)?;
    DirBuilder::new().mode(PRIVATE).create(dir)?;
    sync_directory(parent)
}

/// Returns a warning if other users than the owner have access to `dir`, with the command that ends it.
pub(super) fn exposure(dir: &Path) -> io::Result<Option<String>> {
    let mode = fs::metadata(dir)?.permissions().mode() & 0o777;
    let dir = dir.display();
    let warning = || {
        format!("{dir} has the handles of clients, and its mode {mode:04o} admits other users; run chmod -R go= {dir}")
    };
    Ok((mode & !PRIVATE != 0).then(warning))
}

/// Removes the files in `dir` for whose names `unwanted` returns true.
pub(super) fn remove_files(dir: &Path, unwanted: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if unwanted(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Renames `dir` to `<dir>.bad-N` with the next free N, and removes all but the newest `keep` directories of such
/// names.
pub(super) fn quarantine(dir: &Path, keep: usize) -> io::Result<PathBuf> {
    let parent = dir.parent().unwrap_or(Path::new("."));
    let prefix = format!("{}.bad-", dir.file_name().unwrap_or_default().to_string_lossy());
    let mut numbers = Vec::new();
    for entry in fs::read_dir(parent)? {
        let name = entry?.file_name();
        numbers.extend(name.to_string_lossy().strip_prefix(&prefix).and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    let aside = parent.join(format!("{prefix}{}", numbers.last().map_or(1, |last| last + 1)));
    fs::rename(dir, &aside)?;
    let surplus = (numbers.len() + 1).saturating_sub(keep);
    for number in &numbers[..surplus.min(numbers.len())] {
        fs::remove_dir_all(parent.join(format!("{prefix}{number}")))?;
    }
    sync_directory(parent)?;
    Ok(aside)
}

/// What a power cut leaves of snapshot files and of directories, by inode, for tests.
#[cfg(test)]
pub(super) mod durable {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ffi::OsString;
    use std::fs::{self, File, Metadata};
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use crate::mutex::Mutex;

    static BYTES: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
    static NAMES: Mutex<BTreeMap<u64, BTreeSet<OsString>>> = Mutex::new(BTreeMap::new());

    pub(super) fn note_bytes(file: &File) -> io::Result<()> {
        let file = file.metadata()?;
        BYTES.lock().insert(file.ino(), file.len());
        Ok(())
    }

    pub(super) fn note_names(dir: &Path) -> io::Result<()> {
        let names = fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name()));
        let names = names.collect::<io::Result<BTreeSet<_>>>()?;
        NAMES.lock().insert(fs::metadata(dir)?.ino(), names);
        Ok(())
    }

    /// The length of the file at its last sync; 0 if it was never synced.
    pub(in crate::storage) fn bytes(file: &Metadata) -> u64 {
        BYTES.lock().get(&file.ino()).copied().unwrap_or_default()
    }

    /// The names in the directory at its last sync; none if it was never synced.
    pub(in crate::storage) fn names(dir: &Path) -> io::Result<BTreeSet<OsString>> {
        Ok(NAMES.lock().get(&fs::metadata(dir)?.ino()).cloned().unwrap_or_default())
    }
}
