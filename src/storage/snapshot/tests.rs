//! Tests of snapshot files: round trips, damage, and files that are removed while they are read.

use bytes::Bytes;

use super::*;
use crate::storage::head::{Head, Tally};
use crate::storage::ids::LogId;

fn snapshot(count: u32) -> (Head, Vec<u8>) {
    let records: Vec<_> = (0..count).map(|n| (format!("key-{n:06}"), vec![n as u8; 50])).collect();
    let mut tally = Tally::default();
    records.iter().for_each(|(key, value)| tally.add(key.as_bytes(), value));
    let head = Head {
        log_id: Some(LogId::new(3, 2, 41)),
        records: tally.records,
        digest: tally.digest,
        meta: Bytes::from_static(b"members"),
    };
    let mut builder = Builder::new(Vec::new(), head.clone()).unwrap();
    records.iter().for_each(|(key, value)| builder.add(key.as_bytes(), value).unwrap());
    (head, builder.finish().unwrap())
}

/// A snapshot that is sent in chunks arrives with the same head and the same records.
#[test]
fn chunks_carry_head_and_records() {
    let dir = tempfile::tempdir().unwrap();
    let (head, bytes) = snapshot(5000);
    let sent = SnapshotFile::from_memory(bytes.into()).unwrap();
    let mut writer = SnapshotWriter::create(dir.path().join("a.tmp")).unwrap();
    sent.chunks(1000).for_each(|chunk| writer.write(&chunk.unwrap()).unwrap());
    let received = writer.finish().unwrap();
    assert_eq!(received.head(), &head);
    let file = received.rename(&dir.path().join("a.snapshot")).unwrap();
    let records: Vec<_> = file.records().unwrap().map(Result::unwrap).collect();
    assert_eq!(records, sent.records().unwrap().map(Result::unwrap).collect::<Vec<_>>());
    assert_eq!((records.len(), file.size_bytes()), (5000, sent.size_bytes()));
}

/// A received file that is short, long or has a flipped bit anywhere is refused, and removed.
#[test]
fn a_damaged_file_is_refused_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (_, intact) = snapshot(20);
    let path = dir.path().join("a.tmp");
    let receive = |bytes: &[u8]| {
        let mut writer = SnapshotWriter::create(path.clone()).unwrap();
        writer.write(bytes).unwrap();
        let refused = writer.finish().is_err();
        assert!(!path.exists());
        refused
    };
    for position in 0..intact.len() {
        let mut damaged = intact.clone();
        damaged[position] ^= 1 << (position % 8);
        assert!(receive(&damaged), "flip at {position}");
        assert!(receive(&intact[..position]), "cut at {position}");
    }
    assert!(receive(&[&intact[..], b"x"].concat()));
}

/// Records that do not match the head never become a file.
#[test]
fn a_wrong_digest_never_becomes_a_file() {
    let (head, _) = snapshot(2);
    let mut builder = Builder::new(Vec::new(), head).unwrap();
    builder.add(b"key-000000", &[0; 50]).unwrap();
    builder.add(b"key-000001", &[9; 50]).unwrap();
    assert!(builder.finish().is_err());
}

/// A reader continues after the name of the file was removed.
#[test]
fn a_file_stays_readable_when_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.snapshot");
    std::fs::write(&path, snapshot(5000).1).unwrap();
    let file = SnapshotFile::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.records().unwrap().map(Result::unwrap).count(), 5000);
}
