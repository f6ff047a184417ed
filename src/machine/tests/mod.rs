//! Tests of the lock machine: scripts with their expected output, a naive model to compare with, and the properties of
//! records.

mod bounds;
mod breaks;
mod cycles;
mod costs;
mod deadlocks;
mod freed_together;
mod history;
mod listings;
pub(crate) mod mirror;
pub(crate) mod naive;
mod owners;
mod property;
mod queuers;
pub(crate) mod random;
mod records;
mod refused;
mod replays;
mod restore;
mod rounds;
mod script_documents;
mod script_words;
mod scripts;
mod secrets;
mod sizes;
mod takes;
mod work;
