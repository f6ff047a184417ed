//! Who asks: handles, instances, requests and attachments.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DocumentId, Invalid, SessionId, text};
use crate::limits;

/// The secret that proves a session or a token lease: 1–128 bytes, chosen by the caller or 128 random bits.
/// It is never part of an answer to others, an event or a line of output; its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Handle(#[serde(deserialize_with = "text::shared")] Arc<str>);

impl Handle {
    /// Refuses what is empty, longer than 128 bytes, or has a control character. The refusal shows only the length.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() || text.len() > limits::HANDLE_BYTES_MAX || text.chars().any(char::is_control) {
            let bound = format!("1 to {} bytes, no control characters", limits::HANDLE_BYTES_MAX);
            return Err(Invalid::new("handle", bound, format!("{} bytes", text.len())));
        }
        Ok(Self(text.into()))
    }

    /// A handle of 128 random bits, written as 32 hexadecimal digits.
    #[must_use]
    pub fn from_random(bits: u128) -> Self {
        Self(format!("{bits:032x}").into())
    }

    /// The digits of a document's `ts`, which is no secret.
    pub(super) fn from_document(ts: DocumentId) -> Self {
        Self(ts.to_string().into())
    }

    /// The secret itself, for its owner.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(…)")
    }
}

/// A cluster's id from its 32 hexadecimal digits, as `status` shows it.
pub fn parse_cluster_id(text: &str) -> Result<u128, Invalid> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    number.ok_or_else(|| Invalid::new("cluster_id", "32 hexadecimal digits", format!("{text:?}")))
}

/// One run of a client, drawn at random: another instance with the same handle is told that the session is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instance(pub u128);

/// A command of a session that may be repeated safely: the same number gets the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// Whose request.
    pub session: SessionId,
    /// Drawn by the client, growing; below `answered_below` nothing is repeated any more.
    pub number: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.session, self.number)
    }
}

/// Identity of one sessionless take, drawn at random: a repeated take with it is the first.
///
/// - Those of documents have no bit among the top 32.
/// - Those with all of the top 32 bits are reserved: nodes refuse them to callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseRequestId(pub u128);

impl LeaseRequestId {
    /// The identity from these random bits; never a reserved one.
    #[must_use]
    pub fn from_random(random: u128) -> Self {
        // Another number of the same randomness: only its top bit is another one.
        if Self(random).is_reserved() { Self(random ^ (1 << 127)) } else { Self(random) }
    }

    /// Whether callers are refused it.
    #[must_use]
    pub fn is_reserved(self) -> bool {
        limits::LEASE_REQUESTS_RESERVED_FROM <= self.0
    }
}

/// How many times a session was attached to a stream; a late *disconnected* must name the current number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Attachment(pub u64);
