//! Tests of whole directories: starts, crashes between steps, damage, identities.

#![allow(clippy::type_complexity, reason = "a list of what was seen needs no name")]

mod power_cut;
mod queue;
mod short_logs;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;

use super::*;
use crate::storage::head::Tally;
use crate::storage::open::open_probed;
use crate::storage::recover::recover;
use crate::storage::{LogId, MemoryWal, OpenError, Opened, Owner, Source, Wal, open, record_hash};

type Table = BTreeMap<Bytes, Bytes>;

fn id(index: u64) -> LogId {
    LogId::new(1, 1, index)
}

fn owner() -> Owner {
    Owner { cluster: "harbour".to_string(), peers_id: 7, node: 1 }
}

fn try_open(dir: &Path) -> Result<Opened, OpenError> {
    open(dir, owner(), 11)
}

fn reopen(dir: &Path) -> Opened {
    try_open(dir).unwrap()
}

fn wait<T: Send + 'static>(call: impl FnOnce(Box<dyn FnOnce(io::Result<T>) + Send>)) -> io::Result<T> {
    let (sender, receiver) = sync_channel(1);
    call(Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap()
}

fn head(index: u64, table: &Table) -> Head {
    let mut tally = Tally::default();
    table.iter().for_each(|(key, value)| tally.add(key, value));
    Head { log_id: Some(id(index)), records: tally.records, digest: tally.digest, meta: Bytes::from_static(b"m") }
}

fn append(wal: &impl Wal, range: std::ops::Range<u64>) {
    let records = range.map(|index| (id(index), Bytes::from_static(b"entry"))).collect();
    wait(|done| wal.append(records, done).unwrap()).unwrap();
}

/// Changes `count` records and writes the checkpoint at `index`.
fn checkpoint(state: &impl StateStore, table: &mut Table, index: u64, count: u64) -> io::Result<()> {
    let mut changes = Vec::new();
    for n in 0..count {
        let (key, value) = (Bytes::from(format!("k{n:05}")), Bytes::from(format!("{index}-{n}")));
        table.insert(key.clone(), value.clone());
        changes.push((key, Some(value)));
    }
    let head = head(index, table);
    wait(|done| state.submit(Job::Checkpoint(changes, head, done)))
}

fn close(opened: Opened) {
    wait(|done| opened.state.submit(Job::Close(done))).unwrap();
    opened.wal.sync_and_wait().unwrap();
}

fn same(opened: &Opened, table: &Table) {
    assert_eq!(opened.recovered.records.iter().cloned().collect::<Table>(), *table, "{:?}", opened.recovered.note);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Fills a directory with entries 0 to 19, a checkpoint at 5, a snapshot file of it, and a checkpoint at 10.
fn prepared(dir: &Path) -> Table {
    let opened = reopen(dir);
    assert_eq!(opened.recovered.source, Source::Empty);
    let mut table = Table::new();
    append(&opened.wal, 0..20);
    checkpoint(&opened.state, &mut table, 5, 250).unwrap();
    assert_eq!(wait(|done| opened.state.submit(Job::Export(done))).unwrap().head(), &head(5, &table));
    checkpoint(&opened.state, &mut table, 10, 30).unwrap();
    close(opened);
    table
}

/// If the mirror verifies, a start uses it, with its head and all records.
#[test]
fn a_start_takes_the_mirror() {
    let dir = tempfile::tempdir().unwrap();
    let table = prepared(dir.path());
    let opened = reopen(dir.path());
    assert_eq!(opened.recovered.source, Source::Mirror);
    assert_eq!(opened.recovered.head, head(10, &table));
    same(&opened, &table);
    assert_eq!(opened.state.current_snapshot().unwrap().head().log_id, Some(id(5)));
}

/// A mirror with one flipped bit is never used as state: it is quarantined, and rebuilt from the snapshot file.
#[test]
fn a_flipped_bit_in_the_mirror_sets_it_aside() {
    let original = tempfile::tempdir().unwrap();
    let table = prepared(original.path());
    let length = fs::metadata(original.path().join("state/db")).unwrap().len();
    for part in 1..8 {
        let dir = tempfile::tempdir().unwrap();
        copy(original.path(), dir.path());
        let path = dir.path().join("state/db");
        let mut bytes = fs::read(&path).unwrap();
        let position =
            (0..bytes.len()).filter(|at| bytes[*at] != 0).nth((part * 900) as usize).unwrap_or(part as usize);
        bytes[position] ^= 4;
        assert_eq!(bytes.len() as u64, length);
        fs::write(&path, bytes).unwrap();
        let opened = reopen(dir.path());
        if opened.recovered.source == Source::Mirror {
            same(&opened, &table);
            continue;
        }
        assert_eq!(opened.recovered.source, Source::Snapshot);
        assert!(dir.path().join("state.bad-1").exists());
        close(opened);
        assert_eq!(reopen(dir.path()).recovered.source, Source::Mirror);
    }
}

/// Returns copies of the directory as a crash after each step would leave it.
fn crash_images(dir: &Path, into: &Path) -> (Probe, Arc<Mutex<Vec<(Step, PathBuf)>>>) {
    let images = Arc::new(Mutex::new(Vec::new()));
    let (dir, into, kept) = (dir.to_path_buf(), into.to_path_buf(), images.clone());
    let probe: Probe = Arc::new(move |step| {
        let mut kept = kept.lock().unwrap();
        let image = into.join(kept.len().to_string());
        copy(&dir, &image);
        kept.push((step, image));
    });
    (probe, images)
}

/// After a crash at any step of a checkpoint, a start finds the old state (from the snapshot file) or the new one,
/// never a mixture.
#[test]
fn a_crash_at_any_step_of_a_checkpoint_leaves_old_or_new() {
    let (dir, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut table = prepared(dir.path());
    let old: Table = (0..250).map(|n| (Bytes::from(format!("k{n:05}")), Bytes::from(format!("5-{n}")))).collect();
    let (probe, images) = crash_images(dir.path(), copies.path());
    let opened = open_probed(dir.path(), owner(), 11, probe).unwrap();
    checkpoint(&opened.state, &mut table, 15, 450).unwrap();
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert_eq!(images.iter().filter(|(step, _)| *step == Step::MirrorBatch).count(), 5);
    for (step, image) in images {
        let crashed = reopen(&image);
        let expected = if step == Step::MirrorHead { &table } else { &old };
        same(&crashed, expected);
        close(crashed);
        same(&reopen(&image), expected);
    }
}

fn received(state: &impl StateStore, index: u64, table: &Table) -> ReceivedSnapshot {
    let other = MemoryState::default();
    let records = table.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    wait(|done| other.submit(Job::Rebuild(records, head(index, table), done))).unwrap();
    let file = wait(|done| other.submit(Job::Export(done))).unwrap();
    let mut writer = state.receive().unwrap();
    file.chunks(1 << 20).for_each(|chunk| writer.write(&chunk.unwrap()).unwrap());
    writer.finish().unwrap()
}

/// After a crash at any step of an install, a start finds the state before it, or the installed state with the log
/// purged up to it.
#[test]
fn a_crash_at_any_step_of_an_install_is_finished_by_the_next_start() {
    let (dir, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let before = prepared(dir.path());
    let installed: Table = (0..150).map(|n| (Bytes::from(format!("x{n}")), Bytes::from("new"))).collect();
    let (probe, images) = crash_images(dir.path(), copies.path());
    let opened = open_probed(dir.path(), owner(), 11, probe).unwrap();
    let file = received(&opened.state, 100, &installed);
    assert_eq!(wait(|done| opened.state.submit(Job::Install(file, done))).unwrap().head().log_id, Some(id(100)));
    close(opened);
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.iter().any(|(step, _)| *step == Step::MirrorRemoved));
    for (step, image) in images {
        let crashed = reopen(&image);
        let expected = if step == Step::SnapshotWritten { &before } else { &installed };
        same(&crashed, expected);
        if step != Step::SnapshotWritten {
            assert_eq!((crashed.wal.state().purged, crashed.wal.state().last), (Some(id(100)), Some(id(100))));
            append(&crashed.wal, 101..103);
        }
        close(crashed);
        let again = reopen(&image);
        same(&again, expected);
        assert_eq!(again.recovered.source, Source::Mirror, "{:?}", again.recovered.note);
    }
}

/// A damaged snapshot file is refused with its name. A start does not continue with a part of its state.
#[test]
fn a_flipped_bit_in_the_snapshot_file_is_a_refusal() {
    let dir = tempfile::tempdir().unwrap();
    prepared(dir.path());
    let path = fs::read_dir(dir.path().join("snapshot")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = try_open(dir.path()).err().unwrap();
    assert!(matches!(&error, OpenError::Damaged { path: named, .. } if *named == path), "{error}");
    assert!(error.to_string().contains("move the directory away"));
}

/// A purged log without a snapshot file and a mirror does not contain a complete state. It is refused; the node does
/// not start with an empty state.
#[test]
fn a_purged_log_without_a_snapshot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    prepared(dir.path());
    let opened = reopen(dir.path());
    opened.wal.purge(id(5)).unwrap();
    close(opened);
    fs::remove_dir_all(dir.path().join("snapshot")).unwrap();
    fs::remove_dir_all(dir.path().join("state")).unwrap();
    assert!(matches!(try_open(dir.path()).err().unwrap(), OpenError::Incomplete { .. }));
}

/// A mirror that is older than the snapshot file, for example because its directory was restored from a copy, is not
/// used. The start uses the snapshot file.
#[test]
fn a_mirror_below_the_snapshot_file_does_not_count() {
    let (dir, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut table = prepared(dir.path());
    copy(&dir.path().join("state"), &copies.path().join("state"));
    let opened = reopen(dir.path());
    checkpoint(&opened.state, &mut table, 15, 40).unwrap();
    assert_eq!(wait(|done| opened.state.submit(Job::Export(done))).unwrap().head(), &head(15, &table));
    close(opened);
    fs::remove_dir_all(dir.path().join("state")).unwrap();
    copy(&copies.path().join("state"), &dir.path().join("state"));
    let opened = reopen(dir.path());
    assert_eq!((opened.recovered.source, &opened.recovered.head), (Source::Snapshot, &head(15, &table)));
    same(&opened, &table);
    close(opened);
    assert_eq!(reopen(dir.path()).recovered.source, Source::Mirror);
}

/// A mirror with wrong records never becomes a snapshot file: the export fails, and a rebuild repairs the mirror.
#[test]
fn a_wrong_mirror_never_becomes_a_snapshot_file() {
    let dir = tempfile::tempdir().unwrap();
    let opened = reopen(dir.path());
    append(&opened.wal, 0..5);
    let mut table = Table::new();
    checkpoint(&opened.state, &mut table, 1, 10).unwrap();
    let mut wrong = head(2, &table);
    wrong.digest = wrong.digest.wrapping_add(record_hash(b"no", b"such"));
    wait(|done| opened.state.submit(Job::Checkpoint(vec![], wrong, done))).unwrap();
    assert_eq!(wait(|done| opened.state.submit(Job::Export(done))).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(opened.state.current_snapshot().is_none());
    assert!(checkpoint(&opened.state, &mut table, 3, 1).is_err());
    let records = table.clone().into_iter().collect();
    wait(|done| opened.state.submit(Job::Rebuild(records, head(4, &table), done))).unwrap();
    assert_eq!(wait(|done| opened.state.submit(Job::Export(done))).unwrap().head(), &head(4, &table));
    close(opened);
    same(&reopen(dir.path()), &table);
}

/// A crash while a start writes the last file of the log again leaves a file that the next start removes.
#[test]
fn a_half_written_file_of_the_log_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let table = prepared(dir.path());
    let half = dir.path().join("wal/r-00_000_000_000_000_000_000.tmp");
    fs::write(&half, b"half").unwrap();
    let opened = reopen(dir.path());
    assert!(!half.exists());
    assert_eq!(opened.wal.state().last, Some(id(19)));
    same(&opened, &table);
}

/// A directory is refused to another node, a node of another cluster, an older build, and a second process.
#[test]
fn a_directory_is_refused_to_others() {
    let dir = tempfile::tempdir().unwrap();
    prepared(dir.path());
    let refused = |owner: Owner| open(dir.path(), owner, 1).err().unwrap().to_string();
    assert!(refused(Owner { node: 2, ..owner() }).contains("belongs to node 1 of cluster harbour"));
    assert!(refused(Owner { cluster: "lake".to_string(), ..owner() }).contains("lake"));
    assert!(refused(Owner { peers_id: 8, ..owner() }).contains("harbour"));
    let held = reopen(dir.path());
    assert!(refused(owner()).contains("another process holds"));
    close(held);
    let path = dir.path().join("identity");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("node 1", "node 3")).unwrap();
    assert!(refused(Owner { node: 3, ..owner() }).contains("checksum"));
    fs::write(&path, text.replace("lockkeeper 1", "lockkeeper 7")).unwrap();
    assert!(refused(owner()).contains("format 7, this build reads 1 to 1"));
    fs::remove_file(&path).unwrap();
    assert!(refused(owner()).contains("no identity file"));
}

/// The storage in memory starts by the same rules.
#[test]
fn the_memory_state_starts_like_a_directory() {
    let (wal, state, mut table) = (MemoryWal::default(), MemoryState::default(), Table::new());
    append(&wal, 0..5);
    checkpoint(&state, &mut table, 2, 10).unwrap();
    let before = table.clone();
    state.crash();
    wal.crash();
    let recovered = state.recover(&wal).unwrap();
    assert_eq!((recovered.source, recovered.head), (Source::Mirror, head(2, &before)));
    let file = received(&state, 50, &before);
    wait(|done| state.submit(Job::Install(file, done))).unwrap();
    let recovered = state.recover(&wal).unwrap();
    assert_eq!((recovered.source, wal.state().last), (Source::Snapshot, Some(id(50))));
}

/// A disk that fails during a recovery is reported as that, and not as missing data.
#[test]
fn a_failing_disk_is_no_missing_data() {
    let (wal, state) = (MemoryWal::default(), MemoryState::default());
    append(&wal, 0..5);
    let head = head(3, &Table::new());
    wait(|done| state.submit(Job::Rebuild(vec![], head, done))).unwrap();
    let file = wait(|done| state.submit(Job::Export(done))).unwrap();
    wal.fail_next_sync();
    wait(|done| drop(wal.sync(done))).unwrap_err();
    let recovered = recover(Path::new("/data/n1"), &wal, Err("there is no mirror".to_owned()), Some(&file));
    assert!(matches!(recovered, Err(OpenError::Io { .. })), "{recovered:?}");
}
