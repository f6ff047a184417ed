//! Round trips, damage, and samples of today's bytes that every later build must still read.

use super::*;
use crate::model::*;

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
                command: Command::Acquire(Acquire {
                    request: RequestId { session: SessionId::new(0, 3), number: 12 },
                    answered_below: 11,
                    name: lock.name.clone(),
                    mode: Mode::Permits { count: 2, limit: Some(5) },
                    owner: Some(Owner::parse("job").expect("an owner")),
                    patience: Patience::For { ms: 30_000 },
                    metadata: Metadata { why: "rebuild".into(), pid: 4, ..Metadata::default() },
                }),
            },
            Submission {
                principal: Principal::default(),
                command: Command::DropLease { lock, handle: Handle::from_random(5) },
            },
        ],
        digest: Some(DigestClaim { index: 4096, digest: u128::MAX / 3 }),
    }
}

/// What is encoded decodes to the same entry.
#[test]
fn entries_survive_the_round_trip() {
    let entry = sample_entry();
    assert_eq!(decode_entry(&encode_entry(&entry)).expect("decodes"), entry);
}

/// Any one flipped bit, and any cut, is an error and never another entry.
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

/// An entry of a newer format is refused with the versions that this build reads.
#[test]
fn newer_formats_are_refused_by_number() {
    let mut bytes = encode_entry(&sample_entry()).to_vec();
    bytes[1] = FORMAT + 1;
    assert_eq!(decode_entry(&bytes), Err(DecodeError::Version { found: FORMAT + 1 }));
}
