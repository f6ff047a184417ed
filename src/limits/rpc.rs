//! Limits of the rpc module. tonic and hyper leave most of these unlimited unless they are set.

/// Largest frame on a session's stream, and largest request of a unary call.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Elements of one list in a frame or request: renewals of one call, members of a set, features in a hello. They are
/// counted before they are decoded, because each takes its full size in memory even if its encoding is short.
pub const LIST_ELEMENTS_MAX: usize = 100;
/// Largest answer of a unary call: a very long queue, listed completely.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Unanswered frames of one session's stream. One more ends the stream.
pub const STREAM_FRAMES_IN_FLIGHT_MAX: usize = 256;
/// Requests for whose outcome one stream may wait: as many as a session may have. One more is refused.
pub const STREAM_WAITS_MAX: usize = super::LOCKS_A_SESSION_MAX;
/// Frames that may wait to be written to one stream.
pub const STREAM_FRAMES_WAITING_MAX: usize = 512;
/// Concurrent streams and calls on one connection.
pub const STREAMS_A_CONNECTION_MAX: u32 = 4_096;
/// Size of all headers of one call, including an error's metadata.
pub const HEADER_LIST_BYTES_MAX: u32 = 32 * 1024;
/// Most bytes of the headers that the status of a call may use: some clients accept no more than 8 KiB.
pub const ERROR_STATUS_BYTES_MAX: usize = 8 * 1024;
/// Bytes that the other headers of an answer need, in addition to the message and the details of its status.
pub const ERROR_REST_BYTES: usize = 1024;
/// Longest error text of another program that is passed on.
pub const ERROR_TEXT_BYTES_MAX: usize = 1024;
/// Shortest length to which an error text is cut if the details of the obstacles are long.
pub const ERROR_TEXT_BYTES_MIN: usize = 64;
/// Unread bytes in flight on one stream.
pub const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Unread bytes in flight on one connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Streams that a peer opened and reset before they were handled. One more ends the connection.
pub const PENDING_RESETS_MAX: usize = 20;
/// Streams that were reset because of a peer's errors. One more ends the connection.
pub const ERROR_RESETS_MAX: usize = 1_024;
/// Interval of keepalive pings on a connection.
pub const KEEPALIVE_MS: u64 = 5_000;
/// Time after a keepalive ping without an answer at which the connection is dropped.
pub const KEEPALIVE_WAIT_MS: u64 = 5_000;
/// Time for a TLS handshake.
pub const HANDSHAKE_MS_MAX: u64 = 10_000;
/// Time for connecting to one endpoint. The client then tries the next one.
pub const CONNECT_MS_MAX: u64 = 1_000;
/// Time that the other endpoints have to report their cluster, once one endpoint has reported its cluster to a new
/// client.
pub const CLUSTER_LOOK_MS: u64 = 250;
/// Shortest time that one endpoint gets for a call that another endpoint could serve. If half of the request's time is
/// longer, the endpoint gets that.
pub const ENDPOINT_WAIT_MS_MIN: u64 = 1_000;
/// Time for a stream's hello.
pub const HELLO_MS_MAX: u64 = 5_000;
/// Time without a frame taken by the peer after which a stream counts as broken.
pub const STREAM_SEND_MS_MAX: u64 = 10_000;
/// Time that the connections of a stopping node have to close cleanly.
pub const DRAIN_MS_MAX: u64 = 2_000;
/// Endpoints of one client.
pub const ENDPOINTS_MAX: usize = 64;
/// Commands that may wait in a client for one session's stream.
pub const STREAM_ASKS_WAITING_MAX: usize = 256;
/// Number of waits from which a stream searches for those whose callers gave up.
pub const STREAM_SETTLES_SWEEP_MIN: usize = 64;
/// Initial size of a stream's or call's buffer for incoming messages, and of its buffer for outgoing ones. Both grow if
/// needed. Most messages have about 50 bytes, and ten thousand streams may be idle.
pub const MESSAGE_BUFFER_BYTES: usize = 256;
/// Most messages that a connection writes without yielding first. A yield lets other messages join the write; the
/// connection skips up to this many yields while none join.
pub const LONE_WRITES_MAX: u32 = 32;
/// Most bytes of messages that are written together because they are ready at the same time.
pub const WRITTEN_TOGETHER_BYTES: usize = 32 * 1024;
