//! New connections to endpoints, and discovery: asks new connections and all endpoints which cluster they belong to.
//! Also opens the connections to nodes that a client does not use yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{sleep, timeout};
use tonic::codegen::http::HeaderValue;

use super::endpoints::{Endpoints, endpoint_at};
use super::pin::{Dialled, Found, PinnedChannel, Unfit, cause, cluster_of};
use super::settings::{stays_here, token_header};
use crate::clock;
use crate::limits;
use crate::net::{CoalescingConnector, Protocol, TlsConnector, TlsRefusal};
use crate::rpc::background::Tasks;
use crate::service::ServiceError;

/// A connection with the cluster of its node: `None` if that has no id yet.
type Identified = Result<(Dialled, Option<u128>), Unfit>;

impl Endpoints {
    /// Asks all endpoints for the cluster to accept. Once one has answered, the others have [`limits::CLUSTER_LOOK_MS`]
    /// left: if they belong to two clusters, each could grant the same lock.
    pub(super) async fn find_cluster(&self) -> Result<(), ServiceError> {
        let _alone = self.cluster.looking.lock().await;
        if self.cluster.pinned().is_some() {
            return Ok(());
        }
        let look = |address| async move { (address, self.identify(address).await) };
        let mut looks: FuturesUnordered<_> =
            self.settings.endpoints.iter().map(|address| look(address.as_str())).collect();
        let mut identified: BTreeMap<&str, Identified> = BTreeMap::new();
        while let Some((address, found)) = looks.next().await {
            let enough = matches!(found, Ok((_, Some(cluster_id))) if self.cluster.accepts(cluster_id));
            identified.insert(address, found);
            if enough {
                break;
            }
        }
        let rest = async {
            while let Some((address, found)) = looks.next().await {
                identified.insert(address, found);
            }
        };
        let _ = timeout(Duration::from_millis(limits::CLUSTER_LOOK_MS), rest).await;
        let found = |address: &str| identified.get(address).map_or_else(|| Err(late()), found_by);
        let endpoints = self.settings.endpoints.iter().map(String::as_str);
        let found: Vec<(&str, Found)> = endpoints.map(|address| (address, found(address))).collect();
        let pinned = self.cluster.decide(&found)?;
        // One connection is enough until another one is needed.
        let first = found.iter().find(|(_, found)| *found == Ok(pinned));
        if let Some((address, _)) = first
            && let Some(Ok((dialled, _))) = identified.remove(address)
        {
            self.keep(address, dialled);
            self.prefer(address);
        }
        Ok(())
    }

    /// Starts a task that opens the missing connections, unless one runs. It ends when each known endpoint has a
    /// connection. When a node ends, all its clients need another node at the same moment. If they had to connect
    /// first, this would take longer than the election of the next leader.
    pub(super) fn open_standbys(self: &Arc<Self>, tasks: &Tasks) {
        if self.opens_standbys.swap(true, Ordering::Relaxed) {
            return;
        }
        let endpoints = Arc::clone(self);
        tasks.run(async move {
            let mut full_ms = limits::STANDBY_MS_MIN;
            loop {
                // All clients of a lost node start here at the same moment, and must not dial it together.
                let early_ms = clock::draw() % (full_ms / 2 + 1);
                sleep(Duration::from_millis(full_ms - early_ms)).await;
                for address in endpoints.unconnected() {
                    // The endpoint may be down. If it belongs to another cluster, a warning is logged once.
                    let _ = endpoints.connected(&address).await;
                }
                if endpoints.unconnected().is_empty() {
                    break;
                }
                full_ms = (2 * full_ms).min(limits::STANDBY_MS_MAX);
            }
            endpoints.opens_standbys.store(false, Ordering::Relaxed);
        });
    }

    /// Opens a new connection to the accepted cluster.
    pub(super) async fn connected(&self, address: &str) -> Result<PinnedChannel, Unfit> {
        let identified = self.identify(address).await;
        self.cluster.note(address, &found_by(&identified));
        match identified {
            Ok((dialled, Some(cluster_id))) if self.cluster.accepts(cluster_id) => Ok(self.keep(address, dialled)),
            // This node refuses calls that name a cluster until it belongs to that cluster.
            Ok((dialled, None)) => Ok(self.keep(address, dialled)),
            Ok((_, Some(cluster_id))) => Err(Unfit::Foreign(cluster_id)),
            Err(unfit) => Err(unfit),
        }
    }

    /// Connects and asks for the cluster. If the connection ends without an answer, the node may be stopping: then it
    /// refuses a second attempt. If the second attempt is not refused, another service answers there.
    async fn identify(&self, address: &str) -> Identified {
        let longest = Duration::from_millis(limits::CONNECT_MS_MAX);
        let mut before = None;
        loop {
            let dialled = self.dial(address).await?;
            let answered = timeout(longest, cluster_of(dialled.channel.clone())).await;
            match (answered.map_err(|_| late())?, before) {
                (Ok(cluster_id), _) => return Ok((dialled, cluster_id)),
                (Err(why), None) => before = Some(why),
                (Err(why), Some(_)) if self.is_plain() => {
                    return Err(Unfit::NoClientPort(format!("{why}; if it uses TLS, give --ca")));
                }
                (Err(why), Some(_)) => return Err(Unfit::NoClientPort(why)),
            }
        }
    }

    /// Reads the client's token for a new connection to this address.
    fn token(&self, address: &str) -> Result<Option<HeaderValue>, Unfit> {
        let Some(path) = &self.settings.auth_token_file else { return Ok(None) };
        if self.is_plain() && !stays_here(address) {
            let why = "a token is sent to another machine only with TLS: give --ca";
            return Err(Unfit::Unreached(why.to_owned()));
        }
        token_header(path).map(Some).map_err(Unfit::Unreached)
    }

    /// Whether the file of the client's token has another one than a connection to this address.
    pub(super) fn has_another_token(&self, address: &str, token: Option<HeaderValue>) -> bool {
        token.is_some() && self.token(address).is_ok_and(|now| now != token)
    }

    /// Opens a new connection.
    async fn dial(&self, address: &str) -> Result<Dialled, Unfit> {
        let token = self.token(address)?;
        let endpoint = endpoint_at(address).map_err(|error| Unfit::Unreached(cause(&error)))?;
        let longest = Duration::from_millis(limits::CONNECT_MS_MAX);
        let connecting = async {
            match (self.settings.connector.clone(), self.settings.tls.clone()) {
                (Some(connector), _) => endpoint.connect_with_connector(CoalescingConnector(connector)).await,
                (None, None) => endpoint.connect_with_connector(CoalescingConnector::tcp()).await,
                (None, Some(files)) => {
                    let (files, below) = (Arc::new(files), CoalescingConnector::tcp().0);
                    let tls = TlsConnector { files, protocol: Protocol::Http2, below };
                    endpoint.connect_with_connector(CoalescingConnector(tls)).await
                }
            }
        };
        let late = |_| Unfit::Unreached("no connection in time".to_owned());
        let connected = timeout(longest, connecting).await.map_err(late)?;
        let channel = connected.map_err(|error| match TlsRefusal::of(&error) {
            Some(refusal) => Unfit::TlsRefused(refusal.clone()),
            None => Unfit::Unreached(cause(&error)),
        })?;
        Ok(Dialled { channel, token })
    }
}

fn late() -> Unfit {
    Unfit::Unreached("no answer in time".to_owned())
}

/// Returns the cluster of an identified endpoint, or why that endpoint cannot be used.
fn found_by(identified: &Identified) -> Found {
    match identified {
        Ok((_, cluster_id)) => cluster_id.ok_or(Unfit::Unfounded),
        Err(unfit) => Err(unfit.clone()),
    }
}
