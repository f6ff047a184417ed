//! A cluster of one process: it reloads its config on SIGHUP and stops when its disk is full.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::client::Client;
use lockkeeper::model::{
    Command as Said, Handle, LeaseRequestId, LockKey, LockName, LockSummary, Metadata, Mode, Namespace, Patience,
    TakeLease,
};
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::{Call, LockService, NotSent, ServiceError};
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::PATIENCE;
use crate::ports::free_ports;

const POLL: Duration = Duration::from_millis(20);

/// A cluster of one node in a temporary folder. Dropping it kills the node.
struct Single {
    folder: tempfile::TempDir,
    ports: [u16; 2],
    node: Child,
}

impl Single {
    /// Starts the node with the log level `level`. `launcher` is shell text placed before the command of the node.
    fn start(launcher: &str, level: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ports = free_ports();
        write_config(&folder.path().join("node.toml"), &folder.path().join("data").display().to_string(), ports, level);
        let node = spawn(folder.path(), launcher);
        Self { folder, ports, node }
    }

    /// Starts the node again after it has ended.
    fn start_again(&mut self) {
        self.node = spawn(self.folder.path(), "");
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("node.toml")
    }

    fn set_level(&self, level: &str) {
        let data = self.folder.path().join("data").display().to_string();
        write_config(&self.config(), &data, self.ports, level);
    }

    /// A client whose requests wait until the node serves.
    fn client(&self) -> Client<RemoteService> {
        let settings = RemoteSettings::new([format!("127.0.0.1:{}", self.ports[0])]);
        Client::new(RemoteService::new(settings).expect("an address")).request_wait(PATIENCE)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.node.id()).expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("a signal");
    }

    async fn logs(&self, text: &str, times: usize) {
        let started = Instant::now();
        while self.log().matches(text).count() < times {
            assert!(started.elapsed() < PATIENCE, "the log does not contain {text:?} {times} times:\n{}", self.log());
            tokio::time::sleep(POLL).await;
        }
    }

    async fn ended(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.node.try_wait().expect("a child") {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "the node does not end:\n{}", self.log());
            tokio::time::sleep(POLL).await;
        }
    }
}

fn spawn(folder: &Path, launcher: &str) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log")).expect("a log");
    let script = format!("{launcher} exec \"$0\" serve --config \"$1\"");
    Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_lockkeeper")])
        .arg(folder.join("node.toml"))
        .env_remove("LOCKKEEPER_LOG")
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .expect("a node")
}

impl Drop for Single {
    fn drop(&mut self) {
        self.node.kill().ok();
        self.node.wait().ok();
    }
}

fn write_config(path: &Path, data: &str, [client, peer]: [u16; 2], level: &str) {
    let text = format!(
        "cluster = \"single\"\nnode = 1\ndata = {data:?}\n[[member]]\nid = 1\nclient = \"127.0.0.1:{client}\"\n\
         peer = \"127.0.0.1:{peer}\"\n[timing]\nprofile = \"fast\"\n[log]\nlevel = {level:?}\n"
    );
    fs::write(path, text).expect("a config");
}

/// SIGHUP reloads the log level, in both directions. A config that cannot be parsed changes nothing.
#[tokio::test]
async fn a_hangup_reloads_the_log_level() {
    let mut single = Single::start("", "warn");
    single.client().totals().await.expect("it serves");
    assert!(!single.log().contains("serving"), "the level is warn, but the log has info lines:\n{}", single.log());
    single.set_level("info");
    single.signal(Signal::HUP);
    single.logs("reloaded the config", 1).await;
    let good = fs::read_to_string(single.config()).expect("a config");
    fs::write(single.config(), "cluster = 7\n").expect("a bad config");
    single.signal(Signal::HUP);
    single.logs("was not reloaded", 1).await;
    fs::write(single.config(), good).expect("a config");
    single.signal(Signal::HUP);
    single.logs("reloaded the config", 2).await;
    // The last config is a named pipe: once it has been read, the level is known to be set before the node is stopped.
    single.set_level("error");
    let quiet = fs::read_to_string(single.config()).expect("a config");
    fs::remove_file(single.config()).expect("removed");
    assert!(Command::new("mkfifo").arg(single.config()).status().expect("mkfifo").success());
    single.signal(Signal::HUP);
    let pipe = single.config();
    let read = tokio::task::spawn_blocking(move || fs::write(pipe, quiet));
    tokio::time::timeout(PATIENCE, read).await.expect("the config is read").expect("a thread").expect("a config");
    single.signal(Signal::TERM);
    assert_eq!(single.ended().await.code(), Some(0));
    assert!(!single.log().contains("stopping"), "the level is error, but the log has info lines:\n{}", single.log());
}

/// SIGHUP reloads the rates of `[quota]`: an added limit applies at once, and a removed limit no longer applies.
#[tokio::test]
async fn a_hangup_reloads_the_rates() {
    let single = Single::start("", "info");
    let client = single.client();
    client.totals().await.expect("it serves");
    let without = fs::read_to_string(single.config()).expect("a config");
    assert_eq!(refused_by_rate(&client, 100).await, 0, "there is no limit");
    fs::write(single.config(), format!("{without}[quota]\ncommands_a_second = 1\n")).expect("a config");
    single.signal(Signal::HUP);
    single.logs("reloaded the config", 1).await;
    assert!(0 < refused_by_rate(&client, 200).await, "the limit is one command a second");
    fs::write(single.config(), without).expect("a config");
    single.signal(Signal::HUP);
    single.logs("reloaded the config", 2).await;
    assert_eq!(refused_by_rate(&client, 300).await, 0, "the limit was removed");
}

/// Sends twenty commands at once. Returns how many are refused because of the rate of their namespace.
async fn refused_by_rate(client: &Client<RemoteService>, first: u128) -> usize {
    let take = |number: u128| {
        Call::new(Said::TakeLease(TakeLease {
            lock: LockKey { namespace: Namespace::default(), name: LockName::parse("a").expect("legal") },
            take: LeaseRequestId(number),
            handle: Handle::from_random(number),
            access: Mode::Shared.into(),
            lease_ms: 60_000,
            patience: Patience::Try,
            metadata: Metadata::default(),
        }))
    };
    let answers =
        futures_util::future::join_all((first..first + 20).map(|number| client.service().submit(take(number)))).await;
    let by_rate =
        |error: &ServiceError| matches!(error, ServiceError::NotSent { why: NotSent::RateExceeded { .. }, .. });
    let mut errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    let all = errors.len();
    errors.retain(by_rate);
    assert_eq!(errors.len(), all, "some commands were refused for another reason");
    all
}

/// A log that cannot be written, because its file may not grow, stops the node. One line states the cause, nothing that
/// was not written is acknowledged, and everything that was acknowledged is there after a start with free space.
#[tokio::test]
async fn a_full_disk_stops_the_node_with_one_line() {
    // `ulimit -f` limits files to 1 MiB (in units of 512 or 1,024 bytes). The signal that would end the process is
    // ignored, so that writes fail as they do on a full disk.
    let mut single = Single::start("trap '' XFSZ; ulimit -f 1024;", "error");
    let why = "w".repeat(900);
    let client = single.client().metadata(Metadata { why: why.into(), ..Metadata::default() });
    let client = client.request_wait(Duration::from_secs(2));
    let session = client.session().ttl(Duration::from_secs(600)).open().await.expect("a session");
    let mut held = Vec::new();
    for number in 0_u64.. {
        match session.lock(&format!("lock-{number}")).acquire().await {
            Ok(guard) => held.push(guard),
            Err(_) => break,
        }
        assert!(number < 20_000, "the disk does not fill");
    }
    let status = single.ended().await;
    let log = single.log();
    assert_eq!(status.code(), Some(70), "{log}");
    let lines: Vec<_> = log.lines().filter(|line| line.contains("stopped:")).collect();
    assert_eq!(lines.len(), 1, "one line states why the node stopped:\n{log}");
    eprintln!("{} locks, then: {}", held.len(), lines[0]);

    single.start_again();
    let kept = single.client().list("lock-").all().await.expect("it serves again").value;
    for guard in &held {
        let same = |row: &&LockSummary| row.lock.name == *guard.name();
        let row =
            kept.iter().find(same).unwrap_or_else(|| panic!("{} was acknowledged but has no holder", guard.name()));
        assert_eq!(row.oldest.as_ref().map(|holder| holder.token), Some(guard.token()));
    }
}
