//! What a node reports about itself to the servers that run on top of it.

use std::collections::VecDeque;
use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::{LeaderHint, NotSent, ServiceError};
use crate::model::RefusedDeadlock;
use crate::net::ConnectionsMax;

/// What a server reports about its node in the first frame of each stream and on the web page, and how many connections
/// it accepts.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// Name of the cluster.
    pub cluster: String,
    /// Id of the cluster; `None` until this node has applied the entry that fixes it.
    pub cluster_id: watch::Receiver<Option<u128>>,
    /// Id of this node.
    pub node: u64,
    /// The leader, as this node sees it. A stream that began under another leader is ended with `move_to`.
    pub leader: watch::Receiver<Option<LeaderHint>>,
    /// Time without a leader after which a watch ends.
    pub leaderless_max: Duration,
    /// Addresses of the members for clients. Each client gets them, so that it finds members that joined later.
    pub endpoints: watch::Receiver<Vec<String>>,
    /// Most connections of the node's ports.
    pub connections: ConnectionsMax,
    /// The last refused deadlocks, the newest last, each list of locks once. Nodes that have applied the same entries
    /// since they started have the same.
    pub deadlocks: watch::Receiver<VecDeque<RefusedDeadlock>>,
}

impl ServerInfo {
    /// Waits until the node has known of no leader for long, and returns the error of its watchers: it learns of no
    /// events, and another node may have a leader.
    pub(crate) fn cut_off(&self) -> impl Future<Output = ServiceError> + Send + use<> {
        let (mut leader, longest) = (self.leader.clone(), self.leaderless_max);
        async move {
            loop {
                let lost = leader.wait_for(Option::is_none).await.is_ok();
                let elected = timeout(longest, leader.wait_for(Option::is_some)).await;
                match elected.map(|elected| lost && elected.is_ok()) {
                    Ok(true) => {}
                    // The node is gone, and its servers end the stream.
                    Ok(false) => pending().await,
                    Err(_) => return ServiceError::not_sent(NotSent::NoLeader),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(5);

    fn info(leader: watch::Receiver<Option<LeaderHint>>) -> ServerInfo {
        ServerInfo {
            cluster: "harbour".to_owned(),
            cluster_id: watch::channel(Some(7)).1,
            node: 1,
            leader,
            leaderless_max: LONGEST,
            endpoints: watch::channel(Vec::new()).1,
            connections: ConnectionsMax::default(),
            deadlocks: watch::channel(VecDeque::new()).1,
        }
    }

    /// Only a node that has been without a leader for the whole time ends its watches. A node that has ended does not.
    #[tokio::test(start_paused = true)]
    async fn a_short_election_ends_no_watch() {
        let leads = || Some(LeaderHint { node: 2, client: "n2:7601".to_owned() });
        let (leader, leaders) = watch::channel(leads());
        let mut cut_off = pin!(info(leaders.clone()).cut_off());
        assert!(timeout(2 * LONGEST, &mut cut_off).await.is_err(), "there is a leader");
        for _ in 0..3 {
            leader.send_replace(None);
            assert!(timeout(LONGEST * 9 / 10, &mut cut_off).await.is_err(), "an election takes a while");
            leader.send_replace(leads());
            assert!(timeout(LONGEST, &mut cut_off).await.is_err(), "another leader is known");
        }
        leader.send_replace(None);
        assert_eq!(cut_off.await, ServiceError::not_sent(NotSent::NoLeader));
        drop(leader);
        assert!(timeout(2 * LONGEST, info(leaders).cut_off()).await.is_err(), "the node has ended");
    }
}
