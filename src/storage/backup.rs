//! Reads a backup, which is a snapshot file, and creates the directory of a node from one.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thiserror::Error;

use super::fs::{create_directory, sync_directory};
use super::head::Head;
use super::identity::Identity;
use super::snapshot::{Builder, SnapshotFile, received_name};

/// Why a backup was not read, or not restored. Existing files are unchanged, and new ones were removed.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The file is not a complete backup.
    #[error("{} is not a whole backup: {what}; use another one", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// The offset, and what was found there.
        what: String,
    },
    /// The directory has entries already.
    #[error("{} is not empty: a backup is restored into an empty directory; name another one, or move this one away", path.display())]
    NotEmpty {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The system returned an error.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

impl BackupError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |error| Self::Io { doing, path, error }
    }
}

/// Opens a backup and reads all of it: framing, checksums, count, digest.
///
/// # Errors
/// [`BackupError::Damaged`] names the offset of the damage. A file in another format, or of another kind, is damaged,
/// too.
pub fn open_backup(path: &Path) -> Result<SnapshotFile, BackupError> {
    let verified = SnapshotFile::open(path).and_then(|file| file.verify().map(|()| file));
    verified.map_err(|error| {
        if error.kind() == io::ErrorKind::InvalidData {
            return BackupError::Damaged { path: path.to_path_buf(), what: error.to_string() };
        }
        BackupError::io("read", path)(error)
    })
}

/// Creates a node's directory with this state and an empty log. The identity file is written last, because no node
/// opens a directory with a snapshot and without an identity. After an error, the files and directories that this call
/// created are removed.
///
/// # Errors
/// [`BackupError::NotEmpty`] if the directory has any entry.
pub fn lay_out(
    dir: &Path,
    identity: &Identity,
    head: Head,
    records: impl IntoIterator<Item = (Bytes, Bytes)>,
) -> Result<(), BackupError> {
    if dir.exists() && fs::read_dir(dir).map_err(BackupError::io("list", dir))?.next().is_some() {
        return Err(BackupError::NotEmpty { path: dir.to_path_buf() });
    }
    let snapshots = dir.join("snapshot");
    let missing: Vec<_> = snapshots.ancestors().take_while(|directory| !directory.exists()).collect();
    let mut files = Vec::new();
    let written = write_files(dir, identity, (head, records), &mut files);
    if written.is_err() {
        // The identity is removed first, because a node opens a directory that has one.
        for file in files.iter().rev() {
            fs::remove_file(file).ok();
        }
        for directory in missing {
            fs::remove_dir(directory).ok();
        }
    }
    written
}

/// Writes the snapshot and the identity. Adds the paths of the new files to `files`.
fn write_files(
    dir: &Path,
    identity: &Identity,
    (head, records): (Head, impl IntoIterator<Item = (Bytes, Bytes)>),
    files: &mut Vec<PathBuf>,
) -> Result<(), BackupError> {
    let snapshots = dir.join("snapshot");
    create_directory(&snapshots).map_err(BackupError::io("create", &snapshots))?;
    let path = snapshots.join(received_name(head.log_id));
    let file = File::create_new(&path).map_err(BackupError::io("create", &path))?;
    files.push(path.clone());
    write_snapshot(file, head, records).map_err(BackupError::io("write", &path))?;
    sync_directory(&snapshots).map_err(BackupError::io("sync", &snapshots))?;
    let path = dir.join("identity");
    files.extend([path.with_extension("tmp"), path.clone()]);
    identity.save(&path).map_err(BackupError::io("write", &path))
}

fn write_snapshot(file: File, head: Head, records: impl IntoIterator<Item = (Bytes, Bytes)>) -> io::Result<()> {
    let mut builder = Builder::new(BufWriter::new(file), head)?;
    for (key, value) in records {
        builder.add(&key, &value)?;
    }
    builder.finish()?.get_ref().sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::head::Tally;
    use crate::storage::{LogId, Owner, Source, open};

    fn identity(cluster: &str) -> Identity {
        Identity { owner: Owner { cluster: cluster.to_owned(), peers_id: 7, node: 1 }, disk: 9 }
    }

    fn state() -> (Head, Vec<(Bytes, Bytes)>) {
        let records: Vec<_> =
            (0..300).map(|n| (Bytes::from(format!("k{n:04}")), Bytes::from(vec![n as u8; 30]))).collect();
        let mut tally = Tally::default();
        records.iter().for_each(|(key, value)| tally.add(key, value));
        let head = Head {
            log_id: Some(LogId::new(0, 0, 41)),
            records: tally.records,
            digest: tally.digest,
            meta: Bytes::from_static(b"m"),
        };
        (head, records)
    }

    /// A directory made from a backup opens with exactly the state of the backup and an empty log, and only for its own
    /// node.
    #[test]
    fn what_is_laid_out_opens() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("deep").join("n1");
        let (head, records) = state();
        lay_out(&dir, &identity("harbour"), head.clone(), records.clone()).unwrap();
        let owner = identity("harbour").owner;
        let other = Owner { peers_id: 8, ..owner.clone() };
        let refused = open(&dir, other, 11).err().unwrap();
        assert!(refused.to_string().contains("belongs to node 1"), "{refused}");
        let opened = open(&dir, owner, 11).unwrap();
        assert_eq!(opened.identity, identity("harbour"));
        assert_eq!((opened.recovered.source, &opened.recovered.head), (Source::Snapshot, &head));
        assert_eq!(opened.recovered.records, records);
    }

    /// A directory with any entry is refused and stays unchanged.
    #[test]
    fn a_directory_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("notes"), "mine").unwrap();
        let (head, records) = state();
        let refused = lay_out(folder.path(), &identity("h"), head, records).unwrap_err();
        assert!(refused.to_string().contains("is not empty"), "{refused}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// A restore that fails while it writes the snapshot or the identity leaves nothing behind: the directories that
    /// existed are as before, the other ones do not exist, and the next attempt succeeds.
    #[test]
    fn a_failed_restore_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let (absent, empty) = (folder.path().join("deep"), folder.path().join("empty"));
        std::fs::create_dir(&empty).unwrap();
        let ((head, records), two_lines, identity) = (state(), identity("two\nlines"), identity("harbour"));
        let longer = Head { records: head.records + 1, ..head.clone() };
        for dir in [&absent.join("n1"), &empty] {
            lay_out(dir, &identity, longer.clone(), records.clone()).unwrap_err();
            lay_out(dir, &two_lines, head.clone(), records.clone()).unwrap_err();
            assert!(!absent.exists());
            assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
        }
        lay_out(&absent.join("n1"), &identity, head.clone(), records.clone()).unwrap();
        lay_out(&empty, &identity, head, records).unwrap();
    }

    /// A restore was killed before it wrote the identity. The directory is refused with the file that it left and the
    /// next step, and gets no identity.
    #[test]
    fn a_restore_that_was_killed_opens_no_node() {
        let folder = tempfile::tempdir().unwrap();
        let (head, records) = state();
        lay_out(folder.path(), &identity("harbour"), head.clone(), records).unwrap();
        std::fs::remove_file(folder.path().join("identity")).unwrap();
        let refused = open(folder.path(), identity("harbour").owner, 11).err().unwrap();
        let refused = refused.to_string();
        let file = folder.path().join("snapshot").join(received_name(head.log_id));
        assert!(refused.contains(&format!("{} but no identity file", file.display())), "{refused}");
        assert!(refused.contains("move the directory away"), "{refused}");
        assert!(!folder.path().join("identity").exists());
    }

    /// A backup with a flipped bit, without its end, or in another format is refused with its name. So is any other
    /// file.
    #[test]
    fn what_is_no_whole_backup_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("harbour.backup");
        let (head, records) = state();
        write_snapshot(File::create_new(&path).unwrap(), head, records).unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(open_backup(&path).unwrap().head().records, 300);
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let refused = open_backup(&path).unwrap_err();
            assert!(matches!(refused, BackupError::Damaged { .. }), "{refused}");
            let text = refused.to_string();
            assert!(text.contains("harbour.backup"), "{text}");
            text
        };
        let flipped = |at: usize| [&whole[..at], &[whole[at] ^ 1], &whole[at + 1..]].concat();
        assert!(refused(&flipped(whole.len() / 2)).contains("checksum"));
        assert!(refused(&flipped(8)).contains("snapshot format 0; this build reads 1 to 1"));
        assert!(refused(b"a text of another program").contains("not a snapshot file"));
        refused(&whole[..whole.len() - 1]);
    }
}
