//! What a command or renewal adds to an entry, in bytes: an upper estimate that costs no encoding.

use crate::model::{
    Acquire, Command, LockKey, Metadata, OpenSession, Owner, Release, Renewal, RenewalTarget, Submission, TakeLease,
};

/// Numbers, lengths and tags of one command together, whatever it is.
const COMMAND_BYTES: usize = 160;
/// The same of one renewal.
const RENEWAL_BYTES: usize = 64;

/// An upper bound of the bytes that a command adds.
pub(super) fn of_command(submission: &Submission) -> usize {
    let texts = match &submission.command {
        Command::OpenSession(OpenSession { namespace, handle, metadata, .. }) => {
            namespace.as_str().len() + handle.reveal().len() + of_metadata(metadata)
        }
        Command::Attach(attach) => attach.handle.reveal().len(),
        Command::Acquire(Acquire { name, owner, metadata, .. }) => {
            name.as_str().len() + owner.as_ref().map_or(0, |owner: &Owner| owner.as_str().len()) + of_metadata(metadata)
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
        | Command::Configure(_)
        | Command::RaiseFeatures(_) => 0,
        Command::Announce(told) => told.version.len() + told.http.as_ref().map_or(0, String::len),
    };
    COMMAND_BYTES + submission.principal.as_str().len() + texts
}

/// An upper bound of the bytes that a renewal adds.
pub(super) fn of_renewal(renewal: &Renewal) -> usize {
    let texts = match &renewal.target {
        RenewalTarget::Session(_) => 0,
        RenewalTarget::Lease { lock, handle, .. } => of_lock(lock) + handle.reveal().len(),
    };
    RENEWAL_BYTES + texts
}

fn of_lock(lock: &LockKey) -> usize {
    lock.namespace.as_str().len() + lock.name.as_str().len()
}

fn of_metadata(metadata: &Metadata) -> usize {
    let Metadata { who, why, host, pid: _, process, trace } = metadata;
    [who, why, host, process, trace].iter().map(|text| text.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::encode_entry;
    use crate::limits;
    use crate::machine::Machine;
    use crate::machine::tests::random::Story;
    use crate::model::*;

    fn empty() -> Entry {
        Entry { stamp: LogTime(0), wall: WallTime(0), renewals: vec![], commands: vec![], digest: None }
    }

    /// What each part of an entry really adds is not more than was estimated, for every command that a story tells.
    #[test]
    fn no_estimate_is_too_small() {
        let bare = encode_entry(&empty()).len();
        for seed in 0..10 {
            let (mut story, mut machine) = (Story::new(seed), Machine::new());
            for index in 1..=200 {
                let entry = story.entry(machine.next_deadline());
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
                story.learn(&entry, &applied);
            }
        }
    }

    /// The largest numbers and the longest texts that there can be are within the estimate, too.
    #[test]
    fn the_largest_command_is_within_its_estimate() {
        let text = |bytes: usize| "x".repeat(bytes);
        let take = TakeLease {
            lock: LockKey {
                namespace: Namespace::parse(&text(limits::NAMESPACE_BYTES_MAX)).expect("legal"),
                name: LockName::parse(&text(limits::LOCK_NAME_BYTES_MAX)).expect("legal"),
            },
            take: TakeId(u128::MAX),
            handle: Handle::parse(&text(limits::HANDLE_BYTES_MAX)).expect("legal"),
            mode: Mode::Permits { count: u32::MAX, limit: Some(u32::MAX) },
            lease_ms: u64::MAX,
            patience: Patience::For { ms: u64::MAX },
            metadata: Metadata { why: text(limits::METADATA_BYTES_MAX).into(), pid: u32::MAX, ..Metadata::default() },
        };
        let submission = Submission {
            principal: Principal::parse(&text(limits::PRINCIPAL_BYTES_MAX)).expect("legal"),
            since: Some(LogTime(u64::MAX)),
            command: Command::TakeLease(take),
        };
        let added = encode_entry(&Entry { commands: vec![submission.clone()], ..empty() }).len();
        assert!(added <= of_command(&submission), "{added} bytes");
        assert!(of_command(&submission) < limits::ENTRY_BYTES_MAX / 2, "one command always fits");
    }
}
