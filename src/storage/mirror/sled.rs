//! The mirror: sled with every record and the head of all records.
//!
//! On Linux, sled's flush does not make data durable, and sled overwrites freed segments in place. So an fdatasync of
//! its one file, through a separate handle, follows every batch. sled can panic on damaged files, so panics are caught
//! around every call. A mirror that failed is never used again.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::{Change, Step};
use crate::limits::{
    MIRROR_BATCH_RECORDS, MIRROR_CACHE_BYTES, MIRROR_LOCK_PAUSE_MS, MIRROR_LOCK_WAIT_MS, MIRROR_VALUE_BYTES,
};
use crate::storage::catch_panic::{DropCaught, caught};
use crate::storage::error::invalid_data;
use crate::storage::fs::{create_directory, remove_files, sync_directory};
use crate::storage::head::{Head, Tally};
use crate::storage::snapshot::Builder;

const HEAD_KEY: &[u8] = b"head";
const WRITING: u8 = 0;
const WHOLE: u8 = 1;

/// Opens sled, and waits until its file is free. The directory is locked against other processes, so only a thread of a
/// mirror that this process closed recently can still use the file.
fn open_when_free(config: &sled::Config) -> io::Result<sled::Db> {
    let mut waited_ms = 0;
    loop {
        match config.open() {
            Err(sled::Error::Io(error)) if error.to_string().contains("could not acquire lock") => {
                if MIRROR_LOCK_WAIT_MS <= waited_ms {
                    return Err(error);
                }
            }
            opened => return opened.map_err(sled_error),
        }
        std::thread::sleep(Duration::from_millis(MIRROR_LOCK_PAUSE_MS));
        waited_ms += MIRROR_LOCK_PAUSE_MS;
    }
}

/// Handles of sled. When the last one is dropped, sled syncs the file, and panics if that fails.
struct Sled {
    records: sled::Tree,
    heads: sled::Tree,
    db: sled::Db,
}

pub(in crate::storage) struct Mirror {
    sled: DropCaught<Sled>,
    /// sled's one file, for fdatasync.
    file: File,
    pub(in crate::storage) head: Head,
}

impl Mirror {
    /// Creates an empty mirror in `dir`, which must not contain one yet.
    pub(in crate::storage) fn create(dir: &Path) -> io::Result<Self> {
        create_directory(dir)?;
        let mut mirror = guarded(|| Self::open_files(dir))?;
        sync_directory(dir)?;
        mirror.write_head(WHOLE, Head::default())?;
        Ok(mirror)
    }

    /// Opens the mirror in `dir` and reads all of it. Returns an error if the records do not match the head. The caller
    /// must then move the directory away, because opening it has already written to it.
    pub(in crate::storage) fn open(dir: &Path) -> io::Result<(Self, Vec<(Bytes, Bytes)>)> {
        remove_files(dir, |name| name.starts_with("snap.") && name.ends_with(".generating"))?;
        guarded(|| {
            let mut mirror = Self::open_files(dir)?;
            mirror.head = mirror.read_head()?;
            let (mut tally, mut records) = (Tally::default(), Vec::new());
            for record in mirror.sled.get().records.iter() {
                let (key, value) = record.map_err(sled_error)?;
                tally.add(&key, &value);
                records.push((Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)));
            }
            match tally.differs_from(&mirror.head) {
                Some(difference) => Err(wrong(&difference)),
                None => Ok((mirror, records)),
            }
        })
    }

    fn open_files(dir: &Path) -> io::Result<Self> {
        let config = sled::Config::new().path(dir).cache_capacity(MIRROR_CACHE_BYTES).flush_every_ms(None);
        let db = open_when_free(&config)?;
        let records = db.open_tree("records").map_err(sled_error)?;
        let heads = db.open_tree("head").map_err(sled_error)?;
        let file = File::open(dir.join("db"))?;
        Ok(Self { sled: DropCaught::new(Sled { records, heads, db }), file, head: Head::default() })
    }

    fn read_head(&self) -> io::Result<Head> {
        let stored = self.sled.get().heads.get(HEAD_KEY).map_err(sled_error)?.ok_or_else(|| wrong("it has no head"))?;
        if stored.len() < 5 {
            return Err(wrong("its head is cut short"));
        }
        let (checksum, rest) = stored.split_at(4);
        if crc32fast::hash(rest).to_le_bytes() != checksum {
            return Err(wrong("its head does not match its checksum"));
        }
        if rest[0] != WHOLE {
            return Err(wrong("a checkpoint was not finished"));
        }
        Head::decode(&rest[1..])
    }

    fn write_head(&mut self, mark: u8, head: Head) -> io::Result<()> {
        let mut rest = vec![mark];
        rest.extend(head.encode());
        let mut stored = crc32fast::hash(&rest).to_le_bytes().to_vec();
        stored.extend(rest);
        guarded(|| self.sled.get().heads.insert(HEAD_KEY, stored).map_err(sled_error))?;
        self.make_durable()?;
        self.head = head;
        Ok(())
    }

    fn make_durable(&self) -> io::Result<()> {
        guarded(|| self.sled.get().db.flush().map_err(sled_error))?;
        self.file.sync_data()
    }

    /// Writes the changes in small batches and the head last. Each batch is durable before the next one is written.
    pub(super) fn write(
        &mut self,
        changes: impl Iterator<Item = io::Result<Change>>,
        head: Head,
        probe: &dyn Fn(Step),
    ) -> io::Result<()> {
        self.write_head(WRITING, self.head.clone())?;
        probe(Step::MirrorMarked);
        let mut changes = changes.peekable();
        while changes.peek().is_some() {
            let mut batch = sled::Batch::default();
            for change in changes.by_ref().take(MIRROR_BATCH_RECORDS) {
                let (key, value) = change?;
                let bytes = key.len().max(value.as_ref().map_or(0, Bytes::len));
                if bytes > MIRROR_VALUE_BYTES {
                    let record = key.escape_ascii();
                    let why = format!("the record {record} has {bytes} bytes, more than {MIRROR_VALUE_BYTES}");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
                }
                match value {
                    Some(value) => batch.insert(&key[..], &value[..]),
                    None => batch.remove(&key[..]),
                }
            }
            guarded(|| self.sled.get().records.apply_batch(batch).map_err(sled_error))?;
            self.make_durable()?;
            probe(Step::MirrorBatch);
        }
        self.write_head(WHOLE, head)?;
        probe(Step::MirrorHead);
        Ok(())
    }

    /// Writes every record to `output`. Returns `InvalidData` if the records do not match the head.
    pub(super) fn export<W: io::Write>(&self, output: W) -> io::Result<W> {
        guarded(|| {
            let mut builder = Builder::new(output, self.head.clone())?;
            for record in self.sled.get().records.iter() {
                let (key, value) = record.map_err(sled_error)?;
                builder.add(&key, &value)?;
            }
            builder.finish()
        })
    }
}

/// Calls sled, and turns a panic into an error.
fn guarded<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    caught(call).unwrap_or_else(|| Err(wrong("sled panicked")))
}

fn sled_error(error: sled::Error) -> io::Error {
    match error {
        sled::Error::Io(error) => error,
        error @ (sled::Error::CollectionNotFound(_)
        | sled::Error::Unsupported(_)
        | sled::Error::ReportableBug(_)
        | sled::Error::Corruption { .. }) => wrong(&error.to_string()),
    }
}

fn wrong(what: &str) -> io::Error {
    invalid_data(format!("the mirror is wrong: {what}"))
}
