//! What all screens have in common: the head of the page, the state of the cluster, and the commands at the end.

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::assets::{ICON, SCRIPT, STYLE};
use super::text::{Link, count, several, shell, span};
use crate::model::Namespace;
use crate::service::{Role, Status};

/// The common parts of a screen.
pub(super) struct Layout {
    pub(super) version: &'static str,
    pub(super) style: String,
    pub(super) script: String,
    pub(super) icon: String,
    pub(super) namespace: String,
    pub(super) links: Vec<NavLink>,
    /// Whether the screen is read again when something changes.
    pub(super) live: bool,
    /// Name of the cluster; empty if it is not known to the caller.
    pub(super) cluster: String,
    pub(super) state: Option<State>,
    /// The link to the form that signs in, if the cluster has principals.
    pub(super) sign_in: Option<String>,
    /// The principal that has signed in, and the secret of the form that signs out.
    pub(super) signed_in: Option<(String, String)>,
}

/// One link of the navigation.
pub(super) struct NavLink {
    pub(super) name: &'static str,
    pub(super) link: String,
    pub(super) current: bool,
}

/// The screens in the navigation: name and path.
const SCREENS: [(&str, &str); 4] =
    [("Overview", "/"), ("Locks", "/locks"), ("Sessions", "/sessions"), ("Nodes", "/nodes")];

impl Layout {
    /// The layout of a screen that shows nothing of the cluster. `screen` is the entry of the navigation that is
    /// marked as current; empty if there is none.
    pub(super) fn bare(namespace: &Namespace, screen: &str) -> Self {
        let links = SCREENS.map(|(name, path)| {
            let link = Link::new(path, namespace).text();
            NavLink { name, link, current: name == screen }
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            style: STYLE.path(),
            script: SCRIPT.path(),
            icon: ICON.path(),
            namespace: namespace.to_string(),
            links: links.into(),
            live: false,
            cluster: String::new(),
            state: None,
            sign_in: None,
            signed_in: None,
        }
    }
}

/// The state of the cluster in one line.
pub(super) struct State {
    /// `good`, `warn` or `bad`, for its colour.
    pub(super) level: &'static str,
    /// The same for readers: a sign and a word.
    pub(super) word: &'static str,
    pub(super) leader: String,
    pub(super) nodes: String,
    /// The asked node, and up to which entry of the log it answers.
    pub(super) asked: String,
}

impl State {
    pub(super) fn new(status: &Status, index: Option<u64>) -> Self {
        let voters = status.nodes.iter().filter(|node| node.role != Role::Learner);
        let healthy = voters.clone().filter(|node| node.healthy == Some(true)).count();
        let all = voters.count();
        let (level, word) = match status.leader {
            None => ("bad", "✕ No leader"),
            Some(_) if status.closed_ms != 0 => ("warn", "! Closed"),
            Some(_) if healthy < all => ("warn", "! Degraded"),
            Some(_) => ("good", "✓ OK"),
        };
        let leader = match status.leader {
            None => "no node leads: locks are neither granted nor lost".to_owned(),
            Some(_) if status.closed_ms != 0 => {
                format!("restored from a backup: nothing is granted for another {}", span(status.closed_ms))
            }
            Some(leader) => format!("node {leader} leads, term {}, {}", count(status.term), span(status.led_ms)),
        };
        let nodes = match status.leader {
            None => several(all as u64, "voter"),
            Some(_) => format!("{healthy} of {} up", several(all as u64, "voter")),
        };
        let until = index.map(|index| format!(", up to entry {}", count(index))).unwrap_or_default();
        let asked = format!("node {} answers{until}", status.node);
        Self { level, word, leader, nodes, asked }
    }
}

/// The commands that return the data of a screen.
pub(super) struct Commands {
    pub(super) cli: String,
    pub(super) curl: String,
}

/// Where the commands of a screen send their requests.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) scheme: &'static str,
    pub(super) host: String,
    pub(super) namespace: Namespace,
    /// Whether requests need a token.
    pub(super) proves: bool,
    /// Whether the caller has shown a certificate. A port that requires one refuses requests without it.
    pub(super) certified: bool,
}

impl Target {
    /// The line that runs a command of the command line.
    pub(super) fn cli(&self, command: &str) -> String {
        let namespace =
            if self.namespace == Namespace::default() { String::new() } else { format!(" -N {}", self.namespace) };
        format!("lockkeeper{namespace} {command}")
    }

    /// The line that runs `command` with the command line, and the line that calls `path` with curl.
    pub(super) fn commands(&self, command: &str, path: &str) -> Commands {
        let proof = if self.proves { " -H \"Authorization: Bearer $TOKEN\"" } else { "" };
        let ca = if self.scheme == "https" { " --cacert \"$LOCKKEEPER_CA\"" } else { "" };
        let certificate = if self.certified { " --cert \"$LOCKKEEPER_CERT\" --key \"$LOCKKEEPER_KEY\"" } else { "" };
        let url = shell(&format!("{}://{}{path}", self.scheme, self.host));
        // `shell` quotes only what needs it. The line always has quotes around the URL.
        let url = if url.starts_with(['\'', '$']) { url } else { format!("'{url}'") };
        let curl = format!("curl -sS{ca}{certificate}{proof} {url}");
        Commands { cli: self.cli(command), curl }
    }

    /// Like [`commands`](Self::commands), for a `call` below the path of the namespace.
    pub(super) fn call(&self, command: &str, call: &str) -> Commands {
        self.commands(command, &format!("/v1/ns/{}/{call}", self.namespace))
    }
}

/// Returns a rendered screen.
pub(super) fn html(status: StatusCode, screen: &impl Template) -> Response {
    match screen.render() {
        Ok(text) => (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("the screen cannot be shown: {error}\n")).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands name the namespace unless it is the default one, and quote what a shell would interpret. A caller
    /// with a certificate gets a command that shows one.
    #[test]
    fn commands_can_be_pasted() {
        let target = |namespace: &str, proves| Target {
            scheme: "http",
            host: "127.0.0.1:7621".to_owned(),
            namespace: Namespace::parse(namespace).expect("a namespace"),
            proves,
            certified: false,
        };
        let usual = target("default", false).call("show nightly", "locks?lock=nightly");
        assert_eq!(usual.cli, "lockkeeper show nightly");
        assert_eq!(usual.curl, "curl -sS 'http://127.0.0.1:7621/v1/ns/default/locks?lock=nightly'");
        let other = target("prod", true).call("ls", "locks");
        assert_eq!(other.cli, "lockkeeper -N prod ls");
        let curl = "curl -sS -H \"Authorization: Bearer $TOKEN\" 'http://127.0.0.1:7621/v1/ns/prod/locks'";
        assert_eq!(other.curl, curl);
        let certified = Target { scheme: "https", certified: true, ..target("default", false) }.call("ls", "locks");
        let files = "--cacert \"$LOCKKEEPER_CA\" --cert \"$LOCKKEEPER_CERT\" --key \"$LOCKKEEPER_KEY\"";
        assert_eq!(certified.curl, format!("curl -sS {files} 'https://127.0.0.1:7621/v1/ns/default/locks'"));
    }
}
