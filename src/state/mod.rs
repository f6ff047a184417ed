//! The replicated state of locks, sessions, queues and leases: plain data, with the indexes derived from it.
//!
//! Knows: limits, model, history, faults. Never: the rules, that is which request is granted, when something ends and
//! which wait is refused; a clock, randomness, async, disks.
//!
//! A [`State`] consists of records, each under its [`RecordKey`]. Everything else in it is derived from them: the
//! counters and lists inside a lock and a session, and the indexes over all of them.
//!
//! - A method of the state adds or removes a record. It also marks the record as changed and updates the indexes.
//! - The machine may change a record in place, and then marks the record.
//! - `State::check` derives everything again and compares the results.

mod check;
mod core;
mod document_index;
mod documents;
mod globals;
mod holder;
mod index;
mod indexed;
mod load;
mod lock;
mod owners;
mod record;
mod records;
mod request;
mod session;
mod waiters;
mod work;

pub use self::core::State;
pub use documents::{DocumentMark, FreeDocument, ProcessRecord, Unlocking, WhichHeld};
pub use globals::Globals;
pub use holder::{Delayed, HoldEntry, Holder, HolderExtras, Lease, LostHold};
pub use load::CorruptRecords;
pub use record::{Record, RecordKey};
pub use request::Request;
pub use session::{Finished, FinishedLease, SessionRecord, Tombstone};
pub use waiters::{LeaseWanted, Purpose, Waiter};

pub(crate) use indexed::{Change, DeadlineOf};
pub(crate) use lock::Lock;
pub(crate) use owners::{Lookup, Owned, OwnerKey};
pub(crate) use session::{ClaimState, Session};
pub(crate) use waiters::{HEAD, WAYS, Way};

#[cfg(test)]
pub(crate) use work::count_of;
pub(crate) use work::looked_at;
