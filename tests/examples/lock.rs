//! Example: take a lock, work under it, and end the work if the lock is lost. `cargo run --example lock`, next to
//! `lockkeeper dev`, or with the cluster that `LOCKKEEPER_ENDPOINTS` names.

use std::time::Duration;

use lockkeeper::client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoints = std::env::var("LOCKKEEPER_ENDPOINTS");
    run(endpoints.as_deref().unwrap_or("127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603")).await?;
    Ok(())
}

/// Works under the lock, and returns the token under which it did.
#[allow(clippy::print_stdout, reason = "an example shows what it does")]
pub(crate) async fn run(endpoints: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let client = Client::connect(endpoints.split(',')).await?;
    // A session is opened and renewed behind the guard. A waiter gives up after 30 s.
    let request = client.lock("nightly").why("rebuild the index").wait(Duration::from_secs(30));
    let guard = request.acquire().await?;
    let token = guard.token();
    println!("nightly is held with token {token} for at least {:?}", guard.valid_for());

    // The work is dropped if the lock is lost, before another client may be granted it.
    let work = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        "the index is rebuilt"
    };
    match guard.run(work).await {
        Ok(done) => println!("{done}"),
        Err(lost) => return Err(format!("the lock was lost: {lost:?}").into()),
    }

    // A guard that is dropped releases its lock, too. This waits for the answer.
    guard.release().await?;
    println!("nightly is released");
    Ok(token.as_u64())
}
