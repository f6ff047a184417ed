//! Example: of several running copies only the holder of the lock changes the file, and one that was paused changes
//! nothing when it continues. `cargo run --example guarded_file -- FILE TEXT`, next to `lockkeeper dev`, or with the
//! cluster in `LOCKKEEPER_ENDPOINTS`.

#[path = "file_store.rs"]
mod file_store;

use file_store::{GuardedFile, Written};
use lockkeeper::client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(text)) = (arguments.next(), arguments.next()) else {
        return Err("give a file and a text".into());
    };
    let endpoints = std::env::var("LOCKKEEPER_ENDPOINTS");
    let endpoints = endpoints.as_deref().unwrap_or("127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603");
    report(endpoints, &path, &text).await
}

/// Writes the file under the lock.
pub(crate) async fn report(endpoints: &str, path: &str, text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect(endpoints.split(',')).await?;
    let guard = client.lock("report").why("to write the report").acquire().await?;
    let file = GuardedFile::new(path);
    // However long this process is paused here, its write cannot replace that of a later holder.
    let written = file.write(guard.token().as_u64(), text.as_bytes())?;
    guard.release().await?;
    let now = file.read()?.map(|(token, content)| (token, String::from_utf8_lossy(&content).into_owned()));
    match written {
        Written::Done => Ok(()),
        Written::Stale { newest } => Err(format!("token {newest} has written since: {now:?}").into()),
    }
}
