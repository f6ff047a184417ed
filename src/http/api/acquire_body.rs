//! The request of `acquire`, and the command that it becomes.

use serde::Deserialize;
use utoipa::ToSchema;

use super::body::Object;
use super::call::RequestContext;
use super::fields::{
    ModeWord, absent, access, both_or_neither, drawn_uuid, lease_request, metadata, needed, number, session,
};
use super::problem::{Failed, named};
use crate::limits;
use crate::model::{
    self, Access, Command, Extras, Fairness, Handle, Invalid, LockName, LockValue, LogTime, OnDeadlock, Owner, Parent,
    Patience, Reentry, RequestId, SmallMap, TakeLease,
};
use crate::service::{self, LockService};

/// Acquires a lock: as a lease, which ends after `lease_ms` unless it is refreshed, or in a session with `session` and
/// `handle`, one lock or a set. With `wait_ms` it waits in the queue: after `poll_ms` the answer is 202, and the same
/// body with its `request` and `handle`, sent again to any node, keeps the place.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly", "lease_ms": 600_000}))]
pub(super) struct AcquireBody {
    /// Name of the lock.
    pub(super) lock: Option<String>,
    /// Several locks, which are granted together or not at all. Only in a session, in place of `lock`.
    #[schema(value_type = Option<Vec<MemberOfSet>>)]
    pub(super) locks: Option<Vec<Object<MemberOfSet>>>,
    pub(super) mode: Option<ModeWord>,
    /// Number of permits; 1 by default.
    pub(super) permits: Option<u32>,
    /// Limit of the semaphore, which its first request must name.
    pub(super) limit: Option<u32>,
    /// How long the hold lasts unless it is renewed. A lease needs it; a session's hold may have it.
    pub(super) lease_ms: Option<u64>,
    /// Longest wait in the queue. The first copy of a request decides it. Default 0: does not wait. In a session
    /// the longest, a week, waits as long as the session lives: only such a wait can be refused as a deadlock.
    pub(super) wait_ms: Option<u64>,
    /// Time after which a request that still waits is answered with 202. Default `wait_ms`, at most 30 s.
    pub(super) poll_ms: Option<u64>,
    /// Id of the session.
    pub(super) session: Option<String>,
    /// The secret that proves the session, or that will prove the lease.
    pub(super) handle: Option<String>,
    /// Makes a retry safe: the same request with the same fields gets the first answer. A UUID for a lease, together
    /// with `handle`; a growing number in a session.
    pub(super) request: Option<String>,
    /// Log time that the caller knew before the first try of a lease. With it, no late copy is executed again.
    pub(super) since_ms: Option<u64>,
    /// The line of execution within the session.
    pub(super) owner: Option<String>,
    /// The line of execution that waits until this one has finished.
    #[schema(value_type = Option<ParentOwner>)]
    pub(super) parent: Option<Object<ParentOwner>>,
    pub(super) reentry: Option<ReentryWord>,
    /// Whether it may overtake others in the queue.
    pub(super) unfair: Option<bool>,
    /// How long the lock stays closed after an involuntary end.
    pub(super) delay_ms: Option<u64>,
    /// A text that is stored with the hold and shown to every client.
    pub(super) value: Option<String>,
    /// Whether it waits although that closes a cycle of owners that wait for each other.
    pub(super) wait_in_cycles: Option<bool>,
    /// Minimum time between two grants.
    pub(super) at_least_ms: Option<u64>,
    /// The hold ends this long after its grant.
    pub(super) at_most_ms: Option<u64>,
    /// Whether the session keeps the hold between uses.
    pub(super) cached: Option<bool>,
    /// All requests of the session below this number were answered and will not be repeated.
    pub(super) answered_below: Option<String>,
    /// Name of the client, for display.
    pub(super) who: Option<String>,
    /// Purpose, for display.
    pub(super) why: Option<String>,
    pub(super) host: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) process: Option<String>,
    pub(super) trace: Option<String>,
}

/// One lock of a set.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MemberOfSet {
    lock: String,
    mode: Option<ModeWord>,
    permits: Option<u32>,
    limit: Option<u32>,
}

/// A line of execution of a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ParentOwner {
    pub(super) session: String,
    owner: String,
}

/// What happens if the same owner holds the lock already.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReentryWord {
    /// The request is refused. The default.
    Refuse,
    /// The hold counts the acquisitions, and needs as many releases. Refused for a mode that the hold does not cover,
    /// and while an upgrade of the hold waits.
    Count,
    /// The request waits.
    Wait,
}

/// A request that was read, and what its answer repeats.
pub(super) struct Prepared {
    pub(super) call: service::Call,
    /// Whether the caller can send the same request again.
    pub(super) named: bool,
    pub(super) request: String,
    pub(super) handle: Option<String>,
}

impl AcquireBody {
    /// The command of a lease, with a drawn request and handle if the caller names none.
    pub(super) fn for_lease<S: LockService>(self, context: &RequestContext<S>) -> Result<Prepared, Failed> {
        self.no_fields_of_a_session()?;
        let lock = context.lock(needed("for a lease", "lock", self.lock.as_deref())?)?;
        let or_session = "for a lease; a hold in a session needs `session` and `handle` instead";
        let lease_ms = needed(or_session, "lease_ms", self.lease_ms)?;
        both_or_neither(self.request.as_ref(), self.handle.as_ref())?;
        let named = self.request.is_some();
        let request = self.request.unwrap_or_else(|| drawn_uuid(context.api.clock.random_u128()));
        let handle = self.handle.unwrap_or_else(|| context.drawn_handle());
        let take = TakeLease {
            lock,
            take: lease_request(&request)?,
            handle: Handle::parse(&handle)?,
            access: access(self.mode, self.permits, self.limit)?,
            lease_ms,
            patience: patience(self.wait_ms),
            metadata: metadata([self.who, self.why, self.host, self.process, self.trace], self.pid),
            claim_ms: self.wait_ms.filter(|wait_ms| *wait_ms != 0).map(|_| limits::CLAIM_LEASE_MS_MAX),
        };
        let call = service::Call { since: self.since_ms.map(LogTime), ..service::Call::new(Command::TakeLease(take)) };
        Ok(Prepared { call, named, request, handle: Some(handle) })
    }

    fn no_fields_of_a_session(&self) -> Result<(), Invalid> {
        let form = "for a lease; only a request with `session` has it";
        absent(form, "locks", self.locks.as_ref())?;
        absent(form, "owner", self.owner.as_ref())?;
        absent(form, "parent", self.parent.as_ref())?;
        absent(form, "reentry", self.reentry.as_ref())?;
        absent(form, "unfair", self.unfair.as_ref())?;
        absent(form, "delay_ms", self.delay_ms.as_ref())?;
        absent(form, "value", self.value.as_ref())?;
        absent(form, "wait_in_cycles", self.wait_in_cycles.as_ref())?;
        absent(form, "at_least_ms", self.at_least_ms.as_ref())?;
        absent(form, "at_most_ms", self.at_most_ms.as_ref())?;
        absent(form, "cached", self.cached.as_ref())?;
        absent(form, "answered_below", self.answered_below.as_ref())
    }

    /// The command of an acquire in a session, with a drawn number if the caller names none.
    pub(super) async fn for_session<S: LockService>(self, context: &RequestContext<S>) -> Result<Prepared, Failed> {
        absent("in a session", "since_ms", self.since_ms.as_ref())?;
        let id = needed("in a session", "session", self.session.as_deref())?;
        let handle = needed("in a session: its secret, which proves it", "handle", self.handle.as_deref())?;
        let (session, proof) = context.proven(id, handle)?;
        let named = self.request.is_some();
        let request = context.request(session, self.request.as_deref()).await?;
        let call = service::Call { proof, ..service::Call::new(Command::Acquire(self.acquire(request)?)) };
        Ok(Prepared { call, named, request: request.number.to_string(), handle: None })
    }

    /// The acquire under this number of its session.
    pub(super) fn acquire(self, request: RequestId) -> Result<model::Acquire, Invalid> {
        let (extras, locks) = (self.extras()?, self.locks_of_session()?);
        Ok(model::Acquire {
            request,
            answered_below: self.answered_below.map_or(Ok(0), |text| number("answered_below", &text))?,
            locks,
            owner: self.owner.map(|owner| Owner::parse(&owner)).transpose()?,
            patience: patience_in_session(self.wait_ms),
            metadata: metadata([self.who, self.why, self.host, self.process, self.trace], self.pid),
            lease_ms: self.lease_ms,
            extras,
        })
    }

    /// The locks of an acquire in a session: one, or the members of a set.
    fn locks_of_session(&self) -> Result<SmallMap<LockName, Access>, Invalid> {
        let mut locks = SmallMap::new();
        let Some(members) = &self.locks else {
            let name = LockName::parse(needed("unless there are `locks`", "lock", self.lock.as_deref())?)?;
            locks.insert(name, access(self.mode, self.permits, self.limit)?);
            return Ok(locks);
        };
        let form = "next to `locks`";
        absent(form, "lock", self.lock.as_ref())?;
        absent(form, "mode", self.mode.as_ref())?;
        absent(form, "permits", self.permits.as_ref())?;
        absent(form, "limit", self.limit.as_ref())?;
        if members.is_empty() || limits::LOCKS_A_SET_MAX < members.len() {
            return Err(Invalid::new("locks", format!("1 to {} in one set", limits::LOCKS_A_SET_MAX), members.len()));
        }
        for (at, Object(MemberOfSet { lock, mode, permits, limit })) in members.iter().enumerate() {
            let lock = named(&format!("locks[{at}].lock"), LockName::parse(lock))?;
            let access = named(&format!("locks[{at}].permits"), access(*mode, *permits, *limit))?;
            if locks.insert(lock.clone(), access).is_some() {
                return Err(Invalid::new("locks", "each name once in a set", format!("{:?} twice", lock.as_str())));
            }
        }
        Ok(locks)
    }

    /// The choices that few callers make; `None` if none is made.
    fn extras(&self) -> Result<Option<Box<Extras>>, Invalid> {
        let parent = |Object(ParentOwner { session: id, owner }): &Object<ParentOwner>| {
            let session = named("parent.session", session(id))?;
            Ok::<_, Invalid>(Parent { session, owner: named("parent.owner", Owner::parse(owner))? })
        };
        let extras = Extras {
            reentry: match self.reentry {
                None | Some(ReentryWord::Refuse) => Reentry::Refuse,
                Some(ReentryWord::Count) => Reentry::Count,
                Some(ReentryWord::Wait) => Reentry::Wait,
            },
            fairness: if self.unfair == Some(true) { Fairness::Barging } else { Fairness::Fair },
            delay_ms: self.delay_ms.unwrap_or_default(),
            value: self.value.as_deref().map(LockValue::parse).transpose()?,
            parent: self.parent.as_ref().map(parent).transpose()?,
            deadlock: if self.wait_in_cycles == Some(true) { OnDeadlock::Wait } else { OnDeadlock::Refuse },
            at_least_ms: self.at_least_ms,
            at_most_ms: self.at_most_ms,
            cached: self.cached.unwrap_or_default(),
        };
        Ok((extras != *Extras::PLAIN).then(|| Box::new(extras)))
    }
}

/// Returns how long a request in a session waits in the queue. The longest wait ends with the session.
pub(super) fn patience_in_session(wait_ms: Option<u64>) -> Patience {
    if wait_ms == Some(limits::PATIENCE_MS_MAX) { Patience::Session } else { patience(wait_ms) }
}

/// Returns how long a request waits in the queue.
fn patience(wait_ms: Option<u64>) -> Patience {
    match wait_ms.unwrap_or(0) {
        0 => Patience::Try,
        ms => Patience::For { ms },
    }
}
