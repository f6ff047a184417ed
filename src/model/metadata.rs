//! What a holder says of itself; shown in every answer about the lock, believed by nobody.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Invalid;
use crate::limits;

/// Free texts of a request, at most 1 KiB in all. `who` is a claim; the principal is what the cluster checked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// Who asks, usually a user or service.
    pub who: Arc<str>,
    /// What for.
    pub why: Arc<str>,
    /// On which host.
    pub host: Arc<str>,
    /// Process id there, 0 where unknown.
    pub pid: u32,
    /// The original config server's process id, `host:port:start-second:random`.
    pub process: Arc<str>,
    /// A trace id of the caller.
    pub trace: Arc<str>,
}

impl Metadata {
    /// Refuses more than 1 KiB of text in all, and control characters other than line ends and tabs.
    pub fn checked(self) -> Result<Self, Invalid> {
        let texts = [
            ("who", &self.who),
            ("why", &self.why),
            ("host", &self.host),
            ("process", &self.process),
            ("trace", &self.trace),
        ];
        for (field, text) in texts {
            if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
                return Err(Invalid::new(field, "no control characters", format!("{text:?}")));
            }
        }
        let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
        if bytes > limits::METADATA_BYTES_MAX {
            let bound = format!("at most {} bytes in all", limits::METADATA_BYTES_MAX);
            return Err(Invalid::new("metadata", bound, format!("{bytes} bytes")));
        }
        Ok(self)
    }
}
