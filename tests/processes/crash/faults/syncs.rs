//! Slow syncs, and failing syncs and writes, of a running node: `strace` delays a call or replaces its result.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use super::super::sandbox::installed;

/// Returns an error if `strace` is not installed, or may not trace a running process. The answer is cached.
pub(super) fn possible() -> Result<(), String> {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    installed("strace")?;
    if *POSSIBLE.get_or_init(traces) { Ok(()) } else { Err("strace may not trace a running process".to_owned()) }
}

/// Returns true if `strace` is still attached to a process when its time is over.
fn traces() -> bool {
    let mut process = Command::new("sleep").arg("60").spawn().expect("sleep");
    let mut strace = Command::new("timeout");
    strace.args(["1", "strace", "-qq", "-o", "/dev/null", "-p", &process.id().to_string()]);
    let ended = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    process.kill().and_then(|()| process.wait()).expect("ended");
    ended.is_ok_and(|ended| ended.code() == Some(124))
}

const SYNCS: &str = "fsync,fdatasync";
const WRITES: &str = "write,writev,pwrite64,pwritev";

/// A change to each sync of a node, or to each write to its log, until this is dropped.
pub(in crate::crash) struct Syncs {
    strace: Child,
    /// The output of strace.
    trace: NamedTempFile,
}

impl Syncs {
    /// Delays each sync by `by_ms` milliseconds.
    pub(in crate::crash) fn slow(node: u32, by_ms: u64) -> Self {
        Self::inject(node, SYNCS, &format!("delay_exit={}", by_ms * 1_000), &[])
    }

    /// Fails the first sync of each thread.
    pub(super) fn fail(node: u32) -> Self {
        Self::inject(node, SYNCS, "error=EIO:when=1", &[])
    }

    /// Fails the first write of each thread to the log.
    pub(super) fn fail_writes(node: u32) -> Self {
        let open = fs::read_dir(format!("/proc/{node}/fd")).expect("a process").flatten();
        let files = open.filter_map(|file| fs::read_link(file.path()).ok()?.into_os_string().into_string().ok());
        let log: Vec<_> = files.filter(|path| path.contains("/wal/")).collect();
        assert!(!log.is_empty(), "a node has its log open");
        Self::inject(node, WRITES, "error=EIO:when=1", &log)
    }

    /// Attaches strace, which injects `what` into `calls`; if `files` is not empty, only into calls on these files.
    fn inject(node: u32, calls: &str, what: &str, files: &[String]) -> Self {
        let trace = NamedTempFile::new().expect("a file");
        let mut strace = Command::new("strace");
        strace.arg("-o").arg(trace.path());
        strace.args(["-f", "-qq", "-p", &node.to_string(), "-e", &format!("trace={calls}")]);
        strace.args(["-e", &format!("inject={calls}:{what}")]);
        files.iter().for_each(|file| {
            strace.args(["-P", file]);
        });
        let strace = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace");
        Self { strace, trace }
    }

    /// Detaches from the node. Returns how many syncs were delayed.
    pub(in crate::crash) fn end(mut self) -> usize {
        self.detach();
        let trace = fs::read_to_string(self.trace.path()).unwrap_or_default();
        trace.lines().filter(|line| line.ends_with("(DELAYED)")).count()
    }

    fn detach(&mut self) {
        // On SIGTERM strace detaches from the node. It may already have ended with the node.
        if let Some(pid) = i32::try_from(self.strace.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).ok();
        }
        self.strace.wait().ok();
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        // The process id cannot be reused before it is waited for.
        if matches!(self.strace.try_wait(), Ok(None)) {
            self.detach();
        }
    }
}
