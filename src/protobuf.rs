//! Decodes protobuf messages. Counts the elements of their lists before it allocates memory for them.
//!
//! An element of a list can have two bytes in a message and needs some hundred bytes in memory. So a message is scanned
//! first, and refused as a whole if one of its lists is too long.
//!
//! Knows: limits. Never: the meaning of messages.

mod half_messages;

use std::fmt;
use std::marker::PhantomData;

use bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{Message, Name};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

pub(crate) use half_messages::HalfMessages;

use crate::limits::{
    CYCLE_LINKS_MAX, EXPLAINED_OBSTACLES_MAX, EXPLAINED_WAITS_MAX, HOLDERS_A_LOCK_MAX, LIST_ELEMENTS_MAX,
    LOCKS_A_SET_MAX, MEMBERS_MAX, MESSAGE_BUFFER_BYTES, PAGE_ROWS_MAX, REPLICATION_ENTRIES_MAX, WAITERS_A_LOCK_MAX,
    WRITTEN_TOGETHER_BYTES,
};

/// A repeated field of a message.
struct List {
    name: &'static str,
    /// Field numbers of the path to the list. The last one is that of the list itself.
    path: &'static [u32],
    most: usize,
}

/// Returns the lists of a message, including those of nested messages.
const fn lists(message: &str) -> &'static [List] {
    const fn list(name: &'static str, path: &'static [u32], most: usize) -> List {
        List { name, path, most }
    }
    const fn of_client(name: &'static str, path: &'static [u32]) -> List {
        list(name, path, LIST_ELEMENTS_MAX)
    }
    match message.as_bytes() {
        b"ClientFrame" => const { &[of_client("features", &[2, 3]), of_client("others", &[3, 4, 7])] },
        b"Command" => const { &[of_client("others", &[4, 7])] },
        b"Acquire" => const { &[of_client("others", &[7])] },
        b"RenewRequest" => const { &[of_client("renewals", &[1])] },
        b"AppendRequest" => const { &[list("entries", &[4], REPLICATION_ENTRIES_MAX as usize)] },
        b"QueryReply" => {
            const WAITS_FOR_MAX: usize = EXPLAINED_WAITS_MAX * EXPLAINED_OBSTACLES_MAX;
            const {
                &[
                    list("holders", &[4, 4], HOLDERS_A_LOCK_MAX),
                    list("waiters", &[4, 5], WAITERS_A_LOCK_MAX),
                    list("closed", &[4, 9], HOLDERS_A_LOCK_MAX),
                    list("rows", &[5, 1], PAGE_ROWS_MAX),
                    list("rows", &[6, 1], PAGE_ROWS_MAX),
                    list("members", &[7, 1, 8, 1], LOCKS_A_SET_MAX),
                    list("links", &[7, 1, 19, 9, 7, 1], CYCLE_LINKS_MAX),
                    list("chain", &[9, 1], EXPLAINED_WAITS_MAX),
                    list("waits_for", &[9, 1, 7], WAITS_FOR_MAX),
                    list("freed_by", &[9, 2], WAITS_FOR_MAX),
                    list("records", &[10, 1], PAGE_ROWS_MAX),
                    list("rows", &[12, 1], PAGE_ROWS_MAX),
                    list("rows", &[13, 1], PAGE_ROWS_MAX),
                    list("members", &[14, 8, 1], LOCKS_A_SET_MAX),
                    list("links", &[14, 19, 9, 7, 1], CYCLE_LINKS_MAX),
                ]
            }
        }
        b"Error" => const { &[list("links", &[9, 7, 1], CYCLE_LINKS_MAX)] },
        b"Reply" => {
            const { &[list("members", &[8, 1], LOCKS_A_SET_MAX), list("links", &[19, 9, 7, 1], CYCLE_LINKS_MAX)] }
        }
        b"RenewReply" => {
            const MEMBERS: usize = LIST_ELEMENTS_MAX * LOCKS_A_SET_MAX;
            const LINKS: usize = LIST_ELEMENTS_MAX * CYCLE_LINKS_MAX;
            const {
                &[
                    list("replies", &[1], LIST_ELEMENTS_MAX),
                    list("members", &[1, 8, 1], MEMBERS),
                    list("links", &[1, 19, 9, 7, 1], LINKS),
                ]
            }
        }
        b"StatusReply" => const { &[list("nodes", &[8], MEMBERS_MAX), list("warnings", &[16], LIST_ELEMENTS_MAX)] },
        _ => &[],
    }
}

/// Counts the elements at the end of a path. Stops at the first bytes that cannot be decoded, as a decoder does.
fn elements(mut bytes: &[u8], path: &[u32]) -> usize {
    let Some((field, below)) = path.split_first() else { return 1 };
    let mut found = 0;
    while let Ok((number, kind)) = decode_key(&mut bytes) {
        if number == *field && kind == WireType::LengthDelimited {
            let length = decode_varint(&mut bytes).map_or(usize::MAX, |length| length as usize);
            let Some((part, rest)) = bytes.split_at_checked(length) else { break };
            found += elements(part, below);
            bytes = rest;
        } else if skip_field(kind, number, &mut bytes, DecodeContext::default()).is_err() {
            break;
        }
    }
    found
}

/// A list with more elements than allowed.
#[derive(Debug)]
pub(crate) struct TooMany {
    /// Name of the field.
    pub(crate) field: &'static str,
    /// Most elements that are allowed.
    pub(crate) most: usize,
    /// Number of elements in the message.
    pub(crate) found: usize,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: at most {}, got {}", self.field, self.most, self.found)
    }
}

/// Builds the error of a call with a list that is too long. The details of this error depend on the service.
pub(crate) trait Refuse: Send + 'static {
    /// Returns the status of the call.
    fn refuse(list: &TooMany) -> Status;
}

/// Decodes a message from a contiguous buffer.
///
/// # Errors
/// A request with a list that is too long is refused with the status of `R`. An answer with such a list is an internal
/// error, because the other side may already have acted. Bytes that are not a message are an internal error, too.
#[allow(clippy::result_large_err)] // The error type of tonic's decoders.
pub(crate) fn read<M: Message + Name + Default, R: Refuse>(bytes: impl Buf) -> Result<M, Status> {
    for List { name, path, most } in lists(M::NAME) {
        let found = elements(bytes.chunk(), path);
        if found > *most {
            let list = TooMany { field: name, most: *most, found };
            return Err(match M::NAME.ends_with("Reply") {
                true => Status::internal(list.to_string()),
                false => R::refuse(&list),
            });
        }
    }
    M::decode(bytes).map_err(|error| Status::internal(error.to_string()))
}

/// The codec of generated clients and servers: encodes messages `T`, decodes messages `U` with bounded lists, and takes
/// the status of a refusal from `R`.
pub(crate) struct BoundedCodec<T, U, R>(PhantomData<(T, U, R)>);

impl<T, U, R> Default for BoundedCodec<T, U, R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U, R> Codec for BoundedCodec<T, U, R>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
    R: Refuse,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U, R>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(PhantomData)
    }
}

/// Initial buffers of each stream and call. tonic's default is 16 KiB for each direction.
fn buffers() -> BufferSettings {
    BufferSettings::new(MESSAGE_BUFFER_BYTES, WRITTEN_TOGETHER_BYTES)
}

/// Decodes messages of one kind with bounded lists.
pub(crate) struct BoundedDecoder<U, R>(PhantomData<(U, R)>);

impl<U: Message + Name + Default, R: Refuse> Decoder for BoundedDecoder<U, R> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        read::<U, R>(bytes).map(Some)
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const FILES: [&str; 9] = [
        include_str!("../proto/lockkeeper/v1/admin.proto"),
        include_str!("../proto/lockkeeper/v1/common.proto"),
        include_str!("../proto/lockkeeper/v1/documents.proto"),
        include_str!("../proto/lockkeeper/v1/error.proto"),
        include_str!("../proto/lockkeeper/v1/event.proto"),
        include_str!("../proto/lockkeeper/v1/locks.proto"),
        include_str!("../proto/lockkeeper/v1/query.proto"),
        include_str!("../proto/lockkeeper/v1/session.proto"),
        include_str!("../proto/peer.proto"),
    ];

    /// A field of a message: its number, its type, and whether it is repeated.
    type Field = (u32, &'static str, bool);

    /// Returns the messages of the files with their fields, and the names of the requests.
    fn described() -> (BTreeMap<&'static str, Vec<Field>>, Vec<&'static str>) {
        let (mut messages, mut requests, mut message) = (BTreeMap::<_, Vec<Field>>::new(), Vec::new(), "");
        for line in FILES.iter().flat_map(|file| file.lines()) {
            let words: Vec<_> = line.split_whitespace().collect();
            match words.as_slice() {
                ["message", name, ..] => message = name,
                ["rpc", _, ..] => {
                    let asked = line.split(['(', ')']).nth(1).expect("what is asked");
                    requests.push(asked.trim_start_matches("stream ").trim_start_matches(".lockkeeper.v1."));
                }
                [before @ .., kind, _, "=", number] if number.ends_with(';') => {
                    let Ok(number) = number.trim_end_matches(';').parse() else { continue };
                    messages.entry(message).or_default().push((number, kind, before == ["repeated"]));
                }
                _ => {}
            }
        }
        (messages, requests)
    }

    fn paths(messages: &BTreeMap<&str, Vec<Field>>, message: &str, path: &[u32], found: &mut Vec<Vec<u32>>) {
        for (number, kind, repeated) in messages.get(message).into_iter().flatten() {
            let path = [path, &[*number]].concat();
            // In memory, a number needs eight times its shortest encoding.
            if *repeated && *kind != "uint64" {
                found.push(path.clone());
            }
            paths(messages, kind, &path, found);
        }
    }

    /// Every list of a request is bounded, and no element of a list contains another list.
    #[test]
    fn every_list_of_a_request_is_counted() {
        let (messages, requests) = described();
        assert!(requests.contains(&"RenewRequest") && requests.contains(&"AppendRequest"), "{requests:?}");
        for request in requests {
            let mut found = Vec::new();
            paths(&messages, request, &[], &mut found);
            let counted: Vec<_> = lists(request).iter().map(|list| list.path.to_vec()).collect();
            assert_eq!(found, counted, "{request}");
        }
    }

    /// Every list of messages in an answer is bounded.
    #[test]
    fn every_list_of_an_answer_is_counted() {
        let (messages, _) = described();
        let answers: Vec<_> = messages.keys().filter(|name| name.ends_with("Reply")).copied().collect();
        let found = answers.iter().map(|answer| {
            let mut found = Vec::new();
            paths(&messages, answer, &[], &mut found);
            (*answer, found)
        });
        let counted = answers.iter().map(|answer| {
            let counted: Vec<_> = lists(answer).iter().map(|list| list.path.to_vec()).collect();
            (*answer, counted)
        });
        assert_eq!(found.collect::<BTreeMap<_, _>>(), counted.collect());
    }

    /// The parts of a message that are sent separately count as one list.
    #[test]
    fn elements_are_counted_over_all_parts_of_a_message() {
        let parts = [&[0x08, 1][..], &[0x62, 4, 0x1a, 0, 0x1a, 0], &[0x1a, 0], &[0x62, 2, 0x1a, 0], &[0x62, 9, 0x1a]];
        assert_eq!(elements(&parts.concat(), &[12, 3]), 3, "the last part is truncated, and one list has another path");
    }
}
