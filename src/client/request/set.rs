//! A request for several locks together: all of them are granted, or none.

use std::fmt;

use crate::client::client::Client;
use crate::client::error::ClientError;
use crate::client::guard::set::SetGuard;
use crate::client::options::{RequestOptions, SessionOptions, WaitLimit, request_methods, session_methods};
use crate::client::request::pending::{SessionSource, acquire};
use crate::client::session::Session;
use crate::model::{Access, Invalid, LockName, Mode, SmallMap};
use crate::service::LockService;

/// One lock of a set. A name converts to an exclusive member, and a pair of a name and a mode to a member in that mode.
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

/// A request for several locks together. By default it waits as long as the session lives. [`acquire`](Self::acquire)
/// checks the values and sends it.
#[must_use = "nothing is requested before acquire()"]
pub struct SetRequest<S: LockService> {
    source: SessionSource<S>,
    members: Vec<SetMember>,
    options: RequestOptions,
    session_options: SessionOptions,
}

impl<S: LockService> Client<S> {
    /// Requests several locks together, in the session that [`lock`](Self::lock) uses.
    pub fn locks<M: Into<SetMember>>(&self, members: impl IntoIterator<Item = M>) -> SetRequest<S> {
        SetRequest::new(SessionSource::Shared(self.clone()), members)
    }
}

impl<S: LockService> Session<S> {
    /// Requests 1 to 64 locks together: names for exclusive holds, or pairs of a name and a mode.
    pub fn locks<M: Into<SetMember>>(&self, members: impl IntoIterator<Item = M>) -> SetRequest<S> {
        SetRequest::new(SessionSource::Own(self.clone()), members)
    }
}

impl<S: LockService> SetRequest<S> {
    fn new<M: Into<SetMember>>(source: SessionSource<S>, members: impl IntoIterator<Item = M>) -> Self {
        let members = members.into_iter().map(Into::into).collect();
        Self {
            source,
            members,
            options: RequestOptions::new(WaitLimit::WhileAlive),
            session_options: SessionOptions::default(),
        }
    }

    /// Adds a lock in this mode.
    pub fn with(mut self, name: &str, access: impl Into<Access>) -> Self {
        self.members.push((name, access).into());
        self
    }

    /// Sends the request and waits as its options say. The request holds nothing while it waits; all locks are granted
    /// at one moment.
    ///
    /// - Errors and changes of leader are retried under one request number.
    /// - *Not acquired* means that the cluster has confirmed that no waiter and no hold of this request remain. The
    ///   error names the lock that was lacking in the cluster's last report.
    /// - If the future is dropped, the session's task withdraws the request, so no waiter and no lock remain.
    pub async fn acquire(self) -> Result<SetGuard, ClientError> {
        let Self { source, members, options, session_options } = self;
        let acquired = acquire(source, checked(members)?, options, session_options).await?;
        Ok(SetGuard::new(acquired.guards()?))
    }
}

request_methods!(SetRequest);
session_methods!(SetRequest);

/// Checks that each name is legal and occurs once.
fn checked(members: Vec<SetMember>) -> Result<SmallMap<LockName, Access>, Invalid> {
    let mut checked = SmallMap::new();
    for SetMember { name, access } in members {
        if checked.insert(LockName::parse(&name)?, access).is_some() {
            return Err(Invalid::new("locks", "each name once in a set", format!("{name:?} twice")));
        }
    }
    Ok(checked)
}

impl<S: LockService> fmt::Debug for SetRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetRequest")
            .field("members", &self.members)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
