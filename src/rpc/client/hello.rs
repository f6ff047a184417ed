//! What a node says when a stream opens, and whether this version can go on with it.

use crate::rpc::convert::Wire;
use crate::rpc::{GROUP, PROTOCOL_MAX, PROTOCOL_MIN, pb};
use crate::service::{LeaderHint, ServiceError};

/// Refuses a stream on which the node speaks what this version does not, or which another Raft group serves than the only one that
/// this version knows: its answers would be taken for those of that one.
pub(super) fn check_hello(hello: &pb::ServerHello) -> Result<(), ServiceError> {
    if !(PROTOCOL_MIN..=PROTOCOL_MAX).contains(&hello.protocol) {
        let why = format!("the node speaks protocol {}, not {PROTOCOL_MIN} to {PROTOCOL_MAX}", hello.protocol);
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

/// Who leads, if it is not the node that said so.
pub(super) fn led_elsewhere(hello: &pb::ServerHello) -> Option<LeaderHint> {
    LeaderHint::from_wire("leader", hello.leader.clone()).ok().filter(|leader| leader.node != hello.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client goes on only with a node that speaks what it speaks, for the one group that it knows. Words for what a node can do
    /// beyond the protocol are no reason to refuse it.
    #[test]
    fn a_hello_that_is_not_understood_is_refused() {
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
