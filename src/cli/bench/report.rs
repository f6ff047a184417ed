//! The figures of a run, as an object or as tables.

use serde::Serialize;

use super::context::Bench;
use super::counters::Errors;
use super::figures::{
    AffinityFigures, Cell, DrainFigures, FailoverFigures, HandoffFigures, HeldFigures, OutageFigures, PairFigures,
    SessionFigures,
};
use super::usage::Usage;
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::clock::micros;
use crate::service::LockService;

/// The figures of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The cargo profile of this program. Figures of two different profiles cannot be compared.
    profile: &'static str,
    workload: &'static str,
    clients: u32,
    connections: u32,
    elapsed_ms: u64,
    warm_up_ms: u64,
    #[serde(flatten)]
    figures: Figures,
    #[serde(flatten)]
    pub(super) errors: Errors,
    pub(super) lost_sessions: u64,
    #[serde(flatten)]
    usage: Usage,
    /// Nodes whose CPU time and memory are unknown.
    unknown_nodes: Vec<u64>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    #[serde(flatten)]
    pub(super) pairs: Option<PairFigures>,
    #[serde(flatten)]
    pub(super) handoff: Option<HandoffFigures>,
    #[serde(flatten)]
    pub(super) drain: Option<DrainFigures>,
    #[serde(flatten)]
    pub(super) sessions: Option<SessionFigures>,
    #[serde(flatten)]
    pub(super) held: Option<HeldFigures>,
    #[serde(flatten)]
    pub(super) failover: Option<FailoverFigures>,
    #[serde(flatten)]
    pub(super) affinity: Option<AffinityFigures>,
}

impl Report {
    pub(super) fn new<S: LockService>(
        bench: &Bench<'_, S>,
        figures: Figures,
        usage: Usage,
        lost_sessions: u64,
        errors: Errors,
    ) -> Self {
        let options = bench.options;
        Self {
            profile: env!("LOCKKEEPER_PROFILE"),
            workload: options.workload.name(),
            clients: options.clients,
            connections: options.connections(),
            elapsed_ms: u64::from(options.secs) * 1000,
            warm_up_ms: micros(options.warm_up) / 1000,
            figures,
            errors,
            lost_sessions,
            usage,
            unknown_nodes: bench.servers.unknown.clone(),
        }
    }

    /// Number of operations that were measured.
    pub(super) fn counted(&self) -> u64 {
        let Figures { pairs, drain, sessions, affinity, .. } = &self.figures;
        let pairs = pairs.as_ref().map(|pairs| pairs.pairs);
        let drained = drain.as_ref().map(|drain| drain.rounds);
        let uses = affinity.as_ref().map(|affinity| affinity.cached.uses + affinity.uncached.uses);
        pairs.or(drained).or(uses).or(sessions.as_ref().map(|_| u64::from(self.clients))).unwrap_or(0)
    }

    /// Number of grants that broke a guarantee.
    pub(super) fn violations(&self) -> u64 {
        let Figures { handoff, drain, affinity, .. } = &self.figures;
        let handoff = handoff.as_ref().map(|handoff| handoff.violations);
        let drain = drain.as_ref().map(|drain| drain.out_of_order);
        handoff.or(drain).or(affinity.as_ref().map(|affinity| affinity.violations)).unwrap_or(0)
    }

    /// Prints tables of the figures and of the usage of the nodes, then notes.
    pub(super) fn print(&self, output: &Output) -> Result<(), Failure> {
        let (heading, row): (Vec<_>, Vec<_>) = self.cells().into_iter().unzip();
        output.table(&heading, &[row])?;
        if let Some(held) = &self.figures.held {
            let (heading, row): (Vec<_>, Vec<_>) = held.cells().into_iter().unzip();
            output.table(&heading, &[row])?;
        }
        if let Some(affinity) = &self.figures.affinity {
            output.table(&AffinityFigures::HEADING, &affinity.rows())?;
        }
        if let Some(failover) = &self.figures.failover {
            let rows: Vec<_> = failover.listed.iter().map(OutageFigures::row).collect();
            output.table(&["OUTAGE AT S", "FIRST SERVED MS", "HALF SERVED MS", "ALL SERVED MS"], &rows)?;
        }
        output.table(&["NODES", "PROCESS", "CORES", "MEMORY MIB"], &self.processes())?;
        self.notes().iter().try_for_each(|note| output.line(note))
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![("WORKLOAD", self.workload.to_owned()), ("CLIENTS", self.clients.to_string())];
        let Figures { pairs, handoff, drain, sessions, held: _, failover, affinity } = &self.figures;
        cells.extend(pairs.iter().flat_map(PairFigures::cells));
        cells.extend(handoff.iter().flat_map(HandoffFigures::cells));
        cells.extend(drain.iter().flat_map(DrainFigures::cells));
        cells.extend(sessions.iter().flat_map(SessionFigures::cells));
        cells.extend(failover.iter().flat_map(FailoverFigures::cells));
        cells.extend(affinity.iter().flat_map(AffinityFigures::cells));
        cells.push(("LOST", self.lost_sessions.to_string()));
        cells.push(("ERRORS", self.errors.errors.to_string()));
        cells
    }

    fn processes(&self) -> Vec<Vec<String>> {
        let cores = |cores: f64| format!("{cores:.2}");
        let used = self.usage.servers.iter().map(|used| {
            let nodes: Vec<_> = used.nodes.iter().map(u64::to_string).collect();
            let nodes = if nodes.is_empty() { "?".to_owned() } else { nodes.join(",") };
            vec![nodes, used.pid.to_string(), cores(used.cores), (used.memory_bytes >> 20).to_string()]
        });
        let own = vec!["(bench)".to_owned(), std::process::id().to_string(), cores(self.usage.client_cores)];
        used.chain([own]).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("clients built with profile {}", self.profile)];
        if !self.unknown_nodes.is_empty() {
            let nodes: Vec<_> = self.unknown_nodes.iter().map(u64::to_string).collect();
            notes.push(format!(
                "node {}: its process was not found on this machine, so its CPU and memory are unknown; --pids names processes",
                nodes.join(", ")
            ));
        }
        if let Some(first) = &self.errors.first_error {
            notes.push(format!("{} requests failed; the first one: {first}", self.errors.errors));
        }
        let unlisted = self.figures.failover.as_ref().map_or(0, FailoverFigures::unlisted);
        if unlisted != 0 {
            notes.push(format!("{unlisted} more outages, none of them longer"));
        }
        let never = self.figures.pairs.as_ref().map_or(0, |pairs| pairs.never_begun);
        if never != 0 {
            notes.push(format!(
                "the clients did not keep up with the rate: {never} pairs were due and never begun, and the latencies are too \
                 low; more clients or --in-flight may help"
            ));
        }
        notes
    }
}
