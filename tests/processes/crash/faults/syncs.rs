//! Syncs of a running node that take long, or fail: `strace` holds the call up, or answers in its place.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use super::super::world::installed;

/// What this needs.
pub(super) fn possible() -> Result<(), String> {
    installed("strace")
}

/// What becomes of each sync of a node, until this is dropped.
pub(in crate::crash) struct Syncs {
    strace: Child,
    /// What strace tells of each.
    told: NamedTempFile,
}

impl Syncs {
    /// Each takes so much longer.
    pub(in crate::crash) fn slow(node: u32, by_ms: u64) -> Self {
        Self::inject(node, &format!("delay_exit={}", by_ms * 1_000))
    }

    /// The first of each thread fails.
    pub(super) fn fail(node: u32) -> Self {
        Self::inject(node, "error=EIO:when=1")
    }

    fn inject(node: u32, what: &str) -> Self {
        let told = NamedTempFile::new().expect("a file");
        let mut strace = Command::new("strace");
        strace.arg("-o").arg(told.path());
        strace.args(["-f", "-qq", "-p", &node.to_string(), "-e", "trace=fsync,fdatasync"]);
        strace.args(["-e", &format!("inject=fsync,fdatasync:{what}")]);
        let strace = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace");
        Self { strace, told }
    }

    /// Lets go of the node, and answers how many syncs were held up.
    pub(in crate::crash) fn end(mut self) -> usize {
        self.let_go();
        let told = std::fs::read_to_string(self.told.path()).unwrap_or_default();
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
