//! Positions of events, with the cluster to which they belong.

use std::str::FromStr;

use crate::limits::{CLUSTER_DIGITS_MAX, CLUSTER_DIGITS_MIN};
use crate::model::{Invalid, Position};

/// A position after which to resume: `INDEX.N`, or `INDEX.N@CLUSTER` with the first digits of the id of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResumePosition {
    pub(crate) position: Position,
    cluster_digits: Option<String>,
}

impl ResumePosition {
    /// Returns the digits of the position's cluster if that is not the cluster with this id.
    pub(crate) fn other_cluster(&self, cluster_id: &str) -> Option<&str> {
        self.cluster_digits.as_deref().filter(|digits| !cluster_id.starts_with(digits))
    }
}

impl FromStr for ResumePosition {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let Some((position, digits)) = text.split_once('@') else {
            return Ok(Self { position: text.parse()?, cluster_digits: None });
        };
        let hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !hex || !(CLUSTER_DIGITS_MIN..=CLUSTER_DIGITS_MAX).contains(&digits.len()) {
            let bound =
                format!("INDEX.N@ and the first {CLUSTER_DIGITS_MIN} to {CLUSTER_DIGITS_MAX} digits of a cluster_id");
            return Err(Invalid::new("position", bound, format!("{text:?}")));
        }
        Ok(Self { position: position.parse()?, cluster_digits: Some(digits.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<ResumePosition, Invalid> {
        text.parse()
    }

    /// A position may have a cluster or none. A cluster with too few or too many digits, or with other characters, is
    /// refused.
    #[test]
    fn a_position_may_name_its_cluster() {
        let position = Position { index: 12, n: 3 };
        assert_eq!(of("12.3"), Ok(ResumePosition { position, cluster_digits: None }));
        assert_eq!(of("12.3@0af9"), Ok(ResumePosition { position, cluster_digits: Some("0af9".into()) }));
        for bad in ["12", "12.3@", "12.3@0af", "12.3@0AF9", "12@0af9", &format!("1.0@{}", "0".repeat(33))] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
