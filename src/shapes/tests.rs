//! Samples for the tests of each command's JSON: all fields are present, null if they do not apply, with tokens and
//! positions as strings.

use serde_json::{Value, json};

use super::*;
use crate::model::{FencingToken, LockKey, LockName, Namespace, Principal, SessionId};

pub(crate) fn value(shape: &impl Serialize) -> Value {
    serde_json::to_value(shape).unwrap()
}

pub(crate) fn lock() -> LockKey {
    LockKey { namespace: Namespace::default(), name: LockName::parse("nightly").unwrap() }
}

pub(crate) fn holder() -> HolderView {
    HolderView {
        session: Some(SessionId::new(0, 3)),
        owner: None,
        principal: Principal::default(),
        token: FencingToken::new(0, 17),
        mode: Mode::Exclusive,
        metadata: Metadata { who: "ann".into(), host: "h1".into(), pid: 9, ..Metadata::default() },
        since: LogTime(1_000),
        deadline: Some(LogTime(11_000)),
        cached: true,
        recalled: true,
    }
}

/// The output of a lease has the fields that the manual lists.
#[test]
fn a_lease_has_every_field() {
    let leased = Leased {
        namespace: "default".into(),
        lock: "a".into(),
        token: Some("1".into()),
        handle: "h".into(),
        remaining_ms: 5,
    };
    let expected = json!({"namespace": "default", "lock": "a", "token": "1", "handle": "h", "remaining_ms": 5});
    assert_eq!(value(&leased), expected);
}
