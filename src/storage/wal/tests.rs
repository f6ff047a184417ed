//! Tests of both logs against a simple model, and of torn tails, damage and failed syncs.

mod model;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use proptest::prelude::*;
use tempfile::TempDir;

use super::disk::config;
use super::*;
use crate::mutex::Mutex;
use crate::storage::error::OpenError;

/// Length of an entry without its payload: type, id, header of the payload and checksum.
const ENTRY_BYTES: usize = 4 + 24 + 16 + 8;
/// Length of a commit: type, id and checksum.
const COMMIT_BYTES: usize = 4 + 24 + 8;

fn id(term: u64, index: u64) -> LogId {
    LogId::new(term, 1, index)
}

fn entries(term: u64, range: std::ops::Range<u64>) -> Vec<(LogId, Bytes)> {
    range.map(|index| (id(term, index), Bytes::from(vec![index as u8 + 1; 100]))).collect()
}

fn open(dir: &Path) -> DiskWal {
    cut_torn_tail(dir, Floor::default()).unwrap();
    open_purgeable(dir, id(99, u64::MAX - 1))
}

/// Opens a log of small files with a small cache, which may be purged up to this entry.
fn open_purgeable(dir: &Path, upto: LogId) -> DiskWal {
    let mut small_files = config(dir).unwrap();
    (small_files.wal.chunk_max_size, small_files.log_cache_capacity) = (Some(4096), Some(1024));
    DiskWal::open_with(small_files, dir, Arc::new(Mutex::new(Some(upto)))).unwrap()
}

/// Makes everything durable, and ends the flush thread.
fn close(wal: DiskWal) {
    wal.sync_and_wait().unwrap();
}

fn wait(call: impl FnOnce(Done) -> io::Result<()>) -> io::Result<()> {
    let (sender, receiver) = channel();
    let called = call(Box::new(move |result| sender.send(result).unwrap()));
    let reported = receiver.recv().unwrap();
    assert!(called.is_ok() || reported.is_err());
    reported
}

fn last_file(dir: &Path) -> PathBuf {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    files.sort();
    files.pop().unwrap()
}

/// Creates a log of one file with a vote and ten entries. The last entry was written by a separate request.
fn ten_entries() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let wal = DiskWal::open(dir.path(), Arc::default()).unwrap();
    wait(|done| wal.save_vote(Vote { term: 1, node: 1, committed: true }, done)).unwrap();
    wait(|done| wal.append(entries(1, 0..9), done)).unwrap();
    wait(|done| wal.append(entries(1, 9..10), done)).unwrap();
    close(wal);
    dir
}

fn last_index(dir: &Path) -> Option<u64> {
    DiskWal::open(dir, Arc::default()).unwrap().state().last.map(|id| id.index)
}

/// If any part of the last record is missing, a start drops that record and nothing else.
#[test]
fn a_tail_cut_anywhere_in_the_last_record_loses_only_that_record() {
    let record_bytes = ENTRY_BYTES as u64 + 100;
    for missing in [1, 2, 7, 50, 100, 120, record_bytes - 1] {
        let dir = ten_entries();
        let path = last_file(dir.path());
        let length = fs::metadata(&path).unwrap().len();
        fs::File::options().write(true).open(&path).unwrap().set_len(length - missing).unwrap();
        let note = cut_torn_tail(dir.path(), Floor::default()).unwrap();
        assert!(note.is_some());
        assert_eq!(last_index(dir.path()), Some(8), "{missing} bytes missing");
    }
}

/// If a file grew before its content reached the disk, it ends in zeros. A start drops them.
#[test]
fn zeros_behind_the_last_record_are_dropped() {
    let dir = ten_entries();
    let path = last_file(dir.path());
    let length = fs::metadata(&path).unwrap().len();
    fs::File::options().write(true).open(&path).unwrap().set_len(length + 5000).unwrap();
    cut_torn_tail(dir.path(), Floor::default()).unwrap();
    assert_eq!(last_index(dir.path()), Some(9));
}

/// A flipped bit anywhere, even in a length or in the last record, is refused with the name of the file. Nothing is
/// cut.
#[test]
fn a_flipped_bit_anywhere_is_refused_and_nothing_is_cut() {
    let dir = ten_entries();
    let path = last_file(dir.path());
    let intact = fs::read(&path).unwrap();
    for position in 0..intact.len() {
        let mut damaged = intact.clone();
        damaged[position] ^= 1 << (position % 8);
        fs::write(&path, &damaged).unwrap();
        let refused = cut_torn_tail(dir.path(), Floor::default());
        let error = refused.expect_err(&format!("flip at {position} of {}", intact.len()));
        assert!(matches!(&error, OpenError::Damaged { path: named, .. } if *named == path), "{error}");
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
}

/// A page that was lost from the end of a log is a torn tail, unless a vote follows it. The vote was written after
/// everything before it had been synced, so acknowledged entries are lost.
#[test]
fn a_lost_page_before_a_vote_is_refused() {
    for voted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let wal = DiskWal::open(dir.path(), Arc::default()).unwrap();
        wait(|done| wal.append(entries(1, 0..60), done)).unwrap();
        if voted {
            wait(|done| wal.save_vote(Vote { term: 2, node: 1, committed: false }, done)).unwrap();
        }
        close(wal);
        let path = last_file(dir.path());
        let mut bytes = fs::read(&path).unwrap();
        bytes[4096..8192].fill(0);
        fs::write(&path, &bytes).unwrap();
        let cut = cut_torn_tail(dir.path(), Floor::default());
        if voted {
            assert!(matches!(&cut, Err(OpenError::Damaged { path: named, .. }) if *named == path), "{cut:?}");
            assert_eq!(fs::read(&path).unwrap(), bytes, "nothing was cut");
        } else {
            assert!(cut.expect("a torn tail").is_some());
        }
    }
}

/// Power fails during a request that follows commits, and the page on which it begins is lost, but not the next one.
/// Nothing of it was acknowledged, so it is cut. If an acknowledged entry was on that page too, the log is refused,
/// even if that entry is exactly as long as two commits.
#[test]
fn a_lost_page_before_a_request_is_cut_unless_it_was_synced() {
    let requests: [fn(&DiskWal); 5] = [
        |wal| wait(|done| wal.save_vote(Vote { term: 2, node: 1, committed: false }, done)).unwrap(),
        |wal| wal.truncate_after(Some(id(1, 1))).unwrap(),
        |wal| wal.purge(id(1, 0)).unwrap(),
        |wal| wait(|done| wal.sync(done)).unwrap(),
        |wal| {
            let next = wal.state().last.unwrap().index + 1;
            wait(|done| wal.append(entries(1, next..next + 1), done)).unwrap();
        },
    ];
    for (left_on_page, request) in (16..64).step_by(7).flat_map(|left| requests.map(|request| (left, request))) {
        for (commits, is_synced) in [(1, false), (2, false), (2, true)] {
            let dir = tempfile::tempdir().unwrap();
            let upto = Arc::new(Mutex::new(Some(id(1, 1))));
            let wal = DiskWal::open(dir.path(), upto).unwrap();
            wait(|done| wal.append(entries(1, 0..2), done)).unwrap();
            let path = last_file(dir.path());
            let end = || fs::metadata(&path).unwrap().len() as usize;
            let begin = 4096 - left_on_page;
            let padding = begin - end() - ENTRY_BYTES;
            wait(|done| wal.append(vec![(id(1, 2), vec![7_u8; padding].into())], done)).unwrap();
            assert_eq!(end(), begin);
            let acknowledged = wal.state();
            if is_synced {
                let entry = vec![7_u8; 2 * COMMIT_BYTES - ENTRY_BYTES];
                wait(|done| wal.append(vec![(id(1, 3), entry.into())], done)).unwrap();
                assert_eq!(end(), begin + 2 * COMMIT_BYTES);
            }
            for index in 2 - commits..2 {
                wal.commit(id(1, index)).unwrap();
            }
            request(&wal);
            drop(wal);
            let mut bytes = fs::read(&path).unwrap();
            let page_end = bytes.len().min(4096);
            bytes[begin..page_end].fill(0);
            fs::write(&path, &bytes).unwrap();
            let cut = cut_torn_tail(dir.path(), Floor::default());
            if is_synced {
                assert!(matches!(cut, Err(OpenError::Damaged { .. })), "{left_on_page}, {commits}: {cut:?}");
                assert_eq!(fs::read(&path).unwrap(), bytes, "nothing was cut");
            } else {
                assert!(matches!(cut, Ok(Some(_))), "{left_on_page}, {commits}: {cut:?}");
                let wal = DiskWal::open(dir.path(), Arc::default()).unwrap();
                assert_eq!(wal.state(), acknowledged);
            }
        }
    }
}

/// A committed entry is never removed, whether its commit was written before or not.
#[test]
fn a_truncation_of_committed_entries_is_refused() {
    fn refuses(wal: &impl Wal) {
        wait(|done| wal.append(entries(1, 0..5), done)).unwrap();
        wal.commit(id(1, 3)).unwrap();
        for _ in 0..2 {
            assert_eq!(wal.truncate_after(Some(id(1, 2))).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            wait(|done| wal.sync(done)).unwrap();
        }
        wal.truncate_after(Some(id(1, 3))).unwrap();
        assert_eq!((wal.state().last, wal.state().committed), (Some(id(1, 3)), Some(id(1, 3))));
    }
    let dir = tempfile::tempdir().unwrap();
    refuses(&open(dir.path()));
    refuses(&MemoryWal::default());
}

/// A torn tail is not cut if the mirror or a commit record proves that it had been synced.
#[test]
fn a_tail_that_the_mirror_knows_is_not_cut() {
    let dir = ten_entries();
    let path = last_file(dir.path());
    let length = fs::metadata(&path).unwrap().len();
    fs::File::options().write(true).open(&path).unwrap().set_len(length - 3).unwrap();
    let floor = Floor { mirror: Some(id(1, 9)), ..Floor::default() };
    assert!(matches!(cut_torn_tail(dir.path(), floor), Err(OpenError::Damaged { .. })));
    let floor = Floor { mirror: Some(id(1, 8)), ..Floor::default() };
    assert!(cut_torn_tail(dir.path(), floor).unwrap().is_some());
}

/// Pages reach the disk in any order. So a lost page inside the last request is a torn tail, even if intact entries of
/// the same request follow. If a later request was written after it, the same page is damage.
#[test]
fn a_lost_page_is_a_torn_tail_only_in_the_last_request() {
    for later in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let wal = DiskWal::open(dir.path(), Arc::default()).unwrap();
        wait(|done| wal.append(entries(1, 0..10), done)).unwrap();
        wait(|done| wal.append(entries(1, 10..200), done)).unwrap();
        if later {
            wait(|done| wal.append(entries(1, 200..201), done)).unwrap();
        }
        close(wal);
        let path = last_file(dir.path());
        let mut bytes = fs::read(&path).unwrap();
        bytes[8192..12288].fill(0);
        fs::write(&path, &bytes).unwrap();
        let result = cut_torn_tail(dir.path(), Floor::default());
        assert_eq!(result.is_err(), later, "{result:?}");
        if !later {
            assert!((10..60).contains(&last_index(dir.path()).unwrap()));
        }
    }
}

/// A crash during the creation of a file leaves it empty, full of zeros, or with half a record. A start then uses the
/// file before it as the last one.
#[test]
fn a_file_that_was_only_begun_is_dropped() {
    for begun in [&[][..], &[0; 300], &[0, 0, 0, 5, 1, 1, 0]] {
        let dir = ten_entries();
        let end = fs::metadata(last_file(dir.path())).unwrap().len();
        let name = raft_log::chunked_wal::Config::chunk_file_name(end.into());
        fs::write(dir.path().join(name), begun).unwrap();
        assert!(cut_torn_tail(dir.path(), Floor::default()).unwrap().is_some());
        assert_eq!(last_index(dir.path()), Some(9));
    }
}

/// Held syncs complete one by one, in order. A crash keeps exactly the data of those that completed.
#[test]
fn held_syncs_end_in_order() {
    let wal = MemoryWal::default();
    wal.hold_syncs();
    wal.append(entries(1, 0..2), Box::new(drop)).unwrap();
    wal.append(entries(1, 2..3), Box::new(drop)).unwrap();
    assert!(wal.release_one_sync());
    assert_eq!(wal.synced(), Some(id(1, 1)));
    wal.crash();
    assert_eq!(wal.state().last, Some(id(1, 1)));
    assert!(!wal.release_one_sync());
}

/// Removes the entries from index 5 on, and appends one of an earlier term at that index.
fn replace_tail(wal: &impl Wal) {
    wal.truncate_after(Some(id(1, 4))).unwrap();
    wal.append(entries(2, 5..6), Box::new(drop)).unwrap();
}

/// A sync that was requested before a truncation proves nothing about the removed entries, nor about the entries that
/// replace them. The new entries can have lower ids, because a removed entry can be of a later term.
#[test]
fn a_truncation_outdates_the_syncs_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let (go, gone) = channel::<()>();
    let (enter, entered) = channel();
    // This callback blocks the flush thread, so that nothing after the first request is synced before the truncation.
    let held = move |_| {
        enter.send(()).unwrap();
        gone.recv().unwrap();
    };
    disk.append(entries(1, 0..5), Box::new(held)).unwrap();
    entered.recv().unwrap();
    let (sender, seen) = channel();
    let watched = disk.clone();
    disk.append(entries(3, 5..10), Box::new(move |_| sender.send(watched.synced()).unwrap())).unwrap();
    replace_tail(&disk);
    go.send(()).unwrap();
    assert_eq!(seen.recv().unwrap(), Some(id(1, 4)), "on disk");
    disk.sync_and_wait().unwrap();
    assert_eq!(disk.synced(), Some(id(2, 5)));

    let memory = MemoryWal::default();
    wait(|done| memory.append(entries(1, 0..5), done)).unwrap();
    memory.hold_syncs();
    memory.append(entries(3, 5..10), Box::new(drop)).unwrap();
    replace_tail(&memory);
    assert!(memory.release_one_sync());
    assert_eq!(memory.synced(), Some(id(1, 4)), "in memory");
    memory.release_syncs();
    assert_eq!(memory.synced(), Some(id(2, 5)));
}

/// If the first file is missing although its entries were never purged, a start refuses the log.
#[test]
fn a_missing_file_at_the_front_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    wait(|done| wal.append(entries(1, 0..100), done)).unwrap();
    close(wal);
    let mut files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    files.sort();
    fs::remove_file(&files[0]).unwrap();
    assert!(matches!(cut_torn_tail(dir.path(), Floor::default()), Err(OpenError::Damaged { .. })));
}

/// After a failed sync, every waiting call and every later call fails with the same error, on both logs.
#[test]
fn a_failed_sync_is_reported_to_all_callers_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    disk.fail_next_sync();
    failing(&disk);
    let reported = disk.failure().expect("a failure");
    assert!(reported.starts_with(&format!("cannot sync the log in {}: injected", dir.path().display())), "{reported}");
    assert!(reported.contains("lockkeeper member add"), "{reported}");
    let memory = MemoryWal::default();
    memory.fail_next_sync();
    failing(&memory);
    memory.crash();
    assert!(wait(|done| memory.append(entries(1, 0..1), done)).is_ok());
}

/// The next file of the log cannot be created. This is no refusal of the request during which it happens, also if the
/// request is a vote or a commit: every later call fails.
#[test]
fn a_failed_write_is_no_refusal() {
    let failed_at = |request: fn(&DiskWal, u64) -> io::Result<()>| {
        let dir = tempfile::tempdir().unwrap();
        let wal = open(dir.path());
        wait(|done| wal.append(entries(1, 0..200), done)).unwrap();
        dir.close().unwrap();
        let failed = (0..200).find_map(|number| request(&wal, number).err()).expect("a file is full by then");
        assert_eq!(failed.kind(), io::ErrorKind::NotFound);
        assert_eq!(wal.failure(), Some(failed.to_string()));
        assert!(wait(|done| wal.sync(done)).is_err());
    };
    failed_at(|wal, term| wait(|done| wal.save_vote(Vote { term, node: 1, committed: false }, done)));
    failed_at(|wal, index| wal.commit(id(1, index)).and_then(|()| wait(|done| wal.sync(done))));
}

fn failing(wal: &impl Wal) {
    assert!(wait(|done| wal.append(entries(1, 0..2), done)).unwrap_err().to_string().contains("injected"));
    assert!(wait(|done| wal.append(entries(1, 2..3), done)).unwrap_err().to_string().contains("injected"));
    assert!(wait(|done| wal.save_vote(Vote { term: 2, node: 1, committed: false }, done)).is_err());
    assert!(wait(|done| wal.sync(done)).is_err());
    assert!(wal.read(0, 1, 10).is_err());
    assert_eq!(wal.synced(), None);
}

/// A vote or an entry is reported as durable only after a sync of the file, also if each of them is alone.
#[test]
fn each_acknowledged_request_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let wal = DiskWal::open(dir.path(), Arc::default()).unwrap();
    let is_synced = |what: &str, request: &dyn Fn(Done) -> io::Result<()>| {
        let before = wal.syncs();
        wait(request).unwrap();
        assert_eq!(wal.syncs(), before + 1, "{what}");
    };
    for number in 1..4 {
        is_synced("a vote", &|done| wal.save_vote(Vote { term: number, node: 1, committed: false }, done));
        is_synced("entries", &|done| wal.append(entries(number, 2 * number - 2..2 * number), done));
        is_synced("a commit", &|done| wal.commit(id(number, 2 * number - 1)).and_then(|()| wal.sync(done)));
    }
}

/// Data that a start reads may only be in the page cache. So a start syncs all of it before it answers from it.
#[test]
fn a_start_syncs_what_it_reads() {
    let dir = ten_entries();
    let wal = open(dir.path());
    assert_eq!((wal.synced(), wal.state().last), (Some(id(1, 9)), Some(id(1, 9))));
}

/// After a failed sync, the page cache may have bytes of the last file that the disk never got. So a start writes them
/// into a new file, also if the process stopped right after it had created the next file.
#[test]
fn a_start_writes_the_last_file_again() {
    for begun in [false, true] {
        let dir = ten_entries();
        let path = last_file(dir.path());
        let (bytes, inode) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().ino());
        if begun {
            let next = raft_log::chunked_wal::Config::chunk_file_name((bytes.len() as u64).into());
            fs::write(dir.path().join(next), []).unwrap();
        }
        let wal = open(dir.path());
        assert_eq!(wal.state().last, Some(id(1, 9)));
        assert_ne!(fs::metadata(&path).unwrap().ino(), inode);
        assert_eq!(fs::read(&path).unwrap(), bytes);
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(names.filter(|name| name.extension().is_some_and(|extension| extension == "tmp")).count(), 0);
    }
}

/// A file of the log cannot be removed after a purge. No request of the caller gets this error, and the failure still
/// names it.
#[test]
fn the_cause_of_a_stopped_flush_thread_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    wait(|done| wal.append(entries(1, 0..100), done)).unwrap();
    fs::remove_file(dir.path().join(raft_log::chunked_wal::Config::chunk_file_name(0.into()))).unwrap();
    wal.purge(id(1, 90)).unwrap();
    (100..200).find_map(|index| wait(|done| wal.append(entries(1, index..index + 1), done)).err()).expect("a failure");
    let failure = wal.failure().unwrap();
    assert!(failure.contains("cannot write the log in") && failure.contains("No such file"), "{failure}");
}

/// Nothing is purged past the newest snapshot file.
#[test]
fn a_purge_past_the_snapshot_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open_purgeable(dir.path(), id(1, 3));
    wait(|done| wal.append(entries(1, 0..6), done)).unwrap();
    assert_eq!(wal.purge(id(1, 4)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    wal.purge(id(1, 3)).unwrap();
    assert_eq!(wal.read(3, 5, 10).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(wal.read(4, 9, 10).unwrap().len(), 1);
    assert_eq!(wal.read(4, 9, 10_000).unwrap().len(), 2);
}

/// Unsynced data is lost in a crash, and its callbacks are never called.
#[test]
fn a_crash_of_the_memory_log_forgets_what_was_not_synced() {
    let wal = MemoryWal::default();
    wait(|done| wal.append(entries(1, 0..3), done)).unwrap();
    wal.hold_syncs();
    let (sender, receiver) = channel();
    wal.append(entries(1, 3..5), Box::new(move |_| sender.send(()).unwrap())).unwrap();
    assert_eq!(wal.state().last, Some(id(1, 4)));
    assert_eq!(wal.synced(), Some(id(1, 2)));
    wal.crash();
    assert_eq!(wal.state().last, Some(id(1, 2)));
    assert!(receiver.recv().is_err());
    wait(|done| wal.append(entries(2, 3..4), done)).unwrap();
}
