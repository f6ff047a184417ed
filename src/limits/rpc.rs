//! Limits of the rpc module. tonic and hyper leave most of these unlimited unless they are set.

/// Largest frame on a session's stream, and largest request of a unary call.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Elements of one list in a frame or request: renewals of one call, members of a set, features in a hello. They are
/// counted before they are decoded, because even a short element needs its full size in memory.
pub const LIST_ELEMENTS_MAX: usize = 100;
/// Largest answer of a unary call: a very long queue, listed completely.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of the messages to one port that have arrived in part, counted as their announced lengths.
pub const HALF_MESSAGES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The part of these bytes that one connection may use.
pub const HALF_MESSAGES_OF_A_CONNECTION_BYTES_MAX: usize = HALF_MESSAGES_BYTES_MAX / 8;
/// The part of these bytes that any connection may use. The others are for connections that use few.
pub const HALF_MESSAGES_SHARED_BYTES_MAX: usize = HALF_MESSAGES_BYTES_MAX / 4 * 3;
/// Bytes of the half messages of a connection that gets some of the others.
pub const HALF_MESSAGES_FEW_BYTES_MAX: usize = HALF_MESSAGES_OF_A_CONNECTION_BYTES_MAX / 16;
/// Bytes as which a call counts among the half messages while no byte of its first message has arrived: the memory of
/// such a call, rounded up.
pub const SILENT_CALL_BYTES: usize = 8 * 1024;
/// Time from the headers of a call to the first byte of its message, and from the first to the last byte of a message.
pub const MESSAGE_MS_MAX: u64 = 10_000;
/// Unanswered frames of one session's stream. One more ends the stream.
pub const STREAM_FRAMES_IN_FLIGHT_MAX: usize = 256;
/// Requests whose outcome one stream may await without credit, which is as many as a session may have. A further one is
/// refused.
pub const STREAM_WAITS_MAX: usize = super::LOCKS_A_SESSION_MAX;
/// Frames that may wait to be written to one stream.
pub const STREAM_FRAMES_WAITING_MAX: usize = 512;
/// Callers that may watch the health of a node at a time, because they need no proof.
pub const HEALTH_WATCHES_MAX: usize = 1_024;
/// Concurrent streams and calls on one connection.
pub const STREAMS_A_CONNECTION_MAX: u32 = 4_096;
/// Size of all headers of one call, including an error's metadata.
pub const HEADER_LIST_BYTES_MAX: u32 = 32 * 1024;
/// Most bytes of the headers that the status of a call may use, because some clients accept no more than 8 KiB.
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
/// Streams that a peer opened and reset before they were handled. More of them end the connection.
pub const PENDING_RESETS_MAX: usize = 20;
/// Streams that were reset because of a peer's errors. More of them end the connection.
pub const ERROR_RESETS_MAX: usize = 1_024;
/// Interval of keepalive pings on a connection.
pub const KEEPALIVE_MS: u64 = 5_000;
/// Time after a keepalive ping without an answer at which the connection is dropped.
pub const KEEPALIVE_WAIT_MS: u64 = 5_000;
/// A stream leaves its node within this time after another node was elected.
pub const STAY_MS_MAX: u64 = 500;
/// A session that lost its stream and needs none at once attaches again within this time, at a random moment.
pub const ATTACH_MS_MAX: u64 = 200;
/// Time after which a client opens connections to the nodes that it does not use yet. The time doubles after each
/// attempt in which some node was not reached. Each such time is shortened at random by up to a half.
pub const STANDBY_MS_MIN: u64 = 100;
/// Longest time between two attempts of a client to connect to a node that it does not use.
pub const STANDBY_MS_MAX: u64 = 8_000;
/// Time for connecting to one endpoint. After that the client tries the next one.
pub const CONNECT_MS_MAX: u64 = 1_000;
/// Time that the other endpoints have to report their cluster, after the first endpoint has reported its cluster to a
/// new client.
pub const CLUSTER_LOOK_MS: u64 = 250;
/// Shortest time that one endpoint gets for a call that another endpoint could serve. If half of the request's time is
/// longer, the endpoint gets that.
pub const ENDPOINT_WAIT_MS_MIN: u64 = 1_000;
/// Time until the hello of a stream must arrive.
pub const HELLO_MS_MAX: u64 = 5_000;
/// Longest time of a stream without a session.
pub const UNBOUND_STREAM_MS_MAX: u64 = 30_000;
/// Time after which a stream counts as broken, if the peer has accepted no frame meanwhile.
pub const STREAM_SEND_MS_MAX: u64 = 10_000;
/// Time that a stopping node gives its connections to end in order.
pub const DRAIN_MS_MAX: u64 = 2_000;
/// Endpoints of one client.
pub const ENDPOINTS_MAX: usize = 64;
/// Commands that may wait in a client for one session's stream.
pub const STREAM_ASKS_WAITING_MAX: usize = 256;
/// Number of waits at which a stream starts to look for those whose callers no longer wait.
pub const STREAM_SETTLES_SWEEP_MIN: usize = 64;
/// Initial size of the buffers of a stream or call, for each direction; they grow if needed. Most messages have some 50
/// bytes, and ten thousand streams may be idle.
pub const MESSAGE_BUFFER_BYTES: usize = 256;
/// Most messages that a connection writes at once, without yielding, after other messages have not joined a write for
/// some time.
pub const LONE_WRITES_MAX: u32 = 32;
/// Most bytes of messages that are written together because they are ready at the same time.
pub const WRITTEN_TOGETHER_BYTES: usize = 32 * 1024;
