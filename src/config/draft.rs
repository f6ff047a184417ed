//! The settings as written: every value with its place in the file or environment. This file checks only their types.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;

use serde::Deserialize;

use super::limits::DraftLimits;
use super::metrics::DraftMetrics;
use super::place::{ConfigError, Place, Placed, Refused, Source};
use crate::model::parse_cluster_id;

/// The settings as written, before they are checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Draft {
    pub(super) cluster: Option<Placed<String>>,
    pub(super) peers_id: Option<Placed<String>>,
    pub(super) node: Option<Placed<u64>>,
    pub(super) data: Option<Placed<String>>,
    #[serde(default)]
    pub(super) listen: DraftListen,
    #[serde(default)]
    pub(super) member: Vec<DraftMember>,
    #[serde(default)]
    pub(super) timing: DraftTiming,
    #[serde(default)]
    pub(super) log: DraftLog,
    #[serde(default)]
    pub(super) tls: DraftTls,
    #[serde(default)]
    pub(super) http: DraftHttp,
    pub(super) auth: Option<DraftFile>,
    pub(super) audit: Option<DraftFile>,
    #[serde(default)]
    pub(super) quota: DraftQuota,
    #[serde(default)]
    pub(super) limits: DraftLimits,
    #[serde(default)]
    pub(super) metrics: DraftMetrics,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftListen {
    pub(super) client: Option<Placed<String>>,
    pub(super) peer: Option<Placed<String>>,
    pub(super) http: Option<Placed<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftMember {
    pub(super) id: Placed<u64>,
    pub(super) client: Placed<String>,
    pub(super) peer: Placed<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftTiming {
    pub(super) profile: Option<Placed<String>>,
    pub(super) heartbeat: Option<Placed<String>>,
    pub(super) election_min: Option<Placed<String>>,
    pub(super) election_max: Option<Placed<String>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftLog {
    pub(super) level: Option<Placed<String>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftTls {
    pub(super) ca: Option<Placed<String>>,
    pub(super) cert: Option<Placed<String>>,
    pub(super) key: Option<Placed<String>>,
    pub(super) refuse: Option<Placed<String>>,
    #[serde(default)]
    pub(super) client: DraftListener,
    #[serde(default)]
    pub(super) peer: DraftListener,
    #[serde(default)]
    pub(super) http: DraftListener,
}

/// The section of one listener under `[tls]`.
#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftListener {
    pub(super) ca: Option<Placed<String>>,
    pub(super) cert: Option<Placed<String>>,
    pub(super) key: Option<Placed<String>>,
    pub(super) refuse: Option<Placed<String>>,
    pub(super) mode: Option<Placed<String>>,
    pub(super) insecure: Option<Placed<bool>>,
    pub(super) client_cert: Option<Placed<String>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftHttp {
    #[serde(default)]
    pub(super) hosts: Vec<Placed<String>>,
}

/// `[auth]` or `[audit]`. A section without a file would promise a protection that does not exist, so the file is
/// required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftFile {
    pub(super) file: Placed<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftQuota {
    pub(super) commands_a_second: Option<Placed<u64>>,
    #[serde(default)]
    pub(super) namespace: BTreeMap<String, DraftRate>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftRate {
    pub(super) commands_a_second: Placed<u64>,
}

/// Keys of `[timing]` whose values are durations.
const TIMES: [&str; 3] = ["heartbeat", "election_min", "election_max"];

/// The field of a scalar key, by the type of its value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Slot {
    Text(fn(&mut Draft) -> &mut Option<Placed<String>>),
    /// The path of a file that must exist.
    Path(fn(&mut Draft) -> &mut Option<Placed<String>>),
    Number(fn(&mut Draft) -> &mut Option<Placed<u64>>),
    Flag(fn(&mut Draft) -> &mut Option<Placed<bool>>),
    /// A section with only a path.
    Section(fn(&mut Draft) -> &mut Option<DraftFile>),
}

/// Keys that an environment variable can set.
pub(super) const SCALARS: [(&str, Slot); 45] = [
    ("cluster", Slot::Text(|draft| &mut draft.cluster)),
    ("peers_id", Slot::Text(|draft| &mut draft.peers_id)),
    ("node", Slot::Number(|draft| &mut draft.node)),
    ("data", Slot::Text(|draft| &mut draft.data)),
    ("listen.client", Slot::Text(|draft| &mut draft.listen.client)),
    ("listen.peer", Slot::Text(|draft| &mut draft.listen.peer)),
    ("listen.http", Slot::Text(|draft| &mut draft.listen.http)),
    ("timing.profile", Slot::Text(|draft| &mut draft.timing.profile)),
    ("timing.heartbeat", Slot::Text(|draft| &mut draft.timing.heartbeat)),
    ("timing.election_min", Slot::Text(|draft| &mut draft.timing.election_min)),
    ("timing.election_max", Slot::Text(|draft| &mut draft.timing.election_max)),
    ("log.level", Slot::Text(|draft| &mut draft.log.level)),
    ("tls.ca", Slot::Path(|draft| &mut draft.tls.ca)),
    ("tls.cert", Slot::Path(|draft| &mut draft.tls.cert)),
    ("tls.key", Slot::Path(|draft| &mut draft.tls.key)),
    ("tls.refuse", Slot::Path(|draft| &mut draft.tls.refuse)),
    ("tls.client.ca", Slot::Path(|draft| &mut draft.tls.client.ca)),
    ("tls.client.cert", Slot::Path(|draft| &mut draft.tls.client.cert)),
    ("tls.client.key", Slot::Path(|draft| &mut draft.tls.client.key)),
    ("tls.client.refuse", Slot::Path(|draft| &mut draft.tls.client.refuse)),
    ("tls.client.mode", Slot::Text(|draft| &mut draft.tls.client.mode)),
    ("tls.client.insecure", Slot::Flag(|draft| &mut draft.tls.client.insecure)),
    ("tls.client.client_cert", Slot::Text(|draft| &mut draft.tls.client.client_cert)),
    ("tls.peer.ca", Slot::Path(|draft| &mut draft.tls.peer.ca)),
    ("tls.peer.cert", Slot::Path(|draft| &mut draft.tls.peer.cert)),
    ("tls.peer.key", Slot::Path(|draft| &mut draft.tls.peer.key)),
    ("tls.peer.refuse", Slot::Path(|draft| &mut draft.tls.peer.refuse)),
    ("tls.peer.mode", Slot::Text(|draft| &mut draft.tls.peer.mode)),
    ("tls.peer.insecure", Slot::Flag(|draft| &mut draft.tls.peer.insecure)),
    ("tls.peer.client_cert", Slot::Text(|draft| &mut draft.tls.peer.client_cert)),
    ("tls.http.ca", Slot::Path(|draft| &mut draft.tls.http.ca)),
    ("tls.http.cert", Slot::Path(|draft| &mut draft.tls.http.cert)),
    ("tls.http.key", Slot::Path(|draft| &mut draft.tls.http.key)),
    ("tls.http.refuse", Slot::Path(|draft| &mut draft.tls.http.refuse)),
    ("tls.http.mode", Slot::Text(|draft| &mut draft.tls.http.mode)),
    ("tls.http.insecure", Slot::Flag(|draft| &mut draft.tls.http.insecure)),
    ("tls.http.client_cert", Slot::Text(|draft| &mut draft.tls.http.client_cert)),
    ("auth.file", Slot::Section(|draft| &mut draft.auth)),
    ("audit.file", Slot::Section(|draft| &mut draft.audit)),
    ("quota.commands_a_second", Slot::Number(|draft| &mut draft.quota.commands_a_second)),
    ("limits.client_connections", Slot::Number(|draft| &mut draft.limits.client_connections)),
    ("limits.client_connections_an_address", Slot::Number(|draft| &mut draft.limits.client_connections_an_address)),
    ("limits.http_connections", Slot::Number(|draft| &mut draft.limits.http_connections)),
    ("limits.http_connections_an_address", Slot::Number(|draft| &mut draft.limits.http_connections_an_address)),
    ("limits.watchers_a_principal", Slot::Number(|draft| &mut draft.limits.watchers_a_principal)),
];

/// Keys of lists and of named sections. They have no variable, and neither have the keys below them.
pub(super) const ONLY_IN_FILE: [&str; 5] =
    ["member", "http.hosts", "quota.namespace", "metrics.namespaces", "metrics.class"];

impl Draft {
    /// Parses the text. Refuses invalid TOML, unknown keys and values of a wrong type.
    pub(super) fn parse(source: Source<'_>) -> Result<Self, ConfigError> {
        toml::from_str(source.text).map_err(|error| source.error(unreadable(&error, source.text)))
    }

    /// Replaces values with those of environment variables. A variable with a section is an error if its key is
    /// unknown, or if only the file can set the key. The command line has variables with the same prefix, so one
    /// without a section may be meant for it.
    pub(super) fn overlay(&mut self, variables: impl IntoIterator<Item = (String, OsString)>) -> Result<(), Refused> {
        for (name, value) in variables {
            let Some(key) = name.strip_prefix("LOCKKEEPER_").map(|rest| rest.to_lowercase().replace("__", ".")) else {
                continue;
            };
            // For clients, this variable holds the `cluster_id`. No name of a cluster looks like an id.
            if key == "cluster" && value.to_str().is_some_and(|id| parse_cluster_id(id).is_ok()) {
                continue;
            }
            let place = Place::Variable(name);
            let is_below =
                |list: &str| key.strip_prefix(list).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            if let Some((key, slot)) = SCALARS.into_iter().find(|(scalar, _)| *scalar == key) {
                let unreadable = |value: OsString| {
                    Refused::new(&place, format!("{key} is not in UTF-8: {value:?}"), "write it in UTF-8")
                };
                let value = value.into_string().map_err(unreadable)?;
                self.set(key, slot, Placed { value, place })?;
            } else if key.contains('.') && ONLY_IN_FILE.into_iter().any(is_below) {
                let problem = format!("only the file can set {key}");
                return Err(Refused::new(&place, problem, "unset it, and write the setting in the file"));
            } else if key.contains('.') {
                let variable = |key: &str| format!("LOCKKEEPER_{}", key.to_uppercase().replace('.', "__"));
                let fix = format!("unset it, or use one of {}", SCALARS.map(|(key, _)| variable(key)).join(", "));
                return Err(Refused::new(&place, format!("there is no setting {key}"), fix));
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, slot: Slot, at: Placed<String>) -> Result<(), Refused> {
        let refused = |problem: String, fix| Refused::new(&at.place, problem, fix);
        match slot {
            Slot::Number(slot) => {
                let read = at.value.parse();
                let not_read =
                    |_| refused(format!("{key} is not a whole number: {:?}", at.value), "write it in digits");
                *slot(self) = Some(Placed { value: read.map_err(not_read)?, place: at.place });
            }
            Slot::Flag(slot) => {
                let read = at.value.parse();
                let problem = || format!("insecure must be true or false, got {:?}", at.value);
                let value = read.map_err(|_| refused(problem(), "write one of them"))?;
                *slot(self) = Some(Placed { value, place: at.place });
            }
            Slot::Text(slot) | Slot::Path(slot) => *slot(self) = Some(at),
            Slot::Section(section) => *section(self) = Some(DraftFile { file: at }),
        }
        Ok(())
    }
}

fn unreadable(error: &toml::de::Error, text: &str) -> Refused {
    let place = error.span().map_or(Place::File, |span| Place::Byte(span.start));
    let message = error.message().trim().replace('\n', " ");
    if let Some((problem, fix)) = error.span().and_then(|span| of_another_type(&message, text, span)) {
        return Refused::new(&place, problem, fix);
    }
    if let Some((problem, fix)) = error.span().and_then(|span| of_structure(&message, text, span)) {
        return Refused::new(&place, problem, fix);
    }
    let fix = match message.split_once("unknown field") {
        Some(_) => "remove it, or use one of the keys named here",
        None if message.contains("missing field") => "add it",
        None => "write it as the manual's example does",
    };
    Refused::new(&place, message, fix)
}

/// Returns the problem of a key that is written twice, or of a list of sections that is written as one section, and the
/// fix. `None` for another error.
fn of_structure(message: &str, text: &str, at: Range<usize>) -> Option<(String, String)> {
    if message == "duplicate key" {
        return Some((format!("{} is written twice", text.get(at)?), "remove one".to_owned()));
    }
    if message != "invalid type: map, expected a sequence" {
        return None;
    }
    let end = text.get(at.start..)?.find('\n').map_or(text.len(), |length| at.start + length);
    let header = text.get(..end)?.lines().rev().find(|line| line.trim_start().starts_with('['))?;
    let section = header.trim_start().trim_start_matches('[').split(']').next()?;
    let is_list = ["member", "metrics.class"].contains(&section);
    is_list.then(|| (format!("{section} is a list of sections"), format!("write [[{section}]]")))
}

/// Returns the problem of a value of another type than its key needs, and the fix. `None` for another error.
fn of_another_type(message: &str, text: &str, value: Range<usize>) -> Option<(String, String)> {
    let (found, expected) = message.strip_prefix("invalid ")?.split_once(", expected ")?;
    let before = text.get(..value.start)?.lines().last()?.trim_end().strip_suffix('=')?;
    let key = before.rsplit(['{', ',']).next()?.trim();
    let written = text.get(value)?.lines().next()?;
    let (needed, fix) = match expected {
        "u64" => {
            let digits = written.trim_matches(['"', '\'']).parse::<u64>();
            let fix =
                digits.map_or_else(|_| "write it in digits".to_owned(), |number| format!("write {key} = {number}"));
            ("a whole number, 0 or more", fix)
        }
        "a string" if TIMES.iter().any(|time| key.ends_with(time)) && written.parse::<u64>().is_ok() => {
            ("a duration in quotes", format!("write {key} = \"{written}ms\""))
        }
        "a string" if found.contains('`') => ("a text in quotes", format!("write {key} = \"{written}\"")),
        "a string" => ("a text in quotes", "write it in quotes".to_owned()),
        "a boolean" => ("true or false", "write it without quotes".to_owned()),
        "a sequence" => ("a list", "write it as the manual's example does".to_owned()),
        _ => ("a section of keys", format!("write [{key}], and the keys below it")),
    };
    Some((format!("{key} must be {needed}, got {written}"), fix))
}
