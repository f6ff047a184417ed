//! Power cuts after a purge: the snapshot file then has the only copy of the effects of the purged entries.

use super::*;
use crate::storage::fs::durable;

/// Returns a copy of the directory as a power cut could leave it: the log, which is synced, the synced names and bytes
/// of snapshot files, and no mirror.
fn after_a_power_cut(dir: &Path) -> tempfile::TempDir {
    let image = tempfile::tempdir().unwrap();
    fs::copy(dir.join("identity"), image.path().join("identity")).unwrap();
    for part in ["wal", "snapshot"] {
        copy(&dir.join(part), &image.path().join(part));
    }
    let names = durable::names(&dir.join("snapshot")).unwrap();
    for entry in fs::read_dir(dir.join("snapshot")).unwrap() {
        let entry = entry.unwrap();
        let path = image.path().join("snapshot").join(entry.file_name());
        if names.contains(&entry.file_name()) {
            let bytes = durable::bytes(&entry.metadata().unwrap());
            fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    image
}

/// Power fails after the log was purged up to a snapshot file that the node wrote or received, and the mirror is lost.
/// The next start finds every record in that file.
#[test]
fn a_purge_loses_nothing_in_a_power_cut() {
    for is_received in [false, true] {
        let (dir, mut table) = (tempfile::tempdir().unwrap(), Table::new());
        let opened = reopen(dir.path());
        append(&opened.wal, 0..20);
        checkpoint(&opened.state, &mut table, 15, 250).unwrap();
        if is_received {
            let file = received(&opened.state, 15, &table);
            wait(|done| opened.state.submit(Job::Install(file, done))).unwrap();
        } else {
            wait(|done| opened.state.submit(Job::Export(done))).unwrap();
        }
        opened.wal.purge(id(15)).unwrap();
        wait(|done| opened.wal.sync(done).unwrap()).unwrap();
        let image = after_a_power_cut(dir.path());
        let crashed = reopen(image.path());
        assert_eq!((crashed.recovered.source, crashed.wal.state().purged), (Source::Snapshot, Some(id(15))));
        same(&crashed, &table);
    }
}
