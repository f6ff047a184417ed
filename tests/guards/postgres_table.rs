//! A table of PostgreSQL that refuses what comes from an earlier holder: one column more, and one condition in the
//! UPDATE. The database compares and writes in one statement, so nothing can come between.
//!
//! It talks through `psql`, so that the statements are seen as they are; an application uses its own driver.

use std::io::{self, Write};
use std::process::{Command, Stdio};

/// How to reach the database, as arguments of `psql`.
#[derive(Debug, Clone)]
pub(crate) struct Documents {
    psql: Vec<String>,
}

/// The table. A row that nobody has written has the token 0, which no grant ever has.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS documents (
    name text PRIMARY KEY, token bigint NOT NULL DEFAULT 0, body text NOT NULL);";

/// The guard: a row changes only for a token that is not older than the one that changed it last.
const WRITE: &str = "UPDATE documents SET token = :token, body = :'body'
    WHERE name = :'name' AND token <= :token RETURNING token;";

impl Documents {
    /// The documents of the database that `psql` reaches with these arguments; the table is made where it is missing.
    pub(crate) fn open(psql: &[&str]) -> io::Result<Self> {
        let documents = Self { psql: psql.iter().map(|argument| (*argument).to_owned()).collect() };
        documents.run(TABLE, &[])?;
        Ok(documents)
    }

    /// Adds a document that nobody has written, unless it is there.
    pub(crate) fn create(&self, name: &str) -> io::Result<()> {
        let insert = "INSERT INTO documents (name, body) VALUES (:'name', '') ON CONFLICT DO NOTHING;";
        self.run(insert, &[("name", name)]).map(|_| ())
    }

    /// Writes as the holder with this token; false where a later holder has written, and nothing was changed.
    pub(crate) fn write(&self, name: &str, token: u64, body: &str) -> io::Result<bool> {
        let token = token.to_string();
        Ok(!self.run(WRITE, &[("name", name), ("token", &token), ("body", body)])?.is_empty())
    }

    /// What stands there now.
    pub(crate) fn read(&self, name: &str) -> io::Result<String> {
        self.run("SELECT body FROM documents WHERE name = :'name';", &[("name", name)])
    }

    /// Runs one statement; its values are quoted by `psql`. Answers the rows.
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
