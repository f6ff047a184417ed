//! Identities of callers and their requests: handles, instances, requests, attachments and claims.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DocumentId, Invalid, SessionId, text};
use crate::limits;

/// The secret that proves a session or a token lease: 1–128 bytes, chosen by the caller, or 128 random bits. Answers to
/// other callers, events and output never contain it, and its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Handle(#[serde(deserialize_with = "text::shared")] Arc<str>);

impl Handle {
    /// Returns an error for a text that is empty, longer than 128 bytes, or has a control character. The error shows
    /// only the length of the text.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let handle = text::bounded("handle", text, limits::HANDLE_BYTES_MAX).map(Self);
        handle.map_err(|invalid| Invalid { value: format!("{} bytes", text.len()), ..invalid })
    }

    /// A handle of 128 random bits, written as 32 hexadecimal digits.
    #[must_use]
    pub fn from_random(bits: u128) -> Self {
        Self(format!("{bits:032x}").into())
    }

    /// The handle made from a document's `ts`, which is no secret.
    pub(super) fn from_document(ts: DocumentId) -> Self {
        Self(ts.to_string().into())
    }

    /// Returns the secret as text. Only for output to its owner.
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
    parse_hex("cluster_id", text)
}

/// Parses a 128-bit number of 32 hexadecimal digits.
pub(crate) fn parse_hex(field: &str, text: &str) -> Result<u128, Invalid> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    number.ok_or_else(|| Invalid::new(field, "32 hexadecimal digits", format!("{text:?}")))
}

/// Parses a 128-bit number of 32 hexadecimal digits, which hyphens may divide as in a UUID.
pub(crate) fn parse_uuid(field: &str, text: &str) -> Result<u128, Invalid> {
    let hyphens = text.match_indices('-').map(|(at, _)| at);
    let divided = text.len() == 36 && hyphens.eq([8, 13, 18, 23]);
    let number = if divided { parse_hex(field, &text.replace('-', "")) } else { parse_hex(field, text) };
    number.map_err(|_| Invalid::new(field, "a UUID", format!("{text:?}")))
}

/// Parses the number of a session's request. The numbers above belong to the requests of the cluster itself.
pub(crate) fn parse_request_number(text: &str) -> Result<u64, Invalid> {
    let number = text.parse().ok().filter(|number| (1..limits::OWN_REQUESTS_MIN).contains(number));
    let bound = || format!("a decimal number from 1 to {}", limits::OWN_REQUESTS_MIN - 1);
    number.ok_or_else(|| Invalid::new("request", bound(), text))
}

/// One run of a client, identified by a random number. A client with the same handle and another instance is refused,
/// because the session is open already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instance(pub u128);

/// The id of a session's command. The command can be repeated safely, because the same number gets the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// The session that sends the command.
    pub session: SessionId,
    /// Chosen by the client, in ascending order. Numbers below `answered_below` are not repeated any more.
    pub number: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.session, self.number)
    }
}

/// Random identity of a sessionless take. A repetition with the same identity is the same take.
///
/// - The identity of a document's take has zeros in the top 32 bits.
/// - Identities with ones in all of the top 32 bits are reserved. Nodes refuse them to callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseRequestId(pub u128);

impl LeaseRequestId {
    /// The identity with these random bits. Never a reserved one.
    #[must_use]
    pub fn from_random(random: u128) -> Self {
        // The same random bits except for the top one, so that the identity is not reserved.
        if Self(random).is_reserved() { Self(random ^ (1 << 127)) } else { Self(random) }
    }

    /// Whether the identity is reserved, so that nodes refuse it to callers.
    #[must_use]
    pub fn is_reserved(self) -> bool {
        limits::LEASE_REQUESTS_RESERVED_FROM <= self.0
    }
}

/// How many times a session was attached to a stream. [`Command::Disconnected`](super::Command::Disconnected) must name
/// the current number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Attachment(pub u64);

/// A request that waits for a lock or holds it: of a session, or a sessionless take. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Claim {
    /// A session's acquire.
    Request(RequestId),
    /// The take of a token lease.
    Lease(LeaseRequestId),
}

impl Claim {
    /// The session that made the claim. `None` for a take.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.request().map(|request| request.session)
    }

    /// The session's request. `None` for a take.
    #[must_use]
    pub fn request(self) -> Option<RequestId> {
        match self {
            Claim::Request(request) => Some(request),
            Claim::Lease(_) => None,
        }
    }
}
