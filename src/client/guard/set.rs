//! Several locks together: granted whole or not at all.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use super::pursuit::{Asker, Pursuit, Ready};
use super::wanted::{Choices, Wait, Wanted, choice_methods, wanted_methods};
use super::{Asked, Client, ClientError, HoldState, LockGuard, Lost, Released, Session};
use crate::model::{Access, Acquire, Command, FencingToken, Invalid, LockName, Mode, SessionId};
use crate::service::LockService;

/// One lock of a set, as it was written down: from a name, for an exclusive hold, or from a name and a mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetMember {
    name: String,
    access: Access,
}

impl From<&str> for SetMember {
    fn from(name: &str) -> Self {
        (name, Mode::Exclusive).into()
    }
}

impl From<String> for SetMember {
    fn from(name: String) -> Self {
        (name, Mode::Exclusive).into()
    }
}

impl<N: Into<String>, A: Into<Access>> From<(N, A)> for SetMember {
    fn from((name, access): (N, A)) -> Self {
        Self { name: name.into(), access: access.into() }
    }
}

/// How several locks are to be acquired together: waited for as long as the session lives by default.
/// [`acquire`](Self::acquire) asks for them; values are checked there.
#[must_use = "nothing is asked for before acquire()"]
pub struct SetRequest<S: LockService> {
    asker: Asker<S>,
    members: Vec<SetMember>,
    wanted: Wanted,
    choices: Choices,
}

impl<S: LockService> Client<S> {
    /// Asks for several locks together, in the session that [`lock`](Self::lock) uses.
    pub fn locks<M: Into<SetMember>>(&self, members: impl IntoIterator<Item = M>) -> SetRequest<S> {
        SetRequest::new(Asker::Shared(self.clone()), members)
    }
}

impl<S: LockService> Session<S> {
    /// Asks for 1 to 64 locks together: names for exclusive holds, or pairs of a name and a mode.
    pub fn locks<M: Into<SetMember>>(&self, members: impl IntoIterator<Item = M>) -> SetRequest<S> {
        SetRequest::new(Asker::Own(self.clone()), members)
    }
}

impl<S: LockService> SetRequest<S> {
    fn new<M: Into<SetMember>>(asker: Asker<S>, members: impl IntoIterator<Item = M>) -> Self {
        let members = members.into_iter().map(Into::into).collect();
        Self { asker, members, wanted: Wanted::new(Wait::WhileAlive), choices: Choices::default() }
    }

    /// One more lock, held so.
    pub fn with(mut self, name: &str, access: impl Into<Access>) -> Self {
        self.members.push((name, access).into());
        self
    }

    /// Asks, and waits as was said. While it waits it holds nothing; it is granted all locks at one moment.
    ///
    /// - It repeats itself under one request number through errors and changes of leader.
    /// - *Not acquired* is said only once the cluster has confirmed that nothing of it waits or holds. It names the lock
    ///   that was lacking when the cluster last said so.
    /// - Dropped before its end it leaves no waiter and no lock: the session's keeper withdraws it.
    pub async fn acquire(self) -> Result<SetGuard, ClientError> {
        let Self { asker, members, wanted, mut choices } = self;
        let members = checked(members)?;
        let (owner, extras) = choices.checked(members.values().map(|access| access.mode))?;
        let lease_ms = choices.lease_ms;
        let (names, accesses): (Vec<_>, Vec<_>) = members.clone().into_iter().unzip();
        let one = names.first().ok_or_else(|| Invalid::new("locks", "at least one in a set", "none"))?;
        let Ready { session, metadata, patience, deadline } = asker.ready(wanted).await?;
        let command = |request, answered_below| {
            let locks = members.into_iter().collect();
            Command::Acquire(Acquire { request, answered_below, locks, owner, patience, metadata, lease_ms, extras })
        };
        let pursued = Pursuit::pursue(session, one, command, choices.on_queued, deadline).await?;
        let guards = pursued.guards(&names, lease_ms)?.into_iter().zip(accesses);
        Ok(SetGuard { guards: guards.map(|(guard, access)| guard.held_in(access.mode)).collect() })
    }
}

wanted_methods!(SetRequest);
choice_methods!(SetRequest);

/// The names and modes, each name once.
fn checked(members: Vec<SetMember>) -> Result<BTreeMap<LockName, Access>, Invalid> {
    let mut checked = BTreeMap::new();
    for SetMember { name, access } in members {
        if checked.insert(LockName::parse(&name)?, access).is_some() {
            return Err(Invalid::new("locks", "each name once in a set", format!("{name:?} twice")));
        }
    }
    Ok(checked)
}

/// Holds several locks, and keeps their session alive. Dropping it gives all of them back, as a [`LockGuard`] does.
///
/// They were granted at one moment, and are held one by one from then on: one of them can be lost alone, by a break, a
/// hand-over or the end of its lease. The set counts as lost with the first of them.
#[derive(Debug)]
#[must_use = "dropping the guard releases the locks"]
pub struct SetGuard {
    /// In the order of their names; never empty.
    guards: Vec<LockGuard>,
}

impl From<LockGuard> for SetGuard {
    /// The guard of one lock as that of a set.
    fn from(guard: LockGuard) -> Self {
        Self { guards: vec![guard] }
    }
}

impl SetGuard {
    /// The fencing token of this lock's grant; `None` for a name that is not in the set.
    #[must_use]
    pub fn token(&self, name: &str) -> Option<FencingToken> {
        self.guards.iter().find(|guard| guard.name().as_str() == name).map(LockGuard::token)
    }

    /// The fencing tokens by name.
    #[must_use]
    pub fn tokens(&self) -> BTreeMap<LockName, FencingToken> {
        self.guards.iter().map(|guard| (guard.name().clone(), guard.token())).collect()
    }

    /// The guards of its locks, in the order of their names.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// Takes it apart: each lock is given back by its own guard from now on.
    pub fn into_guards(self) -> Vec<LockGuard> {
        self.guards
    }

    /// Whose.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.guards[0].session()
    }

    /// How long it stood in the queues, in log time.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.guards[0].waited()
    }

    /// How long all of it is surely held if nothing more is answered; zero once one of its locks is lost. The clock is read
    /// at each call.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.guards.iter().map(LockGuard::valid_for).min().unwrap_or_default()
    }

    /// How sure the least sure of its locks is.
    #[must_use]
    pub fn state(&self) -> HoldState {
        let states = || self.guards.iter().map(LockGuard::state);
        let worst = [HoldState::Lost, HoldState::Unsure].into_iter().find(|bad| states().any(|state| state == *bad));
        worst.unwrap_or(HoldState::Held)
    }

    /// Waits until the first of its locks is lost, as [`LockGuard::lost`] does.
    pub async fn lost(&self) -> Lost {
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await.0
    }

    /// Waits until somebody asks the holder to give up one of its locks, and tells each such request once, with the lock's
    /// name.
    pub async fn asked(&self) -> (LockName, Asked) {
        let asked = |guard| Box::pin(LockGuard::asked(guard));
        let (asked, which, _) = select_all(self.guards.iter().map(asked)).await;
        (self.guards[which].name().clone(), asked)
    }

    /// Does work while all of it is held. If one of its locks is lost first, the work is dropped at that moment, before
    /// another may be granted that lock.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let output = tokio::select! {
            biased;
            lost = self.lost() => return Err(lost),
            output = work => output,
        };
        // The last stretch of the work may have taken longer than the lease.
        if self.state() == HoldState::Lost { Err(self.lost().await) } else { Ok(output) }
    }

    /// Gives all locks back and says what became of each, by name; an error only after all were tried, and the first one.
    /// Abandoned halfway they are given back all the same.
    pub async fn release(self) -> Result<BTreeMap<LockName, Released>, ClientError> {
        let release = |guard: LockGuard| async move {
            let name = guard.name().clone();
            guard.release().await.map(|released| (name, released))
        };
        join_all(self.guards.into_iter().map(release)).await.into_iter().collect()
    }
}

impl<S: LockService> fmt::Debug for SetRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetRequest")
            .field("members", &self.members)
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}
