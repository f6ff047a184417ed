//! `settings`: lists the settings of the whole cluster, or changes one.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cli::args::duration;
use crate::cli::connect::{Client, led};
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::cli::text::short;
use crate::clock::millis;
use crate::model::Setting;
use crate::service::Status;

#[derive(Debug, Args)]
pub(in crate::cli) struct SettingsOptions {
    /// Name of the setting [default: all]
    name: Option<SettingName>,
    /// New value, such as 24h; at most a day, and at least the shortest TTL of a session
    #[arg(value_parser = duration, value_name = "DURATION")]
    value: Option<Duration>,
}

/// Settings by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum SettingName {
    /// Longest TTL of a session and longest lease; a restore from a backup waits for this time before it grants.
    #[value(name = "ttl_max")]
    TtlMax,
}

/// Changes a setting if requested, then lists the settings of the cluster.
pub(in crate::cli) async fn run(client: &Client, options: &SettingsOptions, output: &Output) -> Result<u8, Failure> {
    let before = client.status().await?;
    led(&before)?;
    let Some(value) = options.value else { return shown(&before, output) };
    client.change_setting(Setting::TtlMax(millis(value))).await?;
    let after = client.status().await?;
    if before.ttl_ms_max < after.ttl_ms_max {
        output.remark("make a new backup: a restore of an older one waits for the old value only");
    }
    shown(&after, output)
}

fn shown(status: &Status, output: &Output) -> Result<u8, Failure> {
    let setting = json!({ "name": "ttl_max", "value_ms": status.ttl_ms_max });
    output.answer(&setting, || format!("ttl_max {}", short(status.ttl_ms_max)))
}
