//! The cluster's endpoints: one connection each, the best one first, and each is tried before a call fails.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Sleep, sleep, timeout};
use tonic::codegen::http::HeaderValue;
use tonic::transport::Endpoint;

use super::pin::{ClusterPin, Dialled, PinnedChannel, Unfit};
use super::settings::{RemoteSettings, token_header};
use crate::limits;
use crate::model::Invalid;
use crate::mutex::Mutex;
use crate::rpc::pb::admin_client::AdminClient;
use crate::rpc::pb::locks_client::LocksClient;
use crate::service::{LeaderHint, NotSent, ServiceError};

/// Effect of a call whose answer is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// No effect: the next endpoint may get the same call.
    Reads,
    /// A change that the caller repeats: a repetition is harmless, or the change has a separate id. The call is not
    /// sent to another endpoint here, but fails early enough for the caller to do that.
    Repeats,
    /// A change that must not be repeated: no other endpoint gets the call, and it may take the whole time of a
    /// request.
    Changes,
}

/// The endpoints of one client and their connections.
pub(super) struct Endpoints {
    pub(super) settings: RemoteSettings,
    /// Members that a node reported, in addition to the configured ones: members that joined later are found this way.
    learned: Mutex<Vec<String>>,
    pub(super) cluster: Arc<ClusterPin>,
    /// Endpoint of the last answer, or the reported leader.
    preferred: Mutex<Option<String>>,
    /// Index of the configured endpoint that comes first if none is preferred. It advances with every failure.
    first: AtomicUsize,
    channels: Mutex<BTreeMap<String, PinnedChannel>>,
    /// Whether a task opens the missing connections.
    pub(super) opens_standbys: AtomicBool,
}

/// A connected endpoint.
pub(super) struct ConnectedEndpoint {
    pub(super) address: String,
    pub(super) channel: PinnedChannel,
}

/// Result of a call at one endpoint.
enum Step<T> {
    Answered(T),
    /// The call was not sent, or is harmless: try the next endpoint.
    Next {
        why: String,
        error: Option<ServiceError>,
        leader: Option<LeaderHint>,
    },
    /// The call was not executed, because the token of the connection counts no more: try this endpoint with a new
    /// connection.
    Again(ServiceError),
    Final(ServiceError),
}

impl Endpoints {
    /// Checks the endpoints. Refuses addresses to which no connection can be made.
    pub(super) fn new(settings: RemoteSettings) -> Result<Self, Invalid> {
        if let Some(path) = &settings.auth_token_file {
            // The sentence with the fix is longer than a value, and is not cut.
            let unfit = Invalid::new("auth_token_file", "a file with a token", "none");
            token_header(path).map_err(|why| Invalid { value: format!("none: {why}"), ..unfit })?;
        }
        if settings.endpoints.is_empty() || settings.endpoints.len() > limits::ENDPOINTS_MAX {
            let bound = format!("1 to {} endpoints", limits::ENDPOINTS_MAX);
            return Err(Invalid::new("endpoints", bound, settings.endpoints.len()));
        }
        for address in &settings.endpoints {
            let refused = || Invalid::new("endpoints", "HOST:PORT each", format!("{address:?}"));
            let endpoint = endpoint_at(address).map_err(|_| refused())?;
            if address.contains('/') || endpoint.uri().port().is_none() {
                return Err(refused());
            }
        }
        Ok(Self {
            learned: Mutex::default(),
            cluster: Arc::new(ClusterPin::new(settings.cluster, settings.on_left_out)),
            settings,
            preferred: Mutex::default(),
            first: AtomicUsize::new(0),
            channels: Mutex::default(),
            opens_standbys: AtomicBool::new(false),
        })
    }

    /// Like [`ask_but_last`](Self::ask_but_last), without an endpoint that comes last.
    pub(super) async fn ask<M, T, F, C>(&self, effect: Effect, asked: M, call: C) -> Result<T, ServiceError>
    where
        M: Clone,
        C: Fn(M, ConnectedEndpoint) -> F,
        F: Future<Output = Result<T, ServiceError>>,
    {
        self.ask_but_last(None, effect, asked, call).await
    }

    /// Sends the call to one endpoint after the other until one answers: the preferred one first, then the reported
    /// leader, and all of them before the error "unreachable". All attempts together take at most the time of one
    /// request.
    pub(super) async fn ask_but_last<M, T, F, C>(
        &self,
        last_choice: Option<&str>,
        effect: Effect,
        asked: M,
        call: C,
    ) -> Result<T, ServiceError>
    where
        M: Clone,
        C: Fn(M, ConnectedEndpoint) -> F,
        F: Future<Output = Result<T, ServiceError>>,
    {
        let mut limit = pin!(sleep(self.settings.request_wait));
        if self.cluster.pinned().is_none() {
            tokio::select! {
                found = Box::pin(self.find_cluster()) => found?,
                () = &mut limit => return Err(self.cluster.unserved("no endpoint answered in time".to_owned())),
            }
        }
        let mut candidates = self.candidates();
        if let Some(address) = last_choice {
            candidates.retain(|candidate| candidate != address);
            candidates.push_back(address.to_owned());
        }
        let mut tries: HashMap<String, u32> = HashMap::new();
        let mut failures = Vec::new();
        let mut last = None;
        while let Some(address) = candidates.pop_front() {
            let tried = tries.entry(address.clone()).or_default();
            *tried += 1;
            if *tried > 2 {
                continue;
            }
            let first_try = *tried == 1;
            let call = |endpoint| call(asked.clone(), endpoint);
            match self.step(&address, effect, call, limit.as_mut()).await {
                Step::Answered(answer) => {
                    self.prefer(&address);
                    return Ok(answer);
                }
                Step::Final(error) => return Err(error),
                Step::Again(error) => {
                    last = Some(error);
                    candidates.push_front(address);
                }
                Step::Next { why, error, leader } => {
                    failures.push(if why.starts_with(&address) { why } else { format!("{address}: {why}") });
                    // An attempt after a refused token shows that the refusal was about an older one.
                    last = error.or(last.filter(|last| !matches!(last, ServiceError::Unauthenticated { .. })));
                    if let Some(leader) = leader
                        && first_try
                    {
                        if leader.client == address {
                            // The node was elected, and starts to lead in a moment.
                            sleep(Duration::from_millis(limits::RETRY_MS_MIN)).await;
                        }
                        candidates.push_back(address);
                        candidates.push_front(leader.client);
                    }
                }
            }
            if limit.is_elapsed() {
                break;
            }
        }
        Err(last.unwrap_or_else(|| self.cluster.unserved(failures.join("; "))))
    }

    async fn step<T, F>(
        &self,
        address: &str,
        effect: Effect,
        call: impl FnOnce(ConnectedEndpoint) -> F,
        mut limit: Pin<&mut Sleep>,
    ) -> Step<T>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        let channel = tokio::select! {
            channel = self.channel(address) => channel,
            () = &mut limit => Err(Unfit::Unreached("not connected in time".to_owned())),
        };
        let channel = match channel {
            Ok(channel) => channel,
            Err(unfit) => {
                self.forget(address);
                return Step::Next { why: unfit.about(address), error: unfit.refused(address), leader: None };
            }
        };
        let token = channel.token();
        let late = || Err(ServiceError::unknown(format!("{address} did not answer in time")));
        let answered = tokio::select! {
            answered = timeout(self.share(effect), call(ConnectedEndpoint { address: address.to_owned(), channel })) => {
                answered.unwrap_or_else(|_| late())
            }
            () = &mut limit => late(),
        };
        match answered {
            Ok(answer) => Step::Answered(answer),
            Err(error) => self.failed(address, effect, token, error),
        }
    }

    /// Returns what follows the error of a call to an endpoint.
    fn failed<T>(&self, address: &str, effect: Effect, token: Option<HeaderValue>, error: ServiceError) -> Step<T> {
        let next = |why: String, error, leader| Step::Next { why, error, leader };
        match (&error, effect) {
            (ServiceError::NotSent { why: NotSent::Unreachable(why), leader }, _) => {
                self.forget(address);
                next(why.clone(), None, leader.clone())
            }
            (ServiceError::NotSent { why: NotSent::NotLeader | NotSent::NoLeader, leader }, _) => {
                self.unprefer(address);
                let leader = leader.clone();
                next(error.to_string(), Some(error), leader)
            }
            (ServiceError::Stopping, _) => {
                self.forget(address);
                next(error.to_string(), Some(error), None)
            }
            // A lost answer leaves no doubt about a read. If no other endpoint answers it, it was not served.
            (ServiceError::Unknown { why, .. }, Effect::Reads) => {
                self.forget(address);
                next(why.clone(), None, None)
            }
            (ServiceError::Unknown { .. }, Effect::Repeats | Effect::Changes) => {
                self.forget(address);
                Step::Final(error)
            }
            (ServiceError::Unauthenticated { .. }, _) if self.has_another_token(address, token) => {
                self.channels.lock().clear();
                Step::Again(error)
            }
            (
                ServiceError::NotSent {
                    why:
                        NotSent::Overloaded { .. }
                        | NotSent::RateExceeded { .. }
                        | NotSent::LimitReached { .. }
                        | NotSent::Detached,
                    ..
                }
                | ServiceError::Invalid(_)
                | ServiceError::Refused(_)
                | ServiceError::Forbidden { .. }
                | ServiceError::Unauthenticated { .. }
                | ServiceError::EventsMissed { .. }
                | ServiceError::Internal(_),
                _,
            ) => Step::Final(error),
        }
    }

    /// Returns the time that one endpoint gets for a call. A hanging node looks like a slow one: if another endpoint
    /// can serve the same call, half of the time is kept for that endpoint.
    fn share(&self, effect: Effect) -> Duration {
        match effect {
            Effect::Reads | Effect::Repeats => {
                (self.settings.request_wait / 2).max(Duration::from_millis(limits::ENDPOINT_WAIT_MS_MIN))
            }
            Effect::Changes => self.settings.request_wait,
        }
    }

    /// Stores the addresses of the members that a node has reported. The configured endpoints are kept: they may be the
    /// only reachable ones.
    pub(super) fn learn(&self, members: &[String]) {
        let left = limits::ENDPOINTS_MAX;
        let new = members.iter().filter(|member| !self.settings.endpoints.contains(member)).take(left);
        *self.learned.lock() = new.cloned().collect();
    }

    /// Returns the known endpoints in the order in which a call tries them: the preferred one, then those with a
    /// connection. After the end of a node, to connect would take longer than the election of the next leader.
    pub(super) fn candidates(&self) -> VecDeque<String> {
        let learned = self.learned.lock().clone();
        let known: Vec<_> = self.settings.endpoints.iter().chain(&learned).collect();
        let first = self.first.load(Ordering::Relaxed);
        let mut all: VecDeque<String> =
            (0..known.len()).map(|step| known[(first + step) % known.len()].clone()).collect();
        let channels = self.channels.lock();
        all.make_contiguous().sort_by_key(|address| !channels.contains_key(address));
        drop(channels);
        if let Some(preferred) = self.preferred.lock().clone() {
            all.retain(|address| *address != preferred);
            all.push_front(preferred);
        }
        all
    }

    /// Returns the known endpoints without a connection.
    pub(super) fn unconnected(&self) -> Vec<String> {
        let candidates = self.candidates();
        let channels = self.channels.lock();
        candidates.into_iter().filter(|address| !channels.contains_key(address)).collect()
    }

    /// Prefers this endpoint from now on.
    pub(super) fn prefer(&self, address: &str) {
        let mut preferred = self.preferred.lock();
        if preferred.as_deref() != Some(address) {
            *preferred = Some(address.to_owned());
        }
    }

    fn unprefer(&self, address: &str) {
        let mut preferred = self.preferred.lock();
        if preferred.as_deref() == Some(address) {
            *preferred = None;
        }
        self.first.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops the connection after a failure, so that the next call makes a new one and starts with another endpoint.
    pub(super) fn forget(&self, address: &str) {
        self.channels.lock().remove(address);
        self.unprefer(address);
    }

    /// Like [`forget`](Self::forget), but several callers with the same connection move the client on once.
    pub(super) fn leave(&self, address: &str) {
        if self.channels.lock().remove(address).is_some() {
            self.unprefer(address);
        }
    }

    /// Returns the shared connection to an endpoint, or connects.
    async fn channel(&self, address: &str) -> Result<PinnedChannel, Unfit> {
        if let Some(channel) = self.channels.lock().get(address) {
            return Ok(channel.clone());
        }
        Box::pin(self.connected(address)).await
    }

    /// Stores a connection so that calls share it.
    pub(super) fn keep(&self, address: &str, dialled: Dialled) -> PinnedChannel {
        let channel = PinnedChannel::new(dialled, address, Arc::clone(&self.cluster));
        self.channels.lock().insert(address.to_owned(), channel.clone());
        channel
    }

    /// Whether the client dials TCP without TLS.
    pub(super) fn is_plain(&self) -> bool {
        self.settings.tls.is_none() && self.settings.connector.is_none()
    }
}

/// Returns the unconnected endpoint at this address.
pub(super) fn endpoint_at(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    // The connector adds TLS.
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(Duration::from_millis(limits::CONNECT_MS_MAX))
        .http2_keep_alive_interval(Duration::from_millis(limits::KEEPALIVE_MS))
        .keep_alive_timeout(Duration::from_millis(limits::KEEPALIVE_WAIT_MS))
        .keep_alive_while_idle(true)
        .http2_max_header_list_size(limits::HEADER_LIST_BYTES_MAX)
        .initial_stream_window_size(limits::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits::CONNECTION_WINDOW_BYTES))
}

/// Returns a `Locks` client with its size limits.
pub(super) fn locks(endpoint: ConnectedEndpoint) -> LocksClient<PinnedChannel> {
    LocksClient::new(endpoint.channel)
        .max_decoding_message_size(limits::ANSWER_BYTES_MAX)
        .max_encoding_message_size(limits::FRAME_BYTES_MAX)
}

/// Returns an `Admin` client with its size limits.
pub(super) fn admin(endpoint: ConnectedEndpoint) -> AdminClient<PinnedChannel> {
    AdminClient::new(endpoint.channel)
        .max_decoding_message_size(limits::ANSWER_BYTES_MAX)
        .max_encoding_message_size(limits::FRAME_BYTES_MAX)
}
