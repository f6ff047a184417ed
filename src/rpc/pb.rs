//! The messages and services of `proto/lockkeeper/v1/`, as the build script generates them.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::wildcard_enum_match_arm, clippy::unwrap_used)]

include!(concat!(env!("OUT_DIR"), "/lockkeeper.v1.rs"));

/// Codec of the messages.
pub(crate) type BoundedCodec<T, U> = crate::protobuf::BoundedCodec<T, U, super::convert::AsInvalid>;

/// Descriptors of all files in `proto/lockkeeper/v1/`, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
