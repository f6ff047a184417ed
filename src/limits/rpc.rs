//! Bounds of the rpc room. tonic and hyper leave most of these unbounded unless they are set.

/// Largest frame on a session's stream, and largest request of a unary call.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Elements of one list in a frame or request: renewals of one call, members of a set, features in a hello. They are
/// counted before they are read, as each has its full place in memory however short it is.
pub const LIST_ELEMENTS_MAX: usize = 100;
/// Largest answer of a unary call: a very long queue, shown whole.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Frames of one session's stream that may be unanswered; one more ends the stream.
pub const STREAM_FRAMES_IN_FLIGHT_MAX: usize = 256;
/// Requests that one stream may wait for without credit: as many as a session may have. A settle beyond is turned away.
pub const STREAM_WAITS_MAX: usize = super::LOCKS_A_SESSION_MAX;
/// Frames that may wait to be written to one stream.
pub const STREAM_FRAMES_WAITING_MAX: usize = 512;
/// Streams and calls at a time on one connection.
pub const STREAMS_A_CONNECTION_MAX: u32 = 4_096;
/// All headers of one call together, and an error's metadata.
pub const HEADER_LIST_BYTES_MAX: u32 = 32 * 1024;
/// What the status of a call may take of its headers: more than eight kibibytes some clients do not take.
pub const ERROR_STATUS_BYTES_MAX: usize = 8 * 1024;
/// What the other headers of an answer take beside the message and the details of its status.
pub const ERROR_REST_BYTES: usize = 1024;
/// A text of an error that another program made.
pub const ERROR_TEXT_BYTES_MAX: usize = 1024;
/// So much of an error's text is left at least, where what was exactly in the way is long.
pub const ERROR_TEXT_BYTES_MIN: usize = 64;
/// Bytes of one stream that may be under way unread.
pub const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Bytes of one connection that may be under way unread.
pub const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Streams that a peer opened and reset again before they were looked at; more end the connection.
pub const PENDING_RESETS_MAX: usize = 20;
/// Streams that were reset for a peer's errors; more end the connection.
pub const ERROR_RESETS_MAX: usize = 1_024;
/// A connection is asked for a sign of life this often.
pub const KEEPALIVE_MS: u64 = 5_000;
/// A connection that gives no sign of life for so long after it was asked is dropped.
pub const KEEPALIVE_WAIT_MS: u64 = 5_000;
/// A TLS handshake takes at most so long.
pub const HANDSHAKE_MS_MAX: u64 = 10_000;
/// Connecting to one endpoint takes at most so long; the next one is tried then.
pub const CONNECT_MS_MAX: u64 = 1_000;
/// When a client begins and one endpoint has named its cluster, the others have so long to name theirs.
pub const CLUSTER_LOOK_MS: u64 = 250;
/// One endpoint keeps a call that could be asked elsewhere for half of the request's time, and not less than that.
pub const ENDPOINT_WAIT_MS_MIN: u64 = 1_000;
/// A stream's hello comes within so long.
pub const HELLO_MS_MAX: u64 = 5_000;
/// A stream whose peer takes no frame for so long counts as broken.
pub const STREAM_SEND_MS_MAX: u64 = 10_000;
/// When a node stops, its connections have so long to end by themselves.
pub const DRAIN_MS_MAX: u64 = 2_000;
/// Endpoints that a client may be given.
pub const ENDPOINTS_MAX: usize = 64;
/// Commands that may wait within a client for one session's stream.
pub const STREAM_ASKS_WAITING_MAX: usize = 256;
/// A stream with fewer waits for settlements than this does not look for those that their callers gave up.
pub const STREAM_SETTLES_SWEEP_MIN: usize = 64;
/// What a stream or call has of memory for messages that come in, and as much for those that go out; more is taken where it
/// is needed. Most messages have some 50 bytes, and ten thousand streams may stand idle.
pub const MESSAGE_BUFFER_BYTES: usize = 256;
/// A connection on which nobody joins the messages that give way to others sends up to so many without giving way.
pub const LONE_WRITES_MAX: u32 = 32;
/// Messages that are ready at once are written together up to so many bytes.
pub const WRITTEN_TOGETHER_BYTES: usize = 32 * 1024;
