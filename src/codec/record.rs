//! Encodes records of the state: keys in an order by name, values in frames.

use bytes::{BufMut, Bytes, BytesMut};

use super::frame::{DecodeError, Kind, decode_message, encode_message};
use crate::model::{FencingToken, LeaseRequestId, LockKey, LockName, Namespace, ProcessId, SessionId};
use crate::state::{Record, RecordKey};

/// Encodes a key as it is on disk: a letter for the kind, then names that end with a zero byte, then numbers in
/// big-endian order. Names contain no zero byte, so keys are unique and sort by namespace, name and number.
#[must_use]
pub fn encode_key(key: &RecordKey) -> Bytes {
    let mut bytes = BytesMut::with_capacity(64);
    match key {
        RecordKey::Globals => bytes.put_u8(b'g'),
        RecordKey::Semaphore(lock) => put_lock(&mut bytes, b'p', lock),
        RecordKey::Session(id) => put_session(&mut bytes, b's', *id),
        RecordKey::Finished(id, number) => {
            put_session(&mut bytes, b'f', *id);
            bytes.put_u64(*number);
        }
        RecordKey::Tombstone(id) => put_session(&mut bytes, b't', *id),
        RecordKey::Holder(lock, token) => {
            put_lock(&mut bytes, b'h', lock);
            bytes.put_u64(token.as_u64());
        }
        RecordKey::Waiter(lock, sequence) => {
            put_lock(&mut bytes, b'w', lock);
            bytes.put_u64(*sequence);
        }
        RecordKey::FinishedLease(lock, take) => {
            put_lock(&mut bytes, b'k', lock);
            bytes.put_u128(take.0);
        }
        RecordKey::Node(id) => {
            bytes.put_u8(b'n');
            bytes.put_u64(*id);
        }
        RecordKey::Document(lock) => put_lock(&mut bytes, b'o', lock),
        RecordKey::Process(namespace, process) => put_names(&mut bytes, b'l', [namespace.as_str(), process.as_str()]),
        RecordKey::Delay(lock, token) => {
            put_lock(&mut bytes, b'd', lock);
            bytes.put_u64(token.as_u64());
        }
        RecordKey::History(namespace, number) => {
            put_names(&mut bytes, b'c', [namespace.as_str()]);
            bytes.put_u64(*number);
        }
    }
    bytes.freeze()
}

fn put_lock(bytes: &mut BytesMut, kind: u8, lock: &LockKey) {
    put_names(bytes, kind, [lock.namespace.as_str(), lock.name.as_str()]);
}

fn put_names<const N: usize>(bytes: &mut BytesMut, kind: u8, names: [&str; N]) {
    bytes.put_u8(kind);
    for name in names {
        bytes.put_slice(name.as_bytes());
        bytes.put_u8(0);
    }
}

fn put_session(bytes: &mut BytesMut, kind: u8, id: SessionId) {
    bytes.put_u8(kind);
    bytes.put_u64(id.as_u64());
}

/// Encodes a record's key and value as they are on disk and in snapshots.
#[must_use]
pub fn encode_record(key: &RecordKey, record: &Record) -> (Bytes, Bytes) {
    (encode_key(key), encode_message(Kind::Record, record))
}

/// Decodes the record with this key and value.
pub fn decode_record(key: &[u8], value: &[u8]) -> Result<(RecordKey, Record), DecodeError> {
    Ok((decode_key(key)?, decode_message(Kind::Record, value)?))
}

fn decode_key(bytes: &[u8]) -> Result<RecordKey, DecodeError> {
    let (kind, rest) = bytes.split_first().ok_or(DecodeError::Short { have: 0, want: 1 })?;
    let mut rest = Rest(rest);
    let key = match kind {
        b'g' => RecordKey::Globals,
        b'p' => RecordKey::Semaphore(rest.lock()?),
        b's' => RecordKey::Session(rest.session()?),
        b'f' => RecordKey::Finished(rest.session()?, rest.number()?),
        b't' => RecordKey::Tombstone(rest.session()?),
        b'h' => RecordKey::Holder(rest.lock()?, rest.token()?),
        b'w' => RecordKey::Waiter(rest.lock()?, rest.number()?),
        b'd' => RecordKey::Delay(rest.lock()?, rest.token()?),
        b'c' => RecordKey::History(rest.namespace()?, rest.number()?),
        b'k' => RecordKey::FinishedLease(rest.lock()?, LeaseRequestId(u128::from_be_bytes(rest.array()?))),
        b'o' => RecordKey::Document(rest.lock()?),
        b'l' => rest.process()?,
        b'n' => RecordKey::Node(rest.number()?),
        other => return Err(DecodeError::Malformed(format!("a key of kind {other}"))),
    };
    if !rest.0.is_empty() {
        return Err(DecodeError::Malformed(format!("{} bytes too many in a key", rest.0.len())));
    }
    Ok(key)
}

/// The part of a key that was not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(DecodeError::Short { have: self.0.len(), want: N })?;
        self.0 = rest;
        Ok(*head)
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<&str, DecodeError> {
        let malformed = |what: &str| DecodeError::Malformed(what.to_owned());
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(|| malformed("a name without its end"))?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        std::str::from_utf8(text).map_err(|_| malformed("a name that is not UTF-8"))
    }

    fn lock(&mut self) -> Result<LockKey, DecodeError> {
        let malformed = |invalid: crate::model::Invalid| DecodeError::Malformed(invalid.to_string());
        let namespace = self.namespace()?;
        let name = LockName::parse(self.text()?).map_err(malformed)?;
        Ok(LockKey { namespace, name })
    }

    fn namespace(&mut self) -> Result<Namespace, DecodeError> {
        Namespace::parse(self.text()?).map_err(|invalid| DecodeError::Malformed(invalid.to_string()))
    }

    fn process(&mut self) -> Result<RecordKey, DecodeError> {
        let malformed = |invalid: crate::model::Invalid| DecodeError::Malformed(invalid.to_string());
        let namespace = Namespace::parse(self.text()?).map_err(malformed)?;
        let process = ProcessId::parse(self.text()?).map_err(malformed)?;
        Ok(RecordKey::Process(namespace, process))
    }

    fn session(&mut self) -> Result<SessionId, DecodeError> {
        SessionId::from_u64(self.number()?).map_err(|invalid| DecodeError::Malformed(invalid.to_string()))
    }

    fn token(&mut self) -> Result<FencingToken, DecodeError> {
        FencingToken::from_u64(self.number()?).map_err(|invalid| DecodeError::Malformed(invalid.to_string()))
    }
}
