//! The clients of a drill: contenders that take a lock, hold it shortly and release it, again and again. Some of them
//! share three locks, and each of the others has a separate lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::journal::{Hold, Journal, LockInfo, Promise, Timeline};
use crate::cli::connect::Client;
use crate::client::{ClientError, HoldState, Lost, Session};
use crate::clock::micros;
use crate::limits::{DRILL_CLIENTS, DRILL_HOLD_MS, DRILL_PAUSE_BETWEEN_MS, RETRY_MS_MIN};
use crate::model::{Access, Mode};
use crate::rpc::RemoteService;
use crate::service::ErrorCode;

/// Limit of permits of the semaphore.
const PERMITS: u32 = 2;

/// The locks, in the order of their indexes.
pub(super) const EXCLUSIVE: usize = 0;
const SHARED: usize = 1;
const SEMAPHORE: usize = 2;
pub(super) const KEPT: usize = 3;
pub(super) const LEASED: usize = 4;

/// What the clients take that share a lock with others.
const SHARERS: [(usize, Mode); 12] = [
    (EXCLUSIVE, Mode::Exclusive),
    (EXCLUSIVE, Mode::Exclusive),
    (EXCLUSIVE, Mode::Exclusive),
    (EXCLUSIVE, Mode::Exclusive),
    (SHARED, Mode::Shared),
    (SHARED, Mode::Shared),
    (SHARED, Mode::Shared),
    (SHARED, Mode::Exclusive),
    (SEMAPHORE, Mode::Permits(1)),
    (SEMAPHORE, Mode::Permits(1)),
    (SEMAPHORE, Mode::Permits(1)),
    (SEMAPHORE, Mode::Permits(1)),
];

/// Number of the locks above. The locks of single clients follow.
pub(super) const SHARED_LOCKS: usize = 5;

/// The client that waits for what others lose, and the client that keeps one lock for the whole drill.
pub(super) const RIVAL: usize = DRILL_CLIENTS - 1;
pub(super) const HOLDER: usize = RIVAL - 1;

/// Returns the timeline of a drill that has not begun.
pub(super) fn timeline() -> Timeline {
    let lock = |name: &str, limit| LockInfo { name: name.to_owned(), limit };
    let mut locks = vec![
        lock("exclusive", None),
        lock("shared", None),
        lock("permits", Some(PERMITS)),
        lock("kept", None),
        lock("leased", None),
    ];
    locks.extend((SHARERS.len()..HOLDER).map(|client| lock(&format!("own-{}", client + 1), None)));
    let clients = (0..DRILL_CLIENTS).map(|client| format!("client {}", client + 1)).collect();
    Timeline { locks, clients, contenders: HOLDER, ..Timeline::default() }
}

/// Starts all contenders. They end when the set is dropped.
pub(super) fn start(journal: &Arc<Journal>, ttl: Duration, connect: impl Fn() -> Client) -> JoinSet<()> {
    let mut contenders = JoinSet::new();
    let shared = SHARERS.into_iter().map(|(lock, mode)| (lock, mode, 0));
    let own = (SHARED_LOCKS..).map(|lock| (lock, Mode::Exclusive, DRILL_PAUSE_BETWEEN_MS));
    for (client, (lock, mode, pause_ms)) in shared.chain(own).take(HOLDER).enumerate() {
        let contender = Contender { journal: Arc::clone(journal), client, ttl, connection: connect() };
        contenders.spawn(contend(contender, lock, mode, Duration::from_millis(pause_ms)));
    }
    contenders
}

/// One client of the drill.
pub(super) struct Contender {
    pub(super) journal: Arc<Journal>,
    pub(super) client: usize,
    /// The TTL of its sessions.
    pub(super) ttl: Duration,
    pub(super) connection: Client,
}

impl Contender {
    /// Opens a session, and retries until the cluster answers.
    pub(super) async fn open(&self) -> Session<RemoteService> {
        loop {
            let opened = self.connection.session().ttl(self.ttl).open().await;
            match opened {
                Ok(session) => {
                    self.journal.lock().sessions += 1;
                    return session;
                }
                Err(error) => tracing::info!(%error, "a session could not be opened"),
            }
            tokio::time::sleep(Duration::from_millis(RETRY_MS_MIN)).await;
        }
    }

    /// Creates the record of a grant that was received just now.
    pub(super) fn hold(&self, lock: usize, mode: Mode, token: crate::model::FencingToken, asked_us: u64) -> Hold {
        let granted_us = self.journal.now();
        Hold { lock, client: self.client, mode, token, asked_us, granted_us, ended_us: None }
    }

    /// Records that a request failed, if the error shows a broken promise or a lost session. The session was certainly
    /// valid until `sure_us`.
    pub(super) fn failed(&self, error: &ClientError, sure_us: u64) {
        let name = self.journal.lock().clients[self.client].clone();
        if let ClientError::SessionLost { session, reason, .. } = error {
            self.journal.lock().lost_sessions += 1;
            if let Some(reason) = reason.filter(|_| self.journal.now() < sure_us) {
                let early = (sure_us - self.journal.now()) / 1000;
                let detail =
                    format!("session {session} of {name} has ended ({reason}), {early} ms before its TTL was over");
                self.journal.broken(Promise::Session, detail);
            }
            return;
        }
        if matches!(error.code(), ErrorCode::Lost | ErrorCode::NotHeld | ErrorCode::HeldByOther) {
            self.journal.broken(Promise::Grant, format!("the cluster lost a grant of {name}: {error}"));
        }
        tracing::info!(%error, "a request failed");
    }

    /// Records that a hold was lost although its holder did not release it. A lost session is recorded elsewhere.
    pub(super) fn lost(&self, lost: &Lost) {
        if lost.alone {
            let name = self.journal.lock().clients[self.client].clone();
            self.journal.broken(Promise::Grant, format!("the cluster lost a grant of {name}: {lost}"));
        }
    }

    /// Returns until when the session is certainly valid.
    pub(super) fn sure_us(&self, session: &Session<RemoteService>) -> u64 {
        self.journal.now() + micros(session.valid_for())
    }
}

async fn contend(contender: Contender, lock: usize, mode: Mode, pause: Duration) {
    let info = contender.journal.lock().locks[lock].clone();
    let access = Access { mode, limit: info.limit };
    loop {
        let session = contender.open().await;
        while session.state() != HoldState::Lost {
            let sure_us = contender.sure_us(&session);
            if let Err(error) = pair(&contender, &session, (lock, &info.name), access).await {
                contender.failed(&error, sure_us);
                break;
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Acquires, holds and releases once. The hold counts from the receipt of the grant until right before the release is
/// sent, or until the client could no longer be sure of it.
async fn pair(
    contender: &Contender,
    session: &Session<RemoteService>,
    (lock, name): (usize, &str),
    access: Access,
) -> Result<(), ClientError> {
    let asked_us = contender.journal.now();
    let guard = session.lock(name).mode(access).acquire().await?;
    let valid_us = micros(guard.valid_for());
    let hold = contender.hold(lock, access.mode, guard.token(), asked_us);
    let until_us = hold.granted_us + valid_us;
    let index = contender.journal.granted(hold);
    tokio::select! {
        lost = guard.lost() => contender.lost(&lost),
        () = tokio::time::sleep(Duration::from_millis(DRILL_HOLD_MS)) => {}
    }
    let now = contender.journal.now();
    contender.journal.ended(index, if guard.state() == HoldState::Lost { now.min(until_us) } else { now });
    guard.release().await?;
    Ok(())
}
