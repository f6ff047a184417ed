//! Errors and the status of a cluster, there and back.

use super::*;

pub(super) fn one_error_of_each_kind() -> Vec<ServiceError> {
    let leader = Some(LeaderHint { node: 2, client: "n2:7601".to_owned() });
    vec![
        ServiceError::NotSent { why: NotSent::NotLeader, leader: leader.clone() },
        ServiceError::NotSent { why: NotSent::Overloaded { pause_ms: 50 }, leader: None },
        ServiceError::NotSent { why: NotSent::Unreachable("a: refused; b: timeout".to_owned()), leader: None },
        ServiceError::Unknown { why: "the line\nbroke – Gößweinstein".to_owned(), leader },
        ServiceError::Invalid(Invalid::new("lock", "1 to 255 bytes", "…")),
        ServiceError::Refused(Refusal::WrongHandle),
        ServiceError::Forbidden { why: "admin".to_owned() },
        ServiceError::EventsMissed { why: "too slow".to_owned(), resume: Position { index: 4, n: 2 } },
        ServiceError::Stopping,
        ServiceError::Internal("impossible".to_owned()),
    ]
}

/// An error is unchanged after a round trip, as a status and as a frame; its gRPC code, error code, advice and leader
/// are those of the table.
#[test]
fn errors_read_back_and_follow_the_table() {
    for error in one_error_of_each_kind() {
        let row = error.code().row();
        let status = tonic::Status::from(error.clone());
        assert_eq!(ServiceError::from(status.clone()), error);
        assert_eq!(status.code() as i32, i32::from(row.grpc), "{error}");
        let text = |key: &str| status.metadata().get(key).map(|value| value.to_str().expect("text").to_owned());
        assert_eq!(text("lockkeeper-error").as_deref(), Some(row.text));
        assert_eq!(text("lockkeeper-advice").as_deref(), Some(row.advice.word()));
        let hint = error.leader().map(|leader| format!("{} {}", leader.node, leader.client));
        assert_eq!(text("lockkeeper-leader"), hint);

        let wire = error_to_wire(&error);
        assert_eq!((wire.code.as_str(), wire.advice.as_str()), (row.text, row.advice.word()));
        assert_eq!(error_from_wire(&wire), error);
    }
}

/// Every row of the table has a gRPC code of an error, and an error code alone still carries its advice.
#[test]
fn every_code_survives_without_its_detail() {
    for row in TABLE {
        assert_ne!(tonic::Code::from(i32::from(row.grpc)), tonic::Code::Ok, "{}", row.text);
        let wire = pb::Error { code: row.text.to_owned(), detail: "newer".to_owned(), ..Default::default() };
        assert_eq!(error_from_wire(&wire).advice(), row.advice, "{}", row.text);
    }
    let unknown = pb::Error { code: "of-tomorrow".to_owned(), ..Default::default() };
    assert_eq!(
        error_from_wire(&unknown).code(),
        ErrorCode::Unknown,
        "an unknown error never says that nothing happened"
    );
}

/// A status from the transport, without this crate's metadata, leaves the outcome unknown.
#[test]
fn a_foreign_status_is_unknown() {
    let cut = tonic::Status::unavailable("connection reset");
    assert!(matches!(ServiceError::from(cut), ServiceError::Unknown { .. }));
    let foreign = tonic::Status::unimplemented("no such call");
    assert!(matches!(ServiceError::from(foreign), ServiceError::Internal(_)));
}

pub(super) fn sample_status() -> Status {
    let node = |id, role| crate::service::NodeStatus {
        id,
        role,
        client: "a:1".to_owned(),
        peer: "a:2".to_owned(),
        http: String::new(),
        applied: (id > 1).then_some(5),
        healthy: (id > 1).then_some(id > 2),
        version: (id > 1).then(|| "0.1.0".to_owned()),
        features: (id > 1).then_some(2),
        rules: (id > 1).then_some(3),
        certificate_ends: (id > 1).then_some(4),
    };
    Status {
        cluster: "harbour".to_owned(),
        cluster_id: Some(0x0102 << 100),
        peers_id: 0x0304 << 90,
        node: 1,
        leader: Some(2),
        term: 3,
        log_time: LogTime(4),
        applied: 5,
        nodes: vec![node(1, Role::Follower), node(2, Role::Leader), node(3, Role::Learner)],
        totals: Totals { sessions: 1, ..Totals::default() },
        ttl_ms_min: 3_000,
        ttl_ms_max: 600_000,
        features: 1,
        timing_ms: [50, 150, 300],
        closed_ms: 8,
        led_ms: 9,
        uncounted_ms: 10,
        warnings: vec!["n1.pem expires".to_owned()],
    }
}

/// The cluster's status is unchanged after a round trip.
#[test]
fn status_reads_back() {
    let status = sample_status();
    for status in [Status { cluster_id: None, ..status.clone() }, status] {
        assert_eq!(over::<Status, pb::StatusReply>(&status), Ok(status));
    }
}
