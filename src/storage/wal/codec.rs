//! The encoding of votes, ids and payloads in the files of the log: fixed-size big-endian integers, and one length that
//! has a checksum.
//!
//! A damaged length looks like a torn tail, because everything after it seems to be missing. So the length has a
//! separate checksum. Input that ends early is `UnexpectedEof`, any other damage is `InvalidData`. The caller thereby
//! distinguishes a crash from damage.

use std::io::{self, Read, Write};

use bytes::Bytes;
use raft_log::codeq::{Decode, Encode};
use raft_log::{Callback, RaftWalTypes, Types, WALRecord};

use super::Done;
use crate::limits::WAL_RECORD_BYTES;
use crate::storage::error::invalid_data;
use crate::storage::ids::{LogId, Vote};

/// One record of the log as `raft-log` writes it.
pub(super) type Record = WALRecord<RaftWalTypes<WalTypes>>;

/// Type parameters of `raft-log`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WalTypes;

impl Types for WalTypes {
    type LogId = LogId;
    type LogPayload = Payload;
    type Vote = Vote;
    type Callback = FlushCallback;
    type UserData = String;

    fn log_index(log_id: &LogId) -> u64 {
        log_id.index
    }

    fn payload_size(payload: &Payload) -> u64 {
        payload.bytes.len() as u64
    }
}

/// The bytes of one entry, and the offset up to which the log was synced before they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Payload {
    /// An earlier sync covers everything before this offset of the whole log, and the flush thread writes nothing
    /// before that sync has completed. So damage before the `window_start` of an intact record is not a torn tail.
    pub(super) window_start: u64,
    pub(super) bytes: Bytes,
}

/// Calls a [`Done`] exactly once, even if the flush thread panics and drops it.
pub(super) struct FlushCallback(Option<Done>);

impl FlushCallback {
    pub(super) fn new(done: Done) -> Self {
        Self(Some(done))
    }
}

impl Callback for FlushCallback {
    fn send(mut self, result: Result<(), io::Error>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl Drop for FlushCallback {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(flush_thread_stopped()));
        }
    }
}

/// The error of a request that the flush thread left behind when it stopped. It does not say why the thread stopped.
pub(super) fn flush_thread_stopped() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the log's flush thread has stopped")
}

impl Encode for LogId {
    fn encode<W: Write>(&self, mut w: W) -> io::Result<usize> {
        for word in [self.term, self.node, self.index] {
            w.write_all(&word.to_be_bytes())?;
        }
        Ok(24)
    }
}

impl Decode for LogId {
    fn decode<R: Read>(mut r: R) -> io::Result<Self> {
        Ok(Self { term: word(&mut r)?, node: word(&mut r)?, index: word(&mut r)? })
    }
}

impl Encode for Vote {
    fn encode<W: Write>(&self, mut w: W) -> io::Result<usize> {
        w.write_all(&self.term.to_be_bytes())?;
        w.write_all(&self.node.to_be_bytes())?;
        w.write_all(&[u8::from(self.committed)])?;
        Ok(17)
    }
}

impl Decode for Vote {
    fn decode<R: Read>(mut r: R) -> io::Result<Self> {
        let (term, node) = (word(&mut r)?, word(&mut r)?);
        let mut committed = [0];
        r.read_exact(&mut committed)?;
        if committed[0] > 1 {
            return Err(invalid_data("a vote that is neither granted nor asked for"));
        }
        Ok(Self { term, node, committed: committed[0] == 1 })
    }
}

const FIXED_BYTES: usize = 4 + 8;

impl Encode for Payload {
    fn encode<W: Write>(&self, mut w: W) -> io::Result<usize> {
        let length = u32::try_from(self.bytes.len()).map_err(|_| invalid_data("a payload above 4 GiB"))?;
        let mut fixed = [0; FIXED_BYTES];
        fixed[..4].copy_from_slice(&length.to_be_bytes());
        fixed[4..].copy_from_slice(&self.window_start.to_be_bytes());
        w.write_all(&fixed)?;
        w.write_all(&crc32fast::hash(&fixed).to_be_bytes())?;
        w.write_all(&self.bytes)?;
        Ok(FIXED_BYTES + 4 + self.bytes.len())
    }
}

impl Decode for Payload {
    fn decode<R: Read>(mut r: R) -> io::Result<Self> {
        let (mut fixed, mut check) = ([0; FIXED_BYTES], [0; 4]);
        r.read_exact(&mut fixed)?;
        r.read_exact(&mut check)?;
        if crc32fast::hash(&fixed) != u32::from_be_bytes(check) {
            return Err(invalid_data("the length of a payload does not match its checksum"));
        }
        let (length, window) = fixed.split_at(4);
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        if length > WAL_RECORD_BYTES {
            return Err(invalid_data("a payload above the bound"));
        }
        let mut bytes = vec![0; length];
        r.read_exact(&mut bytes)?;
        Ok(Self { window_start: word(window)?, bytes: bytes.into() })
    }
}

fn word(mut r: impl Read) -> io::Result<u64> {
    let mut word = [0; 8];
    r.read_exact(&mut word)?;
    Ok(u64::from_be_bytes(word))
}
