//! A sandbox for three nodes: each node has a network namespace with a link to the clients, a disk in a file, and a
//! limited share of the processors. The sandbox belongs to the namespaces of one process and is removed when that
//! process ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::faults::{clocks, disks, links, starve};
use crate::cluster::Place;

/// Set in the process that runs inside the sandbox, to a file in which this process says that it does.
const INSIDE: &str = "LOCKKEEPER_INSIDE";
/// With this variable set, a fault that the machine does not support fails the run instead of being skipped.
const SKIP_NO_FAULT: &str = "LOCKKEEPER_SKIP_NO_FAULT";
/// Separate namespaces for the network, mounts and processes. The last one makes sure that no process is left.
pub(crate) const UNSHARE: [&str; 6] = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// A script that tries everything that a sandbox needs: a link between namespaces, a rule that drops packets, and a
/// file system in a file.
const PROBE: &str = "mkdir -p /run/netns; mount -t tmpfs none /run/netns; ip netns add probe
    ip link add probe type veth peer name eth0 netns probe; ip rule add from 10.77.0.2 to 10.77.0.3 blackhole
    truncate -s 4M /run/netns/disk; mkfs.ext4 -q -F /run/netns/disk; mkdir /run/netns/mounted
    mount -o loop /run/netns/disk /run/netns/mounted; umount /run/netns/mounted";

/// Returns an error if this machine cannot create a sandbox. The answer is cached.
pub(super) fn possible() -> Result<(), String> {
    static POSSIBLE: OnceLock<Result<(), String>> = OnceLock::new();
    let probe = || {
        let tried = Command::new("unshare").args(UNSHARE).args(["sh", "-ec", PROBE]).stdin(Stdio::null()).output();
        match tried {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(format!("cannot start unshare: {error}")),
        }
    };
    if inside() { Ok(()) } else { POSSIBLE.get_or_init(probe).clone() }
}

pub(crate) fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program again inside a sandbox with these arguments and waits for its end. Returns false if it already
/// runs there.
pub(crate) fn enter(arguments: &[&str]) -> bool {
    if let Some(entered) = std::env::var_os(INSIDE) {
        fs::write(entered, "entered").expect("a file");
        return false;
    }
    let entered = tempfile::NamedTempFile::new().expect("a file");
    let mut process = Command::new("unshare");
    process.args(UNSHARE).arg(std::env::current_exe().expect("this program")).args(arguments);
    let ended = process.env(INSIDE, entered.path()).stdin(Stdio::null()).status().expect("unshare starts");
    assert!(ended.success(), "the run in the sandbox failed: {ended}; its output is above");
    // A test binary also succeeds if it has no test with the name in the arguments.
    let entered = fs::read(entered.path()).expect("a file");
    assert!(!entered.is_empty(), "nothing ran in the sandbox: {arguments:?}");
    true
}

/// Prints what is skipped and why.
pub(crate) fn skipped(what: &str, why: &str) {
    eprintln!("SKIPPED {what}: {why}");
    assert!(std::env::var_os(SKIP_NO_FAULT).is_none(), "{what} is not supported here, and {SKIP_NO_FAULT} is set");
}

/// Runs a command that must succeed. Returns its standard output.
pub(super) fn tool(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}", stderr.trim());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns an error if a program is not installed.
pub(super) fn installed(program: &str) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    if found { Ok(()) } else { Err(format!("{program} is not installed")) }
}

/// The networks, disks and processor limits of three nodes.
pub(super) struct Sandbox {
    folder: tempfile::TempDir,
}

impl Sandbox {
    /// Creates the sandbox inside the process that has the namespaces.
    pub(super) fn build() -> Self {
        let sandbox = Self { folder: tempfile::tempdir().expect("a folder") };
        links::build();
        disks::build(sandbox.folder());
        clocks::build(sandbox.folder());
        sandbox
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where each node runs, how it is started, and where its data is.
    pub(super) fn places(&self) -> [Place; 3] {
        [1, 2, 3].map(|node| Place {
            host: links::host(node),
            data: Some(disks::mounted(self.folder(), node).join("data")),
            launcher: links::launcher(node),
            environment: clocks::environment(self.folder(), node),
            peer_port: None,
        })
    }

    /// The control group of a node, if it can be created.
    pub(super) fn share(&self, node: usize) -> Option<PathBuf> {
        starve::group(self.folder(), node)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        (1..=3).for_each(|node| disks::unmount(self.folder(), node));
        starve::remove(self.folder());
    }
}
