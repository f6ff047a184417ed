//! The vocabulary of lockkeeper: the types that every module uses.
//!
//! Knows: limits. Never: I/O, wire formats, clocks.
//!
//! | word | meaning |
//! | --- | --- |
//! | lock | a name in a namespace that clients hold: alone, shared, or by permits (a semaphore) |
//! | session | a client's registration; all that it holds or waits for ends with it |
//! | token lease | a lock held without a session: a secret handle proves it, and it has its own deadline |
//! | holder, waiter | a request that has the lock; a request in the lock's queue, in the order of the log |
//! | fencing token | a public number that grows with every grant; resources refuse older ones |
//! | document | a lock as the config server of another system shows it, by its `ts` |
//! | handle | a secret that proves a session or lease; never shown to other clients |
//! | log time | the cluster's own time, which stands still while nothing can be committed |
//! | history | what happened to the holders of a namespace's locks, each record chained to the previous one by its hash |
//! | entry | the content of one Raft log position: a stamp of log time, renewals, and commands |
//! | outcome, refusal | the machine's answer to a command, the same on every node |

mod alter;
mod cached;
mod cycle;
mod command;
mod document;
mod entry;
mod event;
mod explain;
mod extras;
mod history;
mod manage;
mod identity;
mod kind;
mod metadata;
mod name;
mod node;
mod outcome;
mod query;
mod quotas;
mod refusal;
mod restore;
mod small_map;
mod text;
mod time;
mod token;
mod valid;

pub use alter::*;
pub use command::*;
pub use cycle::*;
pub use document::*;
pub use entry::*;
pub use event::*;
pub use explain::*;
pub use extras::*;
pub use history::*;
pub use identity::*;
pub use kind::*;
pub use manage::*;
pub use metadata::*;
pub use name::*;
pub use node::*;
pub use outcome::*;
pub use query::*;
pub(crate) use quotas::Quotas;
pub use refusal::*;
pub use restore::*;
pub use small_map::SmallMap;
pub use time::*;
pub use token::*;
pub use valid::*;

/// The error for a value that is out of bounds. The value never reached the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{field}: {bound}, got {value}")]
pub struct Invalid {
    /// The field's name as the caller wrote it.
    pub field: String,
    /// The values that are allowed.
    pub bound: String,
    /// The value, shortened if it is long.
    pub value: String,
}

impl Invalid {
    /// Creates an error from the field, the bound and the value, which is cut after 80 characters.
    pub fn new(field: &str, bound: impl Into<String>, value: impl std::fmt::Display) -> Self {
        let mut value = value.to_string();
        if let Some((cut, _)) = value.char_indices().nth(80) {
            value.truncate(cut);
            value.push('…');
        }
        Self { field: field.to_owned(), bound: bound.into(), value }
    }
}
