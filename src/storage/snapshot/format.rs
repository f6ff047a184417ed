//! The format of a snapshot file, version 1.
//!
//! A file begins with `LOCKSNAP` and the version. Blocks follow: length, CRC-32 of kind and payload, kind, payload. The
//! first block is the head, the last one marks the end, and those between contain records (key length, value length,
//! key, value). Integers are little-endian. Nothing may follow the last block.

use std::io::{self, Read, Write};

use bytes::Bytes;

use crate::limits::{SNAPSHOT_BLOCK_BYTES, SNAPSHOT_BLOCK_MAX_BYTES};
use crate::storage::error::invalid_data;
use crate::storage::head::{Head, Tally};

const MAGIC: &[u8; 8] = b"LOCKSNAP";
const VERSION: u32 = 1;
const HEAD: u8 = 1;
const RECORDS: u8 = 2;
const END: u8 = 3;

/// Writes a snapshot, and verifies that the records match its head.
pub(in crate::storage) struct Builder<W> {
    output: W,
    head: Head,
    block: Vec<u8>,
    tally: Tally,
}

impl<W: Write> Builder<W> {
    pub(in crate::storage) fn new(mut output: W, head: Head) -> io::Result<Self> {
        output.write_all(MAGIC)?;
        output.write_all(&VERSION.to_le_bytes())?;
        write_block(&mut output, HEAD, &head.encode())?;
        Ok(Self { output, head, block: Vec::new(), tally: Tally::default() })
    }

    pub(in crate::storage) fn add(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.tally.add(key, value);
        for part in [key, value] {
            let length = u32::try_from(part.len()).map_err(|_| invalid_data("a record above 4 GiB"))?;
            self.block.extend_from_slice(&length.to_le_bytes());
        }
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value);
        if self.block.len() >= SNAPSHOT_BLOCK_BYTES {
            write_block(&mut self.output, RECORDS, &self.block)?;
            self.block.clear();
        }
        Ok(())
    }

    /// Completes the file. Returns `InvalidData` if the records do not match the head; the file is then unusable.
    pub(in crate::storage) fn finish(mut self) -> io::Result<W> {
        if let Some(difference) = self.tally.differs_from(&self.head) {
            return Err(invalid_data(difference));
        }
        if !self.block.is_empty() {
            write_block(&mut self.output, RECORDS, &self.block)?;
        }
        write_block(&mut self.output, END, &[])?;
        self.output.flush()?;
        Ok(self.output)
    }
}

fn write_block(output: &mut impl Write, kind: u8, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(|_| invalid_data("a block above 4 GiB"))?;
    output.write_all(&length.to_le_bytes())?;
    output.write_all(&checksum(kind, payload).to_le_bytes())?;
    output.write_all(&[kind])?;
    output.write_all(payload)
}

/// The checksum also covers the length, which is the number of bytes that it is computed over.
fn checksum(kind: u8, payload: &[u8]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(&[kind]);
    hash.update(payload);
    hash.finalize()
}

/// Reads a snapshot: first the head, then one record at a time. Checks count and digest after the last record.
pub(super) struct Parser<R> {
    input: R,
    pub(super) head: Head,
    block: Bytes,
    tally: Tally,
    ended: bool,
    /// Bytes read so far, for error messages.
    offset: u64,
}

impl<R: Read> Parser<R> {
    pub(super) fn new(mut input: R) -> io::Result<Self> {
        let mut start = [0; 12];
        input.read_exact(&mut start).map_err(|error| at(0, &error))?;
        let (magic, version) = start.split_at(8);
        if magic != MAGIC {
            return Err(at(0, &invalid_data("not a snapshot file")));
        }
        let version = u32::from_le_bytes([version[0], version[1], version[2], version[3]]);
        if version != VERSION {
            let what = format!("snapshot format {version}; this build reads 1 to {VERSION}");
            return Err(at(8, &invalid_data(what)));
        }
        let mut parser = Self {
            input,
            head: Head::default(),
            block: Bytes::new(),
            tally: Tally::default(),
            ended: false,
            offset: start.len() as u64,
        };
        let (kind, payload) = parser.next_block()?;
        if kind != HEAD {
            return Err(at(12, &invalid_data("no head")));
        }
        parser.head = Head::decode(&payload)?;
        Ok(parser)
    }

    fn next_block(&mut self) -> io::Result<(u8, Bytes)> {
        let offset = self.offset;
        self.read_block().map_err(|error| at(offset, &error))
    }

    fn read_block(&mut self) -> io::Result<(u8, Bytes)> {
        let mut frame = [0; 9];
        self.input.read_exact(&mut frame)?;
        let length = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
        if length > SNAPSHOT_BLOCK_MAX_BYTES {
            return Err(invalid_data("a block above the bound"));
        }
        let mut payload = vec![0; length];
        self.input.read_exact(&mut payload)?;
        let expected = u32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]]);
        if checksum(frame[8], &payload) != expected {
            return Err(invalid_data("a block does not match its checksum"));
        }
        self.offset += (frame.len() + length) as u64;
        Ok((frame[8], payload.into()))
    }

    fn next_record(&mut self) -> io::Result<Option<(Bytes, Bytes)>> {
        while self.block.is_empty() {
            if self.ended {
                return Ok(None);
            }
            let (kind, payload) = self.next_block()?;
            match kind {
                RECORDS => self.block = payload,
                END => return self.end().map(|()| None),
                _ => return Err(at(self.offset, &invalid_data("a block of an unknown kind"))),
            }
        }
        let (key, value) = (self.length(0)?, self.length(4)?);
        if self.block.len() < 8 + key + value {
            return Err(at(self.offset, &invalid_data("a record runs out of its block")));
        }
        let mut record = self.block.split_to(8 + key + value).split_off(8);
        let key = record.split_to(key);
        self.tally.add(&key, &record);
        Ok(Some((key, record)))
    }

    fn length(&self, from: usize) -> io::Result<usize> {
        let bytes = self.block.get(from..from + 4).ok_or_else(|| invalid_data("half a record"))?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    }

    fn end(&mut self) -> io::Result<()> {
        self.ended = true;
        if self.input.read(&mut [0])? != 0 {
            return Err(at(self.offset, &invalid_data("bytes behind the end")));
        }
        self.tally.differs_from(&self.head).map_or(Ok(()), |what| Err(at(self.offset, &invalid_data(what))))
    }
}

impl<R: Read> Iterator for Parser<R> {
    type Item = io::Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.next_record();
        // After an error the start of the next block is unknown, so nothing more is read.
        self.ended |= record.is_err();
        if record.is_err() {
            self.block = Bytes::new();
        }
        record.transpose()
    }
}

fn at(offset: u64, error: &io::Error) -> io::Error {
    // A snapshot that ends early is damaged. Only a log can have a torn tail.
    let short = error.kind() == io::ErrorKind::UnexpectedEof;
    let kind = if short { io::ErrorKind::InvalidData } else { error.kind() };
    io::Error::new(kind, format!("offset {offset}: {error}"))
}
