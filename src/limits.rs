//! Every bound and interval of lockkeeper, with its unit last in the name.
//!
//! A number that limits a queue, a name, a wait or a batch stands here and nowhere else, so that a reader can
//! weigh them against each other; relations that must hold between them are checked by the compiler below.

mod bench;
mod cycles;
mod command_line;
mod history;
mod members;
mod net;
mod raft;
mod rpc;
mod systems;
mod tables;

pub use bench::*;
pub use command_line::*;
pub use cycles::*;
pub use history::*;
pub use members::*;
pub use net::*;
pub use raft::*;
pub use rpc::*;
pub use systems::*;
pub use tables::*;

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
/// Longest reason given by somebody who acts on others' locks, in bytes.
pub const REASON_BYTES_MAX: usize = 512;
/// Longest version that a node announces, in bytes.
pub const VERSION_BYTES_MAX: usize = 64;
/// Longest address that a node announces, in bytes: a DNS name and a port.
pub const ADDRESS_BYTES_MAX: usize = 260;
/// The feature level of a cluster that was never raised.
pub const FEATURE_LEVEL_MIN: u32 = 1;
/// What this build supports: commands and answers up to this feature level.
pub const FEATURE_LEVEL: u32 = 1;

const _: () = assert!(FEATURE_LEVEL_MIN <= FEATURE_LEVEL, "a build must be able to found a cluster");

// Times of the lock machine, in milliseconds of log time.

/// The cluster's longest TTL and lease when nothing else was set.
pub const TTL_MS_MAX_DEFAULT: u64 = 10 * 60 * 1000;
/// The longest TTL that a cluster may allow: it is what a restore has to wait.
pub const TTL_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// The longest that a name stays closed after an involuntary end.
pub const LOCK_DELAY_MS_MAX: u64 = 60_000;
/// The longest that an acquire may ask a lock to stay closed, counted from its grant.
pub const AT_LEAST_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// The longest that an acquire may ask its hold to last.
pub const AT_MOST_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// A try that would be first behind a cached hold waits so long for its session to give it back.
pub const TRY_BEHIND_CACHED_MS: u64 = 250;
/// The shortest lease of a lock or token lease.
pub const LEASE_MS_MIN: u64 = 1;
/// The shortest default TTL of a session.
pub const TTL_MS_DEFAULT_MIN: u64 = 10_000;
/// The longest wait that a request may ask for: a week.
pub const PATIENCE_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1000;
/// How long an ended session is remembered with its reason.
pub const TOMBSTONE_MS: u64 = 10 * 60 * 1000;
/// How long the outcome of a sessionless request is remembered after it was refused, withdrawn, or its lease ended.
pub const SESSIONLESS_MEMORY_MS: u64 = 10 * 60 * 1000;
/// A sessionless request that is not known is refused, never executed, once more log time has passed since its caller
/// first sent it.
pub const SESSIONLESS_AGE_MS_MAX: u64 = 10 * 60 * 1000;

/// From here on, where the top 32 bits are all ones, lease request ids are reserved: callers are refused them.
pub const LEASE_REQUESTS_RESERVED_FROM: u128 = u128::MAX << 96;

// Sizes of the lock machine.

/// Finished requests remembered for one session.
pub const REQUESTS_REMEMBERED_MAX: usize = 1024;
/// Waiters in one lock's queue.
pub const WAITERS_A_LOCK_MAX: usize = 10_000;
/// Waiters in one namespace.
pub const WAITERS_A_NAMESPACE_MAX: usize = 100_000;
/// Locks with at least one holder or waiter in one namespace.
pub const LOCKS_A_NAMESPACE_MAX: usize = 1_000_000;
/// Takes in one namespace: those that wait or hold, and those whose outcome is still remembered. A memory of a take is a
/// few hundred bytes; with [`SESSIONLESS_MEMORY_MS`] this allows some eight hundred takes a second for ever.
pub const TAKES_A_NAMESPACE_MAX: usize = 500_000;
/// Sessions in one namespace, tombstones included.
pub const SESSIONS_A_NAMESPACE_MAX: usize = 100_000;
/// Locks that one session holds or waits for.
pub const LOCKS_A_SESSION_MAX: usize = 10_000;
/// Holders of one shared lock or semaphore.
pub const HOLDERS_A_LOCK_MAX: usize = 100_000;
/// Request numbers from here on are the cluster's own: for holds that were handed over to a session that did not ask.
pub const OWN_REQUESTS_MIN: u64 = 1 << 63;
/// Locks that one request may ask for together.
pub const LOCKS_A_SET_MAX: usize = 64;
/// Waits that one explanation tells; the rest is left out, and that is said.
pub const EXPLAINED_WAITS_MAX: usize = 64;
/// What an explanation tells of what stands in the way of one wait, at one lock and in all.
pub const EXPLAINED_OBSTACLES_MAX: usize = 8;
/// How often one hold may be entered by its owner.
pub const HOLD_DEPTH_MAX: usize = 1_000;
/// A session that stands at more locks than these is not searched for one of them when it is only asked whether an acquire of
/// its own can wait a moment.
pub const CLAIMS_LOOKED_AT_MAX: usize = 16;
/// Different numbers of permits that one grant looks at among barging waiters, the smallest ones: of those that want more,
/// none is granted while one of these could be.
pub const BARGING_WANTS_LOOKED_AT_MAX: usize = 64;
/// Most permits of one semaphore.
pub const PERMITS_MAX: u32 = (1 << 31) - 1;
/// Holds, waiters and sessions ended by the sweep of one entry; a session is never ended in part.
pub const SWEEP_AN_ENTRY_MAX: usize = 4_096;
/// Queues that are looked at together when the time without grants after a restore is over; a sweep goes on with more of
/// them until it has done [`SWEEP_AN_ENTRY_MAX`] steps.
pub const QUEUES_OPENED_AT_ONCE_MAX: usize = 1_024;
/// Rows on one page of a listing.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Renewals in one entry.
pub const RENEWALS_AN_ENTRY_MAX: usize = 4_096;

// Calls of programs without a stream.

/// Acquires of one node that wait within their calls, and cancels of those whose callers went away.
pub const UNARY_CLAIMS_MAX: usize = 16_384;
/// Random bits of the number that a node draws for a session's request; log time in milliseconds stands above them, for 69 years.
pub const DRAWN_REQUEST_RANDOM_BITS: u32 = 16;
/// Bits of that number, at its end, that are of the node's id.
pub const DRAWN_REQUEST_NODE_BITS: u32 = 6;

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
/// One entry, in bytes, as far as they can be estimated before it is encoded; far below what goes into one message between
/// nodes.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Commands that may wait for the proposer.
pub const PROPOSALS_WAITING_MAX: usize = 16_384;
/// After an entry which served this many callers the next one waits a moment for most of those who may come. With 64 clients
/// on two cores that makes entries of 55 commands, where no waiting made 17; a fifth more pairs than with entries of 37.
pub const GATHER_COMMANDS_MIN: usize = 8;
/// That moment, at most; where entries take less, it is as long as the last one took.
pub const GATHER_MS_MAX: u64 = 2;
/// Sessions are renewed in entries of their own this far from the entry before, so that many share one: far below the sixth
/// of a TTL after which a client asks another node.
pub const RENEWALS_APART_MS: u64 = 50;
/// Acquires that would only join a queue do not leave alone this soon after an entry: where a lock goes from hand to hand, who
/// has just given it back asks again while the next one is about to give it back, and both go into one entry. With 16 and 128
/// clients that is one entry a hand-over, where it was four for three.
pub const QUEUERS_APART_MS: u64 = 2;
/// The proposer looks at so many commands at most to see whether they would only join a queue.
pub const QUEUERS_LOOKED_AT_MAX: usize = 8;
/// So many callers of such an entry are told at once, while the commands of the next are being executed.
pub const ANSWERS_AT_ONCE: usize = 16;
/// Entries that the proposer has in flight. Under load it is one: while it is on its way everything else gathers for the
/// next, so load makes entries larger and not more numerous, and an entry costs far more than a command in it. A second one
/// in flight cost a tenth to a quarter of the pairs with 64 clients on two cores.
pub const ENTRIES_IN_FLIGHT_MAX: usize = 2;
/// A second entry may be in flight only while the first carries at most this many commands: a client that passes a lock on does
/// not wait for what another began a moment before.
pub const FEW_IN_FLIGHT: usize = 2;
/// The pause that an overloaded node asks for.
pub const OVERLOADED_PAUSE_MS: u64 = 50;
/// The longest that a submitted command waits for its commit before it is answered *unknown*. Short enough for a caller to
/// ask again within the patience of one request: the node that keeps it waiting may lead no longer.
pub const COMMIT_WAIT_MS_MAX: u64 = 2_000;
/// Uncounted log time within [`UNCOUNTED_WINDOW_MS`] above which a leader hands over.
pub const UNCOUNTED_MS_MAX: u64 = 2_000;
/// The window in which uncounted log time is summed.
pub const UNCOUNTED_WINDOW_MS: u64 = 60_000;
/// A leader hands over for uncounted time at most this often.
pub const UNCOUNTED_HANDOVER_MS_MIN: u64 = 10 * 60 * 1000;

// Events.

/// Events that a node keeps for subscribers that resume.
pub const EVENTS_KEPT_MAX: usize = 65_536;
/// Events that may wait for one slow subscriber before it is cut.
pub const EVENTS_WAITING_MAX: usize = 4_096;
/// News of one session's holds that may wait for a slow reader before it is cut.
pub const HOLD_NEWS_WAITING_MAX: usize = 64;

/// Founding members of a cluster.
pub const MEMBERS_MAX: usize = 15;

// Timing profiles: heartbeat, shortest and longest election timeout; and the shortest TTL of a session with each.

/// `lan`: one site.
pub const LAN_TIMING_MS: [u64; 3] = [50, 150, 300];
/// Shortest TTL with `lan`.
pub const LAN_TTL_MS_MIN: u64 = 3_000;
/// `fast`: loopback and tests.
pub const FAST_TIMING_MS: [u64; 3] = [30, 90, 120];
/// Shortest TTL with `fast`.
pub const FAST_TTL_MS_MIN: u64 = 1_000;
/// `wan`: between sites.
pub const WAN_TIMING_MS: [u64; 3] = [500, 2_500, 5_000];
/// Shortest TTL with `wan`.
pub const WAN_TTL_MS_MIN: u64 = 36_000;
/// The shortest TTL is so many times what a failover may take; a disconnect grace is at least that.
pub const TTL_MIN_IN_FAILOVERS: u64 = 3;
/// Longest election timeout that may be set by hand.
pub const ELECTION_MS_MAX: u64 = 60_000;
/// With a timing set by hand, the shortest TTL in longest election timeouts: a failover and room for two more.
pub const TTL_MIN_IN_ELECTIONS: u64 = 10;

// Client.

/// A session is renewed this many times within its TTL.
pub const RENEWALS_A_TTL: u64 = 3;
/// Moments within that third of a TTL at which the sessions of one client are renewed: enough that few come at once.
pub const RENEWAL_BEATS: u32 = 32;
/// Unanswered renewals of one session; late answers to them still count.
pub const RENEWALS_IN_FLIGHT_MAX: usize = 8;
/// A refresh of a lease that another caller's overtook is sent anew this often at most.
pub const REFRESH_TRIES_MAX: u32 = 3;
/// Holds of one session that are read at the same time, after events of them may have been missed.
pub const HOLD_READS_AT_ONCE: usize = 16;
/// Events that a session keeps for holds whose grants were not answered yet.
pub const HOLD_EVENTS_EARLY_MAX: usize = 64;
/// A session with fewer holds than this does not look for those whose guards are gone.
pub const HOLDS_SWEEP_MIN: usize = 64;
/// The client's clock is read at least this often while something is awaited, for timers do not count suspend.
pub const CLOCK_LOOK_MS_MAX: u64 = 1_000;
/// First pause between two tries.
pub const RETRY_MS_MIN: u64 = 10;
/// Longest pause between two tries.
pub const RETRY_MS_MAX: u64 = 1_000;
/// Connecting plus one request, when the caller set no other bound.
pub const REQUEST_MS_DEFAULT: u64 = 5_000;

const _: () = assert!(2 * COMMIT_WAIT_MS_MAX < REQUEST_MS_DEFAULT, "one node's silence must not use up the patience");
const _: () = assert!(CONNECT_MS_MAX < REQUEST_MS_DEFAULT, "one dead endpoint must not use up a whole request's time");
const _: () = assert!(LOCKS_A_SET_MAX <= LIST_ELEMENTS_MAX, "a set that is somewhat too large is told its own bound");
const _: () = assert!(
    LIST_ELEMENTS_MAX * (HANDLE_BYTES_MAX + NAMESPACE_BYTES_MAX + LOCK_NAME_BYTES_MAX + 64) <= FRAME_BYTES_MAX,
    "a full list of renewals with the longest names must fit"
);
const _: () = assert!(STREAM_FRAMES_IN_FLIGHT_MAX <= STREAM_FRAMES_WAITING_MAX);
const _: () = assert!(METADATA_BYTES_MAX + LOCK_NAME_BYTES_MAX + OWNER_BYTES_MAX + 1024 <= FRAME_BYTES_MAX);

const _: () = assert!(2 * TICK_MS_MAX <= LOG_TIME_CAP_MS_MIN, "a tick rarer than half the cap would slow log time");
const _: () = assert!(COUNTER_BITS + 15 == 63, "a token must fit a signed 64-bit column");
const _: () = assert!(TTL_MS_MAX_DEFAULT <= TTL_MS_MAX);
const _: () = assert!(WAITERS_A_LOCK_MAX <= WAITERS_A_NAMESPACE_MAX);
const _: () = assert!(SESSIONLESS_AGE_MS_MAX <= SESSIONLESS_MEMORY_MS, "a late duplicate must still be remembered");

// Node.

/// A call that waits for a claim is answered at the latest after this, and asked again.
pub const SETTLED_WAIT_MS: u64 = 20_000;
/// A call that finds no leader waits so long for one before it is refused.
pub const LEADER_WAIT_MS: u64 = 1_000;
/// A stream that is sent to the next leader is kept so long for what it has not answered yet.
pub const LAST_ANSWERS_MS_MAX: u64 = 250;
/// A command that was passed on to a leader that was replaced since is waited for so long, then its end is unknown.
pub const REPLACED_WAIT_MS: u64 = 250;
/// How long a closing node waits for what runs for it.
pub const CLOSE_WAIT_MS: u64 = 2_000;
/// Threads of a node's own runtime.
pub const RAFT_THREADS: usize = 1;
/// How often a node publishes its sizes and looks at its clock.
pub const WATCH_MS: u64 = 1_000;

// HTTP.

/// A readiness probe that finds no quorum is answered after this.
pub const READY_WAIT_MS: u64 = 1_000;

// Storage.

/// A WAL file is closed and the next one begun at this size. Purging frees whole files only.
pub const WAL_CHUNK_BYTES: usize = 16 * 1024 * 1024;
/// A WAL file is also closed at this many records: each costs eight bytes of memory.
pub const WAL_CHUNK_RECORDS: usize = 256 * 1024;
/// Entries of closed files kept in memory, so that followers and `apply` need not read the disk.
pub const WAL_CACHE_BYTES: usize = 16 * 1024 * 1024;
/// The same, counted in entries.
pub const WAL_CACHE_ENTRIES: usize = 50_000;
/// The buffer a start reads WAL files through.
pub const WAL_READ_BUFFER_BYTES: usize = 1024 * 1024;
/// Bytes handed to the flush thread and not yet written; beyond, the caller waits.
pub const WAL_QUEUE_BYTES: usize = 32 * 1024 * 1024;
/// The largest payload of one log entry.
pub const WAL_RECORD_BYTES: usize = 8 * 1024 * 1024;
/// What the disk tears: a lost page is a whole one of these, aligned in the file.
pub const DISK_PAGE_BYTES: usize = 4096;

/// A mirror that does not close in this time, for sled waits for what it could not write, is left as it is.
pub const MIRROR_CLOSE_WAIT_MS: u64 = 10_000;
/// A mirror whose file is still held by one that was closed a moment ago is waited for this long...
pub const MIRROR_LOCK_WAIT_MS: u64 = 5_000;
/// ...and tried this often.
pub const MIRROR_LOCK_PAUSE_MS: u64 = 10;
/// Records of one mirror batch. Larger ones make sled hold gigabytes, and did not survive power cuts.
pub const MIRROR_BATCH_RECORDS: usize = 100;
/// sled's page cache.
pub const MIRROR_CACHE_BYTES: u64 = 32 * 1024 * 1024;
/// The largest key or value in the mirror: at 128 KiB sled begins to write files of their own, never synced.
pub const MIRROR_VALUE_BYTES: usize = 64 * 1024;
/// How many mirrors that were set aside are kept for a look.
pub const MIRRORS_SET_ASIDE: usize = 3;
/// How nice the thread is that writes mirror and snapshot files (0 is normal, 19 gives way to everybody).
pub const STATE_THREAD_NICE: i32 = 10;

/// A block of a snapshot file is closed at this size.
pub const SNAPSHOT_BLOCK_BYTES: usize = 64 * 1024;
/// The largest block a reader accepts: one record more than a block may exceed its size.
pub const SNAPSHOT_BLOCK_MAX_BYTES: usize = 32 * 1024 * 1024;

const _: () = assert!(WAL_RECORD_BYTES < WAL_CHUNK_BYTES && WAL_RECORD_BYTES < WAL_QUEUE_BYTES);
const _: () = assert!(MIRROR_VALUE_BYTES * 2 <= 128 * 1024, "sled writes larger values to files of their own");
const _: () = assert!(
    20 * HOLD_DEPTH_MAX + LOCK_VALUE_BYTES_MAX + METADATA_BYTES_MAX + 1024 <= MIRROR_VALUE_BYTES,
    "a hold that was entered as often as it may be is one value"
);
const _: () = assert!(
    LOCKS_A_SET_MAX * (LOCK_NAME_BYTES_MAX + 32) + 1024 <= MIRROR_VALUE_BYTES,
    "the answer to a set is one value"
);
const _: () = assert!(
    CYCLE_LINKS_MAX * (OWNER_BYTES_MAX + 2 * CYCLE_TEXT_BYTES_MAX + NAMESPACE_BYTES_MAX + LOCK_NAME_BYTES_MAX + 32)
        <= MIRROR_VALUE_BYTES,
    "the refusal of a deadlock is one value"
);
const _: () = assert!(SNAPSHOT_BLOCK_BYTES + 2 * WAL_RECORD_BYTES <= SNAPSHOT_BLOCK_MAX_BYTES);

const _: () = assert!(ELECTION_MS_MAX * TTL_MIN_IN_ELECTIONS <= TTL_MS_MAX, "the floor of a TTL must be allowed");
/// How often recorded metrics are folded together.
pub const METRICS_UPKEEP_MS: u64 = 5_000;
/// Upper bounds of the histograms of times, in seconds.
pub const SECONDS_BUCKETS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    600.0,
];
/// Upper bounds of the histograms of counts.
pub const COUNT_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];
