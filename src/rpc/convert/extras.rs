//! What an acquire chooses beyond name, mode and patience.

use super::part::{known, parent};
use crate::model::{Acquire, Extras, Fairness, Invalid, LockValue, OnDeadlock, Reentry};
use crate::rpc::pb;

/// The choices of an acquire that few callers make, and the lease that stands among them.
pub(super) fn extras(extras: Option<pb::Extras>) -> Result<(Option<Box<Extras>>, Option<u64>), Invalid> {
    let Some(extras) = extras else { return Ok((None, None)) };
    let reentry = match known::<pb::Reentry>("reentry", extras.reentry)? {
        pb::Reentry::Unspecified | pb::Reentry::Refuse => Reentry::Refuse,
        pb::Reentry::Count => Reentry::Count,
        pb::Reentry::Wait => Reentry::Wait,
    };
    let chosen = Extras {
        reentry,
        fairness: if extras.unfair { Fairness::Barging } else { Fairness::Fair },
        delay_ms: extras.delay_ms,
        value: extras.value.map(|text| LockValue::parse(&text)).transpose()?,
        parent: extras.parent.map(parent).transpose()?,
        deadlock: if extras.wait_in_cycles { OnDeadlock::Wait } else { OnDeadlock::Refuse },
        at_least_ms: extras.at_least_ms,
        at_most_ms: extras.at_most_ms,
    };
    Ok(((chosen != *Extras::PLAIN).then(|| Box::new(chosen)), extras.lease_ms))
}

impl pb::Extras {
    /// What this acquire chooses; `None` where it chooses nothing.
    pub(super) fn of(acquire: &Acquire) -> Option<Self> {
        if acquire.extras.is_none() && acquire.lease_ms.is_none() {
            return None;
        }
        let extras = acquire.choices();
        let reentry = match extras.reentry {
            Reentry::Refuse => pb::Reentry::Refuse,
            Reentry::Count => pb::Reentry::Count,
            Reentry::Wait => pb::Reentry::Wait,
        };
        Some(Self {
            reentry: reentry.into(),
            unfair: extras.fairness == Fairness::Barging,
            lease_ms: acquire.lease_ms,
            delay_ms: extras.delay_ms,
            value: extras.value.as_ref().map(ToString::to_string),
            parent: extras.parent.as_ref().map(Into::into),
            wait_in_cycles: extras.deadlock == OnDeadlock::Wait,
            at_least_ms: extras.at_least_ms,
            at_most_ms: extras.at_most_ms,
        })
    }
}
