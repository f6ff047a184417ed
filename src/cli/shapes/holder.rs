//! A holder as `show` and `break` print it.

use serde::Serialize;

use super::{filled, mode_word, permits};
use crate::model::{HolderView, LogTime};

#[derive(Debug, Serialize)]
pub(super) struct Holder {
    session: Option<String>,
    owner: Option<String>,
    token: String,
    mode: &'static str,
    permits: Option<u32>,
    who: String,
    why: Option<String>,
    host: String,
    pid: u32,
    held_ms: u64,
    remaining_ms: Option<u64>,
    cached: bool,
    recalled: bool,
}

impl Holder {
    pub(super) fn new(holder: &HolderView, now: LogTime) -> Self {
        Self {
            session: holder.session.map(|session| session.to_string()),
            owner: holder.owner.as_ref().map(ToString::to_string),
            token: holder.token.to_string(),
            mode: mode_word(holder.mode),
            permits: permits(holder.mode),
            who: holder.metadata.name().into_owned(),
            why: filled(&holder.metadata.why),
            host: holder.metadata.host.to_string(),
            pid: holder.metadata.pid,
            held_ms: now.ms_since(holder.since),
            remaining_ms: holder.deadline.map(|deadline| deadline.ms_since(now)),
            cached: holder.cached,
            recalled: holder.recalled,
        }
    }
}
