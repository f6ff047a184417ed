//! A node reports to systemd when it is ready, which node leads, that it makes progress, and that it stops. These tests
//! receive the reports at a socket as systemd does.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::PATIENCE;
use crate::single_node::{SingleNode, config_of_one, free_addresses};

/// The watchdog's time. The node reports twice in it.
const WATCHDOG_MS: u64 = 200;
/// Stops the threads with this name, prints their number, and lets them continue at the end of the standard input. A
/// signal would stop all threads of the process.
const STOP_THREADS: &str = "
import ctypes, os, sys
pid, name = sys.argv[1:]
threads = [int(thread) for thread in os.listdir(f'/proc/{pid}/task')
           if open(f'/proc/{pid}/task/{thread}/comm').read().strip() == name]
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
for request in PTRACE_SEIZE, PTRACE_INTERRUPT:
    for thread in threads:
        if libc.ptrace(request, thread, None, None) != 0:
            sys.exit(f'ptrace: {os.strerror(ctypes.get_errno())}')
for thread in threads:
    os.waitpid(thread, 0x40000000)
print(len(threads), flush=True)
sys.stdin.read()
";

/// A node with the socket of its service manager.
struct Supervised {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
    node: SingleNode,
}

impl Supervised {
    /// Starts node 1 of a cluster that was founded by this number of members, of which no other one runs.
    fn start(members: u16, watchdog: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let [client, peer] = free_addresses();
        let mut config = config_of_one("test", &folder.path().join("data"), &client, &peer);
        config.extend((2..=members).map(|id| {
            let [client, peer] = free_addresses();
            format!("[[member]]\nid = {id}\nclient = {client:?}\npeer = {peer:?}\n")
        }));
        let mut program = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        program.env("NOTIFY_SOCKET", &path);
        if watchdog {
            program.env("WATCHDOG_USEC", (1_000 * WATCHDOG_MS).to_string());
        }
        let node = SingleNode::start_by(program, folder.path(), "node", &config, &client);
        Self { folder, socket, node }
    }

    /// The next report.
    fn report(&self) -> String {
        let mut bytes = [0; 1024];
        let length = self.socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{error}: {}", self.node.log()));
        String::from_utf8(bytes[..length].to_vec()).expect("a text")
    }

    /// Waits for a report with this text.
    fn report_with(&self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            let report = self.report();
            if report.contains(text) {
                return report;
            }
            assert!(begun.elapsed() < PATIENCE, "no {text} in {report}");
        }
    }

    /// Forgets the reports that have arrived.
    fn forget(&self) {
        self.socket.set_nonblocking(true).expect("a mode");
        while self.socket.recv(&mut [0; 1024]).is_ok() {}
        self.socket.set_nonblocking(false).expect("a mode");
    }
}

/// Threads of a process that do not run until this is dropped.
struct Stopped(Child);

impl Stopped {
    /// Stops the threads with this name. If Python or the kernel does not permit that, prints so and returns `None`, or
    /// fails if no fault may be skipped.
    fn threads(process: u32, name: &str) -> Option<Self> {
        let mut program = Command::new("python3");
        program.args(["-c", STOP_THREADS, &process.to_string(), name]);
        let mut stopped = Self(program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?);
        let mut count = String::new();
        let output = stopped.0.stdout.as_mut().expect("its output");
        BufReader::new(output).read_line(&mut count).expect("a line");
        if count.trim().parse::<usize>().is_ok_and(|count| 0 < count) {
            return Some(stopped);
        }
        assert!(std::env::var_os("LOCKKEEPER_SKIP_NO_FAULT").is_none(), "the threads {name} cannot be stopped");
        eprintln!("SKIPPED: the threads {name} cannot be stopped here");
        None
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().ok();
    }
}

/// A node reports that it is ready, then that it leads; the begin and the end of a reload; and that it stops.
#[tokio::test]
async fn a_node_reports_what_it_does() {
    let mut supervised = Supervised::start(1, false);
    let first = supervised.report();
    assert!(first.contains("READY=1\n") && first.contains("STATUS=node 1 "), "{first}");
    if !first.contains("STATUS=node 1 leads\n") {
        supervised.report_with("STATUS=node 1 leads\n");
    }
    supervised.node.signal(Signal::HUP);
    supervised.report_with("RELOADING=1\nMONOTONIC_USEC=");
    assert_eq!(supervised.report(), "READY=1\n");
    supervised.node.signal(Signal::TERM);
    supervised.report_with("STOPPING=1\nSTATUS=stopping\n");
    assert_eq!(supervised.node.await_end().await, Some(0));
}

/// A node that waits for other nodes is ready, and reports that it waits.
#[tokio::test]
async fn a_node_without_a_quorum_is_ready() {
    let mut supervised = Supervised::start(3, false);
    let first = supervised.report();
    assert_eq!(first, "READY=1\nSTATUS=node 1 waits for other nodes: there is no leader with a quorum\n");
    supervised.node.signal(Signal::TERM);
    supervised.report_with("STOPPING=1\nSTATUS=stopping\n");
    assert_eq!(supervised.node.await_end().await, Some(0));
}

/// The watchdog is fed while the threads of Raft run, and not while only the other threads of the node do.
#[test]
fn the_watchdog_is_fed_by_raft() {
    let supervised = Supervised::start(1, true);
    supervised.report_with("STATUS=node 1 leads\n");
    for _ in 0..3 {
        supervised.report_with("WATCHDOG=1\n");
    }
    let Some(stopped) = Stopped::threads(supervised.node.process(), "lockkeeper-n1") else { return };
    supervised.forget();
    supervised.socket.set_read_timeout(Some(Duration::from_millis(5 * WATCHDOG_MS))).expect("a time");
    // Raft may have answered once more just before its thread stopped.
    let reports = std::iter::from_fn(|| supervised.socket.recv(&mut [0; 1024]).ok()).take(2).count();
    assert!(reports < 2, "reports while Raft is stopped");
    supervised.socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    drop(stopped);
    supervised.report_with("WATCHDOG=1\n");
}

/// A socket that does not exist is a warning, and the node serves.
#[tokio::test]
async fn a_missing_socket_is_a_warning() {
    let mut supervised = Supervised::start(1, false);
    supervised.report();
    fs::remove_file(supervised.folder.path().join("notify")).expect("removed");
    supervised.forget();
    supervised.node.signal(Signal::TERM);
    assert_eq!(supervised.node.await_end().await, Some(0));
    assert!(supervised.node.log().contains("check NOTIFY_SOCKET"), "{}", supervised.node.log());
}
