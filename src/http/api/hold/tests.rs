//! The events of a `hold` whose renewals are answered late.

use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::acquire_body::AcquireBody;
use super::super::stream::StreamEvent;
use super::super::tests::fake::{Fake, TTL, context};
use super::*;
use crate::model::{RequestId, SessionId};
use crate::net::CertificateState;
use crate::rpc::Tasks;

/// The events of a hold of the lock `a`, at a node that runs.
struct Stream {
    events: Events<HoldEvent>,
    refused: oneshot::Receiver<Failed>,
    certificate: CertificateState,
    stop: watch::Sender<bool>,
    tasks: Tasks,
}

impl Stream {
    fn begin(fake: &Fake, body: Value) -> Self {
        Self::begin_with(fake, body, None)
    }

    fn begin_with(fake: &Fake, body: Value, grace: Option<Duration>) -> Self {
        let (context, stop) = context(fake);
        let (certificate, tasks) = (context.certificate.clone(), context.api.tasks.clone());
        let body: AcquireBody = serde_json::from_value(body).expect("fields");
        let acquire = body.acquire(RequestId { session: SessionId::new(0, 1), number: 1 }).expect("an acquire");
        let terms = Terms {
            request: "7f1e0c3a-52d4-4b0e-9a55-0b3a3f6b9d11".to_owned(),
            instance: Instance(7),
            handle: Handle::from_random(7),
            ttl: TTL,
            max: TTL * 100,
            grace,
            is_set: false,
        };
        let (events, refused) = Hold::begin(context, terms, acquire);
        Self { events, refused, certificate, stop, tasks }
    }

    /// Returns the next event, if there is one within three TTLs.
    async fn event(&mut self) -> Option<HoldEvent> {
        let event = timeout(3 * TTL, self.events.recv()).await.ok()?;
        Some(event.expect("the stream lasts").expect("no error"))
    }

    /// Returns the name of the next event, if there is one within three TTLs.
    async fn next(&mut self) -> Option<&'static str> {
        self.event().await.map(|event| event.word())
    }
}

/// the session of a stream that breaks is reported as disconnected, so that its grace begins; but not if the node
/// has ended the connection because of its certificate.
#[tokio::test(start_paused = true)]
async fn a_refused_certificate_starts_no_grace() {
    for refused in [false, true] {
        let fake = Fake::new();
        fake.renewal_takes(Duration::from_millis(20));
        let mut stream = Stream::begin_with(&fake, json!({"lock": "a"}), Some(TTL / 2));
        assert_eq!(stream.next().await, Some("granted"));
        if refused {
            stream.certificate.refuse();
        }
        drop(stream.events);
        tokio::time::sleep(2 * TTL).await;
        assert_eq!(fake.disconnects(), usize::from(!refused));
    }
}

/// A hold that waits reports its place again once it has changed, and only then.
#[tokio::test(start_paused = true)]
async fn a_waiting_hold_reports_its_new_place() {
    let fake = Fake::new();
    fake.queue_acquires(3);
    let mut stream = Stream::begin(&fake, json!({"lock": "a", "wait_ms": 60_000}));
    for place in [3, 2, 1] {
        fake.queue_acquires(place);
        let reported = loop {
            let event = stream.event().await.expect("an event");
            if let HoldEvent::Waiting(waiting) = event {
                break waiting.place;
            }
            assert!(matches!(event, HoldEvent::Alive(_)), "{event:?}");
        };
        assert_eq!(reported, place);
    }
    for _ in 0..10 {
        assert_eq!(stream.next().await, Some("alive"));
    }
}

/// Time for which a renewal proves the session for longer than the client believes in its hold.
const IN_TIME: Duration = Duration::from_millis(500);

/// A client believes in its hold because of an event for almost a TTL. So no event says that it holds the lock while
/// each renewal was sent too long ago, although the session lives; the first renewal in time is followed by one.
#[tokio::test(start_paused = true)]
async fn an_event_follows_only_a_renewal_in_time() {
    let fake = Fake::new();
    let late = TTL - Pace::of_session(TTL).belief() + Duration::from_millis(1);
    assert!(IN_TIME < late && late < TTL / limits::HOLD_RENEWALS_A_TTL);
    fake.acquire_takes(late);
    fake.renewal_takes(late);
    let mut stream = Stream::begin(&fake, json!({"lock": "a"}));
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

/// The lock may be granted before the session is attached. A caller that leaves by then is reported like a stream that
/// breaks later, so that the lock is released.
#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_before_its_first_event_is_reported() {
    let fake = Fake::new();
    fake.acquire_takes(IN_TIME);
    let stream = Stream::begin_with(&fake, json!({"lock": "a"}), Some(IN_TIME));
    timeout(TTL, fake.acquire_begins()).await.expect("it is requested");
    let Stream { events, stop: _stop, .. } = stream;
    drop(events);
    timeout(3 * TTL, fake.disconnect()).await.expect("the break is reported");
}

/// A node that stops before a hold is answered leaves its caller in doubt: the lock may have been granted.
#[tokio::test(start_paused = true)]
async fn a_stop_before_the_first_event_leaves_doubt() {
    let fake = Fake::new();
    fake.acquire_takes(IN_TIME);
    let stream = Stream::begin(&fake, json!({"lock": "a"}));
    timeout(TTL, fake.acquire_begins()).await.expect("it is requested");
    stream.stop.send_replace(true);
    let refused = timeout(TTL, stream.refused).await.expect("answered").expect("refused");
    let Failed::Service(error, _) = refused else { panic!("another error") };
    assert!(error.leaves_doubt(), "{error}");
}

/// A hold whose caller stopped reading ends before the node that stops has waited for its ports, also while it sends
/// an event. No break is reported, so that the grace does not begin: the caller may continue its hold at another node.
#[tokio::test(start_paused = true)]
async fn a_caller_that_takes_nothing_delays_no_stop() {
    for sends in [false, true] {
        let fake = Fake::new();
        let stream = Stream::begin_with(&fake, json!({"lock": "a"}), Some(IN_TIME));
        let beat = TTL / limits::HOLD_RENEWALS_A_TTL;
        while stream.events.len() < limits::HOLD_EVENTS_WAITING_MAX {
            tokio::time::sleep(beat).await;
        }
        if sends {
            // The next event does not fit. The silence after which the stream counts as broken is longer.
            tokio::time::sleep(3 * beat / 2).await;
        }
        stream.stop.send_replace(true);
        let port = Duration::from_millis(limits::CLOSE_WAIT_MS - 1);
        timeout(port, stream.tasks.ended()).await.expect("it ends before the port");
        tokio::time::sleep(2 * TTL).await;
        assert_eq!((stream.events.len(), fake.disconnects()), (limits::HOLD_EVENTS_WAITING_MAX, 0));
    }
}

/// A repetition whose wait was over before it arrived is refused for that reason, and not because of a holder: the lock
/// may be free. A request that does not wait has met a holder or a waiter.
#[tokio::test(start_paused = true)]
async fn a_wait_that_was_over_before_names_no_holder() {
    for (wait_ms, is_over) in [(60_000, true), (0, false)] {
        let fake = Fake::new();
        fake.end_waits();
        let stream = Stream::begin(&fake, json!({"lock": "a", "wait_ms": wait_ms}));
        let refused = timeout(TTL, stream.refused).await.expect("answered").expect("refused");
        assert_eq!(matches!(&refused, Failed::WaitOver { lock, .. } if lock == "a"), is_over, "{refused:?}");
    }
}

/// What the client of a hold learns from its events. `lost_after` of them, all renewals are lost.
struct Believed {
    granted: Value,
    /// How many events followed the grant before the hold was lost.
    alive: usize,
    last: Value,
}

/// Follows a hold that may end before its session. Checks after each event that the client stops believing in the hold
/// before another client can be granted the lock, even if the event is the last one and late.
async fn believed(body: Value, lost_after: usize) -> Believed {
    let fake = Fake::new();
    fake.renewal_takes(Duration::from_millis(20));
    let mut stream = Stream::begin(&fake, body);
    let json = |event: HoldEvent| serde_json::to_value(event).expect("JSON");
    let granted = json(stream.event().await.expect("a grant"));
    let silence = Duration::from_millis(granted["silence_ms"].as_u64().expect("a time"));
    let mut alive = 0;
    let mut event = granted.clone();
    while event["event"] != "lost" {
        assert!(silence + silence / 2 < fake.left(), "{event}: believed for {silence:?} of {:?}", fake.left());
        assert!(event["remaining_ms"].as_u64() <= Some(TTL.as_millis() as u64 / 10), "{event}");
        if alive == lost_after {
            fake.lose_renewals();
        }
        event = json(stream.event().await.expect("the hold is lost"));
        alive += 1;
    }
    Believed { granted, alive: alive - 1, last: event }
}

/// A client does not believe in a hold for longer than its lease, which is shorter than the TTL. It has events as long
/// as the lease is renewed.
#[tokio::test(start_paused = true)]
async fn a_short_lease_ends_the_belief() {
    let Believed { granted, alive, last } = believed(json!({"lock": "a", "lease_ms": 1_000}), 40).await;
    assert_eq!([&granted["silence_ms"], &granted["beat_ms"]], [&json!(396), &json!(132)]);
    assert!(40 < alive, "{alive} events");
    assert_eq!([&last["lock"], &last["reason"]], [&json!("a"), &json!("deadline")]);
}

/// A client does not believe in a hold for longer than the longest time that its request chose.
#[tokio::test(start_paused = true)]
async fn a_longest_time_ends_the_belief() {
    let Believed { granted, alive, last } = believed(json!({"lock": "a", "at_most_ms": 1_000}), usize::MAX).await;
    assert!(granted["silence_ms"].as_u64() < Some(300), "{granted}");
    assert!(3 < alive, "{alive} events");
    assert_eq!([&last["lock"], &last["reason"]], [&json!("a"), &json!("time over")]);
}
