//! The options of `bench`, and their bounds.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::args::duration;
use crate::limits::{
    BENCH_CLIENTS_MAX, BENCH_CONNECTIONS_MAX, BENCH_CONNECTIONS_USUAL, BENCH_IN_FLIGHT_MAX, BENCH_LANES_MAX,
    BENCH_RATE_MAX, BENCH_SECS_MAX, BENCH_SESSIONS_A_CONNECTION_MAX, LOCKS_A_NAMESPACE_MAX, LOCKS_A_SESSION_MAX,
};
use crate::model::Invalid;

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Workload {
    /// Every client acquires and releases a separate lock, repeatedly.
    Pairs,
    /// All clients acquire the same lock, and release it at once.
    Handoff,
    /// All clients wait in the queue of one lock, which then passes through all of them, repeatedly.
    Drain,
    /// Every client only keeps its session alive.
    Sessions,
    /// Many locks are taken and kept, and pairs are made meanwhile.
    Held,
    /// Pairs, and the outages while you kill nodes or transfer leadership.
    Failover,
    /// Every client uses its own lock again and again, with cached holds and without, in turns.
    Affinity,
}

impl Workload {
    /// Its name in options and in answers.
    #[must_use]
    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Workload::Pairs => "pairs",
            Workload::Handoff => "handoff",
            Workload::Drain => "drain",
            Workload::Sessions => "sessions",
            Workload::Held => "held",
            Workload::Failover => "failover",
            Workload::Affinity => "affinity",
        }
    }

    /// Whether the number of pairs in flight and the rate of pairs can be chosen.
    fn makes_pairs(self) -> bool {
        match self {
            Workload::Pairs | Workload::Held | Workload::Failover => true,
            Workload::Handoff | Workload::Drain | Workload::Sessions | Workload::Affinity => false,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct BenchOptions {
    /// Number of clients that work at once, each with a separate session
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(BENCH_CLIENTS_MAX)), value_name = "COUNT")]
    pub(in crate::cli) clients: u32,
    /// Length of the measurement, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(BENCH_SECS_MAX)), value_name = "SECONDS")]
    pub(in crate::cli) secs: u32,
    /// Workload of the clients
    #[arg(long, value_enum, default_value = "pairs")]
    pub(in crate::cli) workload: Workload,
    /// Length of the warm-up, which does not count
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub(in crate::cli) warm_up: Duration,
    /// Begin this number of pairs a second in total, even if answers are slow (open loop); latency then counts from the
    /// time at which a pair was due [default: each client begins the next pair when the last one was answered]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(BENCH_RATE_MAX)), value_name = "COUNT")]
    pub(in crate::cli) rate: Option<u32>,
    /// Number of pairs that each client has in flight, each on a separate lock
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(BENCH_IN_FLIGHT_MAX)), value_name = "COUNT")]
    pub(in crate::cli) in_flight: u32,
    /// Number of connections that the clients share [default: one each, up to 256]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(BENCH_CONNECTIONS_MAX)), value_name = "COUNT")]
    pub(in crate::cli) connections: Option<u32>,
    /// Number of locks that are kept, with the workload held
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=LOCKS_A_NAMESPACE_MAX as i64 - i64::from(BENCH_LANES_MAX)), value_name = "COUNT")]
    pub(in crate::cli) held: u32,
    /// Share of the requests that are for the lock of another client, with the workload affinity
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100), value_name = "PERCENT")]
    pub(in crate::cli) foreign: u32,
    /// Shortest time without any answer that counts as an outage, with the workload failover
    #[arg(long, default_value = "100ms", value_parser = duration, value_name = "DURATION")]
    pub(in crate::cli) gap: Duration,
    /// Time to live of a session after its last renewal [default: as for any client]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(in crate::cli) ttl: Option<Duration>,
    /// Processes of the nodes, whose CPU and memory are reported [default: those of this machine that listen on the
    /// nodes' addresses]
    #[arg(long, value_delimiter = ',', value_name = "PID,…")]
    pub(in crate::cli) pids: Vec<u32>,
}

impl BenchOptions {
    /// Refuses contradicting options before any request is sent.
    ///
    /// # Errors
    /// Names the option, its bound and the value.
    pub(super) fn checked(&self) -> Result<(), Invalid> {
        let Self { clients, in_flight, held, foreign, rate, workload, gap, .. } = *self;
        let least = clients.div_ceil(BENCH_SESSIONS_A_CONNECTION_MAX);
        if self.connections() < least {
            let bound = format!("at least {least} for {clients} clients");
            return Err(Invalid::new("--connections", bound, self.connections()));
        }
        if clients < self.connections() {
            return Err(Invalid::new("--connections", format!("at most one a client, {clients}"), self.connections()));
        }
        let pairs = "only with the workloads pairs, held and failover";
        if !workload.makes_pairs() && in_flight != 1 {
            return Err(Invalid::new("--in-flight", pairs, in_flight));
        }
        if let Some(rate) = rate.filter(|_| !workload.makes_pairs()) {
            return Err(Invalid::new("--rate", pairs, rate));
        }
        if BENCH_LANES_MAX / clients < in_flight {
            let bound = format!("at most {BENCH_LANES_MAX} in all");
            return Err(Invalid::new("--in-flight", bound, in_flight * clients));
        }
        if foreign != 0 && workload != Workload::Affinity {
            return Err(Invalid::new("--foreign", "only with the workload affinity", foreign));
        }
        if foreign != 0 && clients < 2 {
            return Err(Invalid::new("--foreign", "0 with a single client", foreign));
        }
        let carried = u64::from(clients) * (LOCKS_A_SESSION_MAX as u64 - u64::from(in_flight));
        if workload == Workload::Held && carried < u64::from(held) {
            return Err(Invalid::new("--held", format!("at most {carried} with {clients} clients"), held));
        }
        // At a lower rate, a time without an answer would not prove an outage.
        let least = (Duration::from_secs(2) / rate.unwrap_or(u32::MAX)).max(Duration::from_millis(1));
        if workload == Workload::Failover && gap < least {
            let [least, gap] = [least, gap].map(humantime::format_duration);
            return Err(Invalid::new("--gap", format!("at least {least} at this rate"), gap));
        }
        Ok(())
    }

    /// Number of connections that the clients share.
    pub(super) fn connections(&self) -> u32 {
        self.connections.unwrap_or(self.clients.min(BENCH_CONNECTIONS_USUAL))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: BenchOptions,
    }

    fn refusal(arguments: &[&str]) -> Option<String> {
        let line = Line::try_parse_from(["bench"].iter().chain(arguments)).expect("each option is legal on its own");
        line.options.checked().err().map(|invalid| invalid.to_string())
    }

    /// Options that contradict each other are refused with the name of one, its bound and its value.
    #[test]
    fn what_does_not_go_together_is_refused() {
        for (arguments, expected) in [
            (&["--clients", "9000", "--connections", "2"][..], "--connections: at least 3 for 9000 clients, got 2"),
            (&["--clients", "2", "--connections", "3"], "--connections: at most one a client, 2, got 3"),
            (
                &["--workload", "drain", "--in-flight", "2"],
                "--in-flight: only with the workloads pairs, held and failover",
            ),
            (
                &["--workload", "handoff", "--rate", "7"],
                "--rate: only with the workloads pairs, held and failover, got 7",
            ),
            (&["--foreign", "1"], "--foreign: only with the workload affinity, got 1"),
            (
                &["--workload", "affinity", "--foreign", "50", "--clients", "1"],
                "--foreign: 0 with a single client, got 50",
            ),
            (&["--clients", "10000", "--in-flight", "11"], "--in-flight: at most 100000 in all, got 110000"),
            (&["--workload", "held", "--clients", "1"], "--held: at most 9999 with 1 clients, got 10000"),
            (&["--workload", "failover", "--gap", "0s"], "--gap: at least 1ms at this rate, got 0s"),
            (&["--workload", "failover", "--rate", "10"], "--gap: at least 200ms at this rate, got 100ms"),
        ] {
            let refusal = refusal(arguments).unwrap_or_else(|| panic!("{arguments:?} is not refused"));
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    /// The defaults are accepted. Each client has a separate connection, and very many clients share connections.
    #[test]
    fn clients_share_connections() {
        for arguments in [&[][..], &["--rate", "1000", "--in-flight", "16"], &["--workload", "held", "--held", "50000"]]
        {
            assert_eq!(refusal(arguments), None);
        }
        let connections =
            |clients| Line::try_parse_from(["bench", "--clients", clients]).unwrap().options.connections();
        assert_eq!(["1", "64", "10000"].map(connections), [1, 64, 256]);
    }
}
