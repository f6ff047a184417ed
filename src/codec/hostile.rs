//! Bytes that somebody made up: damaged anywhere, under a header that fits them, so that they come as far as the decoder.
//!
//! What comes out is a value or an error: no panic, no hang. The checksum alone would keep nearly all of them out, and does so
//! in life; here it is made good again. `LOCKKEEPER_FUZZ=N` damages each sample N times.

use super::frame::{FORMAT, Kind};
use super::tests::{samples_of_entries, samples_of_records};
use super::*;

const HEADER_BYTES: usize = 10;
const ROUNDS_DEFAULT: u64 = 3_000;

fn rounds() -> u64 {
    std::env::var("LOCKKEEPER_FUZZ").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS_DEFAULT)
}

/// SplitMix64: the same damage for the same seed.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Does one to four things to bytes: flips a bit, sets a byte, cuts, doubles a piece, or puts in a huge length.
fn damaged(bytes: &[u8], draws: &mut Draws) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=draws.below(4) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = draws.below(bytes.len());
        match draws.below(5) {
            0 => bytes[at] ^= 1 << draws.below(8),
            1 => bytes[at] = draws.next() as u8,
            2 => bytes.truncate(at),
            3 => {
                let piece = bytes[at..(at + draws.below(32)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            // A variable-length number of eight bytes, as large as they come.
            _ => drop(bytes.splice(at..at, [253, 255, 255, 255, 255, 255, 255, 255, 127])),
        }
    }
    bytes
}

/// The payload under a header that fits it.
fn framed(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind as u8, FORMAT];
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(payload).to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Log entries from a hostile disk or peer are decoded to something that encodes again, or refused.
#[test]
fn hostile_entries_are_values_or_errors() {
    let (mut draws, mut values) = (Draws(1), 0);
    for (_, entry) in samples_of_entries() {
        let whole = encode_entry(&entry);
        for _ in 0..rounds() {
            let bytes = framed(Kind::Entry, &damaged(&whole[HEADER_BYTES..], &mut draws));
            if let Ok(entry) = decode_entry(&bytes) {
                values += 1;
                let again = encode_entry(&entry);
                assert_eq!(decode_entry(&again).as_ref(), Ok(&entry), "what was accepted reads back");
            }
        }
    }
    assert!(0 < values, "no damage came through: the decoder was not reached");
}

/// So are records of the state, damaged in key or value.
#[test]
fn hostile_records_are_values_or_errors() {
    let (mut draws, mut values) = (Draws(2), 0);
    for (key, record) in samples_of_records() {
        let (key, value) = encode_record(&key, &record);
        for round in 0..rounds() / 10 {
            let (key, value) = match round % 2 {
                0 => (key.to_vec(), framed(Kind::Record, &damaged(&value[HEADER_BYTES..], &mut draws))),
                _ => (damaged(&key, &mut draws), value.to_vec()),
            };
            if let Ok((key, record)) = decode_record(&key, &value) {
                values += 1;
                let (key_again, value_again) = encode_record(&key, &record);
                assert_eq!(decode_record(&key_again, &value_again), Ok((key, record)), "what was accepted reads back");
            }
        }
    }
    assert!(0 < values, "no damage came through: the decoder was not reached");
}

/// A few bytes that claim to be a billion commands are refused before memory is taken for them.
#[test]
fn a_huge_length_takes_no_memory() {
    for length in [&[252, 0, 202, 154, 59][..], &[253, 255, 255, 255, 255, 255, 255, 255, 127][..]] {
        // Stamp, date, renewals: none; then the commands.
        let payload = [&[0, 0, 0][..], length].concat();
        let refused = decode_entry(&framed(Kind::Entry, &payload)).expect_err("nothing of it is there");
        assert!(matches!(refused, DecodeError::Malformed(_)), "{refused}");
    }
}
