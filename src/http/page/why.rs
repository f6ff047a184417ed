//! Why the clients of a queue wait, and what would end it, in sentences.

use super::text::{Client, Link, span};
use crate::limits;
use crate::model::{Explanation, Health, LogTime, Obstacle, Participant, WaitReason};

/// A sentence with a link to the lock that it is about.
#[derive(Debug)]
pub(super) struct Reason {
    /// The client that waits; empty for a sentence about the end of the wait.
    pub(super) who: String,
    pub(super) lock: String,
    pub(super) link: String,
    pub(super) text: String,
}

/// Returns the sentences for an explanation: the first waits, then what ends them.
pub(super) fn reasons(explanation: &Explanation, now: LogTime) -> Vec<Reason> {
    let waits = explanation.chain.iter().take(limits::SCREEN_SHORT_ROWS / 2).map(|wait| {
        let blockers: Vec<_> = wait.waits_for.iter().map(|one| blocker(one, now)).collect();
        let text = if blockers.is_empty() { "granted next".to_owned() } else { blockers.join("; ") };
        Reason {
            who: Client::new(&wait.waiter.metadata).name,
            lock: wait.lock.name.to_string(),
            link: Link::lock(&wait.lock.namespace, &wait.lock.name).text(),
            text,
        }
    });
    let ends = explanation.freed_by.iter().take(limits::SCREEN_SHORT_ROWS / 2).map(|one| Reason {
        who: String::new(),
        lock: one.lock.name.to_string(),
        link: Link::lock(&one.lock.namespace, &one.lock.name).text(),
        text: end(one, now),
    });
    let mut reasons: Vec<_> = waits.chain(ends).collect();
    if is_cycle(explanation) {
        let text = "they wait for each other until one of them gives up, or its hold is broken".to_owned();
        reasons.push(Reason { who: String::new(), lock: String::new(), link: String::new(), text });
    }
    reasons
}

fn is_cycle(explanation: &Explanation) -> bool {
    let Explanation { chain, freed_by, more } = explanation;
    let closed = chain.iter().flat_map(|wait| &wait.waits_for).any(|one| one.why == WaitReason::Closed);
    !chain.is_empty() && freed_by.is_empty() && !closed && !more
}

fn name(who: &Participant) -> String {
    who.metadata.name().into_owned()
}

fn token(who: &Participant) -> String {
    who.token.map_or(String::new(), |token| format!(" (token {token})"))
}

fn blocker(one: &Obstacle, now: LogTime) -> String {
    let (who, since) = (&one.who, span(now.ms_since(one.who.since)));
    let health = match who.health {
        Health::Live | Health::Lease => String::new(),
        Health::Overdue | Health::Disconnected | Health::Gone => format!(", {}", who.health.word()),
    };
    match one.why {
        WaitReason::Holds => format!("{} holds it for {since}{}{health}", name(who), token(who)),
        WaitReason::StandsAhead | WaitReason::Nested => format!("{} is ahead", name(who)),
        WaitReason::Closed => format!("the ended hold of {} keeps it closed", name(who)),
    }
}

/// What ends the wait.
fn end(one: &Obstacle, now: LogTime) -> String {
    let left = one.who.ends.map(|ends| span(ends.ms_since(now)));
    if one.why == WaitReason::Closed {
        return format!("opens {}", left.map_or("later".to_owned(), |left| format!("in {left}")));
    }
    let at_last = left.map_or(String::new(), |left| match one.who.health {
        Health::Lease => format!(", or does not refresh the lease within {left}"),
        Health::Live | Health::Overdue | Health::Disconnected | Health::Gone => {
            format!(", or its session is not renewed for {left}")
        }
    });
    format!("is free when {} releases it{}{at_last}", name(&one.who), token(&one.who))
}
