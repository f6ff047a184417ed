//! Two probes besides the contenders: a lock that one client keeps through all faults, and a lease that expires.

use std::time::Duration;

use super::contenders::{HOLDER, KEPT, LEASED, Party, RIVAL};
use super::journal::{Journal, Promise};
use crate::cli::connect::Client;
use crate::cli::error::Failure;
use crate::client::{ClientError, HoldState, LockGuard, Session};
use crate::clock::micros;
use crate::limits::{DRILL_LATE_MS, DRILL_LEASE_MS};
use crate::model::{Mode, TokenState};
use crate::rpc::RemoteService;
use std::sync::Arc;

/// A lock that one client keeps, and a rival that tries to take it.
pub(super) struct Kept {
    holder: Party,
    rival: Party,
    rivals: Session<RemoteService>,
    name: String,
    held: Option<Held>,
}

/// The hold, and until when its session was certainly valid at the last look.
struct Held {
    session: Session<RemoteService>,
    guard: LockGuard,
    index: usize,
    sure_us: u64,
}

impl Kept {
    /// Takes the lock.
    pub(super) async fn take(journal: &Arc<Journal>, connect: impl Fn() -> Client) -> Result<Self, Failure> {
        let party = |client| Party { journal: Arc::clone(journal), client, connection: connect() };
        let (holder, rival) = (party(HOLDER), party(RIVAL));
        let rivals = rival.open().await;
        let name = journal.lock().locks[KEPT].name.clone();
        let held = Some(Held::take(&holder, &name).await?);
        Ok(Self { holder, rival, rivals, name, held })
    }

    /// Checks that the lock is still held under its token, and that the rival does not get it.
    pub(super) async fn check(&mut self) -> Result<(), Failure> {
        if let Some(held) = &mut self.held {
            let checked = self.holder.connection.check(&self.name, held.guard.token()).await?;
            if held.guard.state() == HoldState::Lost {
                self.lost().await;
            } else if checked.state != TokenState::Valid {
                let token = held.guard.token();
                let detail =
                    format!("token {token} of {} is not valid although its holder has not released", self.name);
                self.holder.journal.broken(Promise::Grant, detail);
            } else {
                held.sure_us = self.holder.sure_us(&held.session);
            }
        }
        let asked_us = self.rival.journal.now();
        let request = self.rivals.lock(&self.name).try_once().acquire();
        match request.await {
            Ok(guard) => {
                let hold = self.rival.hold(KEPT, Mode::Exclusive, guard.token(), asked_us);
                let index = self.rival.journal.granted(hold);
                self.rival.journal.ended(index, self.rival.journal.now());
                Ok(guard.release().await.map(drop)?)
            }
            Err(ClientError::NotAcquired { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Records that the session of the hold, or the hold alone, was lost, and takes the lock again.
    async fn lost(&mut self) {
        let Some(Held { session, guard, index, sure_us }) = self.held.take() else { return };
        let journal = &self.holder.journal;
        journal.ended(index, journal.now().min(sure_us));
        self.holder.lost(&guard.lost().await);
        if session.state() == HoldState::Lost {
            self.holder.failed(&session.lost().await, sure_us);
        }
        self.held = Held::take(&self.holder, &self.name).await.ok();
    }

    /// Lets a lease expire behind which the rival waits, and judges when the rival is granted.
    pub(super) async fn expire(&self) -> Result<(), Failure> {
        let journal = &self.rival.journal;
        let name = journal.lock().locks[LEASED].name.clone();
        let length = Duration::from_millis(DRILL_LEASE_MS);
        let asked_us = journal.now();
        let lease = self.holder.connection.lease(&name).duration(length).take().await?;
        let hold = self.holder.hold(LEASED, Mode::Exclusive, lease.token(), asked_us);
        let ends_us = hold.granted_us + micros(lease.valid_for());
        let latest_us = hold.granted_us + (DRILL_LEASE_MS + DRILL_LATE_MS) * 1000;
        let index = journal.granted(hold);
        journal.ended(index, ends_us);
        let asked_us = journal.now();
        let guard = self.rivals.lock(&name).acquire().await?;
        let hold = self.rival.hold(LEASED, Mode::Exclusive, guard.token(), asked_us);
        if latest_us < hold.granted_us {
            let late = (hold.granted_us - latest_us) / 1000 + DRILL_LATE_MS;
            journal.broken(Promise::Expiry, format!("{name} was passed on {late} ms after its lease had ended"));
        }
        let index = journal.granted(hold);
        journal.ended(index, journal.now());
        Ok(guard.release().await.map(drop)?)
    }
}

impl Held {
    async fn take(holder: &Party, name: &str) -> Result<Self, Failure> {
        let session = holder.open().await;
        let asked_us = holder.journal.now();
        let guard = session.lock(name).acquire().await?;
        let index = holder.journal.granted(holder.hold(KEPT, Mode::Exclusive, guard.token(), asked_us));
        let sure_us = holder.sure_us(&session);
        Ok(Self { session, guard, index, sure_us })
    }
}
