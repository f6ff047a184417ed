//! The settings as written: every value with its place in the file or environment. This file checks only their types.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;
use super::draft_tls::{DraftTls, FileTls};
use super::limits::{DraftLimits, FileLimits};
use super::metrics::{DraftMetrics, FileMetrics};
use super::place::{Placed, Source, line_of};
use crate::model::parse_cluster_id;

/// The settings as written, before they are checked.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) file: String,
    pub(super) cluster: Option<Placed<String>>,
    pub(super) peers_id: Option<Placed<String>>,
    pub(super) node: Option<Placed<u64>>,
    pub(super) data: Option<Placed<String>>,
    pub(super) listen_client: Option<Placed<String>>,
    pub(super) listen_peer: Option<Placed<String>>,
    pub(super) listen_http: Option<Placed<String>>,
    pub(super) members: Vec<Placed<DraftMember>>,
    pub(super) profile: Option<Placed<String>>,
    pub(super) heartbeat: Option<Placed<String>>,
    pub(super) election_min: Option<Placed<String>>,
    pub(super) election_max: Option<Placed<String>>,
    pub(super) log_level: Option<Placed<String>>,
    pub(super) rate: Option<Placed<u64>>,
    /// Quotas by the name of the namespace.
    pub(super) rates: Vec<(String, Placed<u64>)>,
    pub(super) limits: DraftLimits,
    pub(super) metrics: DraftMetrics,
    pub(super) tls: DraftTls,
    pub(super) http_hosts: Vec<Placed<String>>,
    pub(super) auth: Option<Placed<String>>,
    pub(super) audit: Option<Placed<String>>,
}

#[derive(Debug)]
pub(super) struct DraftMember {
    pub(super) id: Placed<u64>,
    pub(super) client: Placed<String>,
    pub(super) peer: Placed<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cluster: Option<Spanned<String>>,
    peers_id: Option<Spanned<String>>,
    node: Option<Spanned<u64>>,
    data: Option<Spanned<String>>,
    #[serde(default)]
    listen: FileListen,
    #[serde(default)]
    member: Vec<Spanned<FileMember>>,
    #[serde(default)]
    timing: FileTiming,
    #[serde(default)]
    log: FileLog,
    #[serde(default)]
    tls: FileTls,
    #[serde(default)]
    http: FileHttp,
    #[serde(default)]
    auth: Option<FileAuth>,
    audit: Option<FileAudit>,
    #[serde(default)]
    quota: FileQuota,
    #[serde(default)]
    limits: FileLimits,
    #[serde(default)]
    metrics: FileMetrics,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileListen {
    client: Option<Spanned<String>>,
    peer: Option<Spanned<String>>,
    http: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMember {
    id: Spanned<u64>,
    client: Spanned<String>,
    peer: Spanned<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileTiming {
    profile: Option<Spanned<String>>,
    heartbeat: Option<Spanned<String>>,
    election_min: Option<Spanned<String>>,
    election_max: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileLog {
    level: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileHttp {
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileQuota {
    commands_a_second: Option<Spanned<u64>>,
    #[serde(default)]
    namespace: BTreeMap<String, FileRate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRate {
    commands_a_second: Spanned<u64>,
}

/// A section without a file would promise a protection that does not exist, so the file is required.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileAuth {
    file: Spanned<String>,
}

/// As with `[auth]`, the file is required.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileAudit {
    file: Spanned<String>,
}

/// Keys that an environment variable can set.
pub(super) const SCALARS: [&str; 23] = [
    "cluster",
    "peers_id",
    "node",
    "data",
    "listen.client",
    "listen.peer",
    "listen.http",
    "timing.profile",
    "timing.heartbeat",
    "timing.election_min",
    "timing.election_max",
    "log.level",
    "tls.ca",
    "tls.cert",
    "tls.key",
    "tls.refuse",
    "auth.file",
    "audit.file",
    "limits.client_connections",
    "limits.client_connections_an_address",
    "limits.http_connections",
    "limits.http_connections_an_address",
    "limits.watchers_a_principal",
];

impl Draft {
    /// Parses the text. Refuses invalid TOML, unknown keys and values of a wrong type.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| unreadable(name, text, &error))?;
        let source = Source { name, text };
        Ok(Self {
            file: name.to_owned(),
            cluster: file.cluster.map(|value| source.at(value)),
            peers_id: file.peers_id.map(|value| source.at(value)),
            node: file.node.map(|value| source.at(value)),
            data: file.data.map(|value| source.at(value)),
            listen_client: file.listen.client.map(|value| source.at(value)),
            listen_peer: file.listen.peer.map(|value| source.at(value)),
            listen_http: file.listen.http.map(|value| source.at(value)),
            members: file.member.into_iter().map(|of| member(&source, of)).collect(),
            profile: file.timing.profile.map(|value| source.at(value)),
            heartbeat: file.timing.heartbeat.map(|value| source.at(value)),
            election_min: file.timing.election_min.map(|value| source.at(value)),
            election_max: file.timing.election_max.map(|value| source.at(value)),
            log_level: file.log.level.map(|value| source.at(value)),
            rate: file.quota.commands_a_second.map(|value| source.at(value)),
            rates: file.quota.namespace.into_iter().map(|(of, rate)| (of, source.at(rate.commands_a_second))).collect(),
            limits: DraftLimits::new(file.limits, &source),
            metrics: DraftMetrics::new(file.metrics, &source),
            tls: DraftTls::new(file.tls, &source),
            http_hosts: file.http.hosts.into_iter().map(|value| source.at(value)).collect(),
            auth: file.auth.map(|auth| source.at(auth.file)),
            audit: file.audit.map(|audit| source.at(audit.file)),
        })
    }

    /// Replaces values with those of environment variables. A variable that names an unknown key of a section is an
    /// error.
    pub(super) fn overlay(&mut self, variables: impl IntoIterator<Item = (String, String)>) -> Result<(), ConfigError> {
        for (name, value) in variables {
            let Some(key) = name.strip_prefix("LOCKKEEPER_").map(|rest| rest.to_lowercase().replace("__", ".")) else {
                continue;
            };
            // Variables of the command line have the same prefix, so only a variable that names a section can be a
            // mistake.
            let of_clients = key == "cluster" && parse_cluster_id(&value).is_ok();
            if of_clients {
                // For clients, the same variable holds the `cluster_id`. No name of a cluster looks like an id.
                continue;
            }
            if SCALARS.contains(&key.as_str()) {
                self.set(&key, Placed { value, place: format!("environment variable {name}") })?;
            } else if key.contains('.') {
                let known =
                    SCALARS.map(|key| format!("LOCKKEEPER_{}", key.to_uppercase().replace('.', "__"))).join(", ");
                let place = format!("environment variable {name}");
                return Err(ConfigError::new(
                    place,
                    format!("there is no setting {key}"),
                    format!("unset it, or use one of {known}"),
                ));
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, at: Placed<String>) -> Result<(), ConfigError> {
        if let Some(slot) = self.number(key) {
            let refused = |_| {
                let problem = format!("{key} is not a whole number: {:?}", at.value);
                ConfigError::new(&at.place, problem, "write it in digits")
            };
            *slot = Some(Placed { value: at.value.parse().map_err(refused)?, place: at.place });
            return Ok(());
        }
        let slot = match key {
            "cluster" => &mut self.cluster,
            "peers_id" => &mut self.peers_id,
            "data" => &mut self.data,
            "listen.client" => &mut self.listen_client,
            "listen.peer" => &mut self.listen_peer,
            "listen.http" => &mut self.listen_http,
            "timing.profile" => &mut self.profile,
            "timing.heartbeat" => &mut self.heartbeat,
            "timing.election_min" => &mut self.election_min,
            "timing.election_max" => &mut self.election_max,
            "log.level" => &mut self.log_level,
            "tls.ca" => &mut self.tls.files.ca,
            "tls.cert" => &mut self.tls.files.cert,
            "tls.key" => &mut self.tls.files.key,
            "tls.refuse" => &mut self.tls.files.refuse,
            "auth.file" => &mut self.auth,
            "audit.file" => &mut self.audit,
            other => return Err(ConfigError::new(&at.place, format!("there is no setting {other}"), "unset it")),
        };
        *slot = Some(at);
        Ok(())
    }

    /// Returns the place of a scalar key whose value is a number; `None` for any other key.
    fn number(&mut self, key: &str) -> Option<&mut Option<Placed<u64>>> {
        Some(match key {
            "node" => &mut self.node,
            "limits.client_connections" => &mut self.limits.client_connections,
            "limits.client_connections_an_address" => &mut self.limits.client_connections_an_address,
            "limits.http_connections" => &mut self.limits.http_connections,
            "limits.http_connections_an_address" => &mut self.limits.http_connections_an_address,
            "limits.watchers_a_principal" => &mut self.limits.watchers_a_principal,
            _ => return None,
        })
    }
}

fn member(source: &Source<'_>, member: Spanned<FileMember>) -> Placed<DraftMember> {
    let place = source.place(member.span().start);
    let member = member.into_inner();
    let value =
        DraftMember { id: source.at(member.id), client: source.at(member.client), peer: source.at(member.peer) };
    Placed { value, place }
}

fn unreadable(name: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let place = match error.span() {
        Some(span) => format!("{name}:{}", line_of(text, span.start)),
        None => name.to_owned(),
    };
    let message = error.message().trim().replace('\n', " ");
    let fix = match message.split_once("unknown field") {
        Some(_) => "remove it, or use one of the keys named here",
        None if message.contains("missing field") => "add it",
        None => "write it as the manual's example does",
    };
    ConfigError::new(place, message, fix)
}
