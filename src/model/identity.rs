//! Identities of callers and their requests: handles, instances, requests and attachments.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DocumentId, Invalid, SessionId, text};
use crate::limits;

/// The secret that proves a session or a token lease: 1–128 bytes, chosen by the caller or 128 random bits. It is never
/// part of an answer to other callers, an event or a line of output, and its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Handle(#[serde(deserialize_with = "text::shared")] Arc<str>);

impl Handle {
    /// Refuses a text that is empty, longer than 128 bytes, or has a control character. The refusal shows only the
    /// length.
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

    /// The handle that a document's `ts` stands for, which is no secret.
    pub(super) fn from_document(ts: DocumentId) -> Self {
        Self(ts.to_string().into())
    }

    /// The secret itself. Only for output to its owner.
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

/// Parses a cluster's id from its 32 hexadecimal digits, as `status` shows it.
pub fn parse_cluster_id(text: &str) -> Result<u128, Invalid> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    number.ok_or_else(|| Invalid::new("cluster_id", "32 hexadecimal digits", format!("{text:?}")))
}

/// One run of a client, a random number. Another instance with the same handle is refused because the session is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instance(pub u128);

/// The id of a session's command. It can be repeated safely: the same number gets the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// The session that asks.
    pub session: SessionId,
    /// Chosen by the client, growing. Numbers below `answered_below` are not repeated any more.
    pub number: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.session, self.number)
    }
}

/// Random identity of one sessionless take. A repetition with the same identity is the same take.
///
/// - Those of documents have no bit among the top 32.
/// - Those with all of the top 32 bits are reserved: nodes refuse them to callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseRequestId(pub u128);

impl LeaseRequestId {
    /// The identity from these random bits; never a reserved one.
    #[must_use]
    pub fn from_random(random: u128) -> Self {
        // The same random bits except for the top one, so that the identity is not reserved.
        if Self(random).is_reserved() { Self(random ^ (1 << 127)) } else { Self(random) }
    }

    /// Whether nodes refuse it to callers.
    #[must_use]
    pub fn is_reserved(self) -> bool {
        limits::LEASE_REQUESTS_RESERVED_FROM <= self.0
    }
}

/// How many times a session was attached to a stream. A `Disconnected` command must name the current number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Attachment(pub u64);
