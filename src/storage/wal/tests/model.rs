//! Random operations on the log and on a model of it.

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    Vote(u64),
    Append(u64),
    Truncate(u64),
    Purge(u64),
    Commit(u64),
    Reopen,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let one = prop_oneof![
        (0..3u64).prop_map(Operation::Vote),
        (1..30u64).prop_map(Operation::Append),
        (0..20u64).prop_map(Operation::Truncate),
        (0..20u64).prop_map(Operation::Purge),
        (0..20u64).prop_map(Operation::Commit),
        Just(Operation::Reopen),
    ];
    proptest::collection::vec(one, 1..40)
}

#[derive(Default)]
struct Model {
    entries: Vec<(LogId, Bytes)>,
    state: WalState,
    term: u64,
}

impl Model {
    fn next(&self) -> u64 {
        self.state.last.map_or(0, |id| id.index + 1)
    }

    fn run(&mut self, operation: &Operation, wal: &impl Wal) {
        let next = self.next();
        match operation {
            Operation::Vote(more) => {
                self.term += more;
                let vote = Vote { term: self.term, node: 1, committed: true };
                wait(|done| wal.save_vote(vote, done)).unwrap();
                self.state.vote = Some(vote);
            }
            Operation::Append(count) => {
                let new = entries(self.term, next..next + count);
                wait(|done| wal.append(new.clone(), done)).unwrap();
                self.state.last = Some(new[new.len() - 1].0);
                self.entries.extend(new);
            }
            Operation::Truncate(back) => {
                let floor = self.state.committed.max(self.state.purged).map_or(0, |id| id.index + 1);
                let keep = next.saturating_sub(*back).max(floor);
                let position = self.entries.iter().position(|(id, _)| id.index == keep);
                let Some(position) = position else { return };
                let last = position.checked_sub(1).map(|before| self.entries[before].0).or(self.state.purged);
                wal.truncate_after(last).unwrap();
                self.entries.truncate(position);
                self.state.last = last;
                self.term += 1;
            }
            Operation::Purge(count) => {
                let Some((upto, _)) = self.entries.get(*count as usize).cloned() else { return };
                wal.purge(upto).unwrap();
                self.entries.retain(|(id, _)| id.index > upto.index);
                self.state.purged = Some(upto);
            }
            Operation::Commit(back) => {
                let Some((committed, _)) = self.entries.iter().rev().nth(*back as usize).cloned() else { return };
                if Some(committed) < self.state.committed {
                    assert!(wal.commit(committed).is_err());
                    return;
                }
                wal.commit(committed).unwrap();
                self.state.committed = Some(committed);
            }
            Operation::Reopen => {}
        }
    }

    fn check(&self, wal: &impl Wal) {
        assert_eq!(wal.state(), self.state);
        let first = self.next() - self.entries.len() as u64;
        if !self.entries.is_empty() {
            assert_eq!(wal.read(first, u64::MAX, usize::MAX).unwrap(), self.entries);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// After any sequence of calls the log on disk equals the model, even after each reopening.
    #[test]
    fn the_disk_log_equals_the_model(operations in operations()) {
        let dir = tempfile::tempdir().unwrap();
        let mut wal = open(dir.path());
        let mut model = Model::default();
        for operation in &operations {
            if matches!(operation, Operation::Reopen) {
                close(wal);
                wal = open(dir.path());
            }
            model.run(operation, &wal);
            model.check(&wal);
        }
        wal.sync_and_wait().unwrap();
        assert_eq!(wal.synced(), model.state.last);
        drop(wal);
        model.check(&open(dir.path()));
    }

    /// The log in memory equals the same model, and a crash loses nothing that was synced.
    #[test]
    fn the_memory_log_equals_the_model(operations in operations()) {
        let wal = MemoryWal::default();
        let mut model = Model::default();
        for operation in &operations {
            if matches!(operation, Operation::Reopen) {
                wait(|done| wal.sync(done)).unwrap();
                wal.crash();
            }
            model.run(operation, &wal);
            model.check(&wal);
            assert_eq!(wal.synced(), model.state.last);
        }
    }
}
