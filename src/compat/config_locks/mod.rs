//! The locks of MongoDB's config server: `config.locks` and `config.lockpings`, with the rules of its lock manager.
//!
//! | MongoDB | here |
//! | --- | --- |
//! | a lock is a document that is kept by its owner's pings | the same: it has no deadline, and if its process does not ping for the take-over time, a process that has watched it for that long can take it over |
//! | after a pause, two processes may both believe that they hold it | each grant has a fencing token, and holds of native clients exclude it |
//! | a lost answer leaves a lock without an owner | a repeated grab returns the first grant, and a `ts` that was unlocked cannot be used again |

mod acquire;
#[cfg(feature = "bson")]
mod bson;
mod legacy;
mod observer;
mod pinger;
mod scoped;
mod settings;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::task::JoinSet;

#[cfg(feature = "bson")]
pub use bson::{locks_document, locks_json, ping_document};
pub use observer::Era;
pub use scoped::ScopedLock;
pub use settings::{ConfigLockError, ConfigSettings, WaitFor};

use crate::client::{Client, ClientError, Grabbed, NewDocument};
use crate::model::{Document, DocumentId, FencingToken, Invalid, LockName, LogTime, Metadata, ProcessId, Refusal};
use crate::mutex::Mutex;
use crate::service::LockService;
use observer::{Observation, Observer, Verdict};
use pinger::Unlocks;

/// The lock manager of one process. It pings for its process until it is dropped. Its locks then remain and can be
/// taken over, as after a crash. So do locks that were dropped but not yet unlocked. [`shut_down`](Self::shut_down)
/// stops it cleanly.
pub struct ConfigLocks<S: LockService> {
    client: Client<S>,
    process: ProcessId,
    settings: ConfigSettings,
    observer: Mutex<Observer>,
    unlocks: Unlocks,
    /// The background task, if there is one. It ends with this value.
    pinger: JoinSet<()>,
    /// Whether the clocks were compared before the first use; only for legacy managers.
    clocks_agree: AtomicBool,
}

impl<S: LockService> ConfigLocks<S> {
    /// Creates a manager and starts to ping for this process.
    #[must_use]
    pub fn start(client: Client<S>, process: ProcessId, settings: ConfigSettings) -> Self {
        let mut manager = Self::silent(client, process, settings);
        let (client, process) = (manager.client.clone(), manager.process.clone());
        manager.pinger.spawn(pinger::keep(client, process, manager.unlocks.clone(), settings.ping_every));
        manager
    }

    /// Creates a manager without a background task. It pings only when [`ping`](Self::ping) is called. That call and
    /// [`shut_down`](Self::shut_down) unlock dropped locks.
    #[must_use]
    pub fn silent(client: Client<S>, process: ProcessId, settings: ConfigSettings) -> Self {
        let observer = Mutex::new(Observer::new(settings.takeover, settings.era));
        let (unlocks, clocks_agree) = (Unlocks::default(), AtomicBool::new(false));
        Self { client, process, settings, observer, unlocks, pinger: JoinSet::new(), clocks_agree }
    }

    /// Creates the id of a process that starts now: `host:port:start-second:random`. A restarted process has a new id.
    pub fn new_process_id(client: &Client<S>, host: &str, port: u16) -> Result<ProcessId, Invalid> {
        let (start_s, random) = (client.time().wall().0 / 1000, client.time().random_u128() as u64 as i64);
        ProcessId::parse(&format!("{host}:{port}:{start_s}:{random}"))
    }

    /// Returns the id of the process whose locks this manages.
    #[must_use]
    pub fn process(&self) -> &ProcessId {
        &self.process
    }

    /// Creates a `ts` for a new acquisition: 4 bytes of seconds of the wall clock, then 8 random bytes.
    #[must_use]
    pub fn new_ts(&self) -> DocumentId {
        let clock = self.client.time();
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&((clock.wall().0 / 1000) as u32).to_be_bytes());
        bytes[4..].copy_from_slice(&(clock.random_u128() as u64).to_be_bytes());
        DocumentId(bytes)
    }

    /// Records that a process is alive, and sends the unlocks that wait. An unlock that fails is retried with the next
    /// ping.
    pub async fn ping(&self, process: &ProcessId) -> Result<(), ConfigLockError> {
        self.client.ping(process.clone()).await?;
        // A failure is logged.
        drop(self.unlocks.send_all(&self.client).await);
        Ok(())
    }

    /// Removes the record of a process. Its locks remain.
    pub async fn stop_ping(&self, process: &ProcessId) -> Result<(), ConfigLockError> {
        Ok(self.client.stop_ping(process.clone()).await?)
    }

    /// Takes a lock that no process has.
    pub async fn grab(
        &self,
        name: &str,
        ts: DocumentId,
        who: &str,
        why: &str,
    ) -> Result<FencingToken, ConfigLockError> {
        Ok(self.client.grab(name, self.held_at_once(ts, self.metadata(who, why))).await?.token)
    }

    /// Takes a lock whose document is free or still has the `ts` that the caller saw.
    pub async fn overtake(
        &self,
        name: &str,
        ts: DocumentId,
        seen: DocumentId,
        who: &str,
        why: &str,
    ) -> Result<FencingToken, ConfigLockError> {
        Ok(self.try_overtake(name, seen, self.held_at_once(ts, self.metadata(who, why)), &mut false).await?.token)
    }

    fn held_at_once(&self, ts: DocumentId, metadata: Metadata) -> NewDocument {
        NewDocument { ts, metadata, term: self.settings.term, prepare: false }
    }

    async fn try_overtake(
        &self,
        name: &str,
        seen: DocumentId,
        new: NewDocument,
        in_doubt: &mut bool,
    ) -> Result<Grabbed, ClientError> {
        let overtaken = self.client.grab_noting_doubt(name, Some(seen), new, in_doubt).await;
        if let Err(ClientError::Refused(Refusal::NotHeld { lock })) = overtaken {
            // Without a document there is nothing to take over: another process has taken and released the lock
            // meanwhile.
            return Err(ClientError::NotAcquired { lock: lock.name, holder: None, closed: None });
        }
        overtaken
    }

    /// Releases what this acquisition holds. It is not an error if it holds nothing.
    pub async fn unlock(&self, ts: DocumentId) -> Result<(), ConfigLockError> {
        self.client.unlock(ts, None).await?;
        Ok(())
    }

    /// Releases one lock of this acquisition. A grab with this `ts` that is still in progress is refused.
    pub async fn unlock_named(&self, ts: DocumentId, name: &str) -> Result<(), ConfigLockError> {
        self.client.unlock(ts, Some(name)).await?;
        Ok(())
    }

    /// Releases all locks of a process, or those up to an election term. Returns how many were held.
    pub async fn unlock_all(&self, process: &ProcessId, term: Option<u64>) -> Result<u64, ConfigLockError> {
        Ok(self.client.unlock_all(process.clone(), term).await?)
    }

    /// Returns the document of this name, or [`ConfigLockError::LockNotFound`].
    pub async fn get_lock_by_name(&self, name: &str) -> Result<Document, ConfigLockError> {
        self.client.document(name).await?.value.ok_or(ConfigLockError::LockNotFound)
    }

    /// Returns the document with this `ts`, even if the lock was released. Use [`check`](Client::check) to check a
    /// hold.
    pub async fn get_lock_by_ts(&self, ts: DocumentId) -> Result<Document, ConfigLockError> {
        let found = self.client.documents_stamped(ts).await?.value.rows;
        found.into_iter().next().ok_or(ConfigLockError::LockNotFound)
    }

    /// Whether this acquisition's document still exists, released or not, as in MongoDB.
    pub async fn check_status(&self, ts: DocumentId) -> Result<(), ConfigLockError> {
        self.get_lock_by_ts(ts).await.map(|_| ())
    }

    /// Returns the number of unlocks that wait for a retry.
    #[must_use]
    pub fn unlocks_waiting(&self) -> usize {
        self.unlocks.len()
    }

    /// Stops the pings, sends the unlocks of dropped locks, and removes the record of the process. Its other locks
    /// remain.
    ///
    /// # Errors
    /// The record could not be removed, or an unlock failed; the first of these errors if both did. The unlock that
    /// failed and those after it in the queue are not sent again, so their locks remain. The record is removed even if
    /// an unlock failed.
    pub async fn shut_down(mut self) -> Result<(), ConfigLockError> {
        self.pinger.shutdown().await;
        let unlocked = self.unlocks.send_all(&self.client).await;
        self.stop_ping(&self.process).await?;
        Ok(unlocked?)
    }

    fn metadata(&self, who: &str, why: &str) -> Metadata {
        Metadata { process: self.process.as_str().into(), who: who.into(), why: why.into(), ..Metadata::default() }
    }

    /// Reads the state of the lock. Returns its document if its process has not pinged for the take-over time.
    async fn expired(&self, name: &LockName) -> Result<Option<Document>, ClientError> {
        let asked = self.client.time().now();
        let document = self.client.document(name.as_str()).await?.value;
        let Some(document) = document.filter(|held| held.state.is_taken() && !held.native) else {
            self.observer.lock().forget(name);
            return Ok(None);
        };
        let ping = self.client.ping_of(&document.process).await?;
        let half = Duration::div_f64(self.client.time().now().since(asked), 2.0);
        let service_time = LogTime(ping.now.0.saturating_sub(u64::try_from(half.as_millis()).unwrap_or(0)));
        let status = self.client.status().await?;
        if status.leader.is_none() {
            // The answer is the own view of a node that reaches no leader, whose term may be an old one.
            return Ok(None);
        }
        let process = document.process.to_string();
        let observation = Observation { process, ping: ping.value, ts: document.ts, term: status.term, service_time };
        let verdict = self.observer.lock().observe(name, observation);
        match verdict {
            Verdict::Alive => Ok(None),
            Verdict::TimeWentBack => {
                tracing::warn!(lock = %name, "the service's time went back; no lock is taken over");
                Ok(None)
            }
            Verdict::Expired => Ok(Some(document)),
        }
    }
}
