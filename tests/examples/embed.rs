//! Example: a node inside a program, without a port for clients. `cargo run --example embed -- DIRECTORY` keeps its
//! data in that directory; started again it has everything, and its tokens continue.

use std::path::{Path, PathBuf};

use lockkeeper::client::Client;
use lockkeeper::config::Config;
use lockkeeper::node::Node;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory =
        std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("lockkeeper-embed"), PathBuf::from);
    run(&directory, 7690).await?;
    Ok(())
}

/// Runs a cluster of one node for one lock, and returns its token. Its addresses begin at this port.
#[allow(clippy::print_stdout, reason = "an example shows what it does")]
pub(crate) async fn run(directory: &Path, port: u16) -> Result<u64, Box<dyn std::error::Error>> {
    let (client, peer) = (port, port + 1);
    let text = format!(
        "cluster = \"embedded\"\nnode = 1\ndata = {directory:?}\n\n\
         [[member]]\nid = 1\nclient = \"127.0.0.1:{client}\"\npeer = \"127.0.0.1:{peer}\"\n"
    );
    // An application would read a file: `Config::from_file("n1.toml")`.
    let node = Node::open(Config::from_toml("embed", &text, [])?).await?;

    // The same client as over gRPC. It waits until the node leads.
    let session = Client::new(node.service()).session().open().await?;
    let guard = session.lock("nightly").acquire().await?;
    let token = guard.token().as_u64();
    println!("nightly is held with token {token}");
    guard.release().await?;

    // Sessions first: each has a handle on the node, and the directory is in use as long as there is one.
    session.close().await?;
    // A planned stop closes the log and the mirror.
    node.close().await;
    Ok(token)
}
