//! Verifies that records of a history belong together, and that the locks in it were granted by the rules.
//!
//! - **Whole**: every record has the hash of its content and follows the previous record. Records of a single lock
//!   follow each other by `previous`; records of several locks must be all records of their namespace.
//! - **Growing tokens**: every new token is larger than all before it.
//! - **One holder at a time**: exclusive, or shared, or permits within the limit.
//! - **First come, first served**, with its stated exceptions.

mod holds;
mod order;

use std::collections::{BTreeMap, BTreeSet};

use holds::Holds;
use order::Arrivals;

use super::{Draft, bytes, link};
use crate::model::{ChainHash, FencingToken, HistoryRecord, LockName, Namespace, Position};

/// The summary of a history without a flaw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The number of records.
    pub records: u64,
    /// The number of locks in them.
    pub locks: u64,
    /// The number of records with a new token.
    pub grants: u64,
    /// The namespace of the records.
    pub namespace: Namespace,
    /// The position of the first record.
    pub from: Position,
    /// The position of the last record.
    pub to: Position,
    /// The hash of the last record. It equals the cluster's newest hash, unless records after it are missing.
    pub hash: ChainHash,
}

/// The first thing that is wrong with a history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {record}: {what}")]
pub struct Flaw {
    /// The number of the record, counted from 1.
    pub record: u64,
    /// The flaw, as a sentence without a full stop.
    pub what: String,
}

/// Verifies that these records are whole and follow the rules. Trusts nothing in them.
///
/// # Errors
/// Returns the first flaw.
pub fn verify(records: &[HistoryRecord]) -> Result<Proof, Flaw> {
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return Err(Flaw { record: 0, what: "there are no records, so nothing is proven".into() });
    };
    let Some(namespace) = &first.event.namespace else { return Err(Flaw { record: 1, what: NO_LOCK.into() }) };
    let mut seen = Seen::new(records, namespace, first.before == ChainHash::BEGINNING);
    for (record, number) in records.iter().zip(1..) {
        seen.add(record).map_err(|what| Flaw { record: number, what })?;
    }
    Ok(Proof {
        records: records.len() as u64,
        locks: seen.last_of.len() as u64,
        grants: seen.grants,
        namespace: namespace.clone(),
        from: first.event.position,
        to: last.event.position,
        hash: last.hash,
    })
}

/// The flaw of a record that history does not keep.
const NO_LOCK: &str = "it is about no lock";

/// What the records that were read so far contain.
struct Seen<'a> {
    /// The number of each record by its hash, to distinguish a missing record from one that is out of order.
    hashes: BTreeMap<ChainHash, u64>,
    namespace: &'a Namespace,
    /// Whether all records are of one lock. Records of other locks may then be missing.
    one_lock: bool,
    /// Whether the first record is the first of the chain.
    complete: bool,
    last: Option<(Position, ChainHash)>,
    last_of: BTreeMap<&'a LockName, ChainHash>,
    newest: Option<FencingToken>,
    grants: u64,
    holds: Holds<'a>,
    arrivals: Arrivals<'a>,
}

impl<'a> Seen<'a> {
    fn new(records: &'a [HistoryRecord], namespace: &'a Namespace, complete: bool) -> Self {
        let locks: BTreeSet<_> = records.iter().filter_map(|record| record.event.subject.lock()).collect();
        let one_lock = locks.len() == 1;
        Self {
            hashes: records.iter().zip(1..).map(|(record, number)| (record.hash, number)).collect(),
            namespace,
            one_lock,
            complete,
            last: None,
            last_of: BTreeMap::new(),
            newest: None,
            grants: 0,
            holds: Holds::new(complete, one_lock),
            arrivals: Arrivals::default(),
        }
    }

    fn add(&mut self, record: &'a HistoryRecord) -> Result<(), String> {
        self.whole(record)?;
        let Some(lock) = record.event.subject.lock() else { return Err(NO_LOCK.into()) };
        if let (_, Some(token)) = record.event.tokens() {
            if let Some(newest) = self.newest.filter(|newest| token <= *newest) {
                return Err(format!(
                    "token {token} of {:?} was granted after token {newest}: it does not grow",
                    lock.name
                ));
            }
            (self.newest, self.grants) = (Some(token), self.grants + 1);
        }
        self.arrivals.add(record, &self.holds)?;
        self.holds.add(record)
    }

    /// Checks that the record has the hash of its content and is in its place.
    fn whole(&mut self, record: &'a HistoryRecord) -> Result<(), String> {
        let (Some(draft), Some(namespace)) = (Draft::of(record), record.event.namespace.as_ref()) else {
            return Err(NO_LOCK.into());
        };
        let mut written = Vec::new();
        if !bytes::write(&mut written, &draft) {
            return Err(format!("history has no record of the kind {}", record.event.kind.word()));
        }
        if link(namespace, record.before, &written) != record.hash {
            return Err("it was changed: what it says does not give its hash".into());
        }
        if namespace != self.namespace {
            return Err(format!("it is of namespace {namespace}, the ones before it are of another"));
        }
        let position = record.event.position;
        if let Some((last, _)) = self.last.filter(|(last, _)| position <= *last) {
            return Err(format!("it stands after the record at {last}, but it is the one at {position}: out of order"));
        }
        self.follows(record, draft.lock)?;
        self.last = Some((position, record.hash));
        self.last_of.insert(draft.lock, record.hash);
        Ok(())
    }

    /// Checks that the record follows the previous one in the chain.
    fn follows(&self, record: &HistoryRecord, lock: &LockName) -> Result<(), String> {
        // If the cluster kept no earlier record of the lock, the record has no predecessor.
        if record.previous != ChainHash::BEGINNING {
            let all_seen = self.complete && !self.one_lock;
            match self.last_of.get(lock) {
                Some(last) if *last != record.previous => return Err(self.broken_chain(record.previous)),
                None if all_seen => return Err(self.broken_chain(record.previous)),
                Some(_) | None => {}
            }
        }
        let Some((position, last)) = self.last else { return Ok(()) };
        // The cluster may have dropped all records of the namespace up to the last one, and none after it.
        let follows = last == record.before || bytes::beginning(self.namespace, position) == record.before;
        // If only one lock is shown, records of other locks may be missing between two records.
        if !self.one_lock && !follows {
            return Err(self.broken_chain(record.before));
        }
        Ok(())
    }

    /// Explains why the record with this hash is not the previous one.
    fn broken_chain(&self, before: ChainHash) -> String {
        match self.hashes.get(&before) {
            Some(number) => format!("it belongs directly after record {number}: records were put in or out of order"),
            None => "the record before it is missing or was changed: nothing here has the hash that it follows".into(),
        }
    }
}
