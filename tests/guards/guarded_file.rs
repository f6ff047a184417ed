//! Example: several of these may run; only the one that holds the lock changes the file, and one that was paused changes
//! nothing when it wakes up. `cargo run --example guarded_file -- FILE TEXT`, beside `lockkeeper dev`.

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
    let client = Client::connect(["127.0.0.1:7601", "127.0.0.1:7602", "127.0.0.1:7603"]).await?;
    let guard = client.lock("report").why("to write the report").acquire().await?;
    let file = GuardedFile::new(path);
    // However long this process is stopped here, what it writes then cannot replace what a later holder wrote.
    let written = file.write(guard.token().as_u64(), text.as_bytes())?;
    guard.release().await?;
    let now = file.read()?.map(|(token, content)| (token, String::from_utf8_lossy(&content).into_owned()));
    match written {
        Written::Done => Ok(()),
        Written::Stale { newest } => Err(format!("token {newest} has written since: {now:?}").into()),
    }
}
