//! CPU and memory of the nodes whose processes run on this machine, from `/proc`. Other nodes are reported as unknown.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cli::exposition;
use crate::cli::sockets::{listening_at, owners_of};
use crate::clock::{Clock, Instant, SystemClock};
use crate::model::Invalid;
use crate::service::Status;

/// The processes of the nodes.
#[derive(Debug, Clone)]
pub(super) struct Servers {
    /// The nodes of each process; empty if the user named the process.
    processes: BTreeMap<u32, Vec<u64>>,
    /// Nodes whose processes were not found.
    pub(super) unknown: Vec<u64>,
}

/// What the processes have used until one moment.
#[derive(Debug, Clone)]
pub(super) struct Look {
    at: Instant,
    /// CPU time in milliseconds and memory in bytes, by process. Processes that have ended are missing.
    used: BTreeMap<u32, (u64, u64)>,
    /// CPU time of this process, in milliseconds.
    own_ms: u64,
    /// The newest log entry that was applied; `None` if no node reported it.
    pub(super) applied: Option<u64>,
}

/// What one process used between two looks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Used {
    /// The nodes that run in it; empty if the user named the process.
    pub(super) nodes: Vec<u64>,
    pub(super) pid: u32,
    /// CPU time in seconds per second.
    pub(super) cores: f64,
    /// CPU time, in milliseconds.
    pub(super) cpu_ms: u64,
    /// Resident memory at the second look, in bytes.
    pub(super) memory_bytes: u64,
    /// Growth of the memory between the looks, in bytes; negative if it shrank.
    pub(super) memory_grown_bytes: i64,
}

/// What was used between two looks.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Usage {
    /// CPU time in seconds per second of this program, which generates the load.
    pub(super) client_cores: f64,
    /// CPU time in seconds per second of all nodes; null unless all of them run here.
    pub(super) server_cores: Option<f64>,
    /// CPU time of all nodes, in milliseconds; null unless all of them run here.
    pub(super) server_cpu_ms: Option<u64>,
    /// Number of entries that were added to the log; null if no node reported it.
    pub(super) log_entries: Option<u64>,
    /// The processes that are known.
    pub(super) servers: Vec<Used>,
}

impl Servers {
    /// Returns the processes that the user named, or else the processes that listen on the addresses of the nodes.
    ///
    /// # Errors
    /// Names a process that does not exist.
    pub(super) fn find(pids: &[u32], status: &Status) -> Result<Self, Invalid> {
        if !pids.is_empty() {
            if let Some(pid) = pids.iter().find(|pid| used(&pid.to_string()).is_none()) {
                return Err(Invalid::new("--pids", "processes of this machine", pid));
            }
            return Ok(Self { processes: pids.iter().map(|pid| (*pid, Vec::new())).collect(), unknown: Vec::new() });
        }
        let (mut processes, mut unknown) = (BTreeMap::<u32, Vec<u64>>::new(), Vec::new());
        let sockets: Vec<_> = status.nodes.iter().map(|node| (node.id, listening_at(&node.client))).collect();
        let owners = owners_of(&sockets.iter().filter_map(|(_, socket)| *socket).collect());
        for (id, socket) in sockets {
            match socket.and_then(|socket| owners.get(&socket)) {
                Some(pid) => processes.entry(*pid).or_default().push(id),
                None => unknown.push(id),
            }
        }
        Ok(Self { processes, unknown })
    }

    /// Reads the current usage.
    pub(super) fn look(&self) -> Look {
        let of = |pid: &u32| Some((*pid, used(&pid.to_string())?));
        let own_ms = used("self").map_or(0, |(cpu_ms, _)| cpu_ms);
        let used = self.processes.keys().filter_map(of).collect();
        Look { at: SystemClock::new().now(), used, own_ms, applied: None }
    }

    /// Returns the usage between two looks. The usage of a process that ended in between is unknown.
    pub(super) fn between(&self, first: &Look, second: &Look) -> Usage {
        let elapsed_ms = second.at.since(first.at).as_secs_f64() * 1000.0;
        let cores = |cpu_ms: u64| (cpu_ms as f64 / elapsed_ms.max(1.0) * 1000.0).round() / 1000.0;
        let one = |(pid, nodes): (&u32, &Vec<u64>)| {
            let ((cpu_before, memory_before), (cpu, memory)) = (first.used.get(pid)?, second.used.get(pid)?);
            let (cpu_ms, grown) = (cpu.saturating_sub(*cpu_before), memory.cast_signed() - memory_before.cast_signed());
            let (nodes, pid, memory_bytes) = (nodes.clone(), *pid, *memory);
            Some(Used { nodes, pid, cores: cores(cpu_ms), cpu_ms, memory_bytes, memory_grown_bytes: grown })
        };
        let servers: Vec<_> = self.processes.iter().filter_map(one).collect();
        let all = self.unknown.is_empty() && servers.len() == self.processes.len() && !servers.is_empty();
        let server_cpu_ms = all.then(|| servers.iter().map(|used| used.cpu_ms).sum::<u64>());
        let client_cores = cores(second.own_ms.saturating_sub(first.own_ms));
        let log_entries = first.applied.zip(second.applied).map(|(first, second)| second.saturating_sub(first));
        Usage { client_cores, server_cores: server_cpu_ms.map(cores), server_cpu_ms, log_entries, servers }
    }
}

impl Usage {
    /// The growth of the memory of all processes together, divided by `count`, in bytes; null if not all nodes run
    /// here.
    pub(super) fn grown_for_each(&self, count: u64) -> Option<i64> {
        self.server_cpu_ms?;
        let grown: i64 = self.servers.iter().map(|used| used.memory_grown_bytes).sum();
        Some(grown / count.max(1).cast_signed())
    }
}

/// CPU time in milliseconds and resident memory in bytes.
fn used(process: &str) -> Option<(u64, u64)> {
    let used = exposition::usage(process)?;
    Some(((used.cpu_seconds * 1_000.0) as u64, used.resident_bytes as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The usage of this process is measured, and that of a missing one is unknown.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_measured() {
        let (_, memory_bytes) = used("self").expect("it runs");
        assert!(0 < memory_bytes);
        assert_eq!(used(&u32::MAX.to_string()), None);
    }

    /// Cores are the CPU time divided by the time between two looks. If one node is unknown, the sum is unknown, too.
    #[test]
    fn usage_is_what_lies_between_two_looks() {
        let look = |ms: u64, cpu_ms, memory| Look {
            at: Instant::from_nanos(ms * 1_000_000),
            used: BTreeMap::from([(7, (cpu_ms, memory))]),
            own_ms: cpu_ms * 2,
            applied: Some(ms / 10),
        };
        let mut servers = Servers { processes: BTreeMap::from([(7, vec![1, 2])]), unknown: Vec::new() };
        let usage = servers.between(&look(1_000, 100, 5_000), &look(3_000, 600, 4_000));
        assert_eq!((usage.server_cores, usage.client_cores, usage.server_cpu_ms), (Some(0.25), 0.5, Some(500)));
        assert_eq!(usage.log_entries, Some(200));
        assert_eq!((usage.servers[0].memory_bytes, usage.servers[0].memory_grown_bytes), (4_000, -1_000));
        servers.unknown.push(3);
        assert_eq!(servers.between(&look(1_000, 100, 0), &look(3_000, 600, 0)).server_cores, None);
    }
}
