//! Curator's locks, with its classes' names and results.
//!
//! - Where Curator goes by the calling thread, a method here takes the [`Task`] that calls: tasks wander between threads.
//! - A [`CuratorFramework`] is one session for all its locks; the last of them to be dropped closes it. Its namespace is
//!   said where it is made, so no lock falls into a common one by accident.
//! - What Curator throws for misuse is told as [`CuratorError`]; that a lock was not got in time is `false` or `None`.

mod error;
mod framework;
mod held;
mod latch;
mod locker;
mod multi;
mod mutex;
mod read_write;
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
