//! The fields that `--json` promises: all there, null where empty, tokens and positions as texts.

use serde_json::{Value, json};

use super::*;
use crate::model::{
    Claim, Closing, FencingToken, HolderView, LockKey, LockName, Metadata, Namespace, Position, Principal, RequestId,
    SessionId, WallTime,
};
use crate::model::{EndReason, Event, EventKind, Subject};

fn value(shape: &impl Serialize) -> Value {
    serde_json::to_value(shape).unwrap()
}

fn lock() -> LockKey {
    LockKey { namespace: Namespace::default(), name: LockName::parse("nightly").unwrap() }
}

fn holder() -> HolderView {
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

/// A held lock shows its holders and waiters with every promised field.
#[test]
fn show_has_every_field() {
    let waiter = WaiterView {
        place: 1,
        sequence: 4,
        session: Some(SessionId::new(0, 5)),
        owner: None,
        mode: Mode::Shared,
        metadata: Metadata::default(),
        since: LogTime(1_500),
    };
    let closing = Closing { token: FencingToken::new(0, 16), who: "ida".into(), until: LogTime(9_000), left_ms: 7_000 };
    let (holders, waiters, closed) = (vec![holder()], vec![waiter], vec![closing]);
    let view = LockView { kind: Some(Kind::Lock), holders, waiters, closed, ..LockView::free(lock()) };
    let expected = json!({
        "namespace": "default", "lock": "nightly", "kind": "lock", "limit": null, "value": null, "delay_ms": null,
        "holders": [{
            "session": "3", "owner": null, "token": "17", "mode": "exclusive", "permits": null, "who": "ann",
            "why": null, "host": "h1", "pid": 9, "held_ms": 1000, "remaining_ms": 9000,
            "cached": true, "recalled": true,
        }],
        "waiters": [{
            "place": 1, "sequence": 4, "session": "5", "owner": null, "mode": "shared", "permits": null, "who": "somebody",
            "waiting_ms": 500,
        }],
        "closed": [{"token": "16", "who": "ida", "until_ms": 9000}],
    });
    assert_eq!(value(&Lock::new(&view, LogTime(2_000))), expected);
}

/// A free name is an answer: no kind, nobody.
#[test]
fn a_free_name_has_no_kind() {
    let view = LockView::free(lock());
    let shown = value(&Lock::new(&view, LogTime(0)));
    assert_eq!((&shown["kind"], &shown["holders"]), (&Value::Null, &json!([])));
}

/// A row of a listing has counts where `show` has lists.
#[test]
fn ls_has_counts() {
    let row = LockSummary {
        lock: lock(),
        kind: Kind::Lock,
        limit: None,
        holders: 1,
        waiters: 2,
        oldest: Some(holder()),
        delay_ms: None,
        value: None,
    };
    let expected = json!({
        "namespace": "default", "lock": "nightly", "kind": "lock", "limit": null, "holders": 1, "waiters": 2,
        "value": null, "delay_ms": null, "held_ms": 1000,
    });
    assert_eq!(value(&LockRow::new(&row, LogTime(2_000))), expected);
}

/// What a break did is told with the holder as `show` has it, and with nulls where there is nothing.
#[test]
fn acts_on_locks_keep_their_fields() {
    let breach =
        crate::model::BreakReport { done: false, holder: holder(), last_seen: Some(LogTime(1_500)), next: None };
    let broken = value(&Broken::new(&lock().name, &breach, LogTime(2_000)));
    assert_eq!(
        broken["holder"],
        value(&Lock::new(&LockView { holders: vec![holder()], ..LockView::free(lock()) }, LogTime(2_000)))["holders"]
            [0]
    );
    let rest = [&broken["broken"], &broken["lock"], &broken["last_seen_ms"], &broken["next"]];
    assert_eq!(rest, [&json!(false), &json!("nightly"), &json!(500), &Value::Null]);
    let nobody = value(&Leader::new(&Namespace::default(), &lock().name, None));
    let expected = json!({
        "namespace": "default", "lock": "nightly", "value": null, "token": null, "session": null, "who": null,
        "host": null, "pid": null,
    });
    assert_eq!(nobody, expected);
}

/// Leases, releases and checks say what the manual lists.
#[test]
fn answers_about_leases_keep_their_fields() {
    let leased = Leased {
        namespace: "default".into(),
        lock: "a".into(),
        token: Some("1".into()),
        handle: "h".into(),
        remaining_ms: 5,
    };
    let expected = json!({"namespace": "default", "lock": "a", "token": "1", "handle": "h", "remaining_ms": 5});
    assert_eq!(value(&leased), expected);
    assert_eq!(value(&Released { released: true, reason: None }), json!({"released": true, "reason": null}));
    let checked = Checked { state: state_word(TokenState::UnknownEpoch), valid: false, lowest_valid: "2".into() };
    assert_eq!(value(&checked), json!({"state": "unknown_epoch", "valid": false, "lowest_valid": "2"}));
}

/// The cluster's status has every promised field, and nobody leading is null.
#[test]
fn status_has_every_field() {
    let node = NodeStatus {
        id: 2,
        role: Role::Follower,
        client: "c".into(),
        peer: "p".into(),
        http: "h".into(),
        applied: None,
        healthy: None,
        version: None,
        features: None,
    };
    let status = Status {
        cluster: "harbour".into(),
        cluster_id: Some(0xabc),
        peers_id: 0xdef,
        node: 2,
        leader: None,
        term: 4,
        log_time: LogTime(9),
        applied: 7,
        nodes: vec![node],
        totals: crate::model::Totals { sessions: 1, locks: 2, holders: 2, waiters: 3, grants: 4 },
        ttl_ms_min: 1,
        ttl_ms_max: 2,
        features: 1,
        timing_ms: [50, 150, 300],
        closed_ms: 8,
    };
    let expected = json!({
        "cluster": "harbour", "cluster_id": "00000000000000000000000000000abc", "leader": null, "term": 4,
        "log_time_ms": 9, "sessions": 1, "locks": 2, "waiters": 3,
        "nodes": [{"id": 2, "role": "follower", "client": "c", "peer": "p", "http": "h", "applied": null, "healthy": false,
            "version": null, "features": null}], "features": 1, "closed_ms": 8,
    });
    assert_eq!(value(&Cluster::new(&status)), expected);
}

/// An event has a position to go on from, a date, and only its own facts.
#[test]
fn events_have_positions_and_dates() {
    let claim = Claim::Request(RequestId { session: SessionId::new(0, 3), number: 1 });
    let token = FencingToken::new(0, 17);
    let kind = EventKind::Expired { reason: EndReason::Lost, held_ms: 7 };
    let event = Event {
        position: Position { index: 12, n: 1 },
        at: LogTime(5),
        wall: WallTime(1_700_000_000_123),
        namespace: Some(Namespace::default()),
        subject: Subject::hold(&lock(), claim, token),
        kind,
    };
    let happened = Happened::new(&event, 0xabc);
    let expected = json!({
        "position": "12.1", "at": "2023-11-14T22:13:20.123Z", "event": "expired", "namespace": "default",
        "lock": "nightly", "token": "17", "session": "3", "mode": null, "permits": null, "sequence": null,
        "reason": "lost", "waited_ms": null, "held_ms": 7, "gap_ms": null,
        "cluster_id": "00000000000000000000000000000abc",
    });
    assert_eq!(value(&happened), expected);
    assert!(happened.text().contains("nightly  token 17"), "{}", happened.text());
    assert!(happened.text().ends_with("  lost  held=7ms"), "{}", happened.text());
}

/// What a holder is notified of while it holds: a request of another client, and processes that are waited for.
#[test]
fn a_holder_is_notified_in_json() {
    let asked = AskedFor {
        event: "asked",
        namespace: "default".into(),
        lock: "nightly".into(),
        token: Some("7".into()),
        session: "3".into(),
        by: "another client".into(),
        why: "ana@web1 ask (12): please finish".into(),
    };
    let expected = json!({
        "event": "asked", "namespace": "default", "lock": "nightly", "token": "7", "session": "3",
        "by": "another client", "why": "ana@web1 ask (12): please finish",
    });
    assert_eq!(serde_json::to_value(asked).unwrap(), expected);
    let left = LeftBehind { event: "left-behind", processes: vec![LeftProcess { pid: 9, name: "sleep".into() }] };
    let expected = json!({"event": "left-behind", "processes": [{"pid": 9, "name": "sleep"}]});
    assert_eq!(serde_json::to_value(left).unwrap(), expected);
}
