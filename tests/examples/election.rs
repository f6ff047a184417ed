//! Example: lead under a name, say where, and resign. `cargo run --example election -- 10.0.0.1:80`, next to
//! `lockkeeper dev`, or with the cluster that `LOCKKEEPER_ENDPOINTS` names. Start it twice to see the second one wait.

use std::time::Duration;

use lockkeeper::client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "here".to_owned());
    let endpoints = std::env::var("LOCKKEEPER_ENDPOINTS");
    let endpoints = endpoints.as_deref().unwrap_or("127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603");
    run(endpoints, &address, Duration::from_secs(5)).await?;
    Ok(())
}

/// Leads for a while, and returns what another client saw of it.
#[allow(clippy::print_stdout, reason = "an example shows what it does")]
pub(crate) async fn run(
    endpoints: &str,
    address: &str,
    term: Duration,
) -> Result<Option<String>, Box<dyn std::error::Error>> {
    let client = Client::connect(endpoints.split(',')).await?;
    let election = client.election("boss");
    // Candidates wait in the order in which they came.
    let leadership = election.campaign(address).elected().await?;
    println!("{address} leads with token {}", leadership.guard().token());

    // Any client can ask who leads.
    let leader = client.election("boss").leader().await?;
    let seen = leader.and_then(|leader| leader.value).map(|value| value.as_str().to_owned());
    println!("clients see the leader {seen:?}");

    // The work is dropped if the leadership is lost, before another candidate may lead.
    leadership.run(tokio::time::sleep(term)).await.map_err(|lost| format!("no longer the leader: {lost:?}"))?;
    leadership.resign().await?;
    println!("{address} has resigned");
    Ok(seen)
}
