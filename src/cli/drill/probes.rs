//! Two probes besides the contenders: a lock that one client keeps through all faults, and a lease that expires.

use std::sync::Arc;
use std::time::Duration;

use super::contenders::{Contender, HOLDER, KEPT, LEASED, RIVAL};
use super::journal::{Journal, Promise};
use crate::cli::connect::Client;
use crate::cli::error::Failure;
use crate::client::{ClientError, HoldState, LockGuard, Session};
use crate::clock::micros;
use crate::limits::{DRILL_LATE_MS, DRILL_LEASE_MS};
use crate::model::{Mode, TokenState};
use crate::rpc::RemoteService;

/// A lock that one client keeps, and a rival that tries to take it.
pub(super) struct Kept {
    holder: Contender,
    rival: Contender,
    name: String,
    held: Held,
}

/// A hold with its index in the journal. Its session was certainly valid until `sure_us` at the last look.
struct Held {
    session: Session<RemoteService>,
    guard: LockGuard,
    index: usize,
    sure_us: u64,
}

impl Kept {
    pub(super) async fn take(
        journal: &Arc<Journal>,
        ttl: Duration,
        connect: impl Fn() -> Client,
    ) -> Result<Self, Failure> {
        let contender = |client| Contender { journal: Arc::clone(journal), client, ttl, connection: connect() };
        let (holder, rival) = (contender(HOLDER), contender(RIVAL));
        let name = journal.lock().locks[KEPT].name.clone();
        let held = Held::take(&holder, &name).await?;
        Ok(Self { holder, rival, name, held })
    }

    /// Checks that the lock is still held under its token, and lets the rival try to take it.
    pub(super) async fn check(&mut self) -> Result<(), Failure> {
        let (held, journal) = (&mut self.held, &self.holder.journal);
        let token = held.guard.token();
        let checked = self.holder.connection.check(&self.name, token).await?;
        if held.guard.state() == HoldState::Lost {
            journal.ended(held.index, journal.now().min(held.sure_us));
            self.holder.lost(&held.guard.lost().await);
            if held.session.state() == HoldState::Lost {
                self.holder.failed(&held.session.lost().await, held.sure_us);
            }
            self.held = Held::take(&self.holder, &self.name).await?;
        } else if checked.state == TokenState::Valid {
            held.sure_us = self.holder.sure_us(&held.session);
        } else {
            let detail = format!("{}: token {token} is not valid although its holder has not released it", self.name);
            journal.broken(Promise::Grant, detail);
        }
        match self.try_as_rival(KEPT, Duration::ZERO).await {
            Ok(_) | Err(ClientError::NotAcquired { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets a lease expire behind which the rival waits, and judges when the rival is granted.
    pub(super) async fn expire(&self) -> Result<(), Failure> {
        let journal = &self.rival.journal;
        let name = journal.lock().locks[LEASED].name.clone();
        let length = Duration::from_millis(DRILL_LEASE_MS);
        let asked_us = journal.now();
        let lease = self.holder.connection.lease(&name).duration(length).take().await?;
        let hold = self.holder.hold(LEASED, Mode::Exclusive, lease.token(), asked_us);
        let (valid_us, ends_us) = (hold.granted_us + micros(lease.valid_for()), hold.granted_us + micros(length));
        journal.ended(journal.granted(hold), valid_us);
        let granted_us = self.try_as_rival(LEASED, Duration::MAX).await?;
        let late_ms = granted_us.saturating_sub(ends_us) / 1000;
        if DRILL_LATE_MS < late_ms {
            journal.broken(Promise::Expiry, format!("{name} was passed on {late_ms} ms after its lease had ended"));
        }
        Ok(())
    }

    /// Takes and releases a lock as the rival, in a session that is not counted. Returns when it was granted.
    async fn try_as_rival(&self, lock: usize, wait: Duration) -> Result<u64, ClientError> {
        let journal = &self.rival.journal;
        let name = journal.lock().locks[lock].name.clone();
        let session = self.rival.connection.session().open().await?;
        let asked_us = journal.now();
        let guard = session.lock(&name).wait(wait).acquire().await?;
        let hold = self.rival.hold(lock, Mode::Exclusive, guard.token(), asked_us);
        let granted_us = hold.granted_us;
        journal.ended(journal.granted(hold), journal.now());
        guard.release().await.map(|_| granted_us)
    }
}

impl Held {
    async fn take(holder: &Contender, name: &str) -> Result<Self, Failure> {
        let session = holder.open().await;
        let asked_us = holder.journal.now();
        let guard = session.lock(name).acquire().await?;
        let index = holder.journal.granted(holder.hold(KEPT, Mode::Exclusive, guard.token(), asked_us));
        let sure_us = holder.sure_us(&session);
        Ok(Self { session, guard, index, sure_us })
    }
}
