//! The one table of errors: code, gRPC status, HTTP status, exit code and advice. A test checks that it is complete.

use serde::{Deserialize, Serialize};

use crate::model::Refusal;

/// What a caller may do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Advice {
    /// The request had no effect: retry.
    Retry,
    /// The command may have been applied: repeat it with the same request number, or query its outcome.
    Ask,
    /// A retry does not help.
    GiveUp,
}

impl Advice {
    /// Returns the advice as JSON contains it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Advice::Retry => "retry",
            Advice::Ask => "ask",
            Advice::GiveUp => "give_up",
        }
    }
}

/// One row of the [table](TABLE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorRow {
    /// Code of the error.
    pub code: ErrorCode,
    /// Name of the error in JSON and in gRPC details.
    pub text: &'static str,
    /// Description of the error, the same for all its causes.
    pub title: &'static str,
    /// Numeric gRPC status code.
    pub grpc: u8,
    /// HTTP status code.
    pub http: u16,
    /// Exit code of the command line.
    pub exit: u8,
    /// What the caller may do about it.
    pub advice: Advice,
}

macro_rules! table {
    ($( #[doc = $doc:literal] $code:ident $text:literal $grpc:literal $http:literal $exit:literal $advice:ident; )*) => {
        /// Every error that a caller can get, one code each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode { $( #[doc = $doc] $code, )* }

        /// All errors, one row each, in the order of [`ErrorCode`].
        pub const TABLE: &[ErrorRow] = &[
            $( ErrorRow { code: ErrorCode::$code, text: $text, title: $doc.trim_ascii(), grpc: $grpc, http: $http, exit: $exit, advice: Advice::$advice }, )*
        ];
    };
}

/// Name and help of the counter of the errors of a node, by their codes in the table.
pub(crate) const REFUSALS: [&str; 2] = [
    "lockkeeper_refusals_total",
    "Refusals and errors in answer to commands, renewals, queries and watches of callers of this node, by word",
];

table! {
    /// A value is out of bounds or malformed.
    Invalid "invalid" 3 400 64 GiveUp;
    /// The lock is held or has waiters and the request does not wait, or its wait timed out.
    NotAcquired "not-acquired" 9 409 75 Retry;
    /// The same owner already holds the lock or waits for it.
    AlreadyHeld "already-held" 6 409 65 GiveUp;
    /// The name is in use as another kind: a lock or a semaphore.
    KindMismatch "kind-mismatch" 9 409 65 GiveUp;
    /// The wait would close a cycle of owners that wait for each other.
    Deadlock "deadlock" 9 409 65 GiveUp;
    /// The semaphore has another limit than the request names.
    LimitMismatch "limit-mismatch" 9 409 65 GiveUp;
    /// The request asks for more permits than the limit of the semaphore.
    LimitExceeded "limit-exceeded" 9 409 65 GiveUp;
    /// The semaphore has no limit yet.
    LimitUnknown "limit-unknown" 9 409 65 GiveUp;
    /// A limit of the namespace, lock or session is reached.
    Quota "quota" 8 429 65 Retry;
    /// The handle or token does not hold the lock with that name.
    NotHeld "not-held" 9 409 65 GiveUp;
    /// Another holder holds the lock.
    HeldByOther "held-by-other" 9 409 65 GiveUp;
    /// The session does not wait for the lock, and does not accept hand-overs that it did not request.
    NotAccepted "not-accepted" 9 409 65 GiveUp;
    /// The value or state has changed since the caller read it.
    Changed "changed" 10 409 65 GiveUp;
    /// The session has ended.
    SessionEnded "session-ended" 9 409 65 GiveUp;
    /// Another instance has opened a session with this handle.
    AlreadyOpen "already-open" 6 409 65 GiveUp;
    /// The handle does not belong to the session or lease.
    WrongHandle "wrong-handle" 7 403 65 GiveUp;
    /// A newer attach of the session was applied.
    StaleAttempt "stale-attempt" 10 409 65 GiveUp;
    /// The request number is below the remembered window.
    TooOld "too-old" 11 409 65 GiveUp;
    /// The request number was used for another request.
    RequestReused "request-reused" 3 400 65 GiveUp;
    /// The cluster's feature level is too low for the command, or a node does not support the level.
    FeatureLevel "feature-level" 9 409 65 GiveUp;
    /// The change of members would cost the quorum, or cannot be made.
    MembersUnfit "members-unfit" 9 409 65 GiveUp;
    /// The caller lacks the permission.
    NotPermitted "not-permitted" 7 403 77 GiveUp;
    /// The caller does not prove that it is a principal of the cluster.
    Unauthenticated "unauthenticated" 16 401 77 GiveUp;
    /// No endpoint could be reached.
    Unreachable "unreachable" 14 503 69 Retry;
    /// No node leads, or the leader has no quorum.
    NoLeader "no-leader" 14 503 69 Retry;
    /// Too many commands are waiting, or the caller, its namespace or the node has reached a limit.
    Overloaded "overloaded" 8 429 69 Retry;
    /// The command may have been applied.
    Unknown "unknown" 4 504 69 Ask;
    /// Events were missed; the answer names the position to continue from.
    EventsMissed "events-missed" 11 410 65 GiveUp;
    /// The node is shutting down.
    Stopping "stopping" 14 503 69 Retry;
    /// The lock was lost while its holder worked.
    Lost "lost" 10 409 76 GiveUp;
    /// An internal error: a bug, or an answer that the protocol does not allow.
    Internal "internal" 13 500 70 GiveUp;
}

impl ErrorCode {
    /// Returns the row of this error.
    #[must_use]
    pub fn row(self) -> &'static ErrorRow {
        &TABLE[self as usize]
    }

    /// Returns the code with this text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<ErrorCode> {
        TABLE.iter().find(|row| row.text == text).map(|row| row.code)
    }

    /// Returns the code of a refusal.
    #[must_use]
    pub fn of_refusal(refusal: &Refusal) -> ErrorCode {
        match refusal {
            Refusal::Held { .. } | Refusal::Closed { .. } => ErrorCode::NotAcquired,
            Refusal::AlreadyHeld { .. } | Refusal::Reentered { .. } => ErrorCode::AlreadyHeld,
            Refusal::KindMismatch { .. } => ErrorCode::KindMismatch,
            Refusal::LimitMismatch { .. } => ErrorCode::LimitMismatch,
            Refusal::LimitExceeded { .. } => ErrorCode::LimitExceeded,
            Refusal::LimitUnknown { .. } => ErrorCode::LimitUnknown,
            Refusal::Quota { .. } => ErrorCode::Quota,
            Refusal::Changed { .. } => ErrorCode::Changed,
            Refusal::NotHeld { .. } | Refusal::PermitsNotHeld { .. } => ErrorCode::NotHeld,
            Refusal::HeldByOther { .. } => ErrorCode::HeldByOther,
            Refusal::SessionEnded { .. } | Refusal::Tombstoned { .. } => ErrorCode::SessionEnded,
            Refusal::AlreadyOpen { .. } => ErrorCode::AlreadyOpen,
            Refusal::NotAccepted { .. } => ErrorCode::NotAccepted,
            Refusal::Deadlock { .. } => ErrorCode::Deadlock,
            Refusal::WrongHandle => ErrorCode::WrongHandle,
            Refusal::StaleAttempt { .. } => ErrorCode::StaleAttempt,
            Refusal::TooOld { .. } => ErrorCode::TooOld,
            Refusal::RequestReused { .. } => ErrorCode::RequestReused,
            Refusal::OutOfBounds { .. } | Refusal::OtherNamespace { .. } => ErrorCode::Invalid,
            Refusal::OtherDisk { .. } => ErrorCode::NotPermitted,
            Refusal::MembersUnfit { .. } => ErrorCode::MembersUnfit,
            Refusal::FeaturesUnsupported { .. } | Refusal::FeatureLevel { .. } => ErrorCode::FeatureLevel,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manual's page of errors has every row of the table, and no other row.
    #[test]
    fn the_manual_lists_every_error() {
        let page = include_str!("../manual/errors.md");
        let listed: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(listed.len(), TABLE.len());
        for (row, line) in TABLE.iter().zip(listed) {
            let fields: Vec<_> = line.split('|').map(str::trim).collect();
            let (code, advice) = (format!("`{}`", row.text), format!("`{}`", row.advice.word()));
            let grpc = fields[3].split(' ').next().expect("a number");
            let codes = [grpc.to_owned(), fields[4].to_owned(), fields[5].to_owned()];
            assert_eq!((fields[1], fields[6]), (code.as_str(), advice.as_str()), "{line}");
            assert_eq!(codes, [row.grpc.to_string(), row.http.to_string(), row.exit.to_string()], "{line}");
        }
    }

    /// Every code has its own row and text, and its exit code is one of those that the manual documents.
    #[test]
    fn the_table_is_complete_and_its_codes_are_known() {
        for (position, row) in TABLE.iter().enumerate() {
            assert_eq!(row.code as usize, position);
            assert_eq!(row.code.row(), row);
            assert_eq!(ErrorCode::from_text(row.text), Some(row.code), "{} is not unique", row.text);
            assert!([64, 65, 69, 70, 75, 76, 77].contains(&row.exit), "{}", row.text);
            assert!((1..=16).contains(&row.grpc) && (400..=599).contains(&row.http), "{}", row.text);
        }
    }
}
