//! Positions on the command line, from which `watch` and `history` continue.

use super::connect::Client;
use super::error::Failure;
use crate::model::{Invalid, Position};
use crate::service::ServiceError;
use crate::shapes::{ResumePosition, cluster_id_text};

/// Returns the id of the cluster, and the position after which to continue. Refuses a position of another cluster: in
/// this one it names another event, so events would be missed without notice.
pub(super) async fn of_this_cluster(
    client: &Client,
    from: Option<&ResumePosition>,
) -> Result<(u128, Option<Position>), Failure> {
    let cluster_id = client.cluster_id().await?;
    let here = cluster_id_text(cluster_id);
    if let Some(foreign) = from.and_then(|from| from.other_cluster(&here)) {
        let bound = format!("of this cluster, {here}");
        return Err(ServiceError::from(Invalid::new("position", bound, format!("one of {foreign}"))).into());
    }
    Ok((cluster_id, from.map(|from| from.position)))
}
