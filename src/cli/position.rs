//! Positions on the command line, from which `watch` and `history` continue.

use std::str::FromStr;

use super::connect::Client;
use super::error::Failure;
use crate::limits::{CLUSTER_DIGITS_MAX, CLUSTER_DIGITS_MIN};
use crate::model::{Invalid, Position};
use crate::service::ServiceError;
use crate::shapes::cluster_id_text;

/// `INDEX.N`, or `INDEX.N@CLUSTER` with the first digits of the id of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct After {
    position: Position,
    digits: Option<String>,
}

/// Parses a position.
pub(super) fn after(text: &str) -> Result<After, String> {
    text.parse().map_err(|invalid: Invalid| invalid.to_string())
}

impl FromStr for After {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let Some((position, digits)) = text.split_once('@') else {
            return Ok(Self { position: text.parse()?, digits: None });
        };
        let hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !hex || !(CLUSTER_DIGITS_MIN..=CLUSTER_DIGITS_MAX).contains(&digits.len()) {
            let bound =
                format!("INDEX.N@ and the first {CLUSTER_DIGITS_MIN} to {CLUSTER_DIGITS_MAX} digits of a cluster_id");
            return Err(Invalid::new("position", bound, format!("{text:?}")));
        }
        Ok(Self { position: position.parse()?, digits: Some(digits.to_owned()) })
    }
}

/// Returns the id of the cluster, and the position after which to continue. Refuses a position of another cluster: in
/// this one it names another event, so events would be missed without notice.
pub(super) async fn of_this_cluster(
    client: &Client,
    from: Option<&After>,
) -> Result<(u128, Option<Position>), Failure> {
    let cluster_id = client.cluster_id().await?;
    let here = cluster_id_text(cluster_id);
    if let Some(foreign) = from.and_then(|from| from.digits.as_ref()).filter(|digits| !here.starts_with(*digits)) {
        let bound = format!("of this cluster, {here}");
        return Err(ServiceError::from(Invalid::new("position", bound, format!("one of {foreign}"))).into());
    }
    Ok((cluster_id, from.map(|from| from.position)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A position may have a cluster or none. A cluster with too few or too many digits, or with other characters, is
    /// refused.
    #[test]
    fn a_position_may_name_its_cluster() {
        let position = Position { index: 12, n: 3 };
        assert_eq!(after("12.3"), Ok(After { position, digits: None }));
        assert_eq!(after("12.3@0af9"), Ok(After { position, digits: Some("0af9".into()) }));
        for bad in ["12", "12.3@", "12.3@0af", "12.3@0AF9", "12@0af9", &format!("1.0@{}", "0".repeat(33))] {
            assert!(after(bad).is_err(), "{bad}");
        }
    }
}
