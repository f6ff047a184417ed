//! A table of PostgreSQL that refuses writes of earlier holders, with one additional column and one condition in the
//! UPDATE. The database compares and writes in one statement, so no other write can come in between.
//!
//! It uses `psql`, so that the statements are visible; an application uses its own driver.

use std::io::{self, Write};
use std::process::{Command, Stdio};

/// The connection to the database, as arguments of `psql`.
#[derive(Debug, Clone)]
pub(crate) struct Documents {
    psql: Vec<String>,
}

/// The table. A row that no holder has written has the token 0, which no grant ever has.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS documents (
    name text PRIMARY KEY, token bigint NOT NULL DEFAULT 0, body text NOT NULL);";

/// The guard: a row changes only for a token that is not older than the last one that changed it.
const WRITE: &str = "UPDATE documents SET token = :token, body = :'body'
    WHERE name = :'name' AND token <= :token RETURNING token;";

impl Documents {
    /// Opens the documents of the database that `psql` connects to with these arguments. Creates the table if it is
    /// missing.
    pub(crate) fn open(psql: &[&str]) -> io::Result<Self> {
        let documents = Self { psql: psql.iter().map(|argument| (*argument).to_owned()).collect() };
        documents.run(TABLE, &[])?;
        Ok(documents)
    }

    /// Adds a document without content, unless it exists.
    pub(crate) fn create(&self, name: &str) -> io::Result<()> {
        let insert = "INSERT INTO documents (name, body) VALUES (:'name', '') ON CONFLICT DO NOTHING;";
        self.run(insert, &[("name", name)]).map(|_| ())
    }

    /// Writes as the holder with this token. Returns false if a later holder has written, and changes nothing.
    pub(crate) fn write(&self, name: &str, token: u64, body: &str) -> io::Result<bool> {
        let token = token.to_string();
        Ok(!self.run(WRITE, &[("name", name), ("token", &token), ("body", body)])?.is_empty())
    }

    /// The current content of a document.
    pub(crate) fn read(&self, name: &str) -> io::Result<String> {
        self.run("SELECT body FROM documents WHERE name = :'name';", &[("name", name)])
    }

    /// Runs one statement, whose values `psql` quotes. Returns the rows.
    pub(crate) fn run(&self, statement: &str, values: &[(&str, &str)]) -> io::Result<String> {
        let mut command = Command::new("psql");
        command.args(&self.psql).args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        for (name, value) in values {
            command.arg("-v").arg(format!("{name}={value}"));
        }
        let mut psql = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut input) = psql.stdin.take() {
            input.write_all(statement.as_bytes())?;
        }
        let output = psql.wait_with_output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }
}
