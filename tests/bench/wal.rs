//! The cost of making an entry durable, on the disk of the directory for temporary files (which `TMPDIR` can change).

use std::sync::mpsc;

use bytes::Bytes;
use lockkeeper::codec::encode_entry;
use lockkeeper::storage::{DiskWal, LogId, Owner, Wal, open};

use super::codec::full;
use super::timer::{Timer, repeat};
use super::words::COMMANDS;

/// Measures entries of 50 commands, one after the other: each is appended, written, synced and reported.
pub(crate) fn append_and_sync(timer: &Timer) {
    let directory = tempfile::tempdir().expect("a folder");
    let owner = Owner { cluster: "bench".to_owned(), peers_id: 1, node: 1 };
    let opened = open(directory.path(), owner, 1).expect("an empty directory opens");
    let bytes = encode_entry(&full());
    let mut index = 0;
    timer.measure("wal/append and sync an entry of 50", COMMANDS, |rounds| {
        repeat(rounds, || {
            durable(&opened.wal, index, &bytes);
            index += 1;
        })
    });
}

fn durable(wal: &DiskWal, index: u64, bytes: &Bytes) {
    let (sender, synced) = mpsc::sync_channel(1);
    let records = vec![(LogId::new(1, 1, index), bytes.clone())];
    let done = Box::new(move |result| sender.send(result).expect("the receiver waits"));
    wal.append(records, done).expect("an open log");
    synced.recv().expect("reported once").expect("a disk that works");
}
