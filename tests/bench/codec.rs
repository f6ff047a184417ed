//! The cost of encoding an entry, once on the leader, and of decoding it, once on every follower.

use std::hint::black_box;

use lockkeeper::codec::{decode_entry, encode_entry};
use lockkeeper::model::{Entry, SessionId};

use super::timer::{Timer, repeat};
use super::words::{COMMANDS, acquire, entry, name};

/// The entry of a busy leader: acquires, each in a separate session.
pub(crate) fn full() -> Entry {
    entry(0, (0..COMMANDS).map(|number| acquire(SessionId::new(0, number + 1), 1, &name(number))))
}

/// Measures encoding and decoding.
pub(crate) fn entries(timer: &Timer) {
    let entry = full();
    let bytes = encode_entry(&entry);
    timer.measure("codec/encode an entry of 50", COMMANDS, |rounds| repeat(rounds, || encode_entry(black_box(&entry))));
    timer.measure("codec/decode an entry of 50", COMMANDS, |rounds| repeat(rounds, || decode_entry(black_box(&bytes))));
}
