//! Locks that a program builds from a few commands of a database: one file a recipe.

pub mod counter_lock;
pub mod flag_lock;
pub mod get_set_lock;
pub mod incr_lock;
pub mod lease_lock;
pub mod redis_lock;
pub mod token_lock;
pub mod unique_index_lock;
