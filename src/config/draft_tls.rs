//! `[tls]` as written: every value with its place in the file. This file checks only their types.

use serde::Deserialize;
use toml::Spanned;

use super::place::{At, Source};

/// `[tls]` as written.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTls {
    ca: Option<Spanned<String>>,
    cert: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    #[serde(default)]
    client: FileClientTls,
    #[serde(default)]
    peer: FileListenerTls,
    #[serde(default)]
    http: FileClientTls,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileListenerTls {
    ca: Option<Spanned<String>>,
    cert: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    mode: Option<Spanned<String>>,
    insecure: Option<Spanned<bool>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileClientTls {
    ca: Option<Spanned<String>>,
    cert: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
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
    pub(super) ca: Option<At<String>>,
    pub(super) cert: Option<At<String>>,
    pub(super) key: Option<At<String>>,
}

#[derive(Debug, Default)]
pub(super) struct DraftListener {
    pub(super) files: DraftFiles,
    pub(super) mode: Option<At<String>>,
    pub(super) insecure: Option<At<bool>>,
    pub(super) client_cert: Option<At<String>>,
}

impl DraftTls {
    pub(super) fn new(file: FileTls, source: &Source<'_>) -> Self {
        let text = |value: Option<Spanned<String>>| value.map(|value| source.at(value));
        let flag = |value: Option<Spanned<bool>>| value.map(|value| source.at(value));
        let files = |ca, cert, key| DraftFiles { ca: text(ca), cert: text(cert), key: text(key) };
        let FileTls { ca, cert, key, client, peer, http } = file;
        let of_clients = |FileClientTls { ca, cert, key, mode, insecure, client_cert }| DraftListener {
            files: files(ca, cert, key),
            mode: text(mode),
            insecure: flag(insecure),
            client_cert: text(client_cert),
        };
        let FileListenerTls { ca: peer_ca, cert: peer_cert, key: peer_key, mode, insecure } = peer;
        let peer = DraftListener {
            files: files(peer_ca, peer_cert, peer_key),
            mode: text(mode),
            insecure: flag(insecure),
            client_cert: None,
        };
        Self { files: files(ca, cert, key), client: of_clients(client), peer, http: of_clients(http) }
    }
}
