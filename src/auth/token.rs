//! Tokens: secrets that prove a principal. Nodes keep only their hashes.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::model::WallTime;

/// Start of every token, by which scanners find tokens that were published by mistake.
const PREFIX: &str = "lkt_";
/// Digits of 256 random bits.
const SECRET_DIGITS: usize = 43;
/// Digits of the checksum.
const CHECK_DIGITS: usize = 6;
const BASE_62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The SHA-256 of a token. It is no secret: a token cannot be found from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenHash([u8; 32]);

/// A text that is no token: it was mistyped or cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no token, which is lkt_ and 49 letters and digits")]
pub struct MalformedToken;

impl TokenHash {
    /// Returns the hash of a token. The checksum detects tokens that were mistyped or cut.
    pub fn of(token: &str) -> Result<Self, MalformedToken> {
        let digits = token.strip_prefix(PREFIX).ok_or(MalformedToken)?;
        if digits.len() != SECRET_DIGITS + CHECK_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
            return Err(MalformedToken);
        }
        let (secret, check) = digits.split_at(SECRET_DIGITS);
        if check != checksum(secret) {
            return Err(MalformedToken);
        }
        Ok(Self(Sha256::digest(token).into()))
    }

    /// Parses 64 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The digits of the hash that are a token's id.
    pub const ID_CHARS: usize = 12;

    /// Returns the public id of the token: the first [`ID_CHARS`](Self::ID_CHARS) digits of its hash.
    #[must_use]
    pub fn id(&self) -> String {
        self.to_string()[..Self::ID_CHARS].to_owned()
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Returns a new token of these random bits.
#[must_use]
pub fn new_token(random: [u128; 2]) -> String {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&random[0].to_be_bytes());
    bytes[16..].copy_from_slice(&random[1].to_be_bytes());
    let secret = base_62::<SECRET_DIGITS>(&mut bytes);
    let check = checksum(&secret);
    format!("{PREFIX}{secret}{check}")
}

fn checksum(secret: &str) -> String {
    base_62::<CHECK_DIGITS>(&mut crc32fast::hash(secret.as_bytes()).to_be_bytes())
}

/// Returns a number as digits, the highest first. The number is zero afterwards.
fn base_62<const DIGITS: usize>(number: &mut [u8]) -> String {
    let mut digits = [0; DIGITS];
    for digit in digits.iter_mut().rev() {
        // Long division by 62, byte by byte.
        let rest = number.iter_mut().fold(0, |rest, byte| {
            let dividend = rest << 8 | u32::from(*byte);
            *byte = u8::try_from(dividend / 62).unwrap_or(u8::MAX);
            dividend % 62
        });
        *digit = BASE_62[rest as usize];
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// Returns a time in the format of RFC 3339, as in `2027-11-24T00:00:00Z`.
pub(crate) fn time(time: WallTime) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(time.0)).to_string()
}

/// Returns the day of a time, as in `2027-11-24`.
pub(super) fn day(at: WallTime) -> String {
    time(at).split('T').next().unwrap_or_default().to_owned()
}
