//! `leader`: the leader under a name, by its value.

use clap::Args;
use serde::Serialize;

use crate::cli::args::lock_name;
use crate::cli::connect::Client;
use crate::cli::error::{Failure, NO, YES};
use crate::cli::output::Output;
use crate::cli::text::called;
use crate::client;
use crate::model::{LockName, Namespace};

#[derive(Debug, Args)]
pub(in crate::cli) struct LeaderOptions {
    /// Name of the lock
    #[arg(value_parser = lock_name)]
    name: LockName,
}

/// The JSON line. Every field except the name is null without a leader.
#[derive(Debug, Serialize)]
struct Leader {
    namespace: String,
    lock: String,
    value: Option<String>,
    token: Option<String>,
    session: Option<String>,
    who: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
}

impl Leader {
    fn new(namespace: &Namespace, lock: &LockName, leader: Option<&client::Leader>) -> Self {
        let (namespace, lock) = (namespace.to_string(), lock.to_string());
        Self {
            namespace,
            lock,
            value: leader.and_then(|leader| leader.value.as_ref()).map(ToString::to_string),
            token: leader.map(|leader| leader.token.to_string()),
            session: leader.and_then(|leader| leader.session).map(|session| session.to_string()),
            who: leader.map(|leader| leader.metadata.name().into_owned()),
            host: leader.map(|leader| leader.metadata.host.to_string()),
            pid: leader.map(|leader| leader.metadata.pid),
        }
    }
}

/// Prints the value of the leader. Exit code 1 if there is none.
pub(in crate::cli) async fn run(
    client: &Client,
    namespace: &Namespace,
    options: LeaderOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let leader = client.election(options.name.as_str()).leader().await?;
    if output.json {
        output.object(&Leader::new(namespace, &options.name, leader.as_ref()))?;
    } else if let Some(leader) = &leader {
        output.line(leader.value.as_ref().map_or_else(|| called(&leader.metadata), ToString::to_string))?;
    } else {
        output.line(format!("no session leads {}", options.name))?;
    }
    Ok(if leader.is_some() { YES } else { NO })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::json::tests::{lock, value};

    /// Without a leader every field is present; all except the name are null.
    #[test]
    fn no_leader_has_every_field() {
        let none = value(&Leader::new(&Namespace::default(), &lock().name, None));
        let expected = json!({
            "namespace": "default", "lock": "nightly", "value": null, "token": null, "session": null, "who": null,
            "host": null, "pid": null,
        });
        assert_eq!(none, expected);
    }
}
