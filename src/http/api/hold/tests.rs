//! The events of a `hold` whose renewals are answered late.

mod fake;

use serde_json::{Value, json};
use tokio::time::timeout;

use self::fake::{Fake, TTL};
use super::super::acquire_body::AcquireBody;
use super::super::call::Api;
use super::super::stream::StreamEvent;
use super::*;
use crate::model::{Namespace, RequestId, SessionId};
use crate::rpc::Tasks;
use crate::service::ServerInfo;

/// The events of a hold of the lock `a`, at a node that runs.
struct Stream {
    events: Events<HoldEvent>,
    _stop: watch::Sender<bool>,
}

impl Stream {
    fn begin(fake: &Fake) -> Self {
        let info = ServerInfo {
            cluster: "harbour".to_owned(),
            cluster_id: watch::channel(Some(1)).1,
            node: 1,
            leader: watch::channel(None).1,
            endpoints: watch::channel(Vec::new()).1,
            connections: crate::net::ConnectionsMax::default(),
        };
        let (stop, stopped) = watch::channel(false);
        let mut api = Api::new(fake.clone(), info, Tasks::default(), stopped, Value::Null);
        Arc::get_mut(&mut api).expect("no other owner").clock = fake.clock.clone();
        let at = At { api, service: fake.clone(), namespace: Namespace::default(), session: None, last_event: None };
        let body: AcquireBody = serde_json::from_value(json!({"lock": "a"})).expect("fields");
        let acquire = body.acquire(RequestId { session: SessionId::new(0, 1), number: 1 }).expect("an acquire");
        let terms = Terms {
            request: "7f1e0c3a-52d4-4b0e-9a55-0b3a3f6b9d11".to_owned(),
            instance: Instance(7),
            handle: Handle::from_random(7),
            ttl: TTL,
            max: TTL * 100,
            grace: None,
            is_set: false,
            acquire,
        };
        Self { events: Hold::begin(at, terms).0, _stop: stop }
    }

    /// Returns the name of the next event, if there is one within three TTLs.
    async fn next(&mut self) -> Option<&'static str> {
        let event = timeout(3 * TTL, self.events.recv()).await.ok()?;
        Some(event.expect("the stream lasts").expect("no error").word())
    }
}

/// Time for which a renewal proves the session for longer than the client believes in its hold.
const IN_TIME: Duration = Duration::from_millis(500);

/// A client believes in its hold because of an event for almost a TTL. So no event says that it holds the lock while
/// each renewal was sent too long ago, although the session lives; the first renewal in time is followed by one.
#[tokio::test(start_paused = true)]
async fn an_event_follows_only_a_renewal_in_time() {
    let fake = Fake::new();
    let late = TTL - belief(TTL) + Duration::from_millis(1);
    assert!(IN_TIME < late && late < TTL / limits::HOLD_RENEWALS_A_TTL);
    fake.acquire_takes(late);
    fake.renewal_takes(late);
    let mut stream = Stream::begin(&fake);
    assert_eq!(stream.next().await, None, "granted, but the session is not proven for long enough");
    fake.renewal_takes(IN_TIME);
    assert_eq!((stream.next().await, stream.next().await), (Some("granted"), Some("alive")));
    fake.renewal_takes(late);
    // The answer to the last renewal in time may be under way.
    let last = stream.next().await;
    assert!([None, Some("alive")].contains(&last), "{last:?}");
    assert_eq!(stream.next().await, None, "no answer is in time");
    fake.renewal_takes(IN_TIME);
    assert_eq!(stream.next().await, Some("alive"));
}
