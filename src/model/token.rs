//! Numbers that only grow: fencing tokens and session ids. Each consists of a cluster epoch above a replicated counter.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Invalid;
use crate::limits::{COUNTER_BITS, EPOCH_MAX};

/// The public number of a grant. It is larger than every earlier one of the cluster, so that a resource can refuse an
/// older holder.
///
/// Later tokens are larger even after a release, restart, failover or restore. The upper 15 bits are the cluster epoch,
/// and the lower 48 bits are a replicated grant counter, so that a token fits a signed 64-bit column. The first token
/// of a cluster is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FencingToken(u64);

/// The public id of a session: a replicated counter below the cluster epoch, so that no id is used again after a
/// restore. It is not secret, so it proves no right to use the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(u64);

macro_rules! epoch_and_counter {
    ($($name:ident $field:literal),*) => { $(
        impl $name {
            /// The number with this epoch and counter. The counter is masked to 48 bits.
            #[must_use]
            pub fn new(epoch: u16, counter: u64) -> Self {
                debug_assert!(epoch <= EPOCH_MAX && counter < 1 << COUNTER_BITS);
                Self((u64::from(epoch & EPOCH_MAX) << COUNTER_BITS) | (counter & ((1 << COUNTER_BITS) - 1)))
            }

            /// The whole number, as resources store and compare it.
            #[must_use]
            pub fn as_u64(self) -> u64 {
                self.0
            }

            /// Converts from the whole number. Returns an error for 0 and for numbers that do not fit 63 bits.
            pub fn from_u64(number: u64) -> Result<Self, Invalid> {
                if number == 0 || number >> 63 != 0 {
                    return Err(Invalid::new($field, "1 to 9223372036854775807", number));
                }
                Ok(Self(number))
            }

            /// The cluster epoch of the number.
            #[must_use]
            pub fn epoch(self) -> u16 {
                (self.0 >> COUNTER_BITS) as u16
            }

            /// The counter below the epoch.
            #[must_use]
            pub fn counter(self) -> u64 {
                self.0 & ((1 << COUNTER_BITS) - 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                let number = text.parse().map_err(|_| Invalid::new($field, "a whole number", format!("{text:?}")))?;
                Self::from_u64(number)
            }
        }
    )* };
}
epoch_and_counter!(FencingToken "token", SessionId "session");

impl FencingToken {
    /// The next larger token.
    #[must_use]
    pub fn following(self) -> Self {
        // The largest token of the largest epoch is its own successor. No counter reaches it.
        Self((self.0 + 1).min(i64::MAX as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token of a later epoch is larger than any of an earlier one, and the largest fits a signed column.
    #[test]
    fn tokens_order_by_epoch_then_counter() {
        assert!(FencingToken::new(1, 0) > FencingToken::new(0, (1 << 48) - 1));
        assert!(i64::try_from(FencingToken::new(EPOCH_MAX, (1 << 48) - 1).as_u64()).is_ok());
        assert_eq!(FencingToken::new(0, 1).to_string(), "1");
        assert!("0".parse::<FencingToken>().is_err());
    }
}
