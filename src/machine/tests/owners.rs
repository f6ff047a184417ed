//! What a command would give back or end.

use super::costs::{acquire, apply, release};
use super::cycles::open;
use super::work::{name, opened, take};
use crate::machine::Machine;
use crate::model::*;

fn key(text: &str) -> LockKey {
    LockKey { namespace: Namespace::default(), name: name(text) }
}

/// A command that gives back or ends something finds it only while it exists, and only as the caller's own.
#[test]
fn only_what_exists_can_be_given_back() {
    let mut machine = opened(2);
    let request = |session, number| RequestId { session: SessionId::new(0, session), number };
    let alter = |what| Command::Alter(Alter { request: request(1, 2), answered_below: 0, name: name("a"), what });
    let (token, handle) = (FencingToken::new(0, 1), Handle::from_random(1));
    let of_hold = [
        release(1, 3, "a", token),
        alter(Alteration::Downgrade { token }),
        alter(Alteration::ReturnPermits { token, count: 1 }),
        Command::Cancel { request: request(1, 1) },
    ];
    let of_lease = [
        Command::DropLease { lock: key("b"), handle: handle.clone() },
        Command::CancelTake { lock: key("b"), take: LeaseRequestId(1), handle },
    ];
    let close = Command::CloseSession { session: SessionId::new(0, 1), end: SessionClose::Done };
    let open_here = open(9);
    let (others, of_another) = ([acquire(1, 4, "a", None), open_here], release(2, 1, "a", token));
    let found = |machine: &Machine, commands: &[Command]| {
        commands.iter().map(|command| machine.ends_something(command)).collect::<Vec<_>>()
    };
    assert_eq!(found(&machine, &of_hold), [false; 4]);
    apply(&mut machine, acquire(1, 1, "a", None));
    assert_eq!(found(&machine, &of_hold), [true; 4]);
    assert!(!machine.ends_something(&of_another), "the hold is another's");
    assert_eq!(found(&machine, &of_lease), [false; 2]);
    apply(&mut machine, take(1, "b", 60_000));
    assert_eq!(found(&machine, &of_lease), [true; 2]);
    assert_eq!(found(&machine, &others), [false; 2]);
    for command in [of_hold[0].clone(), of_lease[0].clone()] {
        apply(&mut machine, command);
    }
    assert_eq!((found(&machine, &of_hold), found(&machine, &of_lease)), (vec![false; 4], vec![false; 2]));
    let (ts, process) = (DocumentId([1; 12]), Metadata { process: "p".into(), ..Metadata::default() });
    let grab = |ts, seen| {
        let (lock, metadata) = (key("d"), process.clone());
        Command::Document(DocumentCommand::Grab(Grab { lock, ts, metadata, term: None, prepare: false, seen }))
    };
    let unlock =
        Command::Document(DocumentCommand::Unlock { namespace: Namespace::default(), ts, name: Some(name("d")) });
    assert!(!machine.ends_something(&unlock));
    apply(&mut machine, grab(ts, None));
    assert!(machine.ends_something(&unlock));
    assert!(!machine.ends_something(&grab(DocumentId([2; 12]), Some(ts))), "an overtake takes the lock");
    assert!(machine.ends_something(&close));
    apply(&mut machine, close.clone());
    assert!(!machine.ends_something(&close));
}
