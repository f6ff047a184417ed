//! Curator's locks, with the names and results of its classes.
//!
//! - Where Curator uses the calling thread, a method here takes the calling [`Task`], because async tasks move between
//!   threads.
//! - A [`CuratorFramework`] is one session for all its locks. The session is closed when the last of them is dropped.
//!   The caller must choose a namespace, so that no lock is in a common namespace by accident.
//! - Where Curator throws an exception for misuse, a method here returns a [`CuratorError`]. A lock that was not
//!   acquired in time is `false` or `None`.
//! - If the cluster does not answer a release in time, its call returns that error, and the session's task continues
//!   with the release. Until the release is answered or the session ends, the lock counts as held, in this process and
//!   for other clients. If the same task then releases again, the method does nothing and returns `Ok`.

mod error;
mod framework;
mod latch;
mod locker;
mod multi;
mod mutex;
mod read_write;
mod releases;
mod revoker;
mod semaphore;
mod semaphore_mutex;

pub use error::CuratorError;
pub use framework::{CuratorFramework, FrameworkBuilder, Task};
pub use latch::{LatchParticipant, LeaderLatch};
pub use locker::Locker;
pub use multi::InterProcessMultiLock;
pub use mutex::InterProcessMutex;
pub use read_write::{InterProcessReadWriteLock, ReadWriteMutex};
pub use revoker::{Revocation, Revoker};
pub use semaphore::{InterProcessSemaphoreV2, SemaphoreLease, SharedCount};
pub use semaphore_mutex::InterProcessSemaphoreMutex;
