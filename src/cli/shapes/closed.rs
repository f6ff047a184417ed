//! What keeps a lock closed, as `show` lists it.

use serde::Serialize;

use crate::model::Closing;

/// What keeps a lock closed.
#[derive(Debug, Serialize)]
pub(super) struct Closed {
    token: String,
    who: String,
    /// In log time, as in `status`.
    until_ms: u64,
}

impl Closed {
    pub(super) fn new(closing: &Closing) -> Self {
        let Closing { token, who, until, left_ms: _ } = closing;
        Self { token: token.to_string(), who: who.to_string(), until_ms: until.0 }
    }
}
