//! What holds between requests, waits and holds of the model.

use super::*;

pub(super) fn party(ask: &Ask) -> Option<Party> {
    ask.claim.session().zip(ask.owner.clone())
}

/// The owner of the wait, if only a grant or a cancel ends the wait.
pub(super) fn endless_wait(wait: &Wait) -> Option<Party> {
    party(&wait.ask).filter(|_| wait.end.is_none() && !wait.of_lease && wait.ask.extras.reentry != Reentry::Wait)
}

/// Whether the wait is for a hold with a deadline.
pub(super) fn is_leased(wait: &Wait) -> bool {
    wait.ask.lease_ms.is_some() || wait.ask.extras.at_most_ms.is_some()
}

/// The owner of the hold, if only a release ends the hold.
pub(super) fn endless_hold(hold: &Hold) -> Option<Party> {
    party(&hold.ask).filter(|_| hold.lease_end.is_none() && hold.ends.is_none())
}

/// Whether two modes exclude each other.
pub(super) fn conflict(one: Mode, other: Mode) -> bool {
    !(one == Mode::Shared && other == Mode::Shared)
}

/// What a hold gives up by continuing in a narrower mode.
pub(super) fn rest_of(all: Mode, kept: Mode) -> Option<Mode> {
    match (all, kept) {
        (Mode::Permits(all), Mode::Permits(kept)) => (kept < all).then(|| Mode::Permits(all - kept)),
        (Mode::Exclusive, Mode::Shared) => Some(all),
        _ => None,
    }
}

/// Whether this request may overtake that one because both barge.
pub(super) fn passes(ask: &Ask, ahead: &Ask) -> bool {
    ask.extras.fairness == Fairness::Barging && ahead.extras.fairness == Fairness::Barging
}

/// The grant of this hold, as its client receives it.
pub(super) fn grant_of(hold: &Hold, waited_ms: u64) -> Grant {
    Grant { token: hold.token, deadline: hold.lease_end, ends: hold.ends, waited_ms }
}

pub(super) fn request_of(session: Option<SessionId>, number: u64) -> Option<Claim> {
    session.map(|session| Claim::Request(RequestId { session, number }))
}

pub(super) fn holds(hold: &Hold, request: RequestId) -> bool {
    let same = |(number, _): &(u64, Command)| *number == request.number;
    hold.ask.claim.session() == Some(request.session)
        && (hold.ask.claim == Claim::Request(request) || later(hold).any(same))
}

/// The requests that acquired the hold after the first one.
pub(super) fn later(hold: &Hold) -> impl Iterator<Item = &(u64, Command)> {
    hold.again.iter().chain(&hold.upgrade)
}

pub(super) fn proves(hold: &Hold, handle: &Handle) -> bool {
    hold.ask.handle.as_ref() == Some(handle)
}
