//! What a client states about itself. Every answer about the lock shows it, but it never proves anything.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Invalid, text};
use crate::limits;

/// Texts that a client states about itself and its request, at most 1 KiB in all. They prove nothing: the identity that
/// the cluster checked is the principal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// Name of the client, usually of a user or service.
    #[serde(deserialize_with = "text::shared")]
    pub who: Arc<str>,
    /// Purpose of the request.
    #[serde(deserialize_with = "text::shared")]
    pub why: Arc<str>,
    /// Host of the client.
    #[serde(deserialize_with = "text::shared")]
    pub host: Arc<str>,
    /// Process id on that host; 0 if unknown.
    pub pid: u32,
    /// The process id of a config server's client, `host:port:start-second:random`.
    #[serde(deserialize_with = "text::shared")]
    pub process: Arc<str>,
    /// A trace id of the caller.
    #[serde(deserialize_with = "text::shared")]
    pub trace: Arc<str>,
}

impl Metadata {
    /// Returns an error for more than 1 KiB of text in all, which names the longest text, and for control characters
    /// other than line feeds and tabs.
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
        if limits::METADATA_BYTES_MAX < bytes {
            let (longest, _) = texts.into_iter().max_by_key(|(_, text)| text.len()).unwrap_or(texts[0]);
            let all = texts.map(|(field, _)| field).join(", ");
            let bound = format!("at most {} bytes in all of {all}", limits::METADATA_BYTES_MAX);
            return Err(Invalid::new(longest, bound, format!("{bytes} bytes")));
        }
        Ok(self)
    }

    /// The name that all answers, histories and documents show for the client. It is the first of these that is known:
    /// its `who`, its process, its pid and host. If none is known, it is `unnamed client`.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        if let Some(name) = [&self.who, &self.process].into_iter().find(|text| !text.is_empty()) {
            return Cow::Borrowed(name);
        }
        match (self.pid, &*self.host) {
            (0, "") => Cow::Borrowed("unnamed client"),
            (0, host) => Cow::Borrowed(host),
            (pid, "") => Cow::Owned(format!("pid {pid}")),
            (pid, host) => Cow::Owned(format!("pid {pid} on {host}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name is the first text that the client stated, and a default if there is none.
    #[test]
    fn a_name_comes_from_the_first_known_text() {
        let shown = |who: &str, process: &str, host: &str, pid| {
            let (who, process, host) = (who.into(), process.into(), host.into());
            Metadata { who, process, host, pid, ..Metadata::default() }.name().into_owned()
        };
        assert_eq!(shown("ann", "h:1:2:3", "h1", 9), "ann");
        assert_eq!(shown("", "h:1:2:3", "h1", 9), "h:1:2:3");
        assert_eq!(
            [shown("", "", "h1", 9), shown("", "", "", 9), shown("", "", "h1", 0)],
            ["pid 9 on h1", "pid 9", "h1"]
        );
        assert_eq!(shown("", "", "", 0), "unnamed client");
    }
}
