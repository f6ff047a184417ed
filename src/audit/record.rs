//! What a line of the audit log records.

use std::collections::BTreeMap;

use serde::Serialize;

/// One act of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditRecord {
    /// What the caller does, such as `break`.
    pub act: &'static str,
    /// How far the act is.
    pub phase: Phase,
    /// Principal of the caller.
    pub principal: String,
    /// Address of the caller; `None` for the application that embeds the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What the act is about, such as the lock, and its result. Contains no secrets.
    #[serde(flatten)]
    pub facts: BTreeMap<&'static str, String>,
}

/// How far an act is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The caller asked, and the node executes the act only after this line is written.
    Asked,
    /// The act was executed. If a caller asked for it, the facts have its result: `ok`.
    Done,
    /// The act was refused, or its result is an error.
    Refused,
}

impl AuditRecord {
    pub(crate) fn new(act: &'static str, phase: Phase, principal: impl Into<String>) -> Self {
        Self { act, phase, principal: principal.into(), from: None, facts: BTreeMap::new() }
    }
}
