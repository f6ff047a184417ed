//! Every limit and interval of lockkeeper, with its unit last in the name.
//!
//! Each number that limits a queue, a name, a wait or a batch is defined in this module and nowhere else, so that they
//! can be compared. The compiler checks the relations between them.

mod auth;
mod bench;
mod cycles;
mod command_line;
mod drill;
mod history;
mod members;
mod metrics;
mod net;
mod raft;
mod rpc;
mod screens;
mod systems;
mod tables;

pub use auth::*;
pub use bench::*;
pub use command_line::*;
pub use cycles::*;
pub use drill::*;
pub use history::*;
pub use members::*;
pub use metrics::*;
pub use net::*;
pub use raft::*;
pub use rpc::*;
pub use screens::*;
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
/// Largest metadata of a request, all fields together, in bytes.
pub const METADATA_BYTES_MAX: usize = 1024;
/// Longest reason for an operation on locks of other clients, in bytes.
pub const REASON_BYTES_MAX: usize = 512;
/// Longest version that a node announces, in bytes.
pub const VERSION_BYTES_MAX: usize = 64;
/// Longest address that a node announces, in bytes: a DNS name and a port.
pub const ADDRESS_BYTES_MAX: usize = 260;
/// Feature level of a cluster that was never raised.
pub const FEATURE_LEVEL_MIN: u32 = 1;
/// Highest feature level that this build supports.
pub const FEATURE_LEVEL: u32 = 1;

const _: () = assert!(FEATURE_LEVEL_MIN <= FEATURE_LEVEL, "a build must be able to found a cluster");

// Durations of the lock machine, in milliseconds of log time.

/// Longest TTL and longest lease in a cluster whose setting was not changed.
pub const TTL_MS_MAX_DEFAULT: u64 = 10 * 60 * 1000;
/// Longest TTL that a cluster may allow. After a restore, nothing is granted for this time.
pub const TTL_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Longest time that a name stays closed after an involuntary end of a hold.
pub const LOCK_DELAY_MS_MAX: u64 = 60_000;
/// Longest `at_least` of an acquire: the time that the lock stays closed, counted from its grant.
pub const AT_LEAST_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Longest `at_most` of an acquire: the time that its hold may last.
pub const AT_MOST_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Time that a try waits for a session to release its cached hold, if the try would be granted next.
pub const TRY_BEHIND_CACHED_MS: u64 = 250;
/// Time after which a session releases a cached hold that no guard uses.
pub const CACHED_IDLE_MS_MAX: u64 = 30_000;
/// Shortest lease of a hold or of a token lease.
pub const LEASE_MS_MIN: u64 = 1;
/// Shortest default TTL of a session.
pub const TTL_MS_DEFAULT_MIN: u64 = 10_000;
/// Longest wait of a request: a week.
pub const PATIENCE_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1000;
/// Time that an ended session is remembered, together with its reason.
pub const TOMBSTONE_MS: u64 = 10 * 60 * 1000;
/// Time that the outcome of a sessionless request is remembered after a refusal, a withdrawal or the end of its lease.
pub const SESSIONLESS_MEMORY_MS: u64 = 10 * 60 * 1000;
/// Age at which a sessionless request is refused if the cluster does not know it, in log time since the client first
/// sent it.
pub const SESSIONLESS_AGE_MS_MAX: u64 = 10 * 60 * 1000;

/// Lowest reserved lease request id: the reserved ids have the top 32 bits all ones. Callers may not use them.
pub const LEASE_REQUESTS_RESERVED_FROM: u128 = u128::MAX << 96;

// Sizes of the lock machine.

/// Finished requests that are remembered for each session.
pub const REQUESTS_REMEMBERED_MAX: usize = 1024;
/// Waiters in one lock's queue.
pub const WAITERS_A_LOCK_MAX: usize = 10_000;
/// Waiters in one namespace.
pub const WAITERS_A_NAMESPACE_MAX: usize = 100_000;
/// Locks with at least one holder or waiter in one namespace.
pub const LOCKS_A_NAMESPACE_MAX: usize = 1_000_000;
/// Takes in one namespace: those that wait or hold, and those whose outcome is remembered. A remembered take needs a
/// few hundred bytes. Together with [`SESSIONLESS_MEMORY_MS`], this limit allows about 800 takes per second
/// permanently.
pub const TAKES_A_NAMESPACE_MAX: usize = 500_000;
/// Sessions in one namespace, including tombstones.
pub const SESSIONS_A_NAMESPACE_MAX: usize = 100_000;
/// Cached holds that one session keeps while no guard uses them.
pub const CACHED_IDLE_MAX: usize = 1_024;
/// Locks that one session holds or waits for.
pub const LOCKS_A_SESSION_MAX: usize = 10_000;
/// Holders of one shared lock or semaphore.
pub const HOLDERS_A_LOCK_MAX: usize = 100_000;
/// Lowest request number that the cluster itself allocates, for a hold that was handed over to a session without a
/// request.
pub const OWN_REQUESTS_MIN: u64 = 1 << 63;
/// Locks of one request.
pub const LOCKS_A_SET_MAX: usize = 64;
/// Waits in one explanation. The explanation says if some are left out.
pub const EXPLAINED_WAITS_MAX: usize = 64;
/// Obstacles of one wait in an explanation, for one lock and in total.
pub const EXPLAINED_OBSTACLES_MAX: usize = 8;
/// Number of times that an owner may enter one hold.
pub const HOLD_DEPTH_MAX: usize = 1_000;
/// A session with more claims than this is not searched for a single lock, if the answer only decides whether its
/// acquire can wait briefly.
pub const CLAIMS_LOOKED_AT_MAX: usize = 16;
/// Different numbers of permits that one grant considers among barging waiters, smallest first. A waiter that wants
/// more permits is not granted while one of these could be.
pub const BARGING_WANTS_LOOKED_AT_MAX: usize = 64;
/// Most permits of one semaphore.
pub const PERMITS_MAX: u32 = (1 << 31) - 1;
/// Holds, waiters and sessions that the sweep of one entry ends. A session is always ended completely.
pub const SWEEP_AN_ENTRY_MAX: usize = 4_096;
/// Queues that are opened together at the end of the time without grants after a restore. A sweep opens more of them
/// until it has done [`SWEEP_AN_ENTRY_MAX`] steps.
pub const QUEUES_OPENED_AT_ONCE_MAX: usize = 1_024;
/// Rows on one page of a listing.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Renewals in one entry.
pub const RENEWALS_AN_ENTRY_MAX: usize = 4_096;

// Unary calls, of programs without a stream.

/// Acquires and waits for an outcome, each within its call, and watches of one session, on one port of a node. Includes
/// the cancels of acquires whose clients disconnected.
pub const UNARY_CLAIMS_MAX: usize = 16_384;
/// One in this many places of waiting calls is kept for sources that have few.
pub const PLACES_KEPT_ONE_IN: usize = 4;
/// A source has few places if it has less than one in this many.
pub const PLACES_FEW_ONE_IN: usize = 16;
/// Random bits of a request number that a node allocates for a session. Log time in milliseconds is in the bits above
/// them, which suffices for 69 years.
pub const DRAWN_REQUEST_RANDOM_BITS: u32 = 16;
/// Lowest bits of that number. They hold the node's id.
pub const DRAWN_REQUEST_NODE_BITS: u32 = 6;

// Tokens.

/// Bits of the counter in a fencing token or session id. The epoch is above them.
pub const COUNTER_BITS: u32 = 48;
/// Largest cluster epoch: 15 bits, so that a token fits a signed 64-bit column.
pub const EPOCH_MAX: u16 = (1 << 15) - 1;

// The leader's clock and proposer.

/// Smallest upper bound of one advance of log time.
pub const LOG_TIME_CAP_MS_MIN: u64 = 500;
/// Longest interval between two stamps while any deadline exists.
pub const TICK_MS_MAX: u64 = 250;
/// Margin that a client subtracts from its validity for errors of the clock rate, in thousandths of (E - L). It covers
/// the errors of the client's and of the leader's clock together.
pub const DRIFT_MARGIN_PERMILLE: u64 = 10;
/// Commands in one entry.
pub const COMMANDS_AN_ENTRY_MAX: usize = 1_024;
/// Estimated size of one entry before it is encoded, in bytes; far below the size of a message between nodes.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Commands that may wait for the proposer, and renewals that may wait for it.
pub const PROPOSALS_WAITING_MAX: usize = 16_384;
/// Of these places, those that every source may use. The others are kept for sources with few waiting calls.
pub const PROPOSALS_SHARED_MAX: usize = PROPOSALS_WAITING_MAX / 4 * 3;
/// Waiting calls with which a source gets no more of the other places.
pub const PROPOSALS_OF_A_SOURCE_MAX: usize = 1_024;
/// Renewals of one session that may wait for the proposer.
pub const RENEWALS_OF_A_SESSION_MAX: usize = 8;
/// After an entry with this many callers, the next entry waits briefly for most of their next calls. Measured with 64
/// clients on two cores: entries have 55 commands instead of 17 without a wait. This serves a fifth more pairs than
/// entries of 37 commands.
pub const GATHER_COMMANDS_MIN: usize = 8;
/// Longest wait for those calls. If the last entry took less, the wait is as long as that.
pub const GATHER_MS_MAX: u64 = 2;
/// Interval between an entry and a later entry that has only renewals of sessions, so that many renewals share one
/// entry. It is far below a sixth of a TTL, after which a client asks another node.
pub const RENEWALS_APART_MS: u64 = 50;
/// Interval after an entry in which acquires that would only join a queue do not cause an entry. When clients pass a
/// lock on, the last holder requests it again shortly before the current holder releases it, and both commands then
/// share an entry. Measured with 16 and with 128 clients: one entry for each hand-over, instead of four for three
/// hand-overs.
pub const QUEUERS_APART_MS: u64 = 2;
/// Most commands that the proposer tests for whether they would only join a queue.
pub const QUEUERS_LOOKED_AT_MAX: usize = 8;
/// Callers of a large entry that get their replies together, while its next commands are executed.
pub const ANSWERS_AT_ONCE: usize = 16;
/// Entries in flight. Under load there is one, and all other calls gather for the next one. Load thus makes entries
/// larger instead of more numerous, and an entry costs far more than one of its commands. A second entry in flight cost
/// a tenth to a quarter of the pairs with 64 clients on two cores.
pub const ENTRIES_IN_FLIGHT_MAX: usize = 2;
/// Most callers of the first entry with which a second entry may be in flight. A client that passes a lock on then does
/// not wait for a command that was proposed shortly before.
pub const FEW_IN_FLIGHT: usize = 2;
/// Pause before a retry that an overloaded node requests.
pub const OVERLOADED_PAUSE_MS: u64 = 50;
/// Longest time that a submitted command waits for its commit. After that its outcome is reported as *unknown*, because
/// the node may no longer lead. It is short enough for the caller to retry within the time of one request.
pub const COMMIT_WAIT_MS_MAX: u64 = 2_000;
/// Uncounted log time within [`UNCOUNTED_WINDOW_MS`] above which a leader transfers leadership.
pub const UNCOUNTED_MS_MAX: u64 = 2_000;
/// Window in which uncounted log time is summed.
pub const UNCOUNTED_WINDOW_MS: u64 = 60_000;
/// Shortest interval between two transfers because of uncounted time.
pub const UNCOUNTED_HANDOVER_MS_MIN: u64 = 10 * 60 * 1000;

// Events.

/// Events that a node keeps for subscribers that resume.
pub const EVENTS_KEPT_MAX: usize = 65_536;
/// Unread events of one subscriber above which its subscription ends.
pub const EVENTS_WAITING_MAX: usize = 4_096;
/// Unread events of one session's holds above which their subscription ends.
pub const HOLD_NEWS_WAITING_MAX: usize = 64;

/// Members of a cluster.
pub const MEMBERS_MAX: usize = 15;

// Timing profiles: heartbeat, shortest and longest election timeout; and the shortest TTL of a session with each
// profile.

/// Profile `lan`: one site.
pub const LAN_TIMING_MS: [u64; 3] = [50, 150, 300];
/// Shortest TTL with `lan`.
pub const LAN_TTL_MS_MIN: u64 = 3_000;
/// Profile `fast`: loopback and tests.
pub const FAST_TIMING_MS: [u64; 3] = [30, 90, 120];
/// Shortest TTL with `fast`.
pub const FAST_TTL_MS_MIN: u64 = 1_000;
/// Profile `wan`: between sites.
pub const WAN_TIMING_MS: [u64; 3] = [500, 2_500, 5_000];
/// Shortest TTL with `wan`.
pub const WAN_TTL_MS_MIN: u64 = 36_000;
/// Shortest TTL and shortest disconnect grace, in multiples of the time that a failover may take.
pub const TTL_MIN_IN_FAILOVERS: u64 = 3;
/// Longest election timeout in a config.
pub const ELECTION_MS_MAX: u64 = 60_000;
/// Shortest TTL with a timing from the config, as a multiple of the longest election timeout: one failover, and time
/// for two more.
pub const TTL_MIN_IN_ELECTIONS: u64 = 10;

// Client.

/// Renewals of a session within its TTL.
pub const RENEWALS_A_TTL: u64 = 3;
/// Points in time within a third of a TTL at which the sessions of one client are renewed. There are enough of them
/// that few renewals coincide.
pub const RENEWAL_BEATS: u32 = 32;
/// Numbers that one client of a session has for its renewals, as a power of two, before the next client takes the
/// session over: a renewal each 5 ms of a day.
pub const ATTEMPTS_A_TENURE_BITS: u32 = 24;
/// Unanswered renewals of one session. Late replies to them still count.
pub const RENEWALS_IN_FLIGHT_MAX: usize = 8;
/// Most retries of a lease refresh that another caller's refresh overtook.
pub const REFRESH_TRIES_MAX: u32 = 3;
/// Holds of one session that are read concurrently after a gap in its events.
pub const HOLD_READS_AT_ONCE: usize = 16;
/// Events that a session keeps for holds whose grants have not arrived yet.
pub const HOLD_EVENTS_EARLY_MAX: usize = 64;
/// Number of holds from which a session searches for those whose guards were dropped.
pub const HOLDS_SWEEP_MIN: usize = 64;
/// Longest interval between two reads of the client's clock during a wait, because timers do not count the time of a
/// suspend.
pub const CLOCK_LOOK_MS_MAX: u64 = 1_000;
/// First pause between two attempts.
pub const RETRY_MS_MIN: u64 = 10;
/// Longest pause between two attempts.
pub const RETRY_MS_MAX: u64 = 1_000;
/// Time for connecting and one request, if the caller sets no other limit.
pub const REQUEST_MS_DEFAULT: u64 = 5_000;

const _: () = assert!(
    2 * COMMIT_WAIT_MS_MAX < REQUEST_MS_DEFAULT,
    "a node that does not answer must not use up the time of a request"
);
const _: () = assert!(CONNECT_MS_MAX < REQUEST_MS_DEFAULT, "one dead endpoint must not use up a whole request's time");
const _: () =
    assert!(LOCKS_A_SET_MAX <= LIST_ELEMENTS_MAX, "a set that is somewhat too large is refused with its own limit");
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

/// Longest wait of a call for a claim. After that the call is answered and sent again.
pub const SETTLED_WAIT_MS: u64 = 20_000;
/// Longest wait of a call while no leader is known. After that the call is refused.
pub const LEADER_WAIT_MS: u64 = 1_000;
/// Time for which a stream stays open for its last answers after its client was sent to the next leader.
pub const LAST_ANSWERS_MS_MAX: u64 = 250;
/// Time that a node waits for the answer to a command that it forwarded, after the leader was replaced. After that the
/// outcome is unknown.
pub const REPLACED_WAIT_MS: u64 = 250;
/// Time that a node waits for its tasks when it closes.
pub const CLOSE_WAIT_MS: u64 = 2_000;
/// Threads of a node's own runtime.
pub const RAFT_THREADS: usize = 1;
/// Interval at which a node publishes its sizes and checks its clock.
pub const WATCH_MS: u64 = 1_000;

// HTTP.

/// Time after which a readiness probe reports that there is no quorum.
pub const READY_WAIT_MS: u64 = 1_000;
/// Time in which all readiness probes of a node get the same answer.
pub const READY_SHARED_MS: u64 = 250;

// Storage.

/// Size at which a WAL file is closed and the next one started. Purging frees whole files only.
pub const WAL_CHUNK_BYTES: usize = 16 * 1024 * 1024;
/// Number of records at which a WAL file is closed, too, because each needs eight bytes of memory.
pub const WAL_CHUNK_RECORDS: usize = 256 * 1024;
/// Bytes of entries in closed files that are kept in memory, so that followers and `apply` need not read the disk.
pub const WAL_CACHE_BYTES: usize = 16 * 1024 * 1024;
/// Number of entries in closed files that are kept in memory.
pub const WAL_CACHE_ENTRIES: usize = 50_000;
/// Size of the buffer for reading WAL files at a start.
pub const WAL_READ_BUFFER_BYTES: usize = 1024 * 1024;
/// Bytes that may wait for the flush thread. If there are more, the caller waits.
pub const WAL_QUEUE_BYTES: usize = 32 * 1024 * 1024;
/// Largest payload of one log entry.
pub const WAL_RECORD_BYTES: usize = 8 * 1024 * 1024;
/// Unit of a torn write: a lost page has this size, and is aligned in the file.
pub const DISK_PAGE_BYTES: usize = 4096;

/// Time that a mirror gets to close, because sled waits without limit for data that it could not write. After that the
/// mirror stays open.
pub const MIRROR_CLOSE_WAIT_MS: u64 = 10_000;
/// Time to wait for the lock on a mirror's file, which a mirror that was just closed may still hold.
pub const MIRROR_LOCK_WAIT_MS: u64 = 5_000;
/// Interval between two attempts to take that lock.
pub const MIRROR_LOCK_PAUSE_MS: u64 = 10;
/// Records of one mirror batch. With larger batches sled used gigabytes of memory, and did not survive power cuts.
pub const MIRROR_BATCH_RECORDS: usize = 100;
/// Page cache of sled, in bytes.
pub const MIRROR_CACHE_BYTES: u64 = 32 * 1024 * 1024;
/// Largest key or value in the mirror. From 128 KiB on, sled writes separate files, which it never syncs.
pub const MIRROR_VALUE_BYTES: usize = 64 * 1024;
/// Quarantined mirrors that are kept for inspection.
pub const MIRRORS_QUARANTINED: usize = 3;
/// Nice value of the thread that writes mirror and snapshot files: 0 is normal, 19 yields to all other threads.
pub const STATE_THREAD_NICE: i32 = 10;

/// Size at which a block of a snapshot file is closed.
pub const SNAPSHOT_BLOCK_BYTES: usize = 64 * 1024;
/// Largest block that a reader accepts. A block may exceed its normal size by one record.
pub const SNAPSHOT_BLOCK_MAX_BYTES: usize = 32 * 1024 * 1024;

const _: () = assert!(WAL_RECORD_BYTES < WAL_CHUNK_BYTES && WAL_RECORD_BYTES < WAL_QUEUE_BYTES);
const _: () = assert!(MIRROR_VALUE_BYTES * 2 <= 128 * 1024, "sled writes larger values to files of their own");
const _: () = assert!(
    20 * HOLD_DEPTH_MAX + LOCK_VALUE_BYTES_MAX + METADATA_BYTES_MAX + 1024 <= MIRROR_VALUE_BYTES,
    "a hold with all its entries is one value"
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

#[cfg(test)]
mod tests;
