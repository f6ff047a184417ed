//! The judgement of a timeline: which promises were broken, and where.

use super::journal::{Broken, Hold, Promise, Timeline};
use crate::model::Mode;

/// Returns all broken promises, in order of time.
pub(super) fn judge(timeline: &Timeline) -> Vec<Broken> {
    let mut broken = timeline.broken.clone();
    for (lock, info) in timeline.locks.iter().enumerate() {
        let mut holds: Vec<&Hold> = timeline.holds.iter().filter(|hold| hold.lock == lock).collect();
        holds.sort_by_key(|hold| hold.granted_us);
        let called = |hold: &Hold| format!("{} (token {})", timeline.clients[hold.client], hold.token);
        let found = |promise, hold: &Hold, detail: String| Broken {
            promise,
            at_us: hold.granted_us,
            detail: format!("{}: {detail}", info.name),
        };
        broken.extend(overlaps(&holds, info.limit).into_iter().map(|(first, second)| {
            let text = format!("{} was granted while {} still held", called(second), called(first));
            found(Promise::Overlap, second, text)
        }));
        broken.extend(not_rising(&holds).into_iter().map(|(first, second)| {
            let text = format!("{} was granted after {}", called(second), called(first));
            found(Promise::Token, second, text)
        }));
    }
    broken.sort_by_key(|broken| broken.at_us);
    // Both rules about tokens may find the same grant.
    broken.dedup_by(|next, last| next.at_us == last.at_us && next.detail == last.detail);
    broken
}

/// Returns each hold that conflicts with holds that had not ended at its grant, preceded by one of those. The holds are
/// of one lock, in the order of their grants.
fn overlaps<'a>(holds: &[&'a Hold], limit: Option<u32>) -> Vec<(&'a Hold, &'a Hold)> {
    let (mut active, mut found): (Vec<&Hold>, _) = (Vec::new(), Vec::new());
    for hold in holds {
        active.retain(|other| other.ended_us.is_none_or(|ended| hold.granted_us < ended));
        let used = |holds: &[&Hold]| holds.iter().map(|hold| hold.mode.permits()).sum::<u64>();
        let rival = match hold.mode {
            Mode::Exclusive => active.first(),
            Mode::Shared => active.iter().find(|other| other.mode == Mode::Exclusive),
            Mode::Permits(count) => {
                let left = limit.map(|limit| u64::from(limit).saturating_sub(used(&active)));
                active.first().filter(|_| left.is_some_and(|left| left < u64::from(count)))
            }
        };
        found.extend(rival.map(|rival| (*rival, *hold)));
        active.push(hold);
    }
    found
}

/// Returns each hold whose token is not larger than that of an earlier one, preceded by that one. A grant is earlier if
/// it was received before the later request was sent, or if the two conflict and it had ended. The holds are of
/// one lock, in the order of their grants.
fn not_rising<'a>(holds: &[&'a Hold]) -> Vec<(&'a Hold, &'a Hold)> {
    let larger =
        |one: Option<&'a Hold>, other: &'a Hold| Some(one.filter(|one| other.token <= one.token).unwrap_or(other));
    let mut found = Vec::new();
    let (mut newest, mut newest_exclusive) = (None, None);
    for hold in holds {
        let before: Option<&Hold> = match hold.mode {
            Mode::Exclusive => newest,
            Mode::Shared => newest_exclusive,
            Mode::Permits(_) => None,
        };
        let has_ended = |before: &&Hold| before.ended_us.is_some_and(|ended| ended <= hold.granted_us);
        let before = before.filter(|before| hold.token <= before.token).filter(has_ended);
        found.extend(before.map(|before| (before, *hold)));
        newest = larger(newest, hold);
        if hold.mode == Mode::Exclusive {
            newest_exclusive = larger(newest_exclusive, hold);
        }
    }
    let mut asked: Vec<&Hold> = holds.iter().copied().filter(|hold| hold.mode != Mode::Exclusive).collect();
    asked.sort_by_key(|hold| hold.asked_us);
    let (mut granted, mut newest) = (holds.iter().peekable(), None);
    for hold in asked {
        while let Some(earlier) = granted.next_if(|earlier| earlier.granted_us < hold.asked_us) {
            newest = larger(newest, earlier);
        }
        found.extend(newest.filter(|newest| hold.token <= newest.token).map(|newest| (newest, hold)));
    }
    found
}
