//! A log that was written at feature level 1 and is applied by this build. The answers and the state must be the same,
//! byte for byte. A newer build may decide differently only above the feature level that introduced the difference.
//! Otherwise nodes of different builds would have different states.

use xxhash_rust::xxh3::Xxh3;

use super::hostile::{Sample, kept};
use crate::codec::*;
use crate::limits;
use crate::machine::Machine;
use crate::machine::tests::mirror::Watched;
use crate::machine::tests::random::Scenario;
use crate::model::Command;

const ENTRIES: usize = 150;

/// The entries of a random scenario and their results, as this build makes them.
fn today() -> Vec<Sample> {
    let (mut scenario, mut watched, mut log) = (Scenario::new(77), Watched::default(), Vec::new());
    for _ in 0..ENTRIES {
        let mut entry = scenario.entry(watched.machine.next_deadline());
        entry.commands.retain(|asked| !matches!(asked.command, Command::RaiseFeatures(_)));
        log.push(("entry".to_owned(), encode_entry(&entry).to_vec()));
        let applied = watched.apply(&entry);
        scenario.learn(&entry, &applied);
    }
    let state = replayed(&log);
    log.push(("state".to_owned(), state));
    log
}

/// A digest of all answers and of all records at the end.
fn replayed(log: &[Sample]) -> Vec<u8> {
    let (mut machine, mut digest) = (Machine::new(), Xxh3::new());
    for ((_, bytes), index) in log.iter().zip(1..) {
        let applied = machine.apply(index, &decode_entry(bytes).expect("an entry of format 1"));
        digest.update(&encode_message(Kind::Answer, &applied.renewals));
        digest.update(&encode_message(Kind::Answer, &applied.commands));
    }
    assert_eq!(machine.feature_level(), limits::FEATURE_LEVEL_MIN, "nothing in the log raised the level");
    for (key, record) in machine.state().records() {
        let (key, value) = encode_record(&key, &record);
        digest.update(&key);
        digest.update(&value);
    }
    digest.digest128().to_be_bytes().to_vec()
}

/// This build gives the same answers to the stored log.
#[test]
fn a_kept_log_comes_to_the_kept_state() {
    let mut log = kept("log-of-feature-level-1.bin", &today());
    let (_, state) = log.pop().expect("its last part");
    assert_eq!(log.len(), ENTRIES);
    assert_eq!(replayed(&log), state, "this build decides entries otherwise than the one that wrote them");
}
