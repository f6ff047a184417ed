//! An acquire of a cached hold: a local take, a wait in the local queue of its session, or a request.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::client::error::ClientError;
use crate::client::guard::LockGuard;
use crate::client::on_drop::OnDrop;
use crate::client::options::{RequestOptions, SessionOptions, WaitLimit};
use crate::client::request::pending::{SessionSource, acquire};
use crate::client::session::Session;
use crate::client::session::cached_holds::{Admitted, Asked, Ticket};
use crate::client::session::commands::release_cached;
use crate::client::session::reference::SessionRef;
use crate::client::wait::{not_acquired, wait_until};
use crate::clock::Instant;
use crate::model::{Access, LockName, SmallMap};
use crate::service::LockService;

pub(crate) async fn acquire_cached<S: LockService>(
    source: SessionSource<S>,
    name: LockName,
    access: Access,
    mut options: RequestOptions,
    mut session_options: SessionOptions,
) -> Result<LockGuard, ClientError> {
    let locks: SmallMap<_, _> = (name.clone(), access).into();
    session_options.checked(&locks)?;
    // A loop of local takes awaits nothing else, and would keep its thread from the session's task.
    tokio::task::coop::consume_budget().await;
    let (session, deadline) = source.open(options.wait).await?;
    let (reference, now) = (&session.reference, session.reference.state.clock.now());
    let admitted = match reference.state.holds.ask_cached(&name, now) {
        Asked::Now(admitted) => admitted,
        Asked::Queued(ticket, admitted) => {
            let waiter = QueuedAcquire { session: reference.clone(), name: name.clone(), ticket, admitted };
            Box::pin(waiter.wait(options.wait, deadline)).await?
        }
    };
    match admitted {
        Admitted::Taken(hold) => Ok(LockGuard::of_added(session.reference, hold, Duration::ZERO)),
        Admitted::Request(ticket) => {
            options.wait = options.wait.left(deadline, session.settings.clock.now());
            Box::pin(request(session, name, ticket, locks, options, session_options)).await
        }
    }
}

/// Requests the lock at the cluster. If that ends without a grant, the next acquire of the local queue has its turn.
async fn request<S: LockService>(
    session: Session<S>,
    name: LockName,
    ticket: Ticket,
    locks: SmallMap<LockName, Access>,
    options: RequestOptions,
    session_options: SessionOptions,
) -> Result<LockGuard, ClientError> {
    let reference = session.reference.clone();
    if reference.state.holds.starts_releasing() {
        let releases = release_cached(reference.service.clone(), reference.state.clone());
        reference.run_in_background(Box::pin(releases));
    }
    let mut failed = OnDrop::new((reference.state.clone(), name, ticket), |(session, name, ticket)| {
        session.holds.cached(|cached| cached.failed(name, *ticket));
    });
    let acquired = acquire(SessionSource::Own(session), locks, options, session_options).await?;
    let guard = acquired.cached_guard(ticket)?;
    failed.disarm();
    Ok(guard)
}

/// An acquire in the local queue. When it is dropped, it leaves the queue and returns its turn, if it has one.
struct QueuedAcquire {
    session: SessionRef,
    name: LockName,
    ticket: Ticket,
    admitted: oneshot::Receiver<Admitted>,
}

impl QueuedAcquire {
    /// Waits for the turn. A try waits for nothing.
    async fn wait(mut self, wait: WaitLimit, deadline: Option<Instant>) -> Result<Admitted, ClientError> {
        let state = Arc::clone(&self.session.state);
        let deadline = if wait == WaitLimit::TRY { Some(state.clock.now()) } else { deadline };
        tokio::select! {
            biased;
            end = state.closed() => Err(state.lost_error(end)),
            Ok(admitted) = &mut self.admitted => Ok(admitted),
            () = wait_until(&*state.clock, deadline) => Err(not_acquired(&self.name, None)),
        }
    }
}

impl Drop for QueuedAcquire {
    fn drop(&mut self) {
        let holds = &self.session.state.holds;
        holds.cached(|cached| cached.leave(&self.name, self.ticket));
        match self.admitted.try_recv() {
            // The guard gives the hold back.
            Ok(Admitted::Taken(hold)) => drop(LockGuard::of_added(self.session.clone(), hold, Duration::ZERO)),
            Ok(Admitted::Request(ticket)) => holds.cached(|cached| cached.failed(&self.name, ticket)),
            Err(_) => {}
        }
    }
}
