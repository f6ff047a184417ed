//! The queue of jobs: their order, and the result that each gets.

use std::sync::mpsc::channel;

use super::*;

/// Checkpoints that are requested while a snapshot file is written wait. The file contains the state at its own head,
/// and nothing of later checkpoints.
#[test]
fn checkpoints_during_an_export_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let opened = reopen(dir.path());
    append(&opened.wal, 0..40);
    let mut table = Table::new();
    checkpoint(&opened.state, &mut table, 1, 2_000).unwrap();
    let exported = head(1, &table);
    let (sender, ends) = sync_channel(8);
    let export = sender.clone();
    opened.state.submit(Job::Export(Box::new(move |file| export.send(file.map(|file| file.head().clone())).unwrap())));
    for index in 2..6 {
        let changes: Vec<_> =
            (0..500).map(|n| (Bytes::from(format!("k{n:05}")), Bytes::from(format!("{index}")))).collect();
        table.extend(changes.iter().cloned());
        let changes = changes.into_iter().map(|(key, value)| (key, Some(value))).collect();
        let (head, sender) = (head(index, &table), sender.clone());
        let done = move |done: io::Result<()>| sender.send(done.map(|()| Head::default())).unwrap();
        opened.state.submit(Job::Checkpoint(changes, head, Box::new(done)));
    }
    assert_eq!(ends.recv().unwrap().unwrap(), exported, "the export comes to its end first");
    (2..6).for_each(|_| drop(ends.recv().unwrap().unwrap()));
    let file = opened.state.current_snapshot().unwrap();
    let records: Vec<_> = file.records().unwrap().map(Result::unwrap).collect();
    assert!(records.iter().all(|(_, value)| value.starts_with(b"1-")), "the file has something of later checkpoints");
    close(opened);
    same(&reopen(dir.path()), &table);
}

/// A snapshot file cannot be created, for example for a backup. The mirror is intact, so checkpoints and later files
/// are written.
#[test]
fn a_file_that_cannot_be_written_costs_no_mirror() {
    let dir = tempfile::tempdir().unwrap();
    let opened = reopen(dir.path());
    append(&opened.wal, 0..5);
    let mut table = Table::new();
    checkpoint(&opened.state, &mut table, 1, 10).unwrap();
    let in_the_way = dir.path().join("snapshot/export.tmp");
    fs::create_dir(&in_the_way).unwrap();
    assert!(wait(|done| opened.state.submit(Job::Export(done))).is_err());
    checkpoint(&opened.state, &mut table, 2, 10).unwrap();
    fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(wait(|done| opened.state.submit(Job::Export(done))).unwrap().head(), &head(2, &table));
    close(opened);
    same(&reopen(dir.path()), &table);
}

/// A job that is queued between the end of the writer and the end of its queue gets a result, so that its caller does
/// not wait forever.
#[test]
fn a_job_behind_the_end_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (jobs, queue) = channel();
    let (sender, answers) = sync_channel(8);
    let report = |name: &'static str| {
        let sender = sender.clone();
        move |failed: bool| sender.send((name, failed)).unwrap()
    };
    let (close, export, again) = (report("close"), report("export"), report("close again"));
    jobs.send(Job::Close(Box::new(move |done| close(done.is_err())))).unwrap();
    jobs.send(Job::Export(Box::new(move |file| export(file.is_err())))).unwrap();
    jobs.send(Job::Close(Box::new(move |done| again(done.is_err())))).unwrap();
    drop((jobs, sender));
    let worker = Worker {
        state: dir.path().join("state"),
        snapshots: dir.path().join("snapshot"),
        mirror: None,
        snapshot: Arc::default(),
        purge_limit: Arc::default(),
        probe: Arc::new(|_| ()),
    };
    worker.run(queue, false);
    assert_eq!(answers.iter().collect::<Vec<_>>(), [("close", false), ("export", true), ("close again", true)]);
}

/// Every queued job gets a result, even if the store was closed before.
#[test]
fn a_closed_store_answers_its_callers() {
    let dir = tempfile::tempdir().unwrap();
    let opened = reopen(dir.path());
    wait(|done| opened.state.submit(Job::Close(done))).unwrap();
    assert!(wait(|done| opened.state.submit(Job::Export(done))).is_err());
}
