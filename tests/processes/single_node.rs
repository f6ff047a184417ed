//! One `lockkeeper serve` process outside a [`Cluster`](crate::cluster::Cluster), started from a config that a command
//! printed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::client::Client;
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::{LockService, Status};

use crate::cluster::PATIENCE;
use crate::ports::free_ports;

/// Two unused addresses: for clients and for peers.
pub(crate) fn free_addresses() -> [String; 2] {
    free_ports().map(|port| format!("127.0.0.1:{port}"))
}

/// A single node. Dropping it kills the process.
pub(crate) struct SingleNode {
    child: Child,
    log: PathBuf,
    /// The client address of the node.
    pub(crate) client: String,
}

impl SingleNode {
    /// Starts a node from a config, which is written to `folder` under `name`.
    pub(crate) fn start(folder: &Path, name: &str, config: &str, client: &str) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_lockkeeper")), folder, name, config, client)
    }

    /// Like [`SingleNode::start`], with another command to which the arguments of the node are added.
    pub(crate) fn start_by(mut program: Command, folder: &Path, name: &str, config: &str, client: &str) -> Self {
        let (path, log) = (folder.join(format!("{name}.toml")), folder.join(format!("{name}.log")));
        fs::write(&path, config).expect("a config");
        let file = File::options().create(true).append(true).open(&log).expect("a log");
        let child = program
            .args(["serve", "-v", "--config"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a log"))
            .stderr(file)
            .spawn()
            .expect("a node");
        Self { child, log, client: client.to_owned() }
    }

    /// The standard output and standard error of the node so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The process id of the node.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// The exit status of the node if it has ended, or `None`.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Waits until the node reports itself as the leader. Returns a client of it.
    pub(crate) async fn leads(&self) -> Client<RemoteService> {
        self.status_when(|status| status.leader == Some(status.node)).await;
        Client::connect([&self.client]).await.expect("connected")
    }

    /// Waits until the status of the node meets a condition. Returns that status.
    pub(crate) async fn status_when(&self, met: impl Fn(&Status) -> bool) -> Status {
        let started = Instant::now();
        loop {
            let status = match Client::connect([&self.client]).await {
                Ok(client) => client.service().status().await.ok(),
                Err(_) => None,
            };
            if let Some(status) = status.as_ref().filter(|status| met(status)) {
                return status.clone();
            }
            assert!(started.elapsed() < PATIENCE, "{status:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for SingleNode {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
