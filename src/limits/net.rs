//! Limits of the ports: how they accept connections, and how long a new connection may be silent.

use super::DIAL_MS_MAX;

/// Pause before a port accepts connections again, after it could not because no descriptor was free.
pub const ACCEPT_PAUSE_MS: u64 = 100;
/// Descriptors that clients do not get: half of the process's limit, but at most this number. The peer port and the
/// HTTP port have a third each, and files have a third, because a node that cannot open its own files stops.
pub const DESCRIPTORS_RESERVED_MAX: u64 = 3_072;
/// The sockets to other nodes have descriptors a little below this number, or below the process's limit if that is
/// lower. The kernel's table of descriptors grows to this size: 8 bytes each.
pub const HIGH_DESCRIPTORS_MAX: u64 = 16_384;
/// Time without failures after which a port logs the next failure as a new one.
pub const ACCEPT_QUIET_MS: u64 = 10_000;

/// Largest value that an operator may set for the connections of the client port: the descriptors that Linux gives one
/// process, 1,048,576 unless an operator has changed that, without those that clients do not get.
pub const CLIENT_CONNECTIONS_SET_MAX: usize = (1 << 20) - DESCRIPTORS_RESERVED_MAX as usize;
/// Connections of the client port, unless the config has another number.
pub const CLIENT_CONNECTIONS_MAX: usize = 16_384;
/// Connections of the client port from one address, unless the config has another number. A loopback address has no
/// such limit, on any port. Proxies share one address among many clients.
pub const CLIENT_CONNECTIONS_AN_ADDRESS_MAX: usize = 4_096;
/// Connections of the client port whose first request has not begun.
pub const CLIENT_UNPROVEN_MAX: usize = 512;
/// Connections of the client port from one address whose first request has not begun.
pub const CLIENT_UNPROVEN_AN_ADDRESS_MAX: usize = 64;
/// Connections of the peer port. Each of 14 other founding members has four permanent connections, and one for each
/// probe of a leader; those of a member that lost its power remain until the keepalive ends them.
pub const PEER_CONNECTIONS_MAX: usize = 128;
/// Connections of the peer port from one address: twice those of one node, and a few more.
pub const PEER_CONNECTIONS_AN_ADDRESS_MAX: usize = 16;
/// Connections of the peer port whose first request has not begun. When a node of 15 starts, the others may dial it
/// with four connections each at the same time.
pub const PEER_UNPROVEN_MAX: usize = 64;
/// Connections of the peer port from one network whose first request has not begun. The others stay free for members,
/// and a quarter of them for networks that have none.
pub const PEER_UNPROVEN_AN_ADDRESS_MAX: usize = 8;
/// Connections of the HTTP port, unless the config has a smaller number.
pub const HTTP_CONNECTIONS_MAX: usize = 1_024;
/// Connections of the HTTP port from one address, unless the config has another number.
pub const HTTP_CONNECTIONS_AN_ADDRESS_MAX: usize = 32;
/// Connections of the HTTP port whose first request has not arrived.
pub const HTTP_UNPROVEN_MAX: usize = 64;
/// Connections of the HTTP port from one address whose first request has not arrived.
pub const HTTP_UNPROVEN_AN_ADDRESS_MAX: usize = 16;
/// Time after which a new connection of the client port is closed if its first request has not begun: the HTTP/2
/// preface and the header of the first frame.
pub const CLIENT_FIRST_REQUEST_MS_MAX: u64 = 5_000;
/// The same time on the peer port. Nodes are close to each other, and have dialled within
/// [`DIAL_MS_MAX`](super::DIAL_MS_MAX).
pub const PEER_FIRST_REQUEST_MS_MAX: u64 = 2_000;
/// Time after which a new connection of the HTTP port is closed if the header of its first request is not complete.
pub const HTTP_FIRST_REQUEST_MS_MAX: u64 = 5_000;
/// Time in which the header of the next request on a connection of the HTTP port must arrive.
pub const HTTP_IDLE_MS_MAX: u64 = 30_000;
/// Size of the header of a request to the HTTP port.
pub const HTTP_HEADER_BYTES_MAX: usize = 8 * 1024;
/// Lines in the header of a request to the HTTP port.
pub const HTTP_HEADERS_MAX: usize = 64;
/// Requests to the HTTP port that wait for a lock, and streams, at the same time: half of the connections.
pub const HTTP_POLLS_MAX: usize = HTTP_CONNECTIONS_MAX / 2;
/// Time after which a request that waits for a lock is answered that it still waits, if it names no other time.
pub const HTTP_POLL_MS_DEFAULT_MAX: u64 = 30_000;
/// Longest time that a request may wait for its answer.
pub const HTTP_POLL_MS_MAX: u64 = 600_000;
/// Time after which a stream without an event gets a comment.
pub const STREAM_COMMENT_MS: u64 = 15_000;
/// Time after which the kernel closes a connection of the HTTP port whose peer has not acknowledged what was sent, or
/// has not made space for more.
pub const HTTP_SILENCE_MS_MAX: u32 = 10_000;
/// Time without traffic after which the kernel asks the peer of a connection of the HTTP port whether it is there.
pub const HTTP_KEEPALIVE_MS: u64 = 15_000;
/// Renewals of the session of a `hold` within its TTL.
pub const HOLD_RENEWALS_A_TTL: u32 = 5;
/// Time without an event after which the client of a `hold` no longer believes that it holds the lock, in percent of
/// the TTL.
pub const HOLD_SILENCE_PERCENT: u32 = 60;
/// Longest delay of an event of a `hold` with which that belief is true, in percent of the TTL. Together with the
/// silence it is less than the time for which an answered renewal proves the session.
pub const HOLD_EVENT_LATE_PERCENT: u32 = 33;
/// Part of the shorter one of TTL and lease that sets the pace of a `hold` with a lease, in percent. The rest is the
/// age of the older renewal.
pub const HOLD_LEASE_PERCENT: u32 = 66;
/// Time after which a stream of `hold` ends, unless it names another time.
pub const HOLD_MS_DEFAULT: u64 = 60 * 60 * 1_000;
/// Longest time of a stream of `hold`.
pub const HOLD_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// Events from before the start of a watch that wait in its stream.
pub const OLD_EVENTS_WAITING_MAX: usize = 64;
/// Time before its end at which a stream of `hold` has the event `ending`; half of its time if that is shorter.
pub const HOLD_ENDING_MS: u64 = 60_000;
/// Events of a `hold` that may wait to be written.
pub const HOLD_EVENTS_WAITING_MAX: usize = 4;
/// Longest time in which a node that stops looks for the addresses of the others.
pub const MOVE_WAIT_MS_MAX: u64 = 500;
/// Longest time from the end of the events of a session's holds to the event of its end.
pub const SESSION_END_WAIT_MS: u64 = 1_000;
/// Longest lease for which a waiting HTTP request is granted, until its client has the answer. So the lock is soon free
/// if the client does not return.
pub const CLAIM_LEASE_MS_MAX: u64 = 15_000;

/// Shortest time between two TLS handshakes on the port for the other nodes, which Raft's thread serves. A handshake
/// takes that thread about half a millisecond, so strangers that dial without end use a tenth of a processor.
pub const PEER_HANDSHAKE_APART_MS: u64 = 5;
const _: () = assert!(
    PEER_UNPROVEN_MAX as u64 * PEER_HANDSHAKE_APART_MS < DIAL_MS_MAX * 3 / 4,
    "a node that dials must not give up before its handshake, although all others are before it"
);
const _: () = assert!(DIAL_MS_MAX < PEER_FIRST_REQUEST_MS_MAX);
/// Time between two log lines about connections that a port refused because of TLS.
pub const TLS_LOG_MS: u64 = 1_000;
/// Groups of connections whose certificates are checked one group after another when the files have changed, so that
/// not all clients dial again at the same time.
pub const RECHECKS_APART: u64 = 30;
/// Time between these checks. All of them are done within 3 s.
pub const RECHECK_APART_MS: u64 = 100;
/// Longest time in which the wall clock is not looked at while a certificate's end is awaited, because it may be set.
pub const WALL_CLOCK_LOOK_MS: u64 = 60 * 60 * 1_000;
/// Time between two looks at the files of certificates, which may change without a signal.
pub const CERTIFICATE_LOOK_MS: u64 = 30_000;
/// Days before the end of a node's certificate within which the node warns.
pub const EXPIRY_WARNING_DAYS: [u32; 2] = [7, 30];
/// Days for which the authority of a new cluster is valid.
pub const AUTHORITY_DAYS: u32 = 3_650;
/// Days for which a new certificate of a node is valid.
pub const NODE_CERTIFICATE_DAYS: u32 = 365;
/// Days for which a new certificate of a client is valid.
pub const CLIENT_CERTIFICATE_DAYS: u32 = 90;
/// One day, in milliseconds.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// Share of its lifetime below which `certs --renew` renews a certificate, in percent.
pub const RENEWED_BELOW_PERCENT: u64 = 33;
/// Time before its creation from which a new certificate is valid.
pub const CERTIFICATE_BACKDATED_MS: u64 = 60 * 60 * 1_000;
