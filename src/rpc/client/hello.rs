//! Checks the hello of a node when a stream opens.

use crate::rpc::convert::Wire;
use crate::rpc::{GROUP, PROTOCOL_MAX, PROTOCOL_MIN, pb};
use crate::service::{LeaderHint, ServiceError};

/// Refuses a stream if the node uses a protocol version that this build does not support. Also refuses any Raft group
/// other than the only one that this build knows, because the client would treat its replies as those of that group.
pub(super) fn check_hello(hello: &pb::ServerHello) -> Result<(), ServiceError> {
    if !(PROTOCOL_MIN..=PROTOCOL_MAX).contains(&hello.protocol) {
        let why = format!("the node uses protocol {}, not {PROTOCOL_MIN} to {PROTOCOL_MAX}", hello.protocol);
        return Err(ServiceError::Internal(why));
    }
    if hello.group != GROUP {
        let why = format!(
            "the node serves the namespace by group {}, and this version knows group {GROUP} alone",
            hello.group
        );
        return Err(ServiceError::Internal(why));
    }
    Ok(())
}

/// Returns the leader, if it is another node than the one that sent the hello.
pub(super) fn led_elsewhere(hello: &pb::ServerHello) -> Option<LeaderHint> {
    LeaderHint::from_wire("leader", hello.leader.clone()).ok().filter(|leader| leader.node != hello.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client accepts only a node with a protocol and group that it knows. Unknown features are no reason to refuse
    /// it.
    #[test]
    fn an_incompatible_hello_is_refused() {
        let hello = |protocol, group| pb::ServerHello {
            protocol,
            group,
            features: vec!["of-tomorrow".to_owned()],
            ..Default::default()
        };
        assert_eq!(check_hello(&hello(PROTOCOL_MAX, GROUP)), Ok(()));
        for (protocol, group) in [(PROTOCOL_MAX + 1, GROUP), (PROTOCOL_MIN - 1, GROUP), (PROTOCOL_MAX, GROUP + 1)] {
            assert!(
                matches!(check_hello(&hello(protocol, group)), Err(ServiceError::Internal(_))),
                "{protocol} {group}"
            );
        }
    }
}
