//! A temporary cluster of real `lockkeeper serve` processes on free ports of this machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::client::Client;
use lockkeeper::faults::{self, Fault};
use lockkeeper::net::TlsFiles;
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::{LockService, Status};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::ports::free_ports;
use crate::wait::wait_for;

/// How long a test waits for an expected event before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Serialises the tests that need all cores of the machine.
pub(crate) static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Where a node runs and how it is started.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The address at which it listens.
    pub(crate) host: String,
    /// The directory of its data. `None` for a directory inside the cluster's folder.
    pub(crate) data: Option<PathBuf>,
    /// Words that are placed before the command of the node. May be empty.
    pub(crate) launcher: Vec<String>,
    /// Variables added to its environment.
    pub(crate) environment: Vec<(String, String)>,
    /// The port at which it listens for the other nodes, which dial this port of `localhost`. `None` for a free port of
    /// its address.
    pub(crate) peer_port: Option<u16>,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            data: None,
            launcher: Vec::new(),
            environment: Vec::new(),
            peer_port: None,
        }
    }
}

/// Three nodes in a temporary folder. Dropping the cluster kills them.
pub(crate) struct Cluster {
    places: [Place; 3],
    folder: tempfile::TempDir,
    ports: [[u16; 3]; 3],
    nodes: [Option<Child>; 3],
    profile: &'static str,
    /// The bug that is injected into every node.
    fault: Option<Fault>,
    /// Whether every port requires TLS, and the client port a certificate.
    tls: bool,
}

impl Cluster {
    /// Starts three nodes with the `fast` profile and waits until they serve.
    pub(crate) async fn start() -> Self {
        Self::start_with("fast").await
    }

    /// Starts three nodes with this timing profile and waits until they serve.
    pub(crate) async fn start_with(profile: &'static str) -> Self {
        Self::start_as(profile, None).await
    }

    /// Starts three nodes with the `fast` profile and the given injected bug, if any.
    pub(crate) async fn start_faulty(fault: Option<Fault>) -> Self {
        Self::start_as("fast", fault).await
    }

    async fn start_as(profile: &'static str, fault: Option<Fault>) -> Self {
        Self::start_at(Default::default(), profile, fault).await
    }

    /// Starts three nodes with this timing profile that require TLS everywhere, and waits until they serve.
    pub(crate) async fn start_tls(profile: &'static str) -> Self {
        Self::start_prepared(Default::default(), profile, None, true).await
    }

    /// Starts three nodes in these places.
    pub(crate) async fn start_at(places: [Place; 3], profile: &'static str, fault: Option<Fault>) -> Self {
        Self::start_prepared(places, profile, fault, false).await
    }

    async fn start_prepared(places: [Place; 3], profile: &'static str, fault: Option<Fault>, tls: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ports = [(); 3].map(|()| free_ports());
        let mut cluster = Self { places, folder, ports, nodes: [None, None, None], profile, fault, tls };
        for node in 1..=3 {
            cluster.write_config(node);
        }
        if tls {
            cluster.certs(&["--config", &cluster.config(1).to_string_lossy(), "--client", "ci"]);
        }
        for node in 1..=3 {
            cluster.spawn(node);
        }
        cluster.await_leader().await;
        // Two nodes can elect a leader before the third one answers, but a test may use the third one immediately.
        for node in 1..=3 {
            cluster.await_answer(node).await;
        }
        cluster
    }

    fn write_config(&self, node: usize) {
        let data = self.places[node - 1].data.clone().unwrap_or_else(|| self.folder.path().join(format!("n{node}")));
        let mut text = format!("cluster = \"test\"\nnode = {node}\ndata = {data:?}\n[listen]\n");
        for (of, name) in ["client", "peer", "http"].into_iter().enumerate() {
            text += &format!("{name} = \"{}\"\n", self.address(node, of));
        }
        for id in 1..=3 {
            let (client, own) = (self.address(id, 0), self.address(id, 1));
            let peer = self.places[id - 1].peer_port.map_or(own, |port| format!("localhost:{port}"));
            text += &format!("[[member]]\nid = {id}\nclient = \"{client}\"\npeer = \"{peer}\"\n");
        }
        text += &format!("[timing]\nprofile = \"{}\"\n", self.profile);
        if self.tls {
            let file = |name: String| self.folder.path().join("certs").join(name);
            let (ca, cert, key) =
                (file("ca.pem".into()), file(format!("node-{node}.pem")), file(format!("node-{node}.key")));
            let (refuse, audit) = (file("refused.txt".into()), self.folder.path().join(format!("audit-{node}.jsonl")));
            text += &format!(
                "[tls]\nca = {ca:?}\ncert = {cert:?}\nkey = {key:?}\nrefuse = {refuse:?}\n[tls.client]\nclient_cert = \"required\"\n\
                 [audit]\nfile = {audit:?}\n"
            );
        } else {
            // Some tests use addresses other than loopback.
            text += &["client", "peer", "http"].map(|port| format!("[tls.{port}]\ninsecure = true\n")).concat();
        }
        fs::write(self.config(node), text).expect("a config");
    }

    /// The address at which a node listens: for clients (`of` is 0), peers (1) or HTTP (2).
    fn address(&self, node: usize, of: usize) -> String {
        let place = &self.places[node - 1];
        let port = place.peer_port.filter(|_| of == 1).unwrap_or(self.ports[node - 1][of]);
        format!("{}:{port}", place.host)
    }

    /// The file with the configuration of a node.
    pub(crate) fn config(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("n{node}.toml"))
    }

    /// Runs `lockkeeper certs` for the certificates of this cluster.
    pub(crate) fn certs(&self, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        let made = command.arg("certs").arg(self.folder.path().join("certs")).args(arguments).output().expect("certs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// The files of a client with a certificate; `None` for a cluster without TLS.
    pub(crate) fn client_files(&self) -> Option<TlsFiles> {
        let file = |name: &str| Some(self.folder.path().join("certs").join(name));
        self.tls.then(|| TlsFiles {
            ca: file("ca.pem"),
            cert: file("client-ci.pem"),
            key: file("client-ci.key"),
            refuse: None,
        })
    }

    /// How a client reaches these nodes.
    pub(crate) fn settings(&self, endpoints: impl IntoIterator<Item = impl Into<String>>) -> RemoteSettings {
        RemoteSettings { tls: self.client_files(), ..RemoteSettings::new(endpoints) }
    }

    /// The folder of the nodes' data and of the tests' own files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a stopped node with a bug injected into this node alone.
    pub(crate) fn spawn_faulty(&mut self, node: usize, fault: Fault) {
        let others = self.fault.replace(fault);
        self.spawn(node);
        self.fault = others;
    }

    /// Starts a stopped node.
    pub(crate) fn spawn(&mut self, node: usize) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("n{node}.log")))
            .expect("a log");
        let place = &self.places[node - 1];
        let program = env!("CARGO_BIN_EXE_lockkeeper").to_owned();
        let words: Vec<&String> = place.launcher.iter().chain([&program]).collect();
        let child = Command::new(words[0])
            .args(&words[1..])
            .args(["serve", "-v", "--config"])
            .arg(self.config(node))
            .envs(place.environment.iter().map(|(name, value)| (name, value)))
            .envs(self.fault.map(|fault| (faults::VARIABLE, fault.word())))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("a node");
        self.nodes[node - 1] = Some(child);
    }

    /// The standard output and standard error of a node so far.
    pub(crate) fn log(&self, node: usize) -> String {
        fs::read_to_string(self.folder.path().join(format!("n{node}.log"))).unwrap_or_default()
    }

    /// Sends a signal to a node.
    pub(crate) fn signal(&self, node: usize, signal: Signal) {
        let child = self.nodes[node - 1].as_ref().expect("a node that runs");
        kill_process(Pid::from_child(child), signal).expect("a signal");
    }

    /// Stops a node with SIGSTOP and waits until none of its threads runs. A thread in a system call ends that call and
    /// does not use its result until the node continues.
    pub(crate) fn halt(&self, node: usize) {
        self.signal(node, Signal::STOP);
        let began = Instant::now();
        while !self.is_stopped(node) {
            assert!(began.elapsed() < PATIENCE, "node {node} still runs after SIGSTOP");
            std::thread::yield_now();
        }
    }

    fn is_stopped(&self, node: usize) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process(node))).expect("a process");
        let states =
            threads.map(|thread| fs::read_to_string(thread.expect("a thread").path().join("stat")).unwrap_or_default());
        // The state is the letter after the name, which is in parentheses: `T` is stopped, `D` is in an uninterruptible
        // call.
        states
            .filter_map(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()))
            .all(|rest| rest.starts_with(['T', 'D']))
    }

    /// Kills a node with SIGKILL and waits until it has ended.
    pub(crate) fn kill(&mut self, node: usize) {
        let mut child = self.nodes[node - 1].take().expect("a node that runs");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    /// Sends SIGTERM and waits until the node has ended. Returns its exit code.
    pub(crate) fn stop(&mut self, node: usize) -> Option<i32> {
        self.signal(node, Signal::TERM);
        let mut child = self.nodes[node - 1].take().expect("a node that runs");
        child.wait().expect("ended").code()
    }

    /// Waits until a node has ended. Returns its exit code.
    pub(crate) async fn await_end(&mut self, node: usize) -> Option<i32> {
        let ended = wait_for(format_args!("node {node} ends"), async || self.ended(node).ok_or("it runs")).await;
        self.nodes[node - 1] = None;
        ended.code()
    }

    /// The exit status of a node that has ended, or `None` while it runs.
    pub(crate) fn ended(&mut self, node: usize) -> Option<ExitStatus> {
        self.nodes[node - 1].as_mut()?.try_wait().expect("a child")
    }

    /// The process id of a running node.
    pub(crate) fn process(&self, node: usize) -> u32 {
        self.nodes[node - 1].as_ref().expect("a node that runs").id()
    }

    /// Returns true if the node was started and was not killed or awaited since.
    pub(crate) fn runs(&self, node: usize) -> bool {
        self.nodes[node - 1].is_some()
    }

    /// The client addresses of all nodes.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        (1..=3).map(|node| self.address(node, 0)).collect()
    }

    /// The HTTP address of one node.
    pub(crate) fn http(&self, node: usize) -> String {
        self.address(node, 2)
    }

    /// The address of one node for the other nodes.
    pub(crate) fn peer(&self, node: usize) -> String {
        self.address(node, 1)
    }

    /// A client over gRPC. It does not connect before its first call.
    pub(crate) fn client(&self) -> Client<RemoteService> {
        Client::new(RemoteService::new(self.settings(self.endpoints())).expect("endpoints"))
    }

    /// A `lockkeeper` command that uses this cluster.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(arguments).env("LOCKKEEPER_ENDPOINTS", self.endpoints().join(",")).env_remove("RUST_LOG");
        if let Some(TlsFiles { ca, cert, key, .. }) = self.client_files() {
            let files = [("LOCKKEEPER_CA", ca), ("LOCKKEEPER_CERT", cert), ("LOCKKEEPER_KEY", key)];
            command.envs(files.into_iter().filter_map(|(name, file)| Some((name, file?))));
        }
        command
    }

    /// Runs a command with `--json`, which must succeed. Returns the object that it prints.
    pub(crate) fn answer(&self, arguments: &[&str]) -> Value {
        let output = self.command(&[arguments, &["--json"]].concat()).output().expect("ran");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("an object")
    }

    /// The status as one node reports it, or `None` if the node does not answer within two seconds.
    pub(crate) async fn status_of(&self, node: usize) -> Option<Status> {
        let endpoint = self.endpoints().swap_remove(node - 1);
        let client = Client::connect_with(self.settings([endpoint])).await.ok()?;
        let answered = tokio::time::timeout(Duration::from_secs(2), client.service().status()).await;
        answered.ok()?.ok().filter(|status| status.node == node as u64)
    }

    /// Waits until the status that this node reports meets a condition. Returns that status.
    pub(crate) async fn status_when(&self, node: usize, is_met: impl Fn(&Status) -> bool) -> Status {
        wait_for(format_args!("the status of node {node}"), async || match self.status_of(node).await {
            Some(status) if is_met(&status) => Ok(status),
            other => Err(other),
        })
        .await
    }

    /// Waits until this node answers clients.
    pub(crate) async fn await_answer(&self, node: usize) {
        self.status_when(node, |_| true).await;
    }

    /// Waits until a leader can commit. Returns its id.
    pub(crate) async fn await_leader(&self) -> usize {
        let client = self.client();
        wait_for("a leader", async || {
            client.totals().await.map_err(|error| error.to_string())?;
            for node in (1..=3).filter(|node| self.runs(*node)) {
                if let Some(leader) = self.status_of(node).await.and_then(|status| status.leader) {
                    return Ok(usize::try_from(leader).expect("a small id"));
                }
            }
            Err("no node names one".to_owned())
        })
        .await
    }

    /// Waits for a leader. Returns the id of another node that runs.
    pub(crate) async fn a_follower(&self) -> usize {
        let leader = self.await_leader().await;
        (1..=3).find(|node| *node != leader && self.runs(*node)).expect("a follower")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in 1..=3 {
                let log = self.log(node);
                let tail: Vec<_> = log.lines().rev().take(40).collect();
                eprintln!("--- node {node}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
        for child in self.nodes.iter_mut().flatten() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
