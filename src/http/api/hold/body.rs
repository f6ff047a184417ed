//! The request of `hold`.

use std::time::Duration;

use axum::http::Method;
use serde::Deserialize;
use utoipa::ToSchema;

use super::events::HoldEvent;
use super::{Hold, Terms};
use crate::client::default_ttl_ms;
use crate::http::api::acquire_body::{AcquireBody, MemberOfSet, ParentOwner, ReentryWord};
use crate::http::api::body::Object;
use crate::http::api::call::{Answered, RequestContext};
use crate::http::api::fields::{ModeWord, both_or_neither, drawn_uuid, instance};
use crate::http::api::problem::{Failed, named};
use crate::http::api::stream::{Events, StreamCall};
use crate::limits;
use crate::model::{Acquire, Handle, Invalid, RequestId, SessionId};
use crate::service::{ErrorCode, LockService};

/// Acquires a lock or a set, and holds it while the connection lasts. The node renews the hold, and sends `alive` as
/// often as it does. The client may believe that it holds the lock until the stream ends, `lost` comes, or no event
/// came for `silence_ms`. The same body with its `request` and `handle`, sent again to any node before the last
/// deadline that was sent, continues the hold or the place in the queue; the older stream ends with `moved`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly", "why": "rebuild the index"}))]
pub(in crate::http::api) struct HoldBody {
    /// Name of the lock.
    lock: Option<String>,
    /// Several locks, which are granted together or not at all, in place of `lock`.
    #[schema(value_type = Option<Vec<MemberOfSet>>)]
    locks: Option<Vec<Object<MemberOfSet>>>,
    mode: Option<ModeWord>,
    /// Number of permits; 1 by default.
    permits: Option<u32>,
    /// Limit of the semaphore, which its first request must name.
    limit: Option<u32>,
    /// A UUID that names this hold, together with `handle`. Default: random ones, which `granted` shows.
    request: Option<String>,
    /// The secret that proves this hold.
    handle: Option<String>,
    /// How long the lock stays held after the stream breaks. Default: the larger of 10 s and twice the cluster's
    /// minimum.
    ttl_ms: Option<u64>,
    /// Time after which the stream ends in any case. Default 1 h, at most 24 h.
    max_ms: Option<u64>,
    on_close: Option<OnClose>,
    /// Longest wait in the queue. Default `max_ms`; 0 does not wait.
    wait_ms: Option<u64>,
    /// How long the hold lasts unless it is renewed, which the node does. It shortens `silence_ms`.
    lease_ms: Option<u64>,
    /// The line of execution within the session.
    owner: Option<String>,
    /// The line of execution that waits until this one has finished.
    #[schema(value_type = Option<ParentOwner>)]
    parent: Option<Object<ParentOwner>>,
    reentry: Option<ReentryWord>,
    /// Whether it may overtake others in the queue.
    unfair: Option<bool>,
    /// How long the lock stays closed after an involuntary end.
    delay_ms: Option<u64>,
    /// A text that is stored with the hold and shown to every client.
    value: Option<String>,
    /// Whether it waits although that closes a cycle of owners that wait for each other.
    wait_in_cycles: Option<bool>,
    /// Minimum time between two grants.
    at_least_ms: Option<u64>,
    /// The hold ends this long after its grant. The client stops believing in it a little earlier.
    at_most_ms: Option<u64>,
    /// Name of the client, for display.
    who: Option<String>,
    /// Purpose, for display.
    why: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
    process: Option<String>,
    trace: Option<String>,
}

/// What happens to the lock when the stream breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OnClose {
    /// It stays held until the last deadline that was sent, unless a stream continues it. The default.
    Expire,
    /// It is released, as soon as no stream can have continued it. Only for work that ends with the connection.
    Release,
}

impl StreamCall for HoldBody {
    const METHOD: Method = Method::POST;
    const WORD: &'static str = "hold";
    const ERRORS: &'static [ErrorCode] = &[
        ErrorCode::NotAcquired,
        ErrorCode::AlreadyHeld,
        ErrorCode::AlreadyOpen,
        ErrorCode::KindMismatch,
        ErrorCode::Deadlock,
        ErrorCode::LimitMismatch,
        ErrorCode::LimitExceeded,
        ErrorCode::LimitUnknown,
        ErrorCode::Quota,
        ErrorCode::SessionEnded,
        ErrorCode::StaleAttempt,
        ErrorCode::RequestReused,
        ErrorCode::Lost,
    ];
    /// Its own events show that it works.
    const COMMENTS: bool = false;
    type Event = HoldEvent;

    async fn begin<S: LockService>(self, context: RequestContext<S>) -> Result<Answered<Events<HoldEvent>>, Failed> {
        let (terms, acquire) = self.terms(&context).await?;
        let (events, refused) = Hold::begin(context, terms, acquire);
        refused.await.map_or(Ok(Answered::fixed(events)), Err)
    }
}

impl HoldBody {
    /// Checks the fields, and draws the request and the handle if the caller names none.
    async fn terms<S: LockService>(self, context: &RequestContext<S>) -> Result<(Terms, Acquire), Failed> {
        both_or_neither(self.request.as_ref(), self.handle.as_ref())?;
        let request = self.request.clone().unwrap_or_else(|| drawn_uuid(context.api.clock.random_u128()));
        let instance = named("request", instance(Some(&request)))?;
        let handle = Handle::parse(&self.handle.clone().unwrap_or_else(|| context.drawn_handle()))?;
        let max_ms = self.max_ms.unwrap_or(limits::HOLD_MS_DEFAULT);
        if max_ms == 0 || limits::HOLD_MS_MAX < max_ms {
            return Err(Invalid::new("max_ms", format!("1 to {}", limits::HOLD_MS_MAX), max_ms).into());
        }
        let (ttl_ms, on_close) = (self.ttl_ms, self.on_close.unwrap_or(OnClose::Expire));
        // The client sets the number of the request.
        let number = RequestId { session: SessionId::new(0, 1), number: 1 };
        let is_set = self.locks.is_some();
        let acquire = self.acquire_body(max_ms).acquire(number)?;
        let lowest_ms = context.service.status().await?.ttl_ms_min;
        let terms = Terms {
            request,
            instance,
            handle,
            ttl: Duration::from_millis(ttl_ms.unwrap_or_else(|| default_ttl_ms(lowest_ms))),
            max: Duration::from_millis(max_ms),
            // The shortest grace that the cluster permits.
            grace: (on_close == OnClose::Release)
                .then(|| Duration::from_millis((lowest_ms / limits::TTL_MIN_IN_FAILOVERS).max(1))),
            is_set,
        };
        Ok((terms, acquire))
    }

    /// The fields that `acquire` has in a session, too.
    fn acquire_body(self, max_ms: u64) -> AcquireBody {
        AcquireBody {
            lock: self.lock,
            locks: self.locks,
            mode: self.mode,
            permits: self.permits,
            limit: self.limit,
            lease_ms: self.lease_ms,
            wait_ms: Some(self.wait_ms.unwrap_or(max_ms)),
            poll_ms: None,
            session: None,
            handle: None,
            request: None,
            since_ms: None,
            owner: self.owner,
            parent: self.parent,
            reentry: self.reentry,
            unfair: self.unfair,
            delay_ms: self.delay_ms,
            value: self.value,
            wait_in_cycles: self.wait_in_cycles,
            at_least_ms: self.at_least_ms,
            at_most_ms: self.at_most_ms,
            cached: None,
            answered_below: None,
            who: self.who,
            why: self.why,
            host: self.host,
            pid: self.pid,
            process: self.process,
            trace: self.trace,
        }
    }
}
