//! `leader`: the leader under a name, by its value.

use clap::Args;

use crate::cli::connect::Client;
use crate::cli::error::{Failure, NO, YES};
use crate::cli::output::Output;
use crate::cli::text::called;
use crate::model::LockName;
use crate::shapes::Leader;

#[derive(Debug, Args)]
pub(in crate::cli) struct LeaderOptions {
    /// Name of the lock
    #[arg(value_parser = LockName::parse)]
    name: LockName,
}

/// Prints the value of the leader. Prints nothing if there is none; the exit code is then 1.
pub(in crate::cli) async fn run(client: &Client, options: LeaderOptions, output: &Output) -> Result<u8, Failure> {
    let leader = client.election(options.name.as_str()).leader().await?;
    if output.json {
        let answer = Leader::new(&client.settings.namespace, &options.name, leader.as_ref());
        Failure::unless_closed(output.object(&answer))?;
    } else if let Some(leader) = &leader {
        output.line(leader.value.as_ref().map_or_else(|| called(&leader.metadata), ToString::to_string))?;
    } else {
        // A script that takes the output as the value gets none.
        output.remark(&format!("no session leads {}", options.name));
    }
    Ok(if leader.is_some() { YES } else { NO })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Namespace;
    use crate::shapes::tests::{lock, value};

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
