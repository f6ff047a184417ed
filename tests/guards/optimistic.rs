//! The optimistic lock of a database, for comparison: a row changes only for a writer that has read its newest version.

use std::io;

use crate::postgres_table::Documents;

const ADD_VERSION: &str = "ALTER TABLE documents ADD COLUMN IF NOT EXISTS version bigint NOT NULL DEFAULT 0;";

const WRITE: &str = "UPDATE documents SET version = version + 1, body = :'body'
    WHERE name = :'name' AND version = :version RETURNING version;";

/// Adds a version to every document.
pub(crate) fn add_version(documents: &Documents) -> io::Result<()> {
    documents.run(ADD_VERSION, &[]).map(|_| ())
}

/// Replaces the version that was read. Returns false if there was another write in between.
pub(crate) fn write(documents: &Documents, name: &str, version: u64, body: &str) -> io::Result<bool> {
    let version = version.to_string();
    Ok(!documents.run(WRITE, &[("name", name), ("version", &version), ("body", body)])?.is_empty())
}
