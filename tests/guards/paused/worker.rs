//! One holder: it takes the lock, prints its token, and works until it is refused.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::net::{Connection, Connector, Dialling};
use lockkeeper::rpc::RemoteSettings;
use tokio::net::TcpStream;

/// The environment variable with the variant and the endpoints of a holder: `WAY ENDPOINTS`.
pub(crate) const VARIABLE: &str = "PAUSED_HOLDER";

const PACE: Duration = Duration::from_millis(20);

/// Does the work of one holder with the parameters in [`VARIABLE`].
pub(crate) async fn work(what: &str) -> Result<(), Box<dyn Error>> {
    let (way, endpoints) = what.split_once(' ').ok_or("not WAY ENDPOINTS")?;
    let mut settings = RemoteSettings::new(endpoints.split(','));
    // Every address leads to the first endpoint, even if a node redirects the client.
    let only = settings.endpoints[0].clone();
    settings.connector = (way == "run").then(|| Connector::new(move |_| dialled(only.clone())));
    let session = Client::connect_with(settings).await?.session().ttl(Duration::from_secs(3)).open().await?;
    let guard = session.lock("work").acquire().await?;
    let token = guard.token().as_u64();
    print_line(&format!("token {token}"))?;
    if way == "run" {
        match guard.run(acting(token)).await {
            Ok(refused) => print_line(&format!("ended: {}", refused?)),
            Err(lost) => print_line(&format!("ended: cancelled, {lost:?}")),
        }?;
    } else {
        // It relies on the lock alone and does not check its guard again.
        print_line(&format!("ended: {}", acting(token).await?))?;
    }
    Ok(())
}

fn dialled(address: String) -> Dialling {
    Box::pin(async move { Ok(Connection::new(TcpStream::connect(address).await?)) })
}

/// Acts until the resource refuses.
async fn acting(token: u64) -> io::Result<String> {
    loop {
        print_line(&format!("act {token}"))?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if answer != "done\n" {
            return Ok(format!("refused, {}", answer.trim()));
        }
        tokio::time::sleep(PACE).await;
    }
}

fn print_line(what: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{what}")?;
    out.flush()
}
