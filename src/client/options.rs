//! How a lock, a set of locks or a lease is wanted: the choices that their requests share, written down once and checked
//! when they are asked for.

use std::time::Duration;

use crate::clock::Instant;
use crate::limits::PATIENCE_MS_MAX;
use crate::model::{Extras, Invalid, LockValue, Metadata, Mode, Owner, Parent, Patience, Place, SessionId};

use super::session::millis;

/// What every request says.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) metadata: Option<Metadata>,
    pub(super) why: Option<String>,
    pub(super) wait: Wait,
}

impl Wanted {
    /// Nothing special, waited for so.
    pub(super) fn new(wait: Wait) -> Self {
        Self { metadata: None, why: None, wait }
    }

    /// What the holder will say of itself: what was given or else the client's, with the reason in it.
    pub(super) fn metadata(
        metadata: Option<Metadata>,
        why: Option<String>,
        own: &Metadata,
    ) -> Result<Metadata, Invalid> {
        let mut metadata = metadata.unwrap_or_else(|| own.clone());
        if let Some(why) = why {
            metadata.why = why.into();
        }
        metadata.checked()
    }
}

/// How long to wait, on the client's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Try,
    For(Duration),
    WhileAlive,
}

impl Wait {
    /// When it is over, for a call that began at `began`. No time at all is a try, which has its answer without a wait.
    pub(super) fn until(self, began: Instant) -> Option<Instant> {
        match self {
            Wait::For(wait) => (!wait.is_zero()).then(|| began.after(wait)),
            Wait::Try | Wait::WhileAlive => None,
        }
    }

    /// The same for the cluster, which counts in log time, as a backstop.
    pub(super) fn patience(self) -> Patience {
        match self {
            Wait::Try => Patience::Try,
            Wait::For(wait) if wait.is_zero() => Patience::Try,
            Wait::For(wait) => Patience::For { ms: millis(wait).clamp(1, PATIENCE_MS_MAX) },
            Wait::WhileAlive => Patience::Session,
        }
    }
}

/// What a request within a session says besides.
#[derive(Default)]
pub(super) struct Choices {
    pub(super) owner: Option<String>,
    pub(super) lease_ms: Option<u64>,
    pub(super) extras: Extras,
    pub(super) value: Option<String>,
    pub(super) parent: Option<(SessionId, String)>,
    pub(super) on_queued: OnQueued,
}

/// Is told each place in the queue.
pub(super) type OnQueued = Option<Box<dyn FnMut(&Place) + Send>>;

impl Choices {
    /// The line of execution, and what few requests choose, within their bounds and fit for these modes; `None` where none of it was chosen.
    pub(super) fn checked(
        &mut self,
        modes: impl IntoIterator<Item = Mode>,
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
        extras.checked_for(modes.into_iter())?;
        Ok((owner, (extras != *Extras::PLAIN).then(|| Box::new(extras))))
    }
}

/// Gives a request that keeps a `wanted: Wanted` the methods that every request has.
macro_rules! wanted_methods {
    ($request:ident) => {
        impl<S: LockService> $request<S> {
            /// What for; shown to whoever waits.
            pub fn why(mut self, why: &str) -> Self {
                self.wanted.why = Some(why.to_owned());
                self
            }

            /// What the holder says of itself, instead of the client's.
            pub fn metadata(mut self, metadata: $crate::model::Metadata) -> Self {
                self.wanted.metadata = Some(metadata);
                self
            }

            /// Waits at most so long, counted from the call that asks.
            pub fn wait(mut self, wait: std::time::Duration) -> Self {
                self.wanted.wait = $crate::client::wanted::Wait::For(wait);
                self
            }

            /// Does not wait.
            pub fn try_once(mut self) -> Self {
                self.wanted.wait = $crate::client::wanted::Wait::Try;
                self
            }
        }
    };
}

/// Gives a request for one lock, which keeps an `access: Access`, the ways to hold it.
macro_rules! mode_methods {
    ($request:ident) => {
        impl<S: LockService> $request<S> {
            /// Together with other shared holders, instead of alone.
            pub fn shared(self) -> Self {
                self.mode($crate::model::Mode::Shared)
            }

            /// So many permits of a semaphore. The first to ask for a free name has to say the limit.
            pub fn permits(self, count: u32, limit: impl Into<Option<u32>>) -> Self {
                self.mode($crate::model::Access::permits(count, limit))
            }

            /// How, as a mode, or as permits with their limit; exclusive by default.
            pub fn mode(mut self, access: impl Into<$crate::model::Access>) -> Self {
                self.access = access.into();
                self
            }
        }
    };
}

/// Gives a request within a session, which keeps `choices: Choices`, the methods for them.
macro_rules! choice_methods {
    ($request:ident) => {
        impl<S: LockService> $request<S> {
            /// The line of execution that asks. Without one this request excludes every other, also of the same session,
            /// and is left out of deadlock detection.
            pub fn owner(mut self, owner: &str) -> Self {
                self.choices.owner = Some(owner.to_owned());
                self
            }

            /// Who waits for this line of execution to finish: asking for what that one holds, or waits for, in a way
            /// that nobody could ever finish is refused as a deadlock.
            pub fn parent(mut self, session: $crate::model::SessionId, owner: &str) -> Self {
                self.choices.parent = Some((session, owner.to_owned()));
                self
            }

            /// What happens where the wait would close a cycle of owners that wait for each other; by default it is
            /// refused, and the refusal names the cycle.
            pub fn on_deadlock(mut self, policy: $crate::model::OnDeadlock) -> Self {
                self.choices.extras.deadlock = policy;
                self
            }

            /// The hold also ends so long after its last renewal, which the session's keeper sends at a third of it.
            pub fn lease(mut self, length: std::time::Duration) -> Self {
                self.choices.lease_ms = Some($crate::client::session::millis(length));
                self
            }

            /// After an involuntary end the name stays closed for so long, to all but
            /// [`Session::resume`]($crate::client::Session::resume); at most a minute.
            pub fn delay(mut self, delay: std::time::Duration) -> Self {
                self.choices.extras.delay_ms = $crate::client::session::millis(delay);
                self
            }

            /// However soon the hold ends, what it had stays closed for so long from the grant on, to every client. Only a
            /// [break]($crate::client::Client) of it opens it before. At most a day, and not for a shared lock.
            pub fn at_least(mut self, length: std::time::Duration) -> Self {
                self.choices.extras.at_least_ms = Some($crate::client::session::millis(length));
                self
            }

            /// The hold ends so long after the grant, even while the session lives; no renewal moves that. At most a day.
            pub fn at_most(mut self, length: std::time::Duration) -> Self {
                self.choices.extras.at_most_ms = Some($crate::client::session::millis(length));
                self
            }

            /// A text kept with the hold and shown to everybody, at most 4 KiB.
            pub fn value(mut self, value: &str) -> Self {
                self.choices.value = Some(value.to_owned());
                self
            }

            /// Is told the place in the queue, each time that the cluster says it.
            pub fn on_queued(mut self, tell: impl FnMut(&$crate::model::Place) + Send + 'static) -> Self {
                self.choices.on_queued = Some(Box::new(tell));
                self
            }
        }
    };
}

pub(super) use {choice_methods, mode_methods, wanted_methods};

#[cfg(test)]
mod tests {
    use super::*;

    /// The cluster is asked to wait as long as the client does, within its bounds; no wait at all is a try.
    #[test]
    fn a_wait_becomes_patience() {
        assert_eq!(Wait::Try.patience(), Patience::Try);
        assert_eq!(Wait::For(Duration::ZERO).patience(), Patience::Try);
        assert_eq!(Wait::For(Duration::from_nanos(1)).patience(), Patience::For { ms: 1 });
        assert_eq!(Wait::For(Duration::MAX).patience(), Patience::For { ms: PATIENCE_MS_MAX });
        assert_eq!(Wait::WhileAlive.patience(), Patience::Session);
        let began = Instant::from_nanos(5);
        assert_eq!(Wait::For(Duration::ZERO).until(began), None);
        assert_eq!(Wait::For(Duration::from_nanos(3)).until(began), Some(Instant::from_nanos(8)));
    }

    /// Choices that were not made cost nothing, and those out of bounds are refused by their field.
    #[test]
    fn choices_are_checked_when_they_are_asked_for() {
        let modes = || [Mode::Shared];
        assert_eq!(Choices::default().checked(modes()), Ok((None, None)));
        let mut orphan = Choices { parent: Some((SessionId::new(0, 1), String::new())), ..Choices::default() };
        assert_eq!(orphan.checked(modes()).expect_err("nobody").field, "owner");
        let mut child = Choices { parent: Some((SessionId::new(0, 1), "job".to_owned())), ..Choices::default() };
        let parent = child.checked(modes()).expect("legal").1.and_then(|extras| extras.parent);
        assert_eq!(parent.map(|parent| parent.owner.to_string()).as_deref(), Some("job"));
        let extras = Extras { at_least_ms: Some(1), ..Extras::default() };
        let refused = Choices { extras, ..Choices::default() }.checked(modes());
        assert_eq!(refused.expect_err("shared").field, "at_least");
    }
}
