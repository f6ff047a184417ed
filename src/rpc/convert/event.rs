//! Events. One message has the fields of all types; the type determines which are set.

use super::parts::{known, unknown};
use super::table::{Wire, read_set, required};
use crate::model::{Event, EventKind, Invalid, LockKey, LogTime, Namespace, Subject, WallTime};
use crate::rpc::pb;

/// `Variant of subject { field of the message: field of the variant }`, after the fields that not every event has: a
/// new field does not compile until it is named here.
macro_rules! wire_events {
    ($($some:ident),*; $($kind:ident of $subject:ident { $($field:ident: $part:ident),* })*) => {
        wire_leaves! {
            Event: pb::Event, Event { position, at, wall, namespace, subject, kind } => {
                let (position, r#type) = (position.to_wire(), 0);
                let mut event = pb::Event { position, at_ms: at.0, wall_ms: wall.0, r#type, $($some: None),* };
                event.namespace = namespace.to_wire();
                event.lock = subject.lock().map(|lock| lock.name.to_wire());
                (event.claim, event.token) = (subject.claim().to_wire(), subject.token().to_wire());
                event.session = subject.session().to_wire();
                match kind { $(
                    EventKind::$kind { $($part),* } => {
                        event.r#type = pb::EventType::$kind.into();
                        $(event.$field = Wire::to_wire($part);)*
                    }
                )* }
                event
            }, (_, mut event) => {
                let position = Wire::from_wire("position", event.position)?;
                let namespace = Wire::from_wire("namespace", event.namespace.take())?;
                let (subject, kind) = match known("type", event.r#type)? {
                    pb::EventType::Unspecified => return Err(unknown("type", "unspecified")),
                    $(pb::EventType::$kind => (
                        subject(About::$subject, &namespace, &mut event)?,
                        EventKind::$kind { $($part: Wire::from_wire(stringify!($field), event.$field)?),* },
                    ),)*
                };
                Ok(Event { position, at: LogTime(event.at_ms), wall: WallTime(event.wall_ms), namespace, subject, kind })
            };
        }
        must_be_set!(Event: pb::Event);
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

/// Subject of an event.
enum About {
    Wait,
    Hold,
    LostHold,
    Lock,
    Session,
    Cluster,
}

fn subject(about: About, namespace: &Option<Namespace>, event: &mut pb::Event) -> Result<Subject, Invalid> {
    let (claimed, held) = match about {
        About::Wait => (true, false),
        About::Hold => (true, true),
        About::LostHold => (false, true),
        About::Lock => (false, false),
        About::Session => return read_set("session", event.session).map(Subject::Session),
        About::Cluster => return Ok(Subject::Cluster),
    };
    let namespace = required("namespace", namespace.clone())?;
    let lock = LockKey { namespace, name: read_set("lock", event.lock.take())? };
    let claim = claimed.then(|| read_set("claim", event.claim.take())).transpose()?;
    let token = held.then(|| read_set("token", event.token)).transpose()?;
    Ok(Subject::Lock { lock, claim, token })
}
