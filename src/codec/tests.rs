//! Round trips, damaged bytes, and samples of bytes that every later build must be able to read.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at one answer among many")]

pub(crate) mod hostile;
mod kept_log;
mod largest;

use std::collections::BTreeMap;

use super::*;
use crate::machine::Machine;
use crate::machine::tests::mirror::Watched;
use crate::machine::tests::random::Scenario;
use crate::model::*;
use crate::state::{Record, RecordKey};

fn sample_entry() -> Entry {
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("nightly").expect("a name") };
    Entry {
        stamp: LogTime(1_250),
        wall: WallTime(1_795_000_000_000),
        renewals: vec![Renewal {
            target: RenewalTarget::Session(SessionId::new(0, 3)),
            attempt: 7,
            receipt: LogTime(1_249),
        }],
        commands: vec![
            Submission {
                principal: Principal::default(),
                since: None,
                command: Command::Acquire(Acquire {
                    request: RequestId { session: SessionId::new(0, 3), number: 12 },
                    answered_below: 11,
                    locks: (lock.name.clone(), Access::permits(2, 5)).into(),
                    owner: Some(Owner::parse("job").expect("an owner")),
                    patience: Patience::For { ms: 30_000 },
                    metadata: Metadata { why: "rebuild".into(), pid: 4, ..Metadata::default() },
                    lease_ms: None,
                    extras: None,
                }),
            },
            Submission {
                principal: Principal::default(),
                since: Some(LogTime(1_200)),
                command: Command::DropLease { lock, handle: Handle::from_random(5) },
            },
        ],
        digest: Some(DigestClaim { index: 4096, digest: u128::MAX / 3 }),
    }
}

/// An encoded entry decodes to the same entry.
#[test]
fn entries_survive_the_round_trip() {
    let entry = sample_entry();
    assert_eq!(decode_entry(&encode_entry(&entry)).expect("decodes"), entry);
}

/// Bytes with a flipped bit or a cut are an error, and never decode to another entry.
#[test]
fn damaged_entries_are_refused() {
    let bytes = encode_entry(&sample_entry());
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_entry(&damaged).is_err(), "bit {bit}");
    }
    for cut in 0..bytes.len() {
        assert!(decode_entry(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

/// An entry of a newer format is refused. The error names the version that was found.
#[test]
fn newer_formats_are_refused_by_number() {
    let mut bytes = encode_entry(&sample_entry()).to_vec();
    bytes[1] = FORMAT + 1;
    assert_eq!(decode_entry(&bytes), Err(DecodeError::Version { found: FORMAT + 1 }));
}

/// Random entries survive encoding and decoding.
#[test]
fn random_entries_survive_the_round_trip() {
    for seed in 0..20 {
        let (mut scenario, mut watched) = (Scenario::new(seed), Watched::default());
        for _ in 0..200 {
            let entry = scenario.entry(watched.machine.next_deadline());
            assert_eq!(decode_entry(&encode_entry(&entry)).expect("decodes"), entry);
            let applied = watched.apply(&entry);
            scenario.learn(&entry, &applied);
        }
    }
}

/// Records that were encoded and decoded make the same machine, and every record has its own key.
#[test]
fn machines_survive_the_bytes_of_their_records() {
    for seed in 100..120 {
        let (mut scenario, mut watched) = (Scenario::new(seed), Watched::default());
        for index in 1..=200 {
            let entry = scenario.entry(watched.machine.next_deadline());
            let applied = watched.apply(&entry);
            scenario.learn(&entry, &applied);
            if index % 20 != 0 {
                continue;
            }
            let dump: Vec<_> = watched.machine.state().records().collect();
            let stored: BTreeMap<_, _> = dump.iter().map(|(key, record)| encode_record(key, record)).collect();
            assert_eq!(stored.len(), dump.len(), "two records have one key");
            let read = stored.iter().map(|(key, value)| decode_record(key, value).expect("decodes"));
            let restored = Machine::from_records(read).expect("makes a machine");
            assert!(restored.state().records().eq(dump), "seed {seed}, entry {index}");
        }
    }
}

/// Commands that leaders make about the nodes.
fn samples_of_what_leaders_note() -> [Command; 2] {
    [
        Command::Announce(Announcement {
            node: 2,
            disk: u128::MAX / 7,
            features: 3,
            version: "0.1.0".into(),
            http: Some("n2.example:7620".into()),
            rules: Some(0xabcd),
        }),
        Command::RaiseFeatures(RaiseFeatures { to: 2, voters: [1, 2, 3].into() }),
    ]
}

/// Commands that change holds between their grant and their end.
fn samples_of_changes(request: RequestId, lock: &LockKey, handle: &Handle, token: FencingToken) -> Vec<Command> {
    let alter = |what| Command::Alter(Alter { request, answered_below: 11, name: lock.name.clone(), what });
    let manage = |what| Command::Manage(Manage { lock: lock.clone(), what });
    let why = Reason::parse("stuck").expect("a reason");
    vec![
        Command::Tick,
        Command::LeaderlessGap { gap_ms: 1_250 },
        Command::Configure {
            settings: ClusterSettings { timing_ms: [100, 500, 1_000], ttl_ms_min: 3_000, ttl_ms_max: 600_000 },
            cluster_id: 0x0102 << 100,
        },
        Command::Acquire(Acquire {
            request,
            answered_below: 11,
            locks: [lock.name.clone(), LockName::parse("weekly").expect("a name")]
                .map(|name| (name, Mode::Shared.into()))
                .into_iter()
                .collect(),
            owner: None,
            patience: Patience::Session,
            metadata: Metadata::default(),
            lease_ms: None,
            extras: None,
        }),
        alter(Alteration::Downgrade { token }),
        alter(Alteration::Upgrade { token, patience: Patience::Session }),
        alter(Alteration::Resume { token, handle: handle.clone(), lease_ms: Some(4_000) }),
        alter(Alteration::SetValue { token, value: Some(LockValue::parse("n2").expect("a value")) }),
        alter(Alteration::ReturnPermits { token, count: 2 }),
        manage(Managing::SetLimit { limit: 7 }),
        manage(Managing::RemoveLimit),
        manage(Managing::BreakHold { token, why: why.clone() }),
        manage(Managing::Ask { token, why: why.clone() }),
        Command::EndSession(EndSession { namespace: lock.namespace.clone(), session: request.session, why }),
        Command::ChangeSetting(Setting::TtlMax(3_600_000)),
        manage(Managing::HandOver { token, to: request.session }),
    ]
}

/// Changes on condition that something still is as the caller saw it.
fn samples_of_documents(lock: &LockKey, token: FencingToken, metadata: &Metadata) -> Vec<Command> {
    let (ts, process) = (DocumentId([7; 12]), ProcessId::parse("h:27017:1:2").expect("a process"));
    let grab = Grab { lock: lock.clone(), ts, metadata: metadata.clone(), term: Some(4), prepare: true, seen: None };
    let namespace = || lock.namespace.clone();
    let value = |text: &str| Some(LockValue::parse(text).expect("a value"));
    let changes = [
        DocumentCommand::Grab(grab.clone()),
        DocumentCommand::Grab(Grab { seen: Some(DocumentId([8; 12])), ..grab }),
        DocumentCommand::Unlock { namespace: namespace(), ts, name: Some(lock.name.clone()) },
        DocumentCommand::UnlockAll { namespace: namespace(), process: process.clone(), term: Some(4) },
        DocumentCommand::Ping { namespace: namespace(), process: process.clone() },
        DocumentCommand::StopPing { namespace: namespace(), process },
        DocumentCommand::RemoveExpired { lock: lock.clone(), token, deadline: LogTime(9_000) },
        DocumentCommand::SwapValue { lock: lock.clone(), handle: ts.handle(), seen: value("n1"), value: value("n2") },
        DocumentCommand::Confirm { lock: lock.clone(), ts },
    ];
    changes.into_iter().map(Command::Document).collect()
}

fn sample_extras(session: SessionId) -> Extras {
    Extras {
        reentry: Reentry::Count,
        fairness: Fairness::Barging,
        delay_ms: 1_000,
        value: Some(LockValue::parse("n1").expect("a value")),
        parent: Some(Parent { session, owner: Owner::parse("main").expect("an owner") }),
        deadlock: OnDeadlock::Wait,
        at_least_ms: Some(2_000),
        at_most_ms: Some(3_000),
        cached: true,
    }
}

fn sample_metadata() -> Metadata {
    Metadata {
        who: "ida".into(),
        why: "rebuild".into(),
        host: "node-1".into(),
        pid: 4,
        process: "h:27017:1:2".into(),
        trace: "00-ab".into(),
    }
}

/// One entry with every command, renewal and kind of content.
pub(super) fn samples_of_entries() -> Vec<(String, Entry)> {
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("nightly").expect("a name") };
    let (session, handle, take) = (SessionId::new(2, 3), Handle::from_random(7), LeaseRequestId(9));
    let request = RequestId { session, number: 12 };
    let token = FencingToken::new(2, 77);
    let metadata = sample_metadata();
    let texts = metadata.clone();
    let acquire = |access: Access, owner: Option<&str>, patience| {
        let owner = owner.map(|owner| Owner::parse(owner).expect("an owner"));
        let (locks, metadata) = ((lock.name.clone(), access).into(), metadata.clone());
        Command::Acquire(Acquire {
            request,
            answered_below: 11,
            locks,
            owner,
            patience,
            metadata,
            lease_ms: None,
            extras: None,
        })
    };
    let mut chosen = acquire(Mode::Exclusive.into(), Some("job"), Patience::Try);
    if let Command::Acquire(acquire) = &mut chosen {
        acquire.lease_ms = Some(5_000);
        acquire.extras = Some(Box::new(sample_extras(session)));
    }
    let mut commands = vec![
        Command::OpenSession(OpenSession {
            namespace: lock.namespace.clone(),
            handle: handle.clone(),
            instance: Instance(5),
            ttl_ms: 10_000,
            disconnect_grace_ms: Some(4_000),
            metadata: metadata.clone(),
            accepts_hand_over: true,
        }),
        Command::Attach(Attach { namespace: lock.namespace.clone(), session, handle: handle.clone(), attempt: 6 }),
        Command::Disconnected { session, attachment: Attachment(2) },
        Command::CloseSession { session, end: SessionClose::Done },
        Command::CloseSession { session, end: SessionClose::Lost },
        acquire(Mode::Exclusive.into(), None, Patience::Try),
        acquire(Mode::Shared.into(), Some("job"), Patience::For { ms: 300_000 }),
        acquire(Access::permits(2, 5), None, Patience::Session),
        chosen,
        Command::Cancel { request },
        Command::Release(Release { request, answered_below: 3, name: lock.name.clone(), token, acquire: 0 }),
        Command::TakeLease(TakeLease {
            lock: lock.clone(),
            take,
            handle: handle.clone(),
            access: Mode::Exclusive.into(),
            lease_ms: 70_000,
            patience: Patience::Try,
            metadata,
            claim_ms: Some(15_000),
        }),
        Command::CancelTake { lock: lock.clone(), take, handle: handle.clone() },
        Command::DropLease { lock: lock.clone(), handle: handle.clone() },
    ];
    commands.extend(samples_of_what_leaders_note());
    let changes = samples_of_changes(request, &lock, &handle, token);
    commands.extend(changes.into_iter().chain(samples_of_documents(&lock, token, &texts)));
    let submission = |command| Submission { principal: Principal::default(), since: None, command };
    let lease = RenewalTarget::Lease { lock: lock.clone(), handle, lease_ms: 5_000 };
    let hold = RenewalTarget::Hold { lock: lock.clone(), session, token, lease_ms: 5_000 };
    let renewal = |target| Renewal { target, attempt: 7, receipt: LogTime(1_249) };
    let whole = Entry {
        stamp: LogTime(1_250),
        wall: WallTime(1_795_000_000_000),
        renewals: vec![renewal(RenewalTarget::Session(session)), renewal(lease), renewal(hold)],
        commands: commands.into_iter().map(submission).collect(),
        digest: Some(DigestClaim { index: 4096, digest: u128::MAX / 3 }),
    };
    let empty = Entry { renewals: vec![], commands: vec![], digest: None, ..whole.clone() };
    vec![("entry-of-every-command".into(), whole), ("entry-empty".into(), empty)]
}

/// The records of a small scenario that has every kind of record.
pub(super) fn samples_of_records() -> Vec<(RecordKey, Record)> {
    let (mut scenario, mut watched) = (Scenario::new(42), Watched::default());
    let mut kinds = BTreeMap::new();
    for _ in 0..400 {
        let entry = scenario.entry(watched.machine.next_deadline());
        let applied = watched.apply(&entry);
        scenario.learn(&entry, &applied);
        for (key, record) in watched.machine.state().records() {
            let outcome = match &record {
                Record::Finished(done) => word(&done.outcome),
                _ => String::new(),
            };
            kinds.entry((encode_key(&key)[0], outcome)).or_insert((key, record));
        }
    }
    kinds.into_values().collect()
}

fn word(outcome: &Outcome) -> String {
    let text = match outcome {
        Outcome::Refused(refusal) => format!("{refusal:?}"),
        other => format!("{other:?}"),
    };
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// The content of this stored file. With `UPDATE_GOLDENFILES=1` a missing file is written. An existing file is never
/// overwritten.
pub(super) fn stored(name: &str, today: &[u8]) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bytes/v1").join(name);
    if !path.exists() && std::env::var("UPDATE_GOLDENFILES").is_ok_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, today).expect("written");
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Entries that were stored when format 1 was introduced still decode to the same entries, and this build writes the
/// same bytes.
#[test]
fn stored_entries_of_format_1_still_decode() {
    for (name, entry) in samples_of_entries() {
        let today = encode_entry(&entry);
        let bytes = stored(&format!("{name}.bin"), &today);
        assert_eq!(decode_entry(&bytes).expect(&name), entry, "{name}");
        assert_eq!(today, bytes, "{name}: other bytes are written today");
    }
}

/// Each stored file has records, each as key and value with their lengths before them. They must decode like the
/// entries.
#[test]
fn stored_records_of_format_1_still_decode() {
    let mut today = Vec::new();
    for (key, record) in samples_of_records() {
        let (key, value) = encode_record(&key, &record);
        for bytes in [key, value] {
            today.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            today.extend_from_slice(&bytes);
        }
    }
    let bytes = stored("records-of-every-kind.bin", &today);
    let mut rest = bytes.as_slice();
    let mut next = || {
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (bytes, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
        rest = tail;
        Some(bytes.to_vec())
    };
    let mut kinds = std::collections::BTreeSet::new();
    while let (Some(key), Some(value)) = (next(), next()) {
        let (decoded_key, record) = decode_record(&key, &value).expect("decodes");
        kinds.insert(key[0]);
        assert_eq!(encode_record(&decoded_key, &record), (key.into(), value.into()), "other bytes are written today");
    }
    assert_eq!(kinds.len(), 13, "a kind of record is missing: {kinds:?}");
}
