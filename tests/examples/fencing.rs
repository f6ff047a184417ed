//! Example: a resource that keeps the largest token, and refuses a holder that comes too late. `cargo run --example
//! fencing`, next to `lockkeeper dev`, or with the cluster that `LOCKKEEPER_ENDPOINTS` names.

use lockkeeper::client::Client;

/// What the lock protects. A table or a file does the same: compare the token and write in one step.
#[derive(Debug, Default)]
pub(crate) struct Resource {
    newest: u64,
    pub(crate) text: String,
}

impl Resource {
    /// Writes if no later holder has written.
    fn write(&mut self, token: u64, text: &str) -> Result<(), String> {
        if token < self.newest {
            return Err(format!("token {token} is older than {}", self.newest));
        }
        self.newest = token;
        text.clone_into(&mut self.text);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoints = std::env::var("LOCKKEEPER_ENDPOINTS");
    run(endpoints.as_deref().unwrap_or("127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603")).await?;
    Ok(())
}

/// Two holders, the first of which is late; returns the resource as they leave it.
#[allow(clippy::print_stdout, reason = "an example shows what it does")]
pub(crate) async fn run(endpoints: &str) -> Result<Resource, Box<dyn std::error::Error>> {
    let client = Client::connect(endpoints.split(',')).await?;
    let mut resource = Resource::default();

    let first = client.lock("report").acquire().await?;
    let late = first.token();
    // The first holder is paused. An operator believes that its host is dead, and breaks the hold.
    client.break_hold("report", late, "its host does not answer").await?;
    let second = client.lock("report").acquire().await?;
    resource.write(second.token().as_u64(), "by the second holder")?;

    // The first holder wakes up, and does not know what happened yet. Its token is stale.
    match resource.write(late.as_u64(), "by the first holder") {
        Ok(()) => return Err("the resource took a write that came too late".into()),
        Err(why) => println!("refused: {why}"),
    }
    println!("the resource has: {}", resource.text);
    second.release().await?;
    Ok(resource)
}
