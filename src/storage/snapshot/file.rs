//! A complete snapshot: its head, its bytes and its records.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::format::Parser;
use crate::limits::SNAPSHOT_BLOCK_BYTES;
use crate::storage::head::Head;
use crate::storage::ids::LogId;

/// A complete snapshot. It stays readable while a handle to it exists, even after a newer one has replaced it.
#[derive(Clone, Debug)]
pub struct SnapshotFile {
    head: Head,
    size_bytes: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// An open file, which stays readable after its name was removed.
    Disk(Arc<File>),
    Memory(Bytes),
}

impl SnapshotFile {
    /// Opens a file and reads its head. The records are not verified.
    pub(in crate::storage) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let size_bytes = file.metadata()?.len();
        Self::with_content(Content::Disk(Arc::new(file)), size_bytes)
    }

    pub(in crate::storage) fn from_memory(bytes: Bytes) -> io::Result<Self> {
        let size_bytes = bytes.len() as u64;
        Self::with_content(Content::Memory(bytes), size_bytes)
    }

    fn with_content(content: Content, size_bytes: u64) -> io::Result<Self> {
        let mut file = Self { head: Head::default(), size_bytes, content };
        file.head = Parser::new(file.reader())?.head;
        Ok(file)
    }

    /// The log position, count and digest of its records.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the raw content in chunks of at most `bytes` bytes, in order.
    pub fn chunks(&self, bytes: usize) -> impl Iterator<Item = io::Result<Bytes>> + Send + use<> {
        let mut input = self.cursor();
        let mut left = self.size_bytes;
        std::iter::from_fn(move || {
            let length = left.min(bytes.max(1) as u64);
            if length == 0 {
                return None;
            }
            let mut chunk = vec![0; usize::try_from(length).unwrap_or(bytes)];
            let read = input.read_exact(&mut chunk).map(|()| Bytes::from(chunk));
            left = if read.is_ok() { left - length } else { 0 };
            Some(read)
        })
    }

    /// Returns the records in the order of their keys. Damage, a wrong count or a wrong digest yields an error, at the
    /// end at the latest. So a caller that reads to the end has verified the file.
    pub fn records(&self) -> io::Result<impl Iterator<Item = io::Result<(Bytes, Bytes)>> + Send + use<>> {
        Parser::new(self.reader())
    }

    /// Reads and verifies everything: framing, checksums, count, digest.
    pub(in crate::storage) fn verify(&self) -> io::Result<()> {
        self.records()?.try_for_each(|record| record.map(drop))
    }

    fn reader(&self) -> BufReader<Cursor> {
        BufReader::with_capacity(2 * SNAPSHOT_BLOCK_BYTES, self.cursor())
    }

    fn cursor(&self) -> Cursor {
        Cursor { content: self.content.clone(), offset: 0 }
    }
}

/// The name of the file with the state at `id`. Names sort by index.
pub(in crate::storage) fn file_name(id: Option<LogId>) -> String {
    let id = id.unwrap_or(LogId::new(0, 0, 0));
    format!("{:020}-{:020}-{:020}.snapshot", id.index, id.term, id.node)
}

/// The name of a received file. The log may not have reached its position yet.
pub(in crate::storage) fn received_name(id: Option<LogId>) -> String {
    file_name(id).replace(".snapshot", ".received.snapshot")
}

/// A reading position. Several cursors can read one file.
struct Cursor {
    content: Content,
    offset: u64,
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &self.content {
            Content::Disk(file) => file.read_at(buffer, self.offset)?,
            Content::Memory(bytes) => {
                let from = usize::try_from(self.offset).unwrap_or(usize::MAX).min(bytes.len());
                (&bytes[from..]).read(buffer)?
            }
        };
        self.offset += read as u64;
        Ok(read)
    }
}
