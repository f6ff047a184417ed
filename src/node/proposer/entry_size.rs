//! An upper bound of the bytes that a command or renewal adds to an entry, without encoding it.
//!
//! The bound is the length of all texts and a constant for everything else. The constants are larger than the rest of
//! the largest command, which the tests encode. A bound that is a little too large only makes an entry shorter.

use crate::model::{
    Acquire, Alter, Alteration, Command, DocumentCommand, EndSession, Extras, LockKey, LockValue, Manage, Managing,
    Metadata, OpenSession, Owner, Release, Renewal, RenewalTarget, Submission, TakeLease,
};

/// Bytes of the numbers, lengths and tags of any command.
const COMMAND_BYTES: usize = 160;
/// Bytes of the numbers, lengths and tags of an acquire's extra options.
const EXTRAS_BYTES: usize = 64;
/// Bytes of the numbers, lengths and tags of one lock of an acquire.
const MEMBER_BYTES: usize = 32;
/// Bytes of the numbers, lengths and tags of one renewal.
const RENEWAL_BYTES: usize = 64;

/// Returns an upper bound of the bytes that a command adds.
pub(super) fn of_command(submission: &Submission) -> usize {
    let texts = match &submission.command {
        Command::OpenSession(OpenSession { namespace, handle, metadata, .. }) => {
            namespace.as_str().len() + handle.reveal().len() + of_metadata(metadata)
        }
        Command::Attach(attach) => attach.namespace.as_str().len() + attach.handle.reveal().len(),
        Command::Acquire(Acquire { locks, owner, metadata, extras, .. }) => {
            let names: usize = locks.keys().map(|name| name.as_str().len() + MEMBER_BYTES).sum();
            let owner = owner.as_ref().map_or(0, |owner: &Owner| owner.as_str().len());
            names + owner + of_metadata(metadata) + extras.as_deref().map_or(0, of_extras)
        }
        Command::Release(Release { name, .. }) => name.as_str().len(),
        Command::TakeLease(TakeLease { lock, handle, metadata, .. }) => {
            of_lock(lock) + handle.reveal().len() + of_metadata(metadata)
        }
        Command::CancelTake { lock, handle, .. } | Command::DropLease { lock, handle } => {
            of_lock(lock) + handle.reveal().len()
        }
        Command::Disconnected { .. }
        | Command::CloseSession { .. }
        | Command::Cancel { .. }
        | Command::Tick
        | Command::LeaderlessGap { .. }
        | Command::Configure { .. }
        | Command::ChangeSetting(_)
        | Command::RaiseFeatures(_) => 0,
        Command::Alter(Alter { name, what, .. }) => name.as_str().len() + of_alteration(what),
        Command::Manage(Manage { lock, what }) => of_lock(lock) + of_managing(what),
        Command::Document(command) => of_document(command),
        Command::EndSession(EndSession { namespace, session: _, why }) => namespace.as_str().len() + why.as_str().len(),
        Command::Announce(announcement) => {
            announcement.version.len() + announcement.http.as_ref().map_or(0, String::len)
        }
    };
    COMMAND_BYTES + submission.principal.as_str().len() + texts
}

fn of_extras(extras: &Extras) -> usize {
    // All fields are named: a new one does not compile until its bytes are counted.
    let Extras {
        value,
        parent,
        reentry: _,
        fairness: _,
        delay_ms: _,
        deadlock: _,
        at_least_ms: _,
        at_most_ms: _,
        cached: _,
    } = extras;
    let parent = parent.as_ref().map_or(0, |parent| parent.owner.as_str().len());
    EXTRAS_BYTES + of_value(value.as_ref()) + parent
}

fn of_alteration(what: &Alteration) -> usize {
    match what {
        Alteration::Downgrade { .. } | Alteration::Upgrade { .. } | Alteration::ReturnPermits { .. } => 0,
        Alteration::Resume { handle, .. } => handle.reveal().len(),
        Alteration::SetValue { value, .. } => of_value(value.as_ref()),
    }
}

fn of_managing(what: &Managing) -> usize {
    match what {
        Managing::SetLimit { .. } | Managing::RemoveLimit | Managing::HandOver { .. } => 0,
        Managing::BreakHold { why, .. } | Managing::Ask { why, .. } => why.as_str().len(),
    }
}

fn of_document(command: &DocumentCommand) -> usize {
    match command {
        DocumentCommand::Grab(grab) => of_lock(&grab.lock) + of_metadata(&grab.metadata),
        DocumentCommand::Unlock { namespace, ts: _, name } => {
            namespace.as_str().len() + name.as_ref().map_or(0, |name| name.as_str().len())
        }
        DocumentCommand::UnlockAll { namespace, process, .. }
        | DocumentCommand::Ping { namespace, process }
        | DocumentCommand::StopPing { namespace, process } => namespace.as_str().len() + process.as_str().len(),
        DocumentCommand::RemoveExpired { lock, .. } | DocumentCommand::Confirm { lock, .. } => of_lock(lock),
        DocumentCommand::SwapValue { lock, handle, seen, value } => {
            of_lock(lock) + handle.reveal().len() + of_value(seen.as_ref()) + of_value(value.as_ref())
        }
    }
}

fn of_value(value: Option<&LockValue>) -> usize {
    value.map_or(0, |value| value.as_str().len())
}

/// Returns an upper bound of the bytes that a renewal adds.
pub(super) fn of_renewal(renewal: &Renewal) -> usize {
    let texts = match &renewal.target {
        RenewalTarget::Session(_) => 0,
        RenewalTarget::Lease { lock, handle, .. } => of_lock(lock) + handle.reveal().len(),
        RenewalTarget::Hold { lock, .. } => of_lock(lock),
    };
    RENEWAL_BYTES + texts
}

fn of_lock(lock: &LockKey) -> usize {
    lock.namespace.as_str().len() + lock.name.as_str().len()
}

fn of_metadata(metadata: &Metadata) -> usize {
    // All fields are named, as in `of_extras`.
    let Metadata { who, why, host, pid: _, process, trace } = metadata;
    [who, why, host, process, trace].iter().map(|text| text.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::encode_entry;
    use crate::limits;
    use crate::machine::Machine;
    use crate::machine::tests::random::Scenario;
    use crate::model::*;

    fn empty() -> Entry {
        Entry { stamp: LogTime(0), wall: WallTime(0), renewals: vec![], commands: vec![], digest: None }
    }

    /// Each part of an entry adds no more than its bound, for every command of random scenarios.
    #[test]
    fn no_bound_is_too_small() {
        let bare = encode_entry(&empty()).len();
        for seed in 0..10 {
            let (mut scenario, mut machine) = (Scenario::new(seed), Machine::new());
            for index in 1..=200 {
                let entry = scenario.entry(machine.next_deadline());
                for command in &entry.commands {
                    let alone = Entry { commands: vec![command.clone()], ..empty() };
                    let added = encode_entry(&alone).len() - bare;
                    assert!(added <= of_command(command), "{added} bytes: {command:?}");
                }
                for renewal in &entry.renewals {
                    let alone = Entry { renewals: vec![renewal.clone()], ..empty() };
                    let added = encode_entry(&alone).len() - bare;
                    assert!(added <= of_renewal(renewal), "{added} bytes: {renewal:?}");
                }
                let applied = machine.apply(index, &entry);
                scenario.learn(&entry, &applied);
            }
        }
    }

    fn largest_submission(command: Command) -> Submission {
        let principal = Principal::parse(&text(limits::PRINCIPAL_BYTES_MAX)).expect("legal");
        Submission { principal, since: Some(LogTime(u64::MAX)), command }
    }

    fn text(bytes: usize) -> String {
        "x".repeat(bytes)
    }

    fn largest_metadata() -> Metadata {
        Metadata { why: text(limits::METADATA_BYTES_MAX).into(), pid: u32::MAX, ..Metadata::default() }
    }

    fn largest_lock() -> LockKey {
        LockKey {
            namespace: Namespace::parse(&text(limits::NAMESPACE_BYTES_MAX)).expect("legal"),
            name: LockName::parse(&text(limits::LOCK_NAME_BYTES_MAX)).expect("legal"),
        }
    }

    fn largest_take() -> Command {
        Command::TakeLease(TakeLease {
            lock: largest_lock(),
            take: LeaseRequestId(u128::MAX),
            handle: Handle::parse(&text(limits::HANDLE_BYTES_MAX)).expect("legal"),
            access: Access::permits(u32::MAX, u32::MAX),
            lease_ms: u64::MAX,
            patience: Patience::For { ms: u64::MAX },
            metadata: largest_metadata(),
            claim_ms: Some(u64::MAX),
        })
    }

    /// Returns an acquire with every option set.
    fn largest_acquire() -> Command {
        let session = SessionId::from_u64(i64::MAX as u64).expect("legal");
        let owner = Owner::parse(&text(limits::OWNER_BYTES_MAX)).expect("legal");
        Command::Acquire(Acquire {
            request: RequestId { session, number: u64::MAX },
            answered_below: u64::MAX,
            locks: (largest_lock().name, Access::permits(u32::MAX, u32::MAX)).into(),
            owner: Some(owner.clone()),
            patience: Patience::For { ms: u64::MAX },
            metadata: largest_metadata(),
            lease_ms: Some(u64::MAX),
            extras: Some(Box::new(Extras {
                reentry: Reentry::Wait,
                fairness: Fairness::Barging,
                delay_ms: u64::MAX,
                value: Some(LockValue::parse(&text(limits::LOCK_VALUE_BYTES_MAX)).expect("legal")),
                parent: Some(Parent { session, owner }),
                deadlock: OnDeadlock::Wait,
                at_least_ms: Some(u64::MAX),
                at_most_ms: Some(u64::MAX),
                cached: true,
            })),
        })
    }

    fn largest_changes() -> [Command; 2] {
        let number = i64::MAX as u64;
        let request = RequestId { session: SessionId::from_u64(number).expect("legal"), number: u64::MAX };
        let token = FencingToken::from_u64(number).expect("legal");
        let value = Some(LockValue::parse(&text(limits::LOCK_VALUE_BYTES_MAX)).expect("legal"));
        let (lock, why) = (largest_lock(), Reason::parse(&text(limits::REASON_BYTES_MAX)).expect("legal"));
        let (name, what) = (lock.name.clone(), Alteration::SetValue { token, value });
        [
            Command::Alter(Alter { request, answered_below: u64::MAX, name, what }),
            Command::Manage(Manage { lock, what: Managing::BreakHold { token, why } }),
        ]
    }

    fn largest_documents() -> [Command; 2] {
        let ts = DocumentId([255; 12]);
        let (lock, metadata, seen) = (largest_lock(), largest_metadata(), Some(ts));
        let grab = Grab { lock, ts, metadata, term: Some(u64::MAX), prepare: true, seen };
        let value = || Some(LockValue::parse(&text(limits::LOCK_VALUE_BYTES_MAX)).expect("legal"));
        let handle = Handle::parse(&text(limits::HANDLE_BYTES_MAX)).expect("legal");
        let swap = DocumentCommand::SwapValue { lock: largest_lock(), handle, seen: value(), value: value() };
        [Command::Document(DocumentCommand::Grab(grab)), Command::Document(swap)]
    }

    /// The largest numbers and the longest texts are within the bound, too.
    #[test]
    fn the_largest_commands_are_within_their_bounds() {
        for command in
            [largest_take(), largest_acquire()].into_iter().chain(largest_changes()).chain(largest_documents())
        {
            let submission = largest_submission(command);
            let added = encode_entry(&Entry { commands: vec![submission.clone()], ..empty() }).len();
            assert!(added <= of_command(&submission), "{added} bytes: {submission:?}");
            assert!(of_command(&submission) < limits::ENTRY_BYTES_MAX / 2, "one command always fits");
        }
    }
}
