//! `[tls]` as written: every value with its place in the file. This file checks only their types.

use serde::Deserialize;
use toml::Spanned;

use super::place::{Placed, Source};

/// `[tls]` as written.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTls {
    ca: Option<Spanned<String>>,
    cert: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    refuse: Option<Spanned<String>>,
    #[serde(default)]
    client: FileListener,
    #[serde(default)]
    peer: FileListener,
    #[serde(default)]
    http: FileListener,
}

/// The section of one listener as written.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileListener {
    ca: Option<Spanned<String>>,
    cert: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    refuse: Option<Spanned<String>>,
    mode: Option<Spanned<String>>,
    insecure: Option<Spanned<bool>>,
    client_cert: Option<Spanned<String>>,
}

/// `[tls]` with the place of each value.
#[derive(Debug, Default)]
pub(super) struct DraftTls {
    pub(super) files: DraftFiles,
    pub(super) client: DraftListener,
    pub(super) peer: DraftListener,
    pub(super) http: DraftListener,
}

#[derive(Debug, Default)]
pub(super) struct DraftFiles {
    pub(super) ca: Option<Placed<String>>,
    pub(super) cert: Option<Placed<String>>,
    pub(super) key: Option<Placed<String>>,
    pub(super) refuse: Option<Placed<String>>,
}

#[derive(Debug, Default)]
pub(super) struct DraftListener {
    pub(super) files: DraftFiles,
    pub(super) mode: Option<Placed<String>>,
    pub(super) insecure: Option<Placed<bool>>,
    pub(super) client_cert: Option<Placed<String>>,
}

impl DraftTls {
    pub(super) fn new(file: FileTls, source: &Source<'_>) -> Self {
        let text = |value: Option<Spanned<String>>| value.map(|value| source.at(value));
        let flag = |value: Option<Spanned<bool>>| value.map(|value| source.at(value));
        let files = |[ca, cert, key, refuse]: [Option<Spanned<String>>; 4]| DraftFiles {
            ca: text(ca),
            cert: text(cert),
            key: text(key),
            refuse: text(refuse),
        };
        let listener = |FileListener { ca, cert, key, refuse, mode, insecure, client_cert }| DraftListener {
            files: files([ca, cert, key, refuse]),
            mode: text(mode),
            insecure: flag(insecure),
            client_cert: text(client_cert),
        };
        let FileTls { ca, cert, key, refuse, client, peer, http } = file;
        let files = files([ca, cert, key, refuse]);
        Self { files, client: listener(client), peer: listener(peer), http: listener(http) }
    }
}
