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
    let of_hold =
        [release(1, 3, "a", token), alter(Alteration::Downgrade { token }), Command::Cancel { request: request(1, 1) }];
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
    assert_eq!(found(&machine, &of_hold), [false; 3]);
    apply(&mut machine, acquire(1, 1, "a", None));
    assert_eq!(found(&machine, &of_hold), [true; 3]);
    assert!(!machine.ends_something(&of_another), "the hold is another's");
    assert_eq!(found(&machine, &of_lease), [false; 2]);
    apply(&mut machine, take(1, "b", 60_000));
    assert_eq!(found(&machine, &of_lease), [true; 2]);
    assert_eq!(found(&machine, &others), [false; 2]);
    for command in [of_hold[0].clone(), of_lease[0].clone()] {
        apply(&mut machine, command);
    }
    assert_eq!((found(&machine, &of_hold), found(&machine, &of_lease)), (vec![false; 3], vec![false; 2]));
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

/// A command that names a hold and changes nothing at it gives nothing back, however often it is sent.
#[test]
fn what_changes_nothing_gives_nothing_back() {
    let mut machine = opened(1);
    let request = |number| RequestId { session: SessionId::new(0, 1), number };
    let alter = |number, lock: &str, what| {
        Command::Alter(Alter { request: request(number), answered_below: 0, name: name(lock), what })
    };
    let (token, permits, lease) = (FencingToken::new(0, 1), FencingToken::new(0, 2), Handle::from_random(1));
    apply(&mut machine, acquire(1, 1, "a", None));
    let Command::Acquire(mut two) = acquire(1, 2, "p", None) else { panic!("an acquire") };
    two.locks = (name("p"), Access { mode: Mode::Permits(2), limit: Some(2) }).into();
    apply(&mut machine, Command::Acquire(two));
    apply(&mut machine, take(1, "b", 60_000));
    let Command::Release(of_other_acquire) = release(1, 9, "a", token) else { panic!("a release") };
    let returned = |count| alter(9, "p", Alteration::ReturnPermits { token: permits, count });
    let cancel =
        |handle: &Handle| Command::CancelTake { lock: key("b"), take: LeaseRequestId(1), handle: handle.clone() };
    let downgrade = alter(3, "a", Alteration::Downgrade { token });
    for command in [&downgrade, &returned(1), &returned(2), &cancel(&lease)] {
        assert!(machine.ends_something(command), "{command:?}");
    }
    apply(&mut machine, downgrade);
    let again = alter(4, "a", Alteration::Downgrade { token });
    let of_other_acquire = Command::Release(Release { acquire: 7, ..of_other_acquire });
    for command in [again, of_other_acquire, returned(0), returned(3), cancel(&Handle::from_random(2))] {
        assert!(!machine.ends_something(&command), "{command:?}");
    }
    let upgrade = alter(5, "a", Alteration::Upgrade { token, patience: Patience::Try });
    let upgraded = apply(&mut machine, upgrade);
    assert!(matches!(upgraded, Outcome::Granted(_)), "{upgraded:?}");
    let cancel_of_upgrade = Command::Cancel { request: request(5) };
    assert!(!machine.ends_something(&cancel_of_upgrade), "a cancel leaves the upgrade");
    assert_eq!(machine.known_answer(&cancel_of_upgrade), None, "a break or a downgrade may have changed the hold");
    assert!(machine.ends_something(&Command::Cancel { request: request(1) }));
}

/// An upgrade that was granted, and whose number is below the remembered ones, is not known as too old.
#[test]
fn a_granted_upgrade_is_not_too_old() {
    let mut machine = opened(1);
    let (request, token) = (RequestId { session: SessionId::new(0, 1), number: 2 }, FencingToken::new(0, 1));
    let Command::Acquire(mut shared) = acquire(1, 1, "a", None) else { panic!("an acquire") };
    shared.locks = (name("a"), Mode::Shared.into()).into();
    apply(&mut machine, Command::Acquire(shared));
    let what = Alteration::Upgrade { token, patience: Patience::Try };
    let upgrade = Command::Alter(Alter { request, answered_below: 0, name: name("a"), what });
    let granted = apply(&mut machine, upgrade.clone());
    assert!(matches!(granted, Outcome::Granted(_)), "{granted:?}");
    assert_eq!(apply(&mut machine, release(1, 9, "b", token)), Outcome::Refused(Refusal::NotHeld { lock: key("b") }));
    assert_eq!(machine.known_answer(&upgrade), None);
    assert_eq!(apply(&mut machine, upgrade), granted);
}

/// The answer to a command that gave something back is known without an entry. Nothing is known about another command.
#[test]
fn what_was_given_back_is_remembered() {
    let mut machine = opened(1);
    let request = |number| RequestId { session: SessionId::new(0, 1), number };
    let handle = Handle::from_random(1);
    let once = [
        Command::Cancel { request: request(2) },
        release(1, 3, "a", FencingToken::new(0, 1)),
        Command::CancelTake { lock: key("b"), take: LeaseRequestId(1), handle },
        Command::CloseSession { session: SessionId::new(0, 1), end: SessionClose::Done },
    ];
    apply(&mut machine, acquire(1, 1, "a", None));
    apply(&mut machine, acquire(1, 2, "c", None));
    apply(&mut machine, take(1, "b", 60_000));
    for command in once {
        assert_eq!(machine.known_answer(&command), None, "{command:?}");
        let answer = apply(&mut machine, command.clone());
        assert!(!matches!(answer, Outcome::Refused(_)), "{answer:?}");
        assert_eq!(machine.known_answer(&command), Some(answer.clone()), "{command:?}");
        assert!(!machine.ends_something(&command), "{command:?}");
        assert_eq!(apply(&mut machine, command), answer, "and it is the answer to a repeat");
    }
    let late = acquire(1, 9, "a", None);
    let ended = machine.known_answer(&late).expect("the session has ended");
    assert_eq!(apply(&mut machine, late), ended);
}
