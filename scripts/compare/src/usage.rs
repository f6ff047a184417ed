//! What was used between two looks at `/proc`: by the servers, by this program, and by everybody else on the machine.

use std::fs;
use std::time::Instant;

use rustix::param::{clock_ticks_per_second, page_size};
use serde::Serialize;

/// The parent of all kernel threads: their work is that of whoever writes and sends, so it is nobody's noise.
const KERNEL: u32 = 2;

/// Counters at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    at: Instant,
    servers: u64,
    own: u64,
    kernel: u64,
    busy: u64,
    stolen: u64,
    memory_bytes: u64,
}

/// CPU in cores (CPU seconds a second) and memory.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Usage {
    pub(crate) servers: f64,
    pub(crate) own: f64,
    /// Programs that have nothing to do with the measurement, and what the hypervisor took.
    pub(crate) foreign: f64,
    /// CPU time of the servers.
    pub(crate) servers_cpu_us: f64,
    /// By how much the servers' resident memory grew.
    pub(crate) grown_bytes: f64,
}

impl Look {
    /// Now, with these processes as the servers.
    pub(crate) fn now(servers: &[u32]) -> Self {
        let own = std::process::id();
        let (mut sums, mut memory_bytes) = ([0; 3], 0);
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let Some(Process { parent, ticks, ended_ticks, memory }) = process(pid) else { continue };
            if servers.contains(&pid) {
                sums[0] += ticks;
                memory_bytes += memory;
            } else if pid == own {
                sums[1] += ticks;
                // Servers that were killed: without them what they had used would be somebody else's.
                sums[0] += ended_ticks;
            } else if pid == KERNEL || parent == KERNEL {
                sums[2] += ticks;
            }
        }
        let (busy, stolen) = machine();
        let [servers, own, kernel] = sums;
        Self { at: Instant::now(), servers, own, kernel, busy, stolen, memory_bytes }
    }

    /// What was used since.
    pub(crate) fn until(&self, later: &Look) -> Usage {
        let seconds = later.at.duration_since(self.at).as_secs_f64().max(0.001);
        let ticks = |from: u64, to: u64| to.saturating_sub(from) as f64 / clock_ticks_per_second() as f64;
        let servers = ticks(self.servers, later.servers);
        let own = ticks(self.own, later.own);
        let kernel = ticks(self.kernel, later.kernel);
        let others =
            (ticks(self.busy, later.busy) - servers - own - kernel).max(0.0) + ticks(self.stolen, later.stolen);
        Usage {
            servers: servers / seconds,
            own: own / seconds,
            foreign: others / seconds,
            servers_cpu_us: servers * 1e6,
            grown_bytes: later.memory_bytes as f64 - self.memory_bytes as f64,
        }
    }
}

/// What one process has used.
struct Process {
    parent: u32,
    ticks: u64,
    /// Of its children that have ended and were waited for.
    ended_ticks: u64,
    /// Resident bytes.
    memory: u64,
}

fn process(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        parent: u32::try_from(number(1)?).ok()?,
        ticks: number(11)? + number(12)?,
        ended_ticks: number(13)? + number(14)?,
        memory: number(21)? * page_size() as u64,
    })
}

/// Busy and stolen ticks of the whole machine. Interrupts are left out: they are billed to nobody.
fn machine() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> =
        stat.lines().next().unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or(0);
    (field(0) + field(1) + field(2), field(7))
}
