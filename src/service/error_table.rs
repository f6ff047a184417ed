//! The one table of errors: word, gRPC status, HTTP status, exit code and advice. Closed; tested to be complete.

use serde::{Deserialize, Serialize};

use crate::model::Refusal;

/// What a caller may do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Advice {
    /// Nothing happened: try again.
    Retry,
    /// It may have happened: repeat it under the same request number, or ask.
    Ask,
    /// Trying again will not help.
    GiveUp,
}

impl Advice {
    /// As it stands in JSON.
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
    /// Which error.
    pub word: ErrorCode,
    /// Its text, as it stands in JSON.
    pub text: &'static str,
    /// gRPC status code.
    pub grpc: u8,
    /// HTTP status.
    pub http: u16,
    /// Exit code of the command line.
    pub exit: u8,
    /// What to do.
    pub advice: Advice,
}

macro_rules! table {
    ($( $(#[$doc:meta])* $word:ident $text:literal $grpc:literal $http:literal $exit:literal $advice:ident; )*) => {
        /// Every error that a caller can meet, by one word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode { $( $(#[$doc])* $word, )* }

        /// All errors, one row each, in the order of [`ErrorCode`].
        pub const TABLE: &[ErrorRow] = &[
            $( ErrorRow { word: ErrorCode::$word, text: $text, grpc: $grpc, http: $http, exit: $exit, advice: Advice::$advice }, )*
        ];
    };
}

table! {
    /// A value is out of bounds or malformed.
    Invalid "invalid" 3 400 64 GiveUp;
    /// A try met a holder or a queue, or the wait was over.
    NotAcquired "not-acquired" 9 409 75 Retry;
    /// The same owner holds it or waits for it already.
    AlreadyHeld "already-held" 6 409 65 GiveUp;
    /// The name is in use as the other kind.
    KindMismatch "kind-mismatch" 9 409 65 GiveUp;
    /// Its wait would close a cycle of owners that wait for each other.
    Deadlock "deadlock" 9 409 65 GiveUp;
    /// The semaphore has another limit.
    LimitMismatch "limit-mismatch" 9 409 65 GiveUp;
    /// More permits than there are.
    LimitExceeded "limit-exceeded" 9 409 65 GiveUp;
    /// The semaphore has no limit yet.
    LimitUnknown "limit-unknown" 9 409 65 GiveUp;
    /// A bound of the namespace, lock or session is reached.
    Quota "quota" 8 429 65 Retry;
    /// Nothing is held under that name with that proof.
    NotHeld "not-held" 9 409 65 GiveUp;
    /// Somebody else holds it.
    HeldByOther "held-by-other" 9 409 65 GiveUp;
    /// The session does not wait for it, and has not said that it accepts what it did not ask for.
    NotAccepted "not-accepted" 9 409 65 GiveUp;
    /// It is no longer as the caller saw it.
    Changed "changed" 10 409 65 GiveUp;
    /// The session has ended.
    SessionEnded "session-ended" 9 409 65 GiveUp;
    /// Another instance opened a session with this handle.
    AlreadyOpen "already-open" 6 409 65 GiveUp;
    /// The handle does not prove it.
    WrongHandle "wrong-handle" 7 403 65 GiveUp;
    /// A newer attach was applied.
    StaleAttempt "stale-attempt" 10 409 65 GiveUp;
    /// The request number is below what is remembered.
    TooOld "too-old" 11 409 65 GiveUp;
    /// The request number was used for something else.
    RequestReused "request-reused" 3 400 65 GiveUp;
    /// The cluster's feature level is too low for it, or a node does not support the level.
    FeatureLevel "feature-level" 9 409 65 GiveUp;
    /// The cluster's members stay as they are: the change would cost the quorum, or cannot be made.
    MembersUnfit "members-unfit" 9 409 65 GiveUp;
    /// The caller may not do that.
    NotPermitted "not-permitted" 7 403 77 GiveUp;
    /// No endpoint could be reached.
    Unreachable "unreachable" 14 503 69 Retry;
    /// Nobody leads, or the leader has no quorum.
    NoLeader "no-leader" 14 503 69 Retry;
    /// Too much waits already.
    Overloaded "overloaded" 8 429 69 Retry;
    /// It may have happened.
    Unknown "unknown" 4 504 69 Ask;
    /// Events were missed; the answer names where to go on.
    EventsMissed "events-missed" 11 410 65 GiveUp;
    /// The node is going away.
    Stopping "stopping" 14 503 69 Retry;
    /// The lock was lost while its holder worked.
    Lost "lost" 10 409 76 GiveUp;
    /// Something that should be impossible.
    Internal "internal" 13 500 70 GiveUp;
}

impl ErrorCode {
    /// Its row.
    #[must_use]
    pub fn row(self) -> &'static ErrorRow {
        &TABLE[self as usize]
    }

    /// The word whose text this is.
    #[must_use]
    pub fn from_text(text: &str) -> Option<ErrorCode> {
        TABLE.iter().find(|row| row.text == text).map(|row| row.word)
    }

    /// The word of a refusal.
    #[must_use]
    pub fn of_refusal(refusal: &Refusal) -> ErrorCode {
        match refusal {
            Refusal::Held { .. } | Refusal::Closed { .. } => ErrorCode::NotAcquired,
            Refusal::AlreadyHeld { .. } | Refusal::Entered { .. } => ErrorCode::AlreadyHeld,
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

    /// The manual's page of errors has every row of the table, and no other.
    #[test]
    fn the_manual_lists_every_error() {
        let page = include_str!("../manual/errors.md");
        let listed: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(listed.len(), TABLE.len());
        for (row, line) in TABLE.iter().zip(listed) {
            let fields: Vec<_> = line.split('|').map(str::trim).collect();
            let (word, advice) = (format!("`{}`", row.text), format!("`{}`", row.advice.word()));
            let grpc = fields[3].split(' ').next().expect("a number");
            let codes = [grpc.to_owned(), fields[4].to_owned(), fields[5].to_owned()];
            assert_eq!((fields[1], fields[6]), (word.as_str(), advice.as_str()), "{line}");
            assert_eq!(codes, [row.grpc.to_string(), row.http.to_string(), row.exit.to_string()], "{line}");
        }
    }

    /// Every word has its own row and text, and its exit code is one of those that the manual promises.
    #[test]
    fn the_table_is_complete_and_its_codes_are_known() {
        for (position, row) in TABLE.iter().enumerate() {
            assert_eq!(row.word as usize, position);
            assert_eq!(row.word.row(), row);
            assert_eq!(ErrorCode::from_text(row.text), Some(row.word), "{} is not unique", row.text);
            assert!([64, 65, 69, 70, 75, 76, 77].contains(&row.exit), "{}", row.text);
            assert!((1..=16).contains(&row.grpc) && (400..=599).contains(&row.http), "{}", row.text);
        }
    }
}
