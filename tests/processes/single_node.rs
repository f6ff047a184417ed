//! One `lockkeeper serve` process outside a [`Cluster`](crate::cluster::Cluster).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use lockkeeper::client::Client;
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::{LockService, Status};
use rustix::process::{Pid, Signal, kill_process};

use crate::ports::free_ports;
use crate::wait::{wait_for, wait_until};

/// Two unused addresses: for clients and for peers.
pub(crate) fn free_addresses() -> [String; 2] {
    free_ports().map(|port| format!("127.0.0.1:{port}"))
}

/// The config of the only node of a cluster, with the `fast` profile. Tables may be added at its end.
pub(crate) fn config_of_one(cluster: &str, data: &Path, client: &str, peer: &str) -> String {
    format!(
        "cluster = {cluster:?}\nnode = 1\ndata = {data:?}\n[[member]]\nid = 1\nclient = {client:?}\npeer = {peer:?}\n\
         [timing]\nprofile = \"fast\"\n"
    )
}

/// The program, in a shell that first runs this script, such as `umask 022`.
pub(crate) fn program_after(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{script}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_lockkeeper")]);
    shell
}

/// A single node. Dropping it kills the process.
pub(crate) struct SingleNode {
    child: Child,
    log: PathBuf,
    /// The file with its configuration.
    pub(crate) config: PathBuf,
    /// The client address of the node.
    pub(crate) client: String,
}

impl SingleNode {
    /// Starts a node from a config, which is written to `folder` under `name`.
    pub(crate) fn start(folder: &Path, name: &str, config: &str, client: &str) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        // It would take precedence over the level in the config.
        program.env_remove("LOCKKEEPER_LOG");
        Self::start_by(program, folder, name, config, client)
    }

    /// Like [`SingleNode::start`], with another command to which the arguments of the node are added.
    pub(crate) fn start_by(mut program: Command, folder: &Path, name: &str, text: &str, client: &str) -> Self {
        let (config, log) = (folder.join(format!("{name}.toml")), folder.join(format!("{name}.log")));
        fs::write(&config, text).expect("a config");
        let file = File::options().create(true).append(true).open(&log).expect("a log");
        let child = program
            .args(["serve", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a log"))
            .stderr(file)
            .spawn()
            .expect("a node");
        Self { child, log, config, client: client.to_owned() }
    }

    /// The standard output and standard error of the node so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log has this text `times` times.
    pub(crate) async fn logs(&self, text: &str, times: usize) {
        wait_until(format_args!("{text:?} is logged"), async || times <= self.log().matches(text).count()).await;
    }

    /// The process id of the node.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the node.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
    }

    /// The exit status of the node if it has ended, or `None`.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Waits until the node has ended. Returns its exit code.
    pub(crate) async fn await_end(&mut self) -> Option<i32> {
        wait_for("the node ends", async || self.ended().ok_or("it runs")).await.code()
    }

    /// Waits until the node reports itself as the leader. Returns a client of it.
    pub(crate) async fn leads(&self) -> Client<RemoteService> {
        self.status_when(|status| status.leader == Some(status.node)).await;
        Client::connect([&self.client]).await.expect("connected")
    }

    /// Waits until the status of the node meets a condition. Returns that status.
    pub(crate) async fn status_when(&self, is_met: impl Fn(&Status) -> bool) -> Status {
        wait_for("the status of the node", async || {
            let client = Client::connect([&self.client]).await.map_err(|error| error.to_string())?;
            let status = client.service().status().await.map_err(|error| error.to_string())?;
            if is_met(&status) { Ok(status) } else { Err(format!("{status:?}")) }
        })
        .await
    }
}

impl Drop for SingleNode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
