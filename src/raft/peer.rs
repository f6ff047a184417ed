//! Calls to another node: each uses a borrowed connection until a deadline. A failed call drops its connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::connections::{Borrowed, Connections, Purpose};
use super::lost_tail::Acknowledged;
use super::messages::{self, peer_client::PeerClient};
use super::state_machine::Shared;
use super::types::RaftLogId;

/// Creates the clients of all other nodes, which share the connections.
#[derive(Clone)]
pub(super) struct Network {
    pub(super) shared: Arc<Shared>,
    pub(super) links: Arc<Connections>,
    pub(super) acknowledged: Arc<Acknowledged>,
    /// Entries that a follower may lack before it gets a snapshot.
    pub(super) lag_entries_max: u64,
}

impl Network {
    pub(super) fn header(&self, target: u64) -> messages::Header {
        self.shared.me.header(target, self.shared.disks.of(target))
    }

    /// Returns the message of a failed call. Stops this node if the other one reports that this node was removed or
    /// that its disk was replaced.
    pub(super) fn note_failure(&self, status: &Status) -> String {
        if status.code() == Code::DataLoss {
            self.shared.fail(status.message());
        }
        status.message().to_owned()
    }
}

/// The client of one other node.
pub(super) struct Peer {
    pub(super) network: Network,
    pub(super) target: u64,
    pub(super) address: String,
    /// The last guess that was answered here instead of by the follower.
    pub(super) guessed: Option<RaftLogId>,
}

/// The error of a call that was never sent, because there was no connection.
fn never_sent(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, error)
}

/// Runs a call on a connection until its deadline. If the future is dropped, so is the connection.
pub(super) async fn call<T>(
    network: &Network,
    (target, address, purpose): (u64, &str, Purpose),
    deadline: Duration,
    run: impl AsyncFnOnce(PeerClient<Channel>) -> Result<Response<T>, Status>,
) -> io::Result<T> {
    let late = async {
        tokio::time::sleep(deadline).await;
        format!("no answer within {} ms", deadline.as_millis())
    };
    call_until(network, (target, address, purpose), late, run).await
}

/// Runs a call on a connection until it ends. Cancels the call when `given_up` completes with the reason.
pub(super) async fn call_until<T>(
    network: &Network,
    (target, address, purpose): (u64, &str, Purpose),
    given_up: impl Future<Output = String>,
    run: impl AsyncFnOnce(PeerClient<Channel>) -> Result<Response<T>, Status>,
) -> io::Result<T> {
    if let Some(why) = network.shared.fault.borrow().as_ref() {
        return Err(io::Error::other(format!("this node must stop: {why}")));
    }
    let calling = async {
        let borrowed: Borrowed = network.links.borrow(target, address, purpose).await.map_err(never_sent)?;
        match run(borrowed.client.clone()).await {
            Ok(response) => {
                borrowed.succeeded();
                Ok(response.into_inner())
            }
            Err(status) => {
                let why = network.note_failure(&status);
                // A refusal is an answer, so the connection works.
                if matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument | Code::PermissionDenied) {
                    borrowed.succeeded();
                } else {
                    borrowed.failed();
                }
                Err(io::Error::other(format!("node {target} at {address}: {why}")))
            }
        }
    };
    tokio::select! {
        biased;
        result = calling => result,
        why = given_up => Err(io::Error::new(io::ErrorKind::TimedOut, format!("node {target} at {address}: {why}"))),
    }
}

impl Peer {
    pub(super) fn header(&self) -> messages::Header {
        self.network.header(self.target)
    }

    pub(super) fn at(&self, purpose: Purpose) -> (u64, &str, Purpose) {
        (self.target, &self.address, purpose)
    }
}
