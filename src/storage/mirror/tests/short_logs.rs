//! Tests of starts whose log is shorter than the mirror or the snapshot file, or differs from it.

use super::*;

/// The one file of the log in `dir`.
fn log_file(dir: &Path) -> PathBuf {
    let mut files = fs::read_dir(dir.join("wal")).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|extension| extension == "wal")).unwrap();
    assert!(!files.any(|path| path.extension().is_some_and(|extension| extension == "wal")), "one file");
    file
}

fn cut(path: &Path, length: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn refused(dir: &Path) -> (PathBuf, String) {
    let refusal = try_open(dir).err().expect("a refusal");
    let OpenError::Damaged { path, what, .. } = refusal else { panic!("{refusal}") };
    (path, what)
}

/// A log that ends before the mirror has lost synced entries, even if the rest of it is intact. The node does not
/// start, and names the file and what to do. A log that was cut after the mirror's entry is accepted.
#[test]
fn a_log_that_was_cut_below_the_mirror_is_refused() {
    let original = tempfile::tempdir().unwrap();
    let table = prepared(original.path());
    let record_bytes = 4 + 24 + 16 + 5 + 8;
    let whole = fs::metadata(log_file(original.path())).unwrap().len();
    for kept in 0..=20 {
        let dir = tempfile::tempdir().unwrap();
        copy(original.path(), dir.path());
        let file = log_file(dir.path());
        let length = whole - (20 - kept) * record_bytes;
        cut(&file, length);
        if kept > 10 {
            let opened = reopen(dir.path());
            assert_eq!((opened.recovered.source, opened.wal.state().last), (Source::Mirror, Some(id(kept - 1))));
            same(&opened, &table);
            continue;
        }
        let error = try_open(dir.path()).err().unwrap();
        assert!(matches!(&error, OpenError::Damaged { path, offset, .. } if *path == file && *offset == length));
        let text = error.to_string();
        let proof = if kept > 5 { "the mirror holds T1-N1.10" } else { "the snapshot file holds T1-N1.5" };
        for part in [proof, "lockkeeper member add", "lockkeeper restore"] {
            assert!(text.contains(part), "{kept} entries: {text}");
        }
        assert_eq!(fs::metadata(&file).unwrap().len(), length, "nothing was cut");
    }
}

/// The snapshot file alone also proves that the log was cut. A log without any file was cut, too.
#[test]
fn a_log_that_was_cut_below_the_snapshot_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    prepared(dir.path());
    fs::remove_dir_all(dir.path().join("state")).unwrap();
    let file = log_file(dir.path());
    let whole = fs::metadata(&file).unwrap().len();
    let record_bytes = 4 + 24 + 16 + 5 + 8;
    cut(&file, whole - 15 * record_bytes);
    let (path, what) = refused(dir.path());
    assert_eq!(path, file);
    assert!(what.contains("the snapshot file holds T1-N1.5"), "{what}");
    fs::remove_file(&file).unwrap();
    assert_eq!(refused(dir.path()).0, dir.path().join("wal"));
}

/// The log had synced everything in the mirror. If a later record truncated it below that, it contradicts the mirror.
#[test]
fn a_log_that_was_truncated_below_the_mirror_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    prepared(dir.path());
    let opened = reopen(dir.path());
    opened.wal.truncate_after(Some(id(7))).unwrap();
    close(opened);
    assert!(refused(dir.path()).1.contains("the mirror holds T1-N1.10"));
    let (wal, state, mut table) = (MemoryWal::default(), MemoryState::default(), Table::new());
    append(&wal, 0..20);
    checkpoint(&state, &mut table, 10, 3).unwrap();
    wal.truncate_after(Some(id(7))).unwrap();
    let error = state.recover(&wal).unwrap_err().to_string();
    assert!(error.contains("the mirror holds T1-N1.10"), "{error}");
}

/// A received snapshot may be ahead of the log until its install has ended. After a checkpoint beyond the snapshot, the
/// log must reach it: a log that ends before it has lost entries.
#[test]
fn a_received_snapshot_proves_something_once_the_log_has_gone_beyond_it() {
    let dir = tempfile::tempdir().unwrap();
    prepared(dir.path());
    let opened = reopen(dir.path());
    let mut table: Table = (0..150).map(|n| (Bytes::from(format!("x{n}")), Bytes::from("new"))).collect();
    let file = received(&opened.state, 100, &table);
    wait(|done| opened.state.submit(Job::Install(file, done))).unwrap();
    let before = fs::metadata(log_file(dir.path())).unwrap().len();
    opened.wal.purge(id(100)).unwrap();
    append(&opened.wal, 101..104);
    checkpoint(&opened.state, &mut table, 102, 7).unwrap();
    close(opened);
    fs::remove_dir_all(dir.path().join("state")).unwrap();
    cut(&log_file(dir.path()), before);
    let (path, what) = refused(dir.path());
    assert_eq!(path, log_file(dir.path()));
    assert!(what.contains("the snapshot file holds T1-N1.100"), "{what}");
}

/// If the log has an entry of another leader or term at the index of the mirror's entry, the mirror contains what the
/// log does not. It is quarantined, and the snapshot file is used.
#[test]
fn a_mirror_of_another_entry_at_its_index_does_not_count() {
    for (term, node) in [(2, 1), (1, 2)] {
        let dir = tempfile::tempdir().unwrap();
        prepared(dir.path());
        let opened = reopen(dir.path());
        opened.wal.truncate_after(Some(id(7))).unwrap();
        let records = (8..20).map(|index| (LogId::new(term, node, index), Bytes::from_static(b"other"))).collect();
        wait(|done| opened.wal.append(records, done).unwrap()).unwrap();
        close(opened);
        let opened = reopen(dir.path());
        assert_eq!((opened.recovered.source, opened.recovered.head.log_id), (Source::Snapshot, Some(id(5))));
        let note = opened.recovered.note.unwrap();
        assert!(note.contains(&format!("at T1-N1.10, where the log has T{term}-N{node}.10")), "{note}");
    }
}

/// If even one entry is missing between the newest stored state and the log, the node does not start. A log that begins
/// with the very next entry is complete.
#[test]
fn a_log_that_begins_one_entry_too_late_is_refused() {
    let (state, mut table) = (MemoryState::default(), Table::new());
    checkpoint(&state, &mut table, 5, 3).unwrap();
    wait(|done| state.submit(Job::Export(done))).unwrap();
    let other = MemoryState::default();
    for purged in 5..9 {
        let wal = MemoryWal::default();
        append(&wal, 0..20);
        wal.purge(id(purged)).unwrap();
        for (state, at) in [(&state, "the newest snapshot file is at T1-N1.5"), (&other, "there is no snapshot file")] {
            let recovered = state.recover(&wal);
            if purged == 5 && !std::ptr::eq(state, &other) {
                assert_eq!(recovered.unwrap().head.log_id, Some(id(5)));
                continue;
            }
            let refused = recovered.unwrap_err().to_string();
            assert!(refused.contains(&format!("the log begins after T1-N1.{purged}, {at}")), "{refused}");
        }
    }
}
