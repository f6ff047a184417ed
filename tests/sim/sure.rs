//! Compares the times until which clients were sure with what the log ended and granted.
//!
//! A client is sure of a session or of a hold until a time that it computes with its own clock. This is recorded as
//! steps in true time: from the start of a step, the client is sure until its end. The log shows when each entry was
//! applied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockkeeper::model::{EndReason, Event, EventKind, FencingToken, LockKey, Mode, SessionId};

/// A session or hold that a client may be sure of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SessionOrHold {
    Session(SessionId),
    /// A hold in a session, with or without a separate lease, or a token lease.
    Hold(FencingToken),
}

/// Two times with a smaller difference count as equal, because conversions between clocks round.
const SAME: Duration = Duration::from_micros(10);

/// The steps of all clients.
#[derive(Debug, Default)]
pub(crate) struct Sure(BTreeMap<SessionOrHold, Vec<Step>>);

/// From the time `since`, the client is sure until the time `until`.
#[derive(Debug, Clone, Copy)]
struct Step {
    since: Duration,
    until: Duration,
}

impl Sure {
    /// Records a step, unless it equals the last one. A client that has given up a session or hold is sure of it until
    /// now.
    pub(crate) fn note(&mut self, session_or_hold: SessionOrHold, since: Duration, until: Duration) {
        let steps = self.0.entry(session_or_hold).or_default();
        if steps.last().is_none_or(|last| SAME < last.until.abs_diff(until)) {
            steps.push(Step { since, until });
        }
    }

    /// All sessions that a client was sure of.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        let sessions = self.0.keys().filter_map(|session_or_hold| match session_or_hold {
            SessionOrHold::Session(session) => Some(*session),
            SessionOrHold::Hold(_) => None,
        });
        sessions.collect()
    }

    /// The latest time until which a client was ever sure of this.
    pub(crate) fn at_most(&self, session_or_hold: SessionOrHold) -> Duration {
        self.0.get(&session_or_hold).into_iter().flatten().map(|step| step.until).max().unwrap_or_default()
    }

    /// The latest time until which a client was ever sure of any session.
    pub(crate) fn of_any_session(&self) -> Duration {
        let each = self.sessions().into_iter().map(|session| self.at_most(SessionOrHold::Session(session)));
        each.max().unwrap_or_default()
    }

    /// The step that applied at this time, if the client was still sure then.
    fn at(&self, session_or_hold: SessionOrHold, now: Duration) -> Option<Step> {
        let last = self.0.get(&session_or_hold)?.iter().rev().find(|step| step.since <= now)?;
        (now < last.until).then_some(*last)
    }

    /// What the log ended by time, or granted to another client, while a client was sure of it. The events of `log` are
    /// in order, each with the time when it was first known to be applied.
    pub(crate) fn ended_early<'a>(&self, log: impl IntoIterator<Item = (Duration, &'a Event)>) -> Vec<String> {
        let mut held: BTreeMap<LockKey, Vec<(FencingToken, Mode)>> = BTreeMap::new();
        let mut taken = BTreeSet::new();
        let mut early = Vec::new();
        for (now, event) in log {
            let mut must_not_be_sure = |session_or_hold, what: &str| {
                if let Some(Step { since, until }) = self.at(session_or_hold, now) {
                    let why = format!("from {since:?} on its client was sure of it until {until:?}");
                    early.push(format!("{session_or_hold:?} {what} at {now:?}, and {why}"));
                }
            };
            match &event.kind {
                EventKind::SessionEnded { reason: EndReason::Expired, .. } => {
                    must_not_be_sure(SessionOrHold::Session(event.subject.session().expect("its session")), "expired");
                }
                EventKind::Expired { reason: EndReason::Expired, .. } => {
                    must_not_be_sure(SessionOrHold::Hold(event.subject.token().expect("its token")), "expired");
                }
                // A break or a hand-over ends a hold although its client is sure of it.
                EventKind::Broken { .. } => taken.extend(event.subject.token()),
                EventKind::HandedOver { from, .. } => {
                    taken.insert(*from);
                }
                EventKind::Granted { mode, .. } => {
                    let lock = event.subject.lock().expect("its lock");
                    let token = event.subject.token().expect("its token");
                    let before = held.entry(lock.clone()).or_default();
                    let excluded = before.iter().filter(|(_, held)| [*mode, *held].contains(&Mode::Exclusive));
                    for (other, _) in excluded.filter(|(other, _)| !taken.contains(other)) {
                        must_not_be_sure(SessionOrHold::Hold(*other), &format!("was replaced by {token}"));
                    }
                    before.push((token, *mode));
                }
                _ => {}
            }
        }
        early
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper::model::{
        Claim, LockName, LogTime, Namespace, Position, Principal, Reason, RequestId, Subject, WallTime,
    };

    use super::*;

    fn session() -> SessionId {
        SessionId::new(0, 7)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::new(0, number)
    }

    fn event(subject: Subject, kind: EventKind) -> Event {
        let (position, namespace) = (Position::default(), None);
        Event { position, at: LogTime(0), wall: WallTime(0), namespace, subject, kind }
    }

    fn lock() -> LockKey {
        LockKey { namespace: Namespace::default(), name: LockName::parse("red").expect("a name") }
    }

    fn claim() -> Claim {
        Claim::Request(RequestId { session: session(), number: 1 })
    }

    fn hold(number: u64) -> Subject {
        Subject::hold(&lock(), claim(), token(number))
    }

    fn granted(number: u64, mode: Mode) -> Event {
        event(hold(number), EventKind::Granted { mode, waited_ms: 0 })
    }

    fn expired(number: u64, reason: EndReason) -> Event {
        event(hold(number), EventKind::Expired { reason, held_ms: 0 })
    }

    /// A session that expires while its client is sure of it ended early. Only the step at that time counts: not an
    /// earlier step with a later end, and not what the client learns afterwards.
    #[test]
    fn a_session_must_not_end_while_its_client_is_sure() {
        let ended = |reason| event(Subject::Session(session()), EventKind::SessionEnded { reason, why: None });
        let expires = ended(EndReason::Expired);
        let (mine, mut sure) = (SessionOrHold::Session(session()), Sure::default());
        sure.note(mine, ms(0), ms(1_000));
        assert_eq!(sure.ended_early([(ms(999), &expires)]).len(), 1);
        assert!(sure.ended_early([(ms(1_000), &expires)]).is_empty());
        assert!(sure.ended_early([(ms(500), &ended(EndReason::Lost))]).is_empty(), "its client reported the loss");
        sure.note(mine, ms(600), ms(700));
        sure.note(mine, ms(900), ms(2_000));
        assert!(sure.ended_early([(ms(800), &expires)]).is_empty());
        assert_eq!(sure.ended_early([(ms(1_500), &expires)]).len(), 1);
    }

    /// A hold must not expire, and its lock must not be granted to another client, while its client is sure of it.
    /// Readers share, and a break by an operator is excepted.
    #[test]
    fn a_hold_must_not_be_replaced_while_its_client_is_sure() {
        let mut sure = Sure::default();
        sure.note(SessionOrHold::Hold(token(1)), ms(0), ms(1_000));
        let (mine, next) = (granted(1, Mode::Exclusive), granted(2, Mode::Exclusive));
        assert_eq!(sure.ended_early([(ms(1), &expired(1, EndReason::Expired))]).len(), 1);
        assert_eq!(sure.ended_early([(ms(0), &mine), (ms(999), &next)]).len(), 1);
        assert!(sure.ended_early([(ms(0), &mine), (ms(1_001), &next)]).is_empty());
        let (read, reads) = (granted(1, Mode::Shared), granted(2, Mode::Shared));
        assert!(sure.ended_early([(ms(0), &read), (ms(1), &reads)]).is_empty());
        assert_eq!(sure.ended_early([(ms(0), &read), (ms(1), &next)]).len(), 1);
        let (by, why) = (Principal::default(), Reason::parse("stuck").expect("a reason"));
        let broken = event(hold(1), EventKind::Broken { by, why, held_ms: 0 });
        assert!(sure.ended_early([(ms(0), &mine), (ms(1), &broken), (ms(2), &next)]).is_empty());
    }
}
