//! Limits of `bench`.

/// Longest latency that a bench distinguishes: an hour, in microseconds.
pub const BENCH_LATENCY_US_MAX: u64 = 3_600_000_000;
/// Clients of one bench.
pub const BENCH_CLIENTS_MAX: u32 = 10_000;
/// Connections of one bench.
pub const BENCH_CONNECTIONS_MAX: u32 = 10_000;
/// Default number of connections: one for each client up to this number, as separate programs would have. More clients
/// share them.
pub const BENCH_CONNECTIONS_USUAL: u32 = 256;
/// Sessions on one connection. Each session has a stream, and calls need some more.
pub const BENCH_SESSIONS_A_CONNECTION_MAX: u32 = 4_000;
/// Pairs that one client has in flight. Each pair has one unanswered frame on its stream at a time.
pub const BENCH_IN_FLIGHT_MAX: u32 = 200;
/// Pairs that all clients have in flight.
pub const BENCH_LANES_MAX: u32 = 100_000;
/// Requests per second of an open loop.
pub const BENCH_RATE_MAX: u32 = 1_000_000;
/// Seconds of one run: a day.
pub const BENCH_SECS_MAX: u32 = 86_400;
/// Requests of an open loop that are due within this time of each other are sent together.
pub const BENCH_PACE_US_MIN: u64 = 50;
/// Sessions that are opened or closed concurrently.
pub const BENCH_OPENING_MAX: usize = 256;
/// Turns with each kind of hold, of a workload that compares two kinds.
pub const BENCH_TURNS: u32 = 2;
/// Outages that a report lists. Further ones are only counted.
pub const BENCH_NAMED_MAX: usize = 20;

const _: () = assert!(BENCH_CLIENTS_MAX <= BENCH_CONNECTIONS_USUAL * BENCH_SESSIONS_A_CONNECTION_MAX);
const _: () = assert!(BENCH_SESSIONS_A_CONNECTION_MAX < super::STREAMS_A_CONNECTION_MAX);
const _: () = assert!((BENCH_IN_FLIGHT_MAX as usize) < super::STREAM_FRAMES_IN_FLIGHT_MAX);
