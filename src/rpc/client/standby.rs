//! Connections to the nodes that a client does not use yet.
//!
//! When a node ends, all its clients need another node at the same moment. If they had to connect first, this would
//! take longer than the election of the next leader.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::endpoints::Endpoints;
use crate::limits::{STANDBY_MS_MAX, STANDBY_MS_MIN};
use crate::rpc::background::Tasks;

impl Endpoints {
    /// Starts a task that opens the missing connections, unless one runs. It ends when each known endpoint has a
    /// connection.
    pub(super) fn open_standbys(self: &Arc<Self>, tasks: &Tasks) {
        if self.opens_standbys.swap(true, Ordering::Relaxed) {
            return;
        }
        let endpoints = Arc::clone(self);
        tasks.run(async move {
            let mut pause = Duration::from_millis(STANDBY_MS_MIN);
            loop {
                sleep(pause).await;
                for address in endpoints.unconnected() {
                    // The endpoint may be down. If it belongs to another cluster, a warning is logged once.
                    let _ = endpoints.connected(&address).await;
                }
                if endpoints.unconnected().is_empty() {
                    break;
                }
                pause = (2 * pause).min(Duration::from_millis(STANDBY_MS_MAX));
            }
            endpoints.opens_standbys.store(false, Ordering::Relaxed);
        });
    }
}
