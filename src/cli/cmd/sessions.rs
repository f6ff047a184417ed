//! `sessions`: the sessions of a namespace.

use crate::cli::connect::Client;
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::cli::text::{ago, called, short};
use crate::client::ReadAt;
use crate::model::SessionView;
use crate::shapes::Session;

/// Lists the sessions of the namespace.
pub(in crate::cli) async fn run(client: &Client, output: &Output) -> Result<u8, Failure> {
    let ReadAt { now, value: sessions, .. } = client.all_sessions().await?;
    let row = |session: &SessionView| {
        vec![
            session.session.to_string(),
            called(&session.metadata),
            session.holds.to_string(),
            session.waits.to_string(),
            short(session.ttl_ms),
            short(session.deadline.ms_since(now)),
            ago(now, session.opened),
            remarks(session),
        ]
    };
    let objects = sessions.iter().map(|session| Session::new(session, now));
    let heading = ["SESSION", "WHO", "HOLDS", "WAITS", "TTL", "LEFT", "AGE", ""];
    output.list(objects, &heading, sessions.iter().map(row))
}

/// Returns notes on a session: it lost its stream, or its life was extended while there was no leader.
fn remarks(session: &SessionView) -> String {
    let gone = session.disconnected.then(|| "disconnected".to_owned());
    let longer = (session.leaderless_ms != 0).then(|| format!("no leader for {}", short(session.leaderless_ms)));
    gone.into_iter().chain(longer).collect::<Vec<_>>().join(", ")
}
