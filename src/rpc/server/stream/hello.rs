//! The first frames of a stream in both directions.

use std::time::Duration;

use tokio::time::timeout;
use tonic::Streaming;

use super::{SessionStream, StreamEnd};
use crate::limits;
use crate::model::Invalid;
use crate::rpc::convert::{Wire, namespace};
use crate::rpc::pb::client_frame::Body as Asked;
use crate::rpc::pb::server_frame::Body;
use crate::rpc::{GROUP, PROTOCOL_MAX, PROTOCOL_MIN, pb};
use crate::service::{LockService, NotSent, ServiceError};

/// Returns the cluster that a client expects, if it names one.
pub(super) fn expected_cluster(hello: &pb::ClientHello) -> Result<Option<u128>, Invalid> {
    Wire::from_wire("cluster_id", hello.cluster_id.clone())
}

impl<S: LockService> SessionStream<S> {
    /// Reads the client's hello and answers it, or refuses a protocol that this build does not support.
    pub(super) async fn greet(&mut self, incoming: &mut Streaming<pb::ClientFrame>) -> Result<(), StreamEnd> {
        let first = timeout(Duration::from_millis(limits::HELLO_MS_MAX), incoming.message()).await;
        let hello = match first {
            Ok(Ok(Some(pb::ClientFrame { number: 0, body: Some(Asked::Hello(hello)) }))) => hello,
            Ok(Ok(Some(_))) => {
                return Err(StreamEnd::Refused(Invalid::new("hello", "the first frame, number 0", "another")));
            }
            Err(_) => {
                let bound = format!("within {} ms", limits::HELLO_MS_MAX);
                return Err(StreamEnd::Refused(Invalid::new("hello", bound, "nothing")));
            }
            Ok(Ok(None)) => return Err(StreamEnd::Broken),
            Ok(Err(status)) => return Err(StreamEnd::Unread(Box::new(status))),
        };
        let protocol = self.check(&hello)?;
        let leader = self.info.leader.borrow().to_wire();
        let endpoints = self.info.endpoints.borrow().clone();
        let cluster_id = self.info.cluster_id.borrow().to_wire();
        self.push(Body::Hello(pb::ServerHello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            protocol,
            features: Vec::new(),
            cluster: self.info.cluster.clone(),
            cluster_id,
            group: GROUP,
            namespace: self.namespace.to_string(),
            frames_in_flight_max: limits::STREAM_FRAMES_IN_FLIGHT_MAX as u32,
            frame_bytes_max: limits::FRAME_BYTES_MAX as u32,
            node: self.info.node,
            leader,
            endpoints,
        }))
    }

    /// Returns the protocol version that both sides support.
    fn check(&mut self, hello: &pb::ClientHello) -> Result<u32, StreamEnd> {
        self.namespace = namespace(&hello.namespace).map_err(StreamEnd::Refused)?;
        if let Some(expected) = expected_cluster(hello).map_err(StreamEnd::Refused)? {
            let no_leader = || StreamEnd::Unread(Box::new(ServiceError::not_sent(NotSent::NoLeader).into()));
            let own = self.info.cluster_id.borrow().ok_or_else(no_leader)?;
            if expected != own {
                let bound = format!("{own:032x}, which this node belongs to");
                return Err(StreamEnd::Refused(Invalid::new("cluster_id", bound, format!("{expected:032x}"))));
            }
        }
        let protocol = PROTOCOL_MAX.min(hello.protocol_max);
        if hello.protocol_min > hello.protocol_max || protocol < PROTOCOL_MIN.max(hello.protocol_min) {
            let bound = format!("within {PROTOCOL_MIN} to {PROTOCOL_MAX}");
            let asked = format!("{} to {}", hello.protocol_min, hello.protocol_max);
            return Err(StreamEnd::Refused(Invalid::new("protocol", bound, asked)));
        }
        Ok(protocol)
    }
}
