//! Syncs of a running node that take long, or fail: `strace` holds the call up, or answers in its place.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::super::world::installed;

/// What this needs.
pub(super) fn possible() -> Result<(), String> {
    installed("strace")
}

/// What becomes of each sync of a node, until this is dropped.
pub(super) struct Syncs(Child);

impl Syncs {
    /// Each takes so much longer.
    pub(super) fn slow(node: u32, by_ms: u64) -> Self {
        Self::inject(node, &format!("delay_exit={}", by_ms * 1_000))
    }

    /// The first of each thread fails.
    pub(super) fn fail(node: u32) -> Self {
        Self::inject(node, "error=EIO:when=1")
    }

    fn inject(node: u32, what: &str) -> Self {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-p", &node.to_string(), "-e", "trace=fsync,fdatasync"]);
        strace.args(["-e", &format!("inject=fsync,fdatasync:{what}")]);
        Self(strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace"))
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        // Asked to end, it lets go of the node; it may have ended with it.
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).ok();
        }
        self.0.wait().ok();
    }
}
