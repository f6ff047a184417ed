//! The largest record of each kind. No command may produce a record that the mirror refuses, because such a record
//! would stop every node.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::codec::encode_record;
use crate::history::Segment;
use crate::history::{self, Draft, Facts};
use crate::limits;
use crate::model::*;
use crate::state::{
    Delayed, DocumentMark, Finished, FinishedLease, FreeDocument, Globals, HoldEntry, Holder, HolderExtras, Lease,
    LeaseWanted, LostHold, ProcessRecord, Purpose, Request, SessionRecord, Tombstone, Unlocking, Waiter, WhichHeld,
};
use crate::state::{Record, RecordKey};

const TIME: LogTime = LogTime(u64::MAX);
const WALL: WallTime = WallTime(u64::MAX);
const TAKE: LeaseRequestId = LeaseRequestId(u128::MAX);

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

fn lock() -> LockKey {
    let namespace = Namespace::parse(&text(limits::NAMESPACE_BYTES_MAX)).expect("legal");
    LockKey { namespace, name: LockName::parse(&text(limits::LOCK_NAME_BYTES_MAX)).expect("legal") }
}

fn session() -> SessionId {
    SessionId::new(limits::EPOCH_MAX, (1 << limits::COUNTER_BITS) - 1)
}

fn token() -> FencingToken {
    FencingToken::from_u64(i64::MAX as u64).expect("legal")
}

fn owner() -> Owner {
    Owner::parse(&text(limits::OWNER_BYTES_MAX)).expect("legal")
}

fn principal() -> Principal {
    Principal::parse(&text(limits::PRINCIPAL_BYTES_MAX)).expect("legal")
}

fn handle() -> Handle {
    Handle::parse(&text(limits::HANDLE_BYTES_MAX)).expect("legal")
}

fn value() -> Option<LockValue> {
    Some(LockValue::parse(&text(limits::LOCK_VALUE_BYTES_MAX)).expect("legal"))
}

fn mode() -> Mode {
    Mode::Permits(u32::MAX)
}

fn mark() -> DocumentMark {
    DocumentMark { ts: DocumentId([255; 12]), term: Some(u64::MAX), prepared: true }
}

fn metadata() -> Metadata {
    let why = text(limits::METADATA_BYTES_MAX).as_str().into();
    let metadata = Metadata { why, pid: u32::MAX, ..Metadata::default() };
    metadata.checked().expect("legal")
}

fn parent() -> Option<Parent> {
    Some(Parent { session: session(), owner: owner() })
}

fn request() -> Request {
    let ms = Some(u64::MAX);
    let extras = Extras {
        delay_ms: u64::MAX,
        value: value(),
        parent: parent(),
        at_least_ms: ms,
        at_most_ms: ms,
        ..Extras::default()
    };
    Request {
        claim: Claim::Lease(TAKE),
        owner: Some(owner()),
        mode: mode(),
        principal: principal(),
        metadata: Arc::new(metadata()),
        fingerprint: u64::MAX,
        extras: Some(Box::new(extras)),
    }
}

fn holder() -> Holder {
    let entered = HoldEntry { number: u64::MAX, fingerprint: u64::MAX };
    let extras = HolderExtras {
        reentries: vec![entered; limits::HOLD_DEPTH_MAX],
        upgrade: Some(entered),
        set: true,
        document: Some(mark()),
        closed_until: Some(TIME),
        ends: Some(TIME),
        recalled: true,
    };
    Holder {
        request: request(),
        since: TIME,
        when: WALL,
        waited_ms: u64::MAX,
        lease: Some(Lease { handle: Some(handle()), deadline: TIME, attempt: u64::MAX }),
        extras: Some(Box::new(extras)),
    }
}

fn closing() -> Closing {
    let who = text(limits::METADATA_BYTES_MAX).as_str().into();
    Closing { token: token(), who, until: TIME, left_ms: u64::MAX }
}

fn waiter() -> Waiter {
    Waiter {
        request: request(),
        since: TIME,
        deadline: Some(TIME),
        lease: Some(LeaseWanted { handle: Some(handle()), ms: u64::MAX }),
        purpose: Purpose::Upgrade(token()),
        tries: true,
    }
}

fn seen() -> HolderView {
    HolderView {
        session: Some(session()),
        owner: Some(owner()),
        principal: principal(),
        token: token(),
        mode: mode(),
        metadata: metadata(),
        since: TIME,
        deadline: Some(TIME),
        cached: true,
        recalled: true,
    }
}

/// The outcomes with texts or lists in them. Each other outcome has a few numbers and at most one name.
fn outcomes() -> Vec<Outcome> {
    let grant = Grant { token: token(), deadline: Some(TIME), ends: Some(TIME), waited_ms: u64::MAX };
    let next = WaiterView {
        place: u64::MAX,
        sequence: u64::MAX,
        session: Some(session()),
        owner: Some(owner()),
        mode: mode(),
        metadata: metadata(),
        since: TIME,
    };
    let metadata = Metadata { who: text(999).as_str().into(), ..metadata() };
    let metadata = Metadata { why: metadata.who.clone(), ..metadata };
    let link = DeadlockLink::new((session(), owner()), &metadata, lock(), WaitReason::Closed);
    let report = BreakReport { done: true, holder: seen(), last_seen: Some(TIME), next: Some(next) };
    let place = Place { lock: lock().name, place: u64::MAX, sequence: u64::MAX, held_by: Some(Box::new(seen())) };
    vec![
        Outcome::GrantedSet(vec![(lock().name, grant); limits::LOCKS_A_SET_MAX]),
        Outcome::Queued(place),
        Outcome::Broken(Box::new(report)),
        Outcome::Refused(Refusal::Held {
            lock: lock(),
            holder: Some(Box::new(seen())),
            closed: Some(Box::new(closing())),
        }),
        Outcome::Refused(Refusal::HeldByOther { lock: lock(), holder: Box::new(seen()) }),
        Outcome::Refused(Refusal::Changed { lock: lock(), value: value() }),
        Outcome::Refused(Refusal::Deadlock { cycle: vec![link; limits::CYCLE_LINKS_MAX] }),
    ]
}

/// A segment that was one byte below its bound when a record of the greatest length was appended.
fn segment() -> Segment {
    let (lock, metadata) = (lock(), text(limits::METADATA_BYTES_MAX));
    let (owner, principal) = (owner(), principal());
    let why = Reason::parse(&text(limits::REASON_BYTES_MAX)).expect("legal");
    let event = Event {
        position: Position { index: u64::MAX, n: u32::MAX },
        at: TIME,
        wall: WALL,
        namespace: Some(lock.namespace.clone()),
        subject: Subject::hold(&lock, Claim::Lease(TAKE), token()),
        kind: EventKind::Broken { by: principal.clone(), why, held_ms: u64::MAX },
    };
    let facts = Facts {
        arrival: Arrival { sequence: u64::MAX, queued: true },
        fairness: Fairness::Barging,
        set: true,
        passing: true,
        owner: Some(owner.as_str()),
        principal: principal.as_str(),
        who: &metadata,
        why: &metadata,
    };
    let draft = Draft {
        event: &event,
        lock: &lock.name,
        mode: Some(mode()),
        limit: Some(u32::MAX),
        facts: Some(facts),
        previous: ChainHash([255; 16]),
    };
    let mut segment = Segment { records: u32::MAX, after: event.position, ..Segment::default() };
    segment.bytes.0 = vec![7; limits::HISTORY_SEGMENT_BYTES - 1];
    let mut note = Vec::new();
    history::bytes::write(&mut note, &draft);
    history::bytes::number(&mut segment.bytes.0, note.len() as u64);
    segment.bytes.0.extend(note);
    segment
}

fn globals() -> Globals {
    let settings = ClusterSettings { timing_ms: [u64::MAX; 3], ttl_ms_min: u64::MAX, ttl_ms_max: u64::MAX };
    let process = ProcessId::parse(&text(limits::PROCESS_BYTES_MAX)).expect("legal");
    let unlocking = Unlocking {
        namespace: lock().namespace,
        which: WhichHeld::Process(process, Some(u64::MAX)),
        newest: token(),
        since: TIME,
        next: lock().name,
    };
    let position = Position { index: u64::MAX, n: u32::MAX };
    Globals {
        applied: u64::MAX,
        now: TIME,
        wall: WALL,
        epoch: u16::MAX,
        tokens: u64::MAX,
        sessions: u64::MAX,
        sequences: u64::MAX,
        feature_level: u32::MAX,
        settings: Some(settings),
        cluster_id: Some(u128::MAX),
        ttl_ms_max: Some(u64::MAX),
        ttl_ms_max_ever: u64::MAX,
        history_floor: position,
        closed_until: Some(TIME),
        leaderless_ms: u64::MAX,
        newest_event: position,
        unlocking: vec![unlocking; limits::UNLOCKS_OF_MANY_ALL_MAX],
        opening: Some(lock()),
    }
}

fn nodes_and_sessions() -> Vec<(RecordKey, Record)> {
    let announcement = Announcement {
        node: u64::MAX,
        disk: u128::MAX,
        features: u32::MAX,
        version: text(limits::VERSION_BYTES_MAX),
        http: Some(text(limits::ADDRESS_BYTES_MAX)),
        rules: Some(u64::MAX),
    };
    let record = SessionRecord {
        namespace: lock().namespace,
        handle: handle(),
        instance: Instance(u128::MAX),
        principal: principal(),
        metadata: Arc::new(metadata()),
        ttl_ms: u64::MAX,
        disconnect_grace_ms: Some(u64::MAX),
        opened: TIME,
        deadline: TIME,
        attachment: u64::MAX,
        attempt: u64::MAX,
        renewal: u64::MAX,
        disconnected: true,
        renewed: TIME,
        renewed_wall: WALL,
        leaderless_ms: u64::MAX,
        accepts_hand_over: true,
        window_floor: u64::MAX,
    };
    let reason = EndReason::TimeOver;
    let why = Some(Reason::parse(&text(limits::REASON_BYTES_MAX)).expect("legal"));
    let (namespace, principal) = (lock().namespace, principal());
    let tombstone = Tombstone { namespace, principal, handle: handle(), reason, why, deadline: TIME };
    vec![
        (RecordKey::Globals, Record::Globals(globals())),
        (RecordKey::Node(u64::MAX), Record::Node(announcement.checked().expect("legal"))),
        (RecordKey::Session(session()), Record::Session(record)),
        (RecordKey::Tombstone(session()), Record::Tombstone(tombstone)),
    ]
}

/// One record of each kind, with every part at its bound.
fn largest() -> Vec<(RecordKey, Record)> {
    let process = ProcessId::parse(&text(limits::PROCESS_BYTES_MAX)).expect("legal");
    let semaphore = Record::Semaphore { limit: u32::MAX, kept: true };
    let free = FreeDocument { mark: mark(), metadata: Arc::new(metadata()), when: WALL, token: token() };
    let mut records = vec![
        (RecordKey::Semaphore(lock()), semaphore),
        (RecordKey::Holder(lock(), token()), Record::Holder(holder())),
        (RecordKey::Waiter(lock(), u64::MAX), Record::Waiter(waiter())),
        (
            RecordKey::Delay(lock(), token()),
            Record::Delay(Delayed {
                holder: holder(),
                until: TIME,
                lost: Some(LostHold { mode: mode(), until: TIME }),
            }),
        ),
        (RecordKey::Document(lock()), Record::Document(free)),
        (
            RecordKey::Process(lock().namespace, process),
            Record::Process(ProcessRecord { ping: WALL, forget_after: TIME }),
        ),
        (RecordKey::History(lock().namespace, u64::MAX), Record::History(segment())),
    ];
    records.extend(nodes_and_sessions());
    for outcome in outcomes() {
        let fingerprint = Some(u64::MAX);
        let finished = Finished { fingerprint, outcome: outcome.clone() };
        records.push((RecordKey::Finished(session(), u64::MAX), Record::Finished(finished)));
        let take = FinishedLease { handle: handle(), fingerprint, outcome, forget: TIME };
        records.push((RecordKey::FinishedLease(lock(), TAKE), Record::FinishedLease(take)));
    }
    records
}

/// The number of each kind. A new kind does not compile until it has a number here, and then it also needs its largest
/// record above.
fn kind(record: &Record) -> usize {
    match record {
        Record::Globals(_) => 0,
        Record::Semaphore { .. } => 1,
        Record::Session(_) => 2,
        Record::Finished(_) => 3,
        Record::Tombstone(_) => 4,
        Record::Holder(_) => 5,
        Record::Waiter(_) => 6,
        Record::FinishedLease(_) => 7,
        Record::Node(_) => 8,
        Record::Delay(_) => 9,
        Record::History(_) => 10,
        Record::Document(_) => 11,
        Record::Process(_) => 12,
    }
}

/// The largest record of each kind, key and value, fits into the mirror. The types bound names, texts and lists; the
/// machine bounds the rest.
#[test]
fn the_largest_record_of_each_kind_fits_into_the_mirror() {
    let mut kinds = BTreeSet::new();
    for (key, record) in largest() {
        let (key_bytes, value) = encode_record(&key, &record);
        let most = limits::MIRROR_VALUE_BYTES;
        assert!(key_bytes.len() <= most && value.len() <= most, "{key:?} takes {} bytes", value.len());
        kinds.insert(kind(&record));
    }
    assert_eq!(kinds, (0..=12).collect(), "one of each");
}

/// The longest record of history fits into a segment as its last one.
#[test]
fn the_longest_note_fits_behind_a_segment() {
    let most = limits::HISTORY_SEGMENT_BYTES + limits::HISTORY_NOTE_BYTES_MAX;
    assert!(segment().bytes.0.len() <= most, "{} bytes", segment().bytes.0.len());
}
