//! Syncs of a running node that take long, syncs and writes that fail: `strace` holds the call up, or answers in its place.

use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use super::super::world::installed;

/// What this needs.
pub(super) fn possible() -> Result<(), String> {
    installed("strace")
}

const SYNCS: &str = "fsync,fdatasync";
const WRITES: &str = "write,writev,pwrite64,pwritev";

/// What becomes of each sync of a node, or write to its log, until this is dropped.
pub(in crate::crash) struct Syncs {
    strace: Child,
    /// What strace tells of each.
    told: NamedTempFile,
}

impl Syncs {
    /// Each takes so much longer.
    pub(in crate::crash) fn slow(node: u32, by_ms: u64) -> Self {
        Self::inject(node, SYNCS, &format!("delay_exit={}", by_ms * 1_000), &[])
    }

    /// The first of each thread fails.
    pub(super) fn fail(node: u32) -> Self {
        Self::inject(node, SYNCS, "error=EIO:when=1", &[])
    }

    /// The first write of each thread to the log fails.
    pub(super) fn fail_writes(node: u32) -> Self {
        let open = fs::read_dir(format!("/proc/{node}/fd")).expect("a process").flatten();
        let files = open.filter_map(|file| fs::read_link(file.path()).ok()?.into_os_string().into_string().ok());
        let log: Vec<_> = files.filter(|path| path.contains("/wal/")).collect();
        assert!(!log.is_empty(), "a node has its log open");
        Self::inject(node, WRITES, "error=EIO:when=1", &log)
    }

    /// Does this to calls, of these files only where any are named.
    fn inject(node: u32, calls: &str, what: &str, files: &[String]) -> Self {
        let told = NamedTempFile::new().expect("a file");
        let mut strace = Command::new("strace");
        strace.arg("-o").arg(told.path());
        strace.args(["-f", "-qq", "-p", &node.to_string(), "-e", &format!("trace={calls}")]);
        strace.args(["-e", &format!("inject={calls}:{what}")]);
        files.iter().for_each(|file| {
            strace.args(["-P", file]);
        });
        let strace = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace");
        Self { strace, told }
    }

    /// Lets go of the node, and answers how many syncs were held up.
    pub(in crate::crash) fn end(mut self) -> usize {
        self.let_go();
        let told = fs::read_to_string(self.told.path()).unwrap_or_default();
        told.lines().filter(|line| line.ends_with("(DELAYED)")).count()
    }

    fn let_go(&mut self) {
        // Asked to end, it lets go of the node; it may have ended with it.
        if let Some(pid) = i32::try_from(self.strace.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).ok();
        }
        self.strace.wait().ok();
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        // Its number belongs to nobody else as long as it was not waited for.
        if matches!(self.strace.try_wait(), Ok(None)) {
            self.let_go();
        }
    }
}
