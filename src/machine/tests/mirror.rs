//! A machine with checks: its invariants hold after every entry, and a mirror that is updated by its dirty keys equals
//! its records.

use std::collections::BTreeMap;

use crate::machine::{Applied, Machine};
use crate::model::{Command, Entry, EventKind, LogTime, Mode, Principal, Renewal, Submission, WallTime};
use crate::state::{Record, RecordKey};

/// A machine, and a mirror of its records that is updated by its dirty keys.
#[derive(Default)]
pub(crate) struct Watched {
    pub(crate) machine: Machine,
    pub(crate) mirror: BTreeMap<RecordKey, Record>,
}

impl Watched {
    /// Applies the next entry. Panics if an invariant does not hold.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Applied {
        let applied = self.machine.apply(self.machine.applied() + 1, entry);
        if let Err(broken) = self.machine.check() {
            panic!("after entry {}: {broken}", self.machine.applied());
        }
        self.check_grants_of_permits(entry, &applied);
        self.carry_over();
        applied
    }

    /// Panics if permits were granted beyond the limit. A lowered limit ends no hold, but stops new grants. An entry
    /// that may have changed a limit after its grants is skipped.
    fn check_grants_of_permits(&self, entry: &Entry, applied: &Applied) {
        if entry.commands.iter().any(|submission| matches!(submission.command, Command::Manage(_))) {
            return;
        }
        for event in &*applied.events {
            let EventKind::Granted { mode: Mode::Permits { .. }, .. } = event.kind else { continue };
            let Some(lock) = event.subject.lock().and_then(|key| self.machine.state.locks.get(key)) else { continue };
            let (used, limit) = (lock.permits_held + lock.permits_reserved, u64::from(lock.limit.unwrap_or_default()));
            assert!(used <= limit, "{used} of {limit} permits are used after {event:?}");
        }
    }

    /// Does what a mirror on disk does after each entry: writes dirty records and removes those that no longer exist.
    pub(crate) fn carry_over(&mut self) {
        let mirror = &mut self.mirror;
        self.machine.take_dirty(|state, key| {
            match state.record(&key) {
                Some(record) => mirror.insert(key, record),
                None => mirror.remove(&key),
            };
        });
    }

    /// Panics unless the mirror equals all records and gives an equal machine.
    pub(crate) fn compare_mirror(&self) -> Machine {
        let dump: BTreeMap<_, _> = self.machine.state().records().collect();
        assert_eq!(self.mirror, dump, "the mirror after entry {}", self.machine.applied());
        let restored = Machine::from_records(dump.clone()).expect("the records of a machine make a machine");
        if let Err(broken) = restored.check() {
            panic!("restored after entry {}: {broken}", self.machine.applied());
        }
        assert_eq!(restored.state().records().collect::<BTreeMap<_, _>>(), dump, "restored records");
        restored
    }
}

/// An entry of commands by an anonymous caller.
pub(crate) fn entry(stamp: u64, renewals: Vec<Renewal>, commands: Vec<Command>) -> Entry {
    let submission = |command| Submission { principal: Principal::default(), since: None, command };
    Entry {
        stamp: LogTime(stamp),
        wall: WallTime(1_795_000_000_000 + stamp),
        renewals,
        commands: commands.into_iter().map(submission).collect(),
        digest: None,
    }
}
