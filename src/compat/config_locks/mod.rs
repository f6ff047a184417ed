//! MongoDB's config server: `config.locks` and `config.lockpings`, with the rules of its lock manager.
//!
//! | there | here |
//! | --- | --- |
//! | a lock is a document that only its owner's ping keeps | the same: it has no end of its own, and a process that is silent for the take-over time loses it to whoever has watched it that long |
//! | two processes may both believe that they hold it after a pause | each grant has a fencing token, and natively held locks exclude it |
//! | a lost answer leaves a lock without an owner | a repeated grab is the first one, and a `ts` that was unlocked is spent |

mod acquire;
#[cfg(feature = "bson")]
mod bson;
mod legacy;
mod observer;
mod pinger;
mod scoped;
mod settings;

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

#[cfg(feature = "bson")]
pub use bson::{locks_document, locks_json, ping_document};
pub use observer::{Era, Look, Observer, Verdict};
pub use scoped::ScopedLock;
pub use settings::{ConfigLockError, ConfigSettings, WaitFor};

use crate::client::{Client, ClientError, Grabbed, NewDocument};
use crate::model::{Document, DocumentId, FencingToken, Invalid, LockName, LogTime, Metadata, ProcessId, Refusal};
use crate::service::LockService;
use pinger::Unlocks;

/// The lock manager of one process. While it lives its process is pinged; dropping it stops that, and leaves its locks to
/// be overtaken, as a crash does. [`shut_down`](Self::shut_down) ends it in order.
pub struct ConfigLocks<S: LockService> {
    client: Client<S>,
    process: ProcessId,
    settings: ConfigSettings,
    observer: Mutex<Observer>,
    unlocks: Unlocks,
    pinger: Option<JoinHandle<()>>,
    /// Legacy: the clocks were compared before the first use.
    clocks_agree: AtomicBool,
}

impl<S: LockService> ConfigLocks<S> {
    /// A manager that pings for this process from now on.
    #[must_use]
    pub fn start(client: Client<S>, process: ProcessId, settings: ConfigSettings) -> Self {
        let mut manager = Self::silent(client, process, settings);
        let (client, process) = (manager.client.clone(), manager.process.clone());
        let keep = pinger::keep(client, process, manager.unlocks.clone(), settings.ping_every);
        manager.pinger = Some(tokio::spawn(keep));
        manager
    }

    /// A manager that pings only when it is told to.
    #[must_use]
    pub fn silent(client: Client<S>, process: ProcessId, settings: ConfigSettings) -> Self {
        let observer = Mutex::new(Observer::new(settings.takeover, settings.era));
        let (unlocks, clocks_agree) = (Unlocks::default(), AtomicBool::new(false));
        Self { client, process, settings, observer, unlocks, pinger: None, clocks_agree }
    }

    /// The id of a process that starts now: `host:port:start-second:random`. Another start is another process.
    pub fn new_process_id(client: &Client<S>, host: &str, port: u16) -> Result<ProcessId, Invalid> {
        let (start_s, random) = (client.time().wall().0 / 1000, client.time().random_u128() as u64 as i64);
        ProcessId::parse(&format!("{host}:{port}:{start_s}:{random}"))
    }

    /// Whose locks it takes.
    #[must_use]
    pub fn process(&self) -> &ProcessId {
        &self.process
    }

    /// A `ts` for a new acquisition: seconds of the wall clock, then random.
    #[must_use]
    pub fn new_ts(&self) -> DocumentId {
        let clock = self.client.time();
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&((clock.wall().0 / 1000) as u32).to_be_bytes());
        bytes[4..].copy_from_slice(&(clock.random_u128() as u64).to_be_bytes());
        DocumentId(bytes)
    }

    /// Notes that a process lives.
    pub async fn ping(&self, process: &ProcessId) -> Result<(), ConfigLockError> {
        Ok(self.client.ping(process.clone()).await?)
    }

    /// Removes a process' record. Its locks stay.
    pub async fn stop_ping(&self, process: &ProcessId) -> Result<(), ConfigLockError> {
        Ok(self.client.stop_ping(process.clone()).await?)
    }

    /// Takes a lock that nobody has.
    pub async fn grab(
        &self,
        name: &str,
        ts: DocumentId,
        who: &str,
        why: &str,
    ) -> Result<FencingToken, ConfigLockError> {
        Ok(self.client.grab(name, self.held_at_once(ts, self.said(who, why))).await?.token)
    }

    /// Takes a lock whose document is free or still the one that was seen.
    pub async fn overtake(
        &self,
        name: &str,
        ts: DocumentId,
        seen: DocumentId,
        who: &str,
        why: &str,
    ) -> Result<FencingToken, ConfigLockError> {
        Ok(self.try_overtake(name, seen, self.held_at_once(ts, self.said(who, why))).await?.token)
    }

    fn held_at_once(&self, ts: DocumentId, metadata: Metadata) -> NewDocument {
        NewDocument { ts, metadata, term: self.settings.term, prepare: false }
    }

    async fn try_overtake(&self, name: &str, seen: DocumentId, new: NewDocument) -> Result<Grabbed, ClientError> {
        let overtaken = self.client.overtake(name, seen, new).await;
        if let Err(ClientError::Refused(Refusal::NotHeld { lock })) = overtaken {
            // Without a document there is nothing to overtake: somebody was faster, and has gone again.
            return Err(ClientError::NotAcquired { lock: lock.name, holder: None, closed: None });
        }
        overtaken
    }

    /// Frees what this acquisition holds. Nothing to free is a success.
    pub async fn unlock(&self, ts: DocumentId) -> Result<(), ConfigLockError> {
        self.client.unlock(ts, None).await?;
        Ok(())
    }

    /// The same for one lock. A grab with this `ts` that is still under way gets nothing any more.
    pub async fn unlock_named(&self, ts: DocumentId, name: &str) -> Result<(), ConfigLockError> {
        self.client.unlock(ts, Some(name)).await?;
        Ok(())
    }

    /// Frees everything that a process holds, or what it held up to an election term. Answers how many locks that were.
    pub async fn unlock_all(&self, process: &ProcessId, term: Option<u64>) -> Result<u64, ConfigLockError> {
        Ok(self.client.unlock_all(process.clone(), term).await?)
    }

    /// The document of this name.
    pub async fn get_lock_by_name(&self, name: &str) -> Result<Document, ConfigLockError> {
        self.client.document(name).await?.value.ok_or(ConfigLockError::LockNotFound)
    }

    /// The document with this `ts`, be it held or free: a released lock is still found. Ask
    /// [`check`](Client::check) for the truth about a hold.
    pub async fn get_lock_by_ts(&self, ts: DocumentId) -> Result<Document, ConfigLockError> {
        let found = self.client.documents_stamped(ts).await?.value.rows;
        found.into_iter().next().ok_or(ConfigLockError::LockNotFound)
    }

    /// Whether this acquisition's document still exists, released or not: the original's check.
    pub async fn check_status(&self, ts: DocumentId) -> Result<(), ConfigLockError> {
        self.get_lock_by_ts(ts).await.map(|_| ())
    }

    /// How many unlocks wait to be tried again.
    #[must_use]
    pub fn unlocks_waiting(&self) -> usize {
        self.unlocks.len()
    }

    /// Stops pinging and forgets the process' record. Its locks stay.
    pub async fn shut_down(mut self) -> Result<(), ConfigLockError> {
        if let Some(pinger) = self.pinger.take() {
            pinger.abort();
            // It was aborted: its result says nothing.
            let _ = pinger.await;
        }
        self.stop_ping(&self.process).await
    }

    fn said(&self, who: &str, why: &str) -> Metadata {
        Metadata { process: self.process.as_str().into(), who: who.into(), why: why.into(), ..Metadata::default() }
    }

    fn observer(&self) -> std::sync::MutexGuard<'_, Observer> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at who holds the lock; answers its document once its process was silent for the take-over time.
    async fn expired(&self, name: &LockName) -> Result<Option<Document>, ClientError> {
        let asked = self.client.time().now();
        let document = self.client.document(name.as_str()).await?.value;
        let Some(document) = document.filter(|held| held.state.is_taken() && !held.native) else {
            return Ok(None);
        };
        let ping = self.client.ping_of(&document.process).await?;
        let status = self.client.status().await?;
        let half = Duration::div_f64(self.client.time().now().since(asked), 2.0);
        let server_time = LogTime(status.log_time.0.saturating_sub(u64::try_from(half.as_millis()).unwrap_or(0)));
        let process = document.process.to_string();
        let look = Look { process, ping: ping.value, ts: document.ts, election: status.term, server_time };
        let verdict = self.observer().look(name, look);
        match verdict {
            Verdict::Alive => Ok(None),
            Verdict::TimeWentBack => {
                tracing::warn!(lock = %name, "the service's time went back; nothing is overtaken");
                Ok(None)
            }
            Verdict::Expired => Ok(Some(document)),
        }
    }
}

impl<S: LockService> Drop for ConfigLocks<S> {
    fn drop(&mut self) {
        if let Some(pinger) = &self.pinger {
            pinger.abort();
        }
    }
}
