//! Limits of principals and their tokens.

/// Longest name of a principal in a file of rules, in bytes.
pub const PRINCIPAL_NAME_BYTES_MAX: usize = 64;
/// Days until a token expires, unless its maker chooses otherwise.
pub const TOKEN_DAYS: u64 = 365;
/// Most days until a token expires.
pub const TOKEN_DAYS_MAX: u64 = 3_650;
/// Largest file of rules, in bytes.
pub const AUTH_FILE_BYTES_MAX: u64 = 1 << 20;
/// Time after which a subscription looks again whether its token has expired.
pub const AUTH_CHECK_MS: u64 = 5_000;
/// Events that wait for the reader of a subscription behind the check of its rights.
pub const EVENTS_WATCHED_MAX: usize = 16;
/// Tokens whose first use a node remembers. A file of rules of the largest size has fewer.
pub const TOKENS_SEEN_MAX: usize = 8_192;
/// Refusals in the audit log in one second, each of another source. The others are only counted.
pub const AUDIT_REFUSALS_A_SECOND: usize = 20;
/// Time in which the refusals of one source share a line in the audit log.
pub const AUDIT_SECOND_MS: u64 = 1_000;
/// Longest time until the audit log counts the refusals that it left out.
pub const AUDIT_LEFT_OUT_MS: u64 = 10_000;
/// Acts of one source in one second that are written to the audit log. Further ones are refused.
pub const AUDITED_ACTS_A_SECOND: u32 = 20;
/// Requests of one source in one second to release a lock that are written to the audit log. They need only the right
/// to lock, so they may fill the log more slowly than the acts of operators. Further ones are refused.
pub const AUDITED_ASKS_A_SECOND: u32 = 10;
/// Size at which a file of the audit log is full.
pub const AUDIT_FILE_BYTES_MAX: u64 = 64 << 20;
/// Full files of the audit log that a node keeps.
pub const AUDIT_FILES_KEPT: usize = 10;
/// Time between two log lines with the number and the hash of the audit log's last line.
pub const AUDIT_END_LOG_MS: u64 = 60_000;
