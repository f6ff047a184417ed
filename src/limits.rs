//! Every bound and interval of lockkeeper, with its unit last in the name.
//!
//! A number that limits a queue, a name, a wait or a batch stands here and nowhere else, so that a reader can
//! weigh them against each other; relations that must hold between them are checked by the compiler below.

// Names and texts.

/// Longest namespace, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 64;
/// Longest lock name, in bytes of UTF-8.
pub const LOCK_NAME_BYTES_MAX: usize = 255;
/// Longest handle, in bytes.
pub const HANDLE_BYTES_MAX: usize = 128;
/// Longest owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 128;
/// Longest principal, in bytes.
pub const PRINCIPAL_BYTES_MAX: usize = 128;
/// All fields of a request's metadata together, in bytes.
pub const METADATA_BYTES_MAX: usize = 1024;

// Times of the lock machine, in milliseconds of log time.

/// The cluster's longest TTL and lease when nothing else was set.
pub const TTL_MS_MAX_DEFAULT: u64 = 10 * 60 * 1000;
/// The longest TTL that a cluster may allow: it is what a restore has to wait.
pub const TTL_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// The shortest lease of a lock or token lease.
pub const LEASE_MS_MIN: u64 = 1;
/// The shortest default TTL of a session.
pub const TTL_MS_DEFAULT_MIN: u64 = 10_000;
/// The longest wait that a request may ask for: a week.
pub const PATIENCE_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1000;
/// How long an ended session is remembered with its reason.
pub const TOMBSTONE_MS: u64 = 10 * 60 * 1000;
/// How long the outcome of a sessionless request is remembered after its lease ended.
pub const SESSIONLESS_MEMORY_MS: u64 = 10 * 60 * 1000;
/// A sessionless request that has been under way for longer is refused, never executed.
pub const SESSIONLESS_AGE_MS_MAX: u64 = 10 * 60 * 1000;

// Sizes of the lock machine.

/// Finished requests remembered for one session.
pub const REQUESTS_REMEMBERED_MAX: usize = 1024;
/// Waiters in one lock's queue.
pub const WAITERS_A_LOCK_MAX: usize = 10_000;
/// Waiters in one namespace.
pub const WAITERS_A_NAMESPACE_MAX: usize = 100_000;
/// Locks with at least one holder or waiter in one namespace.
pub const LOCKS_A_NAMESPACE_MAX: usize = 1_000_000;
/// Sessions in one namespace, tombstones included.
pub const SESSIONS_A_NAMESPACE_MAX: usize = 100_000;
/// Locks that one session holds or waits for.
pub const LOCKS_A_SESSION_MAX: usize = 10_000;
/// Holders of one shared lock or semaphore.
pub const HOLDERS_A_LOCK_MAX: usize = 100_000;
/// Most permits of one semaphore.
pub const PERMITS_MAX: u32 = (1 << 31) - 1;
/// Holds, waiters and sessions ended by the sweep of one entry; a session is never ended in part.
pub const SWEEP_AN_ENTRY_MAX: usize = 4_096;
/// Rows on one page of a listing.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Renewals in one entry.
pub const RENEWALS_AN_ENTRY_MAX: usize = 4_096;

// Tokens.

/// Bits of a fencing token and of a session id that count; the epoch stands above them.
pub const COUNTER_BITS: u32 = 48;
/// Largest cluster epoch: 15 bits, so that a token fits a signed 64-bit column.
pub const EPOCH_MAX: u16 = (1 << 15) - 1;

// The leader's clock and proposer.

/// Smallest cap on one advance of log time.
pub const LOG_TIME_CAP_MS_MIN: u64 = 500;
/// While any deadline exists a stamp is proposed at least this often.
pub const TICK_MS_MAX: u64 = 250;
/// Margin for clock-rate errors that a client takes off its validity, in thousandths of (E - L).
pub const DRIFT_MARGIN_PERMILLE: u64 = 10;
/// Commands in one entry.
pub const COMMANDS_AN_ENTRY_MAX: usize = 1_024;
/// Encoded size of one entry, about.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Commands that may wait for the proposer.
pub const PROPOSALS_WAITING_MAX: usize = 16_384;
/// Entries that the proposer has in flight.
pub const ENTRIES_IN_FLIGHT_MAX: usize = 2;
/// The pause that an overloaded node asks for.
pub const OVERLOADED_PAUSE_MS: u64 = 50;
/// The longest that a submitted command waits for its commit before it is answered *unknown*.
pub const COMMIT_WAIT_MS_MAX: u64 = 5_000;
/// Uncounted log time within [`UNCOUNTED_WINDOW_MS`] above which a leader hands over.
pub const UNCOUNTED_MS_MAX: u64 = 2_000;
/// The window in which uncounted log time is summed.
pub const UNCOUNTED_WINDOW_MS: u64 = 60_000;
/// A leader hands over for uncounted time at most this often.
pub const UNCOUNTED_HANDOVER_MS_MIN: u64 = 10 * 60 * 1000;
/// State digests are compared between nodes at multiples of this many log entries.
pub const DIGEST_EVERY_ENTRIES: u64 = 4_096;

// Events.

/// Events that a node keeps for subscribers that resume.
pub const EVENTS_KEPT_MAX: usize = 65_536;
/// Events that may wait for one slow subscriber before it is cut.
pub const EVENTS_WAITING_MAX: usize = 4_096;

/// Founding members of a cluster.
pub const MEMBERS_MAX: usize = 15;

// Timing profiles: heartbeat, shortest and longest election timeout; and the shortest TTL of a session with each.

/// `lan`: one site.
pub const LAN_TIMING_MS: [u64; 3] = [50, 150, 300];
/// Shortest TTL with `lan`.
pub const LAN_TTL_MS_MIN: u64 = 3_000;
/// `fast`: loopback and tests.
pub const FAST_TIMING_MS: [u64; 3] = [30, 100, 150];
/// Shortest TTL with `fast`.
pub const FAST_TTL_MS_MIN: u64 = 1_000;
/// `wan`: between sites.
pub const WAN_TIMING_MS: [u64; 3] = [500, 2_500, 5_000];
/// Shortest TTL with `wan`.
pub const WAN_TTL_MS_MIN: u64 = 36_000;
/// Longest election timeout that may be set by hand.
pub const ELECTION_MS_MAX: u64 = 60_000;
/// With a timing set by hand, the shortest TTL in longest election timeouts: a failover and room for two more.
pub const TTL_MIN_IN_ELECTIONS: u64 = 10;

// Client.

/// A session is renewed this many times within its TTL.
pub const RENEWALS_A_TTL: u64 = 3;
/// Unanswered renewals of one session; late answers to them still count.
pub const RENEWALS_IN_FLIGHT_MAX: usize = 8;
/// The client's clock is read at least this often while something is awaited, for timers do not count suspend.
pub const CLOCK_LOOK_MS_MAX: u64 = 1_000;
/// First pause between two tries.
pub const RETRY_MS_MIN: u64 = 10;
/// Longest pause between two tries.
pub const RETRY_MS_MAX: u64 = 1_000;
/// Connecting plus one request, when the caller set no other bound.
pub const REQUEST_MS_DEFAULT: u64 = 5_000;

// Command line.

/// A lock's command is ended this much before its hold could run out, besides the time for ending it in order.
pub const LOSS_MARGIN_MS: u64 = 50;
/// First pause between two looks whether a process group is gone.
pub const GROUP_POLL_MS_MIN: u64 = 1;
/// Longest pause between two looks whether a process group is gone.
pub const GROUP_POLL_MS_MAX: u64 = 100;
/// A second TERM leaves this part of the time before the kill.
pub const HURRY_FACTOR: u32 = 4;
/// Progress is drawn anew so often.
pub const PROGRESS_TICK_MS: u64 = 250;
/// A stop signal to oneself has taken effect after this, or never will.
pub const STOP_SETTLES_MS: u64 = 100;

const _: () = assert!(2 * TICK_MS_MAX <= LOG_TIME_CAP_MS_MIN, "a tick rarer than half the cap would slow log time");
const _: () = assert!(COUNTER_BITS + 15 == 63, "a token must fit a signed 64-bit column");
const _: () = assert!(TTL_MS_MAX_DEFAULT <= TTL_MS_MAX);
const _: () = assert!(WAITERS_A_LOCK_MAX <= WAITERS_A_NAMESPACE_MAX);
const _: () = assert!(SESSIONLESS_AGE_MS_MAX <= SESSIONLESS_MEMORY_MS, "a late duplicate must still be remembered");
const _: () = assert!(ELECTION_MS_MAX * TTL_MIN_IN_ELECTIONS <= TTL_MS_MAX, "the floor of a TTL must be allowed");
