//! Example: the same with a table of PostgreSQL. `cargo run --example guarded_postgres -- NAME TEXT`, next to
//! `lockkeeper dev`, or with the cluster in `LOCKKEEPER_ENDPOINTS`. The database is the one that `psql` connects to by
//! default (`PGHOST`, `PGDATABASE` and so on).

#[path = "postgres_table.rs"]
mod postgres_table;

use lockkeeper::client::Client;
use postgres_table::Documents;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(text)) = (arguments.next(), arguments.next()) else {
        return Err("give a document's name and a text".into());
    };
    let endpoints = std::env::var("LOCKKEEPER_ENDPOINTS");
    let endpoints = endpoints.as_deref().unwrap_or("127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603");
    write(endpoints, &[], &name, &text).await
}

/// Writes the document under its lock, in the database that `psql` reaches with these arguments.
pub(crate) async fn write(
    endpoints: &str,
    psql: &[&str],
    name: &str,
    text: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect(endpoints.split(',')).await?;
    let documents = Documents::open(psql)?;
    documents.create(name)?;
    let guard = client.lock(&format!("documents/{name}")).why("to write it").acquire().await?;
    // However long this process is paused here, its write cannot replace that of a later holder.
    let written = documents.write(name, guard.token().as_u64(), text)?;
    guard.release().await?;
    if written { Ok(()) } else { Err(format!("a later holder has written: {}", documents.read(name)?).into()) }
}
