//! Receives a snapshot: writes its chunks to a temporary file, which is verified at the end.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::file::SnapshotFile;
use crate::storage::fs::sync_snapshot;
use crate::storage::head::Head;

/// Writes the chunks of a snapshot to a file. If it is dropped before `finish`, it removes the file. After a crash the
/// next start removes the `.tmp` file.
pub struct SnapshotWriter {
    target: Target,
}

enum Target {
    Disk(File, Temporary),
    Memory(Vec<u8>),
}

/// A temporary file. It is removed on drop unless it was renamed.
struct Temporary(Option<PathBuf>);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // A file that cannot be removed now is removed at the next start.
            let _ = fs::remove_file(path);
        }
    }
}

/// A complete, verified snapshot that is not installed yet. Its file is removed when it is dropped.
pub struct ReceivedSnapshot {
    file: SnapshotFile,
    temporary: Temporary,
}

impl SnapshotWriter {
    pub(in crate::storage) fn create(path: PathBuf) -> io::Result<Self> {
        let file = File::create_new(&path)?;
        Ok(Self { target: Target::Disk(file, Temporary(Some(path))) })
    }

    pub(in crate::storage) fn in_memory() -> Self {
        Self { target: Target::Memory(Vec::new()) }
    }

    /// Adds the next chunk.
    pub fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match &mut self.target {
            Target::Disk(file, _) => file.write_all(chunk),
            Target::Memory(bytes) => bytes.write_all(chunk),
        }
    }

    /// Verifies framing, checksums, count and digest. `InvalidData` names the offset of the damage.
    pub fn finish(self) -> io::Result<ReceivedSnapshot> {
        let (file, temporary) = match self.target {
            Target::Memory(bytes) => (SnapshotFile::from_memory(Bytes::from(bytes))?, Temporary(None)),
            Target::Disk(file, temporary) => {
                sync_snapshot(&file)?;
                let path = temporary.0.as_deref().unwrap_or(Path::new(""));
                (SnapshotFile::open(path)?, temporary)
            }
        };
        file.verify()?;
        Ok(ReceivedSnapshot { file, temporary })
    }
}

impl ReceivedSnapshot {
    /// The head of its records. A receiver refuses a head that differs from the announced one.
    pub fn head(&self) -> &Head {
        self.file.head()
    }

    /// Renames the file to its final name. The file is synced already; the caller syncs the directory.
    pub(in crate::storage) fn rename(mut self, to: &Path) -> io::Result<SnapshotFile> {
        if let Some(path) = &self.temporary.0 {
            fs::rename(path, to)?;
            self.temporary.0 = None;
        }
        Ok(self.file)
    }

    pub(in crate::storage) fn into_file(self) -> SnapshotFile {
        self.file
    }
}
