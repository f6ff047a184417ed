//! Options that requests for a lock, a set of locks or a lease share, checked when the request is sent.

use std::time::Duration;

use crate::clock::{Instant, millis};
use crate::limits::PATIENCE_MS_MAX;
use crate::model::{
    Access, Extras, Invalid, LockName, LockValue, Metadata, Owner, Parent, Patience, Place, SessionId, SmallMap,
};

#[derive(Debug)]
pub(crate) struct RequestOptions {
    pub(crate) metadata: Option<Metadata>,
    pub(crate) why: Option<String>,
    pub(crate) wait: WaitLimit,
}

impl RequestOptions {
    /// Creates default options with this limit of the wait.
    pub(crate) fn new(wait: WaitLimit) -> Self {
        Self { metadata: None, why: None, wait }
    }

    /// Returns the metadata of the holder: the given metadata or else the client's, with the given reason.
    pub(crate) fn metadata(self, own: &Metadata) -> Result<Metadata, Invalid> {
        let mut metadata = self.metadata.unwrap_or_else(|| own.clone());
        if let Some(why) = self.why {
            metadata.why = why.into();
        }
        metadata.checked()
    }
}

/// How long a request waits, on the client's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// At most this duration. Zero is a single try.
    For(Duration),
    WhileAlive,
}

impl WaitLimit {
    /// A single try.
    pub(crate) const TRY: Self = WaitLimit::For(Duration::ZERO);

    /// Returns the instant at which the wait of a call that began at `began` is over; `None` for no limit and for a
    /// single try.
    pub(crate) fn until(self, began: Instant) -> Option<Instant> {
        match self {
            WaitLimit::For(wait) => (!wait.is_zero()).then(|| began.after(wait)),
            WaitLimit::WhileAlive => None,
        }
    }

    /// Returns what is left of the limit at `now`, if the wait is over at `deadline`.
    pub(crate) fn left(self, deadline: Option<Instant>, now: Instant) -> Self {
        deadline.map_or(self, |deadline| WaitLimit::For(deadline.since(now)))
    }

    /// Returns the same limit in log time, which the cluster applies if the client cannot.
    pub(crate) fn patience(self) -> Patience {
        match self {
            WaitLimit::For(wait) if wait.is_zero() => Patience::Try,
            WaitLimit::For(wait) => Patience::For { ms: millis(wait).clamp(1, PATIENCE_MS_MAX) },
            WaitLimit::WhileAlive => Patience::Session,
        }
    }
}

/// Options of a request within a session.
#[derive(Default)]
pub(crate) struct SessionOptions {
    pub(crate) owner: Option<String>,
    pub(crate) lease_ms: Option<u64>,
    pub(crate) extras: Extras,
    pub(crate) value: Option<String>,
    pub(crate) parent: Option<(SessionId, String)>,
    pub(crate) on_queued: OnQueued,
}

/// A function that is called with each place in the queue.
pub(crate) type OnQueued = Option<Box<dyn FnMut(&Place) + Send>>;

impl SessionOptions {
    /// Checks the options against their bounds and the requested locks. Returns the owner and the rarely used options;
    /// `None` if none of the latter was chosen.
    pub(crate) fn checked(
        &mut self,
        locks: &SmallMap<LockName, Access>,
    ) -> Result<(Option<Owner>, Option<Box<Extras>>), Invalid> {
        let owner = self.owner.as_deref().map(Owner::parse).transpose()?;
        let parent =
            |(session, owner): (SessionId, String)| Owner::parse(&owner).map(|owner| Parent { session, owner });
        let extras = Extras {
            value: self.value.as_deref().map(LockValue::parse).transpose()?,
            parent: self.parent.take().map(parent).transpose()?,
            ..self.extras.clone()
        };
        extras.checked(owner.as_ref())?;
        extras.checked_for(locks.values().map(|access| access.mode))?;
        extras.checked_cached(locks, owner.as_ref(), self.lease_ms)?;
        Ok((owner, (extras != *Extras::PLAIN).then(|| Box::new(extras))))
    }
}

/// Defines the methods of every request, which has a field `options: RequestOptions`.
macro_rules! request_methods {
    ($request:ident) => {
        impl<S: LockService> $request<S> {
            /// Sets the reason for the hold, which waiters see.
            pub fn why(mut self, why: &str) -> Self {
                self.options.why = Some(why.to_owned());
                self
            }

            /// Sets the metadata of the holder. By default it is the client's metadata.
            pub fn metadata(mut self, metadata: $crate::model::Metadata) -> Self {
                self.options.metadata = Some(metadata);
                self
            }

            /// Waits for at most this duration, counted from the call that sends the request.
            pub fn wait(mut self, wait: std::time::Duration) -> Self {
                self.options.wait = $crate::client::options::WaitLimit::For(wait);
                self
            }

            /// Fails at once if the lock is not free.
            pub fn try_once(mut self) -> Self {
                self.options.wait = $crate::client::options::WaitLimit::TRY;
                self
            }
        }
    };
}

/// Defines the methods of a request for one lock, which has a field `access: Access`.
macro_rules! mode_methods {
    ($request:ident) => {
        impl<S: LockService> $request<S> {
            /// Requests a shared hold, which other shared holders do not exclude.
            pub fn shared(self) -> Self {
                self.mode($crate::model::Mode::Shared)
            }

            /// Requests this number of permits of a semaphore. The first request for an unused name must give the
            /// limit.
            pub fn permits(self, count: u32, limit: impl Into<Option<u32>>) -> Self {
                self.mode($crate::model::Access::permits(count, limit))
            }

            /// Sets the mode, or a number of permits and their limit; exclusive by default.
            pub fn mode(mut self, access: impl Into<$crate::model::Access>) -> Self {
                self.access = access.into();
                self
            }
        }
    };
}

/// Defines the methods of a request within a session, which has a field `session_options: SessionOptions`.
macro_rules! session_methods {
    ($request:ident) => {
        impl<S: LockService> $request<S> {
            /// Sets the owner of the request: a line of execution, such as a task. A request without an owner excludes
            /// all others, even of the same session, and deadlock detection ignores it.
            pub fn owner(mut self, owner: &str) -> Self {
                self.session_options.owner = Some(owner.to_owned());
                self
            }

            /// Sets the parent of the request: an owner that waits until this request's owner has finished. A request
            /// for a lock that the parent holds or waits for is refused as a deadlock if neither of the two could ever
            /// proceed.
            pub fn parent(mut self, session: $crate::model::SessionId, owner: &str) -> Self {
                self.session_options.parent = Some((session, owner.to_owned()));
                self
            }

            /// Sets what happens if the wait would close a cycle of owners that wait for each other. By default the
            /// request is refused, and the refusal names the cycle.
            pub fn on_deadlock(mut self, policy: $crate::model::OnDeadlock) -> Self {
                self.session_options.extras.deadlock = policy;
                self
            }

            /// Gives the hold a separate lease, which ends this duration after its last renewal. The session's task
            /// renews it at a third of its length.
            pub fn lease(mut self, length: std::time::Duration) -> Self {
                self.session_options.lease_ms = Some($crate::clock::millis(length));
                self
            }

            /// Sets the lock-delay: after an involuntary end of the hold, the name stays closed for this duration,
            /// except to [`Session::resume`]($crate::client::Session::resume). At most a minute; none by default.
            pub fn delay(mut self, delay: impl Into<Option<std::time::Duration>>) -> Self {
                self.session_options.extras.delay_ms = delay.into().map_or(0, $crate::clock::millis);
                self
            }

            /// Keeps the lock closed to every client for this duration after the grant, even if the hold ends earlier.
            /// Only a [break]($crate::client::Client) opens it earlier. At most a day, and not for a shared lock.
            pub fn at_least(mut self, length: impl Into<Option<std::time::Duration>>) -> Self {
                self.session_options.extras.at_least_ms = length.into().map($crate::clock::millis);
                self
            }

            /// Ends the hold this duration after the grant, even if the session still lives; no renewal extends it. At
            /// most a day.
            pub fn at_most(mut self, length: impl Into<Option<std::time::Duration>>) -> Self {
                self.session_options.extras.at_most_ms = length.into().map($crate::clock::millis);
                self
            }

            /// Sets a text that is kept with the hold and shown to every client, at most 4 KiB.
            pub fn value(mut self, value: &str) -> Self {
                self.session_options.value = Some(value.to_owned());
                self
            }

            /// Calls a function with the place in the queue, each time that the cluster reports it.
            pub fn on_queued(mut self, report: impl FnMut(&$crate::model::Place) + Send + 'static) -> Self {
                self.session_options.on_queued = Some(Box::new(report));
                self
            }
        }
    };
}

pub(crate) use {mode_methods, request_methods, session_methods};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Mode;

    /// The cluster waits as long as the client does, within the cluster's bounds; a wait of zero is a try.
    #[test]
    fn a_wait_becomes_patience() {
        assert_eq!(WaitLimit::For(Duration::ZERO).patience(), Patience::Try);
        assert_eq!(WaitLimit::For(Duration::from_nanos(1)).patience(), Patience::For { ms: 1 });
        assert_eq!(WaitLimit::For(Duration::MAX).patience(), Patience::For { ms: PATIENCE_MS_MAX });
        assert_eq!(WaitLimit::WhileAlive.patience(), Patience::Session);
        let began = Instant::from_nanos(5);
        assert_eq!(WaitLimit::For(Duration::ZERO).until(began), None);
        assert_eq!(WaitLimit::For(Duration::from_nanos(3)).until(began), Some(Instant::from_nanos(8)));
    }

    /// Options that were not chosen are not sent, and the error of one that is out of bounds names its field.
    #[test]
    fn options_are_checked_when_the_request_is_sent() {
        let locks = &SmallMap::from((LockName::parse("a").expect("legal"), Access::from(Mode::Shared)));
        assert_eq!(SessionOptions::default().checked(locks), Ok((None, None)));
        let mut orphan =
            SessionOptions { parent: Some((SessionId::new(0, 1), String::new())), ..SessionOptions::default() };
        assert_eq!(orphan.checked(locks).expect_err("no owner").field, "owner");
        let mut child =
            SessionOptions { parent: Some((SessionId::new(0, 1), "job".to_owned())), ..SessionOptions::default() };
        let parent = child.checked(locks).expect("legal").1.and_then(|extras| extras.parent);
        assert_eq!(parent.map(|parent| parent.owner.to_string()).as_deref(), Some("job"));
        let extras = Extras { at_least_ms: Some(1), ..Extras::default() };
        let refused = SessionOptions { extras, ..SessionOptions::default() }.checked(locks);
        assert_eq!(refused.expect_err("shared").field, "at_least");
    }
}
