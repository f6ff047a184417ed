//! Damaged bytes under a header that fits them, so that they reach the decoder.
//!
//! The result is a value or an error: no panic, no hang, and no memory beyond ten times the input. The checksum alone
//! would reject nearly all damaged bytes, so these tests correct it. `LOCKKEEPER_FUZZ=N` damages each sample N times.
//! Modules above this one damage their messages with the same functions.

use std::collections::BTreeSet;

use super::{samples_of_entries, samples_of_records, stored};
use crate::codec::frame::{FORMAT, Kind};
use crate::codec::*;
use crate::limits;
use crate::machine::tests::random::Random;
use crate::model::{Command, Entry, LogTime, Principal, Renewal, RenewalTarget, SessionId, Submission, WallTime};

const HEADER_BYTES: usize = 10;
const ROUNDS_DEFAULT: u64 = 3_000;
/// Memory that a decoder may use in addition to ten times its input: the text of an error, a future, the first elements
/// of a list.
const FIXED_BYTES: u64 = 32 * 1024;

/// The memory of the longest lists of an entry with the shortest possible elements. Each element has a fixed size in
/// memory, and while a list grows, its old and its new copy exist together.
const LISTS_BYTES_MAX: u64 = 1024 * 1024;

fn rounds() -> u64 {
    std::env::var("LOCKKEEPER_FUZZ").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS_DEFAULT)
}

/// The name of a message's kind, and the message as it is sent.
pub(crate) type Sample = (String, Vec<u8>);

/// Runs a decoder over this number of bytes, and fails if it uses more memory at once than is allowed.
pub(crate) fn within_memory_bound<T>(what: &str, bytes: usize, decode: impl FnOnce() -> T) -> T {
    let (value, held) = held(decode);
    assert!(held <= 10 * bytes as u64 + FIXED_BYTES, "{what}: {held} bytes of memory for {bytes} of input");
    value
}

/// Returns the value and the largest number of bytes that this thread had allocated at once during the call.
pub(crate) fn held<T>(decode: impl FnOnce() -> T) -> (T, u64) {
    let mut value = None;
    let held = allocation_counter::measure(|| value = Some(decode())).bytes_max;
    (value.expect("it ran"), held)
}

/// The messages in this file of `tests/bytes/v1`. It must contain every kind of current message.
pub(crate) fn kept(file: &str, today: &[Sample]) -> Vec<Sample> {
    let mut bytes = Vec::new();
    for part in today.iter().flat_map(|(name, message)| [name.as_bytes(), message]) {
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    let (bytes, mut samples) = (stored(file, &bytes), Vec::new());
    let mut rest = bytes.as_slice();
    let mut next = || {
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (part, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
        rest = tail;
        Some(part.to_vec())
    };
    while let (Some(name), Some(message)) = (next(), next()) {
        samples.push((String::from_utf8(name).expect("a name"), message));
    }
    let names = |samples: &[Sample]| samples.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>();
    assert_eq!(names(&samples), names(today), "{file}: kinds of messages came or went");
    samples
}

/// Passes each message to its reader, whole and damaged. The reader must accept every whole message, and at least one
/// damaged message of each file.
pub(crate) fn attack(seed: u64, samples: &[Sample], mut read: impl FnMut(&str, &[u8]) -> bool) {
    let (mut draws, mut values) = (Random(seed), 0);
    for (name, message) in samples {
        assert!(read(name, message), "{name}: a whole message is refused");
        for _ in 0..rounds() / 10 {
            let bytes = damaged(message, &mut draws);
            values += u64::from(within_memory_bound(name, bytes.len(), || read(name, &bytes)));
        }
    }
    assert!(0 < values, "no damage came through: the reader was not reached");
}

/// The bytes of a damaged frame with a corrected length and checksum, so that its content is decoded.
pub(crate) fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let (header, payload) = bytes.split_at(bytes.len().min(HEADER_BYTES));
    let kind = header.first().copied().unwrap_or_default();
    frame_of(kind, payload)
}

/// Damages bytes one to four times: flips a bit, sets a byte, cuts, doubles a piece, or inserts a huge length.
fn damaged(bytes: &[u8], draws: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=draws.below(4) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = draws.below(bytes.len() as u64) as usize;
        match draws.below(6) {
            0 => bytes[at] ^= 1 << draws.below(8),
            1 => bytes[at] = draws.number() as u8,
            2 => bytes.truncate(at),
            3 => {
                let piece = bytes[at..(at + draws.below(32) as usize).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            // The largest variable-length numbers: of messages here, of log and state below.
            4 => drop(bytes.splice(at..at, [255, 255, 255, 255, 255, 255, 255, 255, 127])),
            _ => drop(bytes.splice(at..at, [253, 255, 255, 255, 255, 255, 255, 255, 127])),
        }
    }
    bytes
}

/// The payload under a header that fits it.
fn framed(kind: Kind, payload: &[u8]) -> Vec<u8> {
    frame_of(kind as u8, payload)
}

fn frame_of(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, FORMAT];
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(payload).to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Log entries from a hostile disk or peer are refused, or decode to values that can be encoded again.
#[test]
fn hostile_entries_are_values_or_errors() {
    let (mut draws, mut values) = (Random(1), 0);
    for (_, entry) in samples_of_entries() {
        let whole = encode_entry(&entry);
        for _ in 0..rounds() {
            let bytes = framed(Kind::Entry, &damaged(&whole[HEADER_BYTES..], &mut draws));
            if let Ok(entry) = within_memory_bound("an entry", bytes.len(), || decode_entry(&bytes)) {
                values += 1;
                let again = encode_entry(&entry);
                assert_eq!(decode_entry(&again).as_ref(), Ok(&entry), "what was accepted reads back");
            }
        }
    }
    assert!(0 < values, "no damage came through: the decoder was not reached");
}

/// Records of the state with a damaged key or value are refused, or decode to values that can be encoded again.
#[test]
fn hostile_records_are_values_or_errors() {
    let (mut draws, mut values) = (Random(2), 0);
    for (key, record) in samples_of_records() {
        let (key, value) = encode_record(&key, &record);
        for round in 0..rounds() / 10 {
            let (key, value) = match round % 2 {
                0 => (key.to_vec(), framed(Kind::Record, &damaged(&value[HEADER_BYTES..], &mut draws))),
                _ => (damaged(&key, &mut draws), value.to_vec()),
            };
            let record = within_memory_bound("a record", key.len() + value.len(), || decode_record(&key, &value));
            if let Ok((key, record)) = record {
                values += 1;
                let (key_again, value_again) = encode_record(&key, &record);
                assert_eq!(decode_record(&key_again, &value_again), Ok((key, record)), "what was accepted reads back");
            }
        }
    }
    assert!(0 < values, "no damage came through: the decoder was not reached");
}

/// A few bytes that announce a billion commands, or a text of fifty mebibytes, are refused before memory is allocated.
#[test]
fn a_huge_length_takes_no_memory() {
    for length in [&[252, 0, 202, 154, 59][..], &[252, 0, 0, 32, 3], &[253, 255, 255, 255, 255, 255, 255, 255, 127]] {
        // First case: no renewals, then the commands. Second case: one command, then the name of its caller.
        for before in [&[0, 0, 0][..], &[0, 0, 0, 1]] {
            let bytes = framed(Kind::Entry, &[before, length].concat());
            let refused = within_memory_bound("an entry", bytes.len(), || decode_entry(&bytes))
                .expect_err("nothing of it is there");
            assert!(matches!(refused, DecodeError::Malformed(_)), "{refused}");
        }
    }
}

/// An entry with the largest number of renewals and commands, each as short as possible, uses bounded memory. One more
/// of either is refused, and so is a set of too many locks.
#[test]
fn lists_of_an_entry_are_bounded() {
    let tick = || Submission { principal: Principal::default(), since: None, command: Command::Tick };
    let renewal = || Renewal { target: RenewalTarget::Session(SessionId::new(0, 1)), attempt: 1, receipt: LogTime(1) };
    let bytes_of = |renewals, commands| {
        let (renewals, commands) = (vec![renewal(); renewals], vec![tick(); commands]);
        encode_entry(&Entry { stamp: LogTime(1), wall: WallTime(1), renewals, commands, digest: None })
    };
    let (renewals, commands) = (limits::RENEWALS_AN_ENTRY_MAX, limits::COMMANDS_AN_ENTRY_MAX);
    let bytes = bytes_of(renewals, commands);
    let (read, held) = held(|| decode_entry(&bytes));
    assert!(read.is_ok() && held <= LISTS_BYTES_MAX, "{held} bytes of memory for {}", bytes.len());
    for (renewals, commands) in [(renewals + 1, 0), (0, commands + 1)] {
        let refused = decode_entry(&bytes_of(renewals, commands)).expect_err("too many");
        assert!(refused.to_string().contains(&format!("more than {}", renewals + commands - 1)), "{refused}");
    }
}
