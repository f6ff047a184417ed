//! Requests for locks within a session.

pub(crate) mod acquire;
pub(crate) mod cached;
pub(crate) mod pending;
pub(crate) mod set;
