//! The cost of `[auth]`: pairs a second with rules and a token, and with neither, in turns.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::task::block_in_place;

use crate::cluster::Cluster;
use crate::tls::in_turns;

/// Measures both clusters in turns, without TLS.
pub(crate) async fn run(seconds: usize) {
    let (open, mut ruled) = (Cluster::start_with("lan").await, Cluster::start_with("lan").await);
    let token = add_rules(&mut ruled).await;
    in_turns([("without [auth]", &open, None), ("with [auth]", &ruled, Some(token.as_path()))], seconds);
}

/// Restarts the nodes with a file of rules and audit logs. Returns the file with the token of a principal that may do
/// everything.
async fn add_rules(cluster: &mut Cluster) -> PathBuf {
    let [rules, token] = ["auth.toml", "token"].map(|name| cluster.folder().join(name));
    let word = |path: &Path| path.to_str().expect("a path").to_owned();
    let run = |arguments: &[&str]| {
        let made = cluster.command(arguments).output().expect("ran");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    run(&["auth", "init", &word(&rules), "--admin", "ops"]);
    run(&["auth", "token", &word(&rules), "ops", "--out", &word(&token)]);
    // The cluster asks for its leader without a token.
    let text = fs::read_to_string(&rules).expect("rules") + "\n[[principal]]\nname = \"anonymous\"\nroles = []\n";
    fs::write(&rules, text).expect("rules");
    for node in 1..=3 {
        block_in_place(|| cluster.stop(node));
        let audit = cluster.folder().join(format!("audit-{node}.jsonl"));
        let config = fs::read_to_string(cluster.config(node)).expect("a configuration");
        let added = format!("[auth]\nfile = {rules:?}\n[audit]\nfile = {audit:?}\n");
        fs::write(cluster.config(node), config + &added).expect("a configuration");
    }
    for node in 1..=3 {
        cluster.spawn(node);
    }
    cluster.await_leader().await;
    for node in 1..=3 {
        cluster.await_answer(node).await;
    }
    token
}
