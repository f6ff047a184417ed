//! Events. One message has the parts of all of them; its type says which are set.

use super::scalars::{known, required, unknown};
use super::table::{Wire, read_set};
use crate::model::{Event, EventKind, Invalid, LockKey, LogTime, Namespace, Subject, WallTime};
use crate::rpc::pb;

/// `Variant of subject { field of the message: field of the variant }`.
macro_rules! wire_events {
    ($($every:ident),*; $($kind:ident of $subject:ident { $($field:ident: $part:ident),* })*) => {
        /// An event that says nothing. It names every field, so that a new one has to find its row.
        fn nothing() -> pb::Event {
            let (position, at_ms, wall_ms, r#type) = (None, 0, 0, 0);
            pb::Event { position, at_ms, wall_ms, r#type, $($every: None),* }
        }

        /// Sets the type, and what the other parts say of it.
        fn add(kind: &EventKind, event: &mut pb::Event) {
            match kind { $(
                EventKind::$kind { $($part),* } => {
                    event.r#type = pb::EventType::$kind.into();
                    $(event.$field = Wire::to_wire($part);)*
                }
            )* }
        }

        fn read(namespace: Option<&Namespace>, mut event: pb::Event) -> Result<(Subject, EventKind), Invalid> {
            match known("type", event.r#type)? {
                pb::EventType::Unspecified => Err(unknown("type", "unspecified")),
                $(pb::EventType::$kind => Ok((
                    subject(About::$subject, namespace, &mut event)?,
                    EventKind::$kind { $($part: Wire::from_wire(stringify!($field), event.$field)?),* },
                )),)*
            }
        }
    };
}

wire_events! {
    namespace, lock, claim, token, session, sequence, mode, waited_ms, held_ms, reason, ended_because, why, by, previous_token,
    previous_claim, permits, limit, gap_ms;
    Queued of Wait { sequence: sequence }
    Granted of Hold { mode: mode, waited_ms: waited_ms }
    WaitEnded of Wait { sequence: sequence, ended_because: why }
    Released of Hold { held_ms: held_ms }
    Expired of Hold { reason: reason, held_ms: held_ms }
    Upgraded of Hold { previous_token: from, waited_ms: waited_ms }
    Downgraded of Hold {}
    PermitsReturned of Hold { permits: count }
    Resumed of Hold { previous_token: from, mode: mode }
    Reopened of LostHold {}
    Broken of Hold { by: by, why: why, held_ms: held_ms }
    HandedOver of Hold { previous_claim: was, previous_token: from, mode: mode, by: by }
    RevokeRequested of Hold { by: by, why: why }
    ValueChanged of Hold {}
    Recalled of Hold {}
    LimitChanged of Lock { limit: limit }
    SessionOpened of Session {}
    SessionEnded of Session { reason: reason, why: why }
    LeaderlessGap of Cluster { gap_ms: gap_ms }
}

/// What an event is about.
enum About {
    Wait,
    Hold,
    LostHold,
    Lock,
    Session,
    Cluster,
}

fn subject(about: About, namespace: Option<&Namespace>, event: &mut pb::Event) -> Result<Subject, Invalid> {
    let (claimed, held) = match about {
        About::Wait => (true, false),
        About::Hold => (true, true),
        About::LostHold => (false, true),
        About::Lock => (false, false),
        About::Session => return read_set("session", event.session).map(Subject::Session),
        About::Cluster => return Ok(Subject::Cluster),
    };
    let namespace = required("namespace", namespace)?.clone();
    let lock = LockKey { namespace, name: read_set("lock", event.lock.take())? };
    let claim = claimed.then(|| read_set("claim", event.claim.take())).transpose()?;
    let token = held.then(|| read_set("token", event.token)).transpose()?;
    Ok(Subject::Lock { lock, claim, token })
}

impl Wire<pb::Event> for Event {
    fn to_wire(&self) -> pb::Event {
        let Event { position, at, wall, namespace, subject, kind } = self;
        let mut event = pb::Event {
            position: position.to_wire(),
            at_ms: at.to_wire(),
            wall_ms: wall.to_wire(),
            namespace: namespace.to_wire(),
            lock: subject.lock().map(|lock| lock.name.to_wire()),
            claim: subject.claim().to_wire(),
            token: subject.token().to_wire(),
            session: subject.session().to_wire(),
            ..nothing()
        };
        add(kind, &mut event);
        event
    }

    fn from_wire(_: &'static str, mut event: pb::Event) -> Result<Self, Invalid> {
        let position = Wire::from_wire("position", event.position)?;
        let (at, wall) = (LogTime(event.at_ms), WallTime(event.wall_ms));
        let namespace: Option<Namespace> = Wire::from_wire("namespace", event.namespace.take())?;
        let (subject, kind) = read(namespace.as_ref(), event)?;
        Ok(Event { position, at, wall, namespace, subject, kind })
    }
}

must_be_set!(Event: pb::Event);
wire_whole! { Event: pb::Event, "event"; }
