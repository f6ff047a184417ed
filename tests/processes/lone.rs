//! One `lockkeeper serve` beside the usual three, from a config that a command printed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::client::Client;
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::{LockService, Status};

use crate::cluster::PATIENCE;
use crate::ports::free_ports;

/// Two free addresses of loopback.
pub(crate) fn free_addresses() -> [String; 2] {
    free_ports().map(|port| format!("127.0.0.1:{port}"))
}

/// A node of its own; dropping it kills it.
pub(crate) struct Lone {
    child: Child,
    log: PathBuf,
    /// Where clients reach it.
    pub(crate) client: String,
}

impl Lone {
    /// Starts a node from the text of a config, which is kept in the folder under this name.
    pub(crate) fn start(folder: &Path, name: &str, config: &str, client: &str) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_lockkeeper")), folder, name, config, client)
    }

    /// The same by a command to which the program's arguments are added.
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

    /// What it has printed.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// How its process ended by itself, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Waits until it says that it leads.
    pub(crate) async fn leads(&self) -> Client<RemoteService> {
        self.told(|status| status.leader == Some(status.node)).await;
        Client::connect([&self.client]).await.expect("connected")
    }

    /// What it says of its cluster once that meets a condition.
    pub(crate) async fn told(&self, met: impl Fn(&Status) -> bool) -> Status {
        let started = Instant::now();
        loop {
            let status = match Client::connect([&self.client]).await {
                Ok(client) => client.service().status().await.ok(),
                Err(_) => None,
            };
            if let Some(status) = status.as_ref().filter(|status| met(status)) {
                return status.clone();
            }
            assert!(started.elapsed() < PATIENCE, "{status:?}\n{}", self.said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
