//! CPU and memory between two samples of `/proc`: of the servers, of this program, and of other programs.

use std::fs;
use std::time::Instant;

use rustix::param::{clock_ticks_per_second, page_size};
use serde::Serialize;

/// The parent of all kernel threads. Their work belongs to the programs that write and send, so it is not counted as a
/// disturbance.
const KERNEL: u32 = 2;

/// The counters at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
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
    /// CPU of unrelated programs, and CPU time that the hypervisor took.
    pub(crate) foreign: f64,
    /// CPU time of the servers.
    pub(crate) servers_cpu_us: f64,
    /// The growth of the servers' resident memory.
    pub(crate) grown_bytes: f64,
}

impl Sample {
    /// Reads the counters now, with these processes as the servers.
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
                // Ended children are killed servers, whose CPU time would otherwise count as that of other programs.
                sums[0] += ended_ticks;
            } else if pid == KERNEL || parent == KERNEL {
                sums[2] += ticks;
            }
        }
        let (busy, stolen) = machine();
        let [servers, own, kernel] = sums;
        Self { at: Instant::now(), servers, own, kernel, busy, stolen, memory_bytes }
    }

    /// The usage between this sample and a later one.
    pub(crate) fn until(&self, later: &Sample) -> Usage {
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

/// The usage of one process.
struct Process {
    parent: u32,
    ticks: u64,
    /// The ticks of children that have ended and were waited for.
    ended_ticks: u64,
    /// Resident memory in bytes.
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

/// Busy and stolen ticks of the whole machine, without interrupts, which belong to no process.
fn machine() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> =
        stat.lines().next().unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or(0);
    (field(0) + field(1) + field(2), field(7))
}
