//! Snapshot files: framed, checksummed, and named by their entry. A follower that is far behind receives one, and a
//! backup is one.

mod file;
mod format;
mod receive;
#[cfg(test)]
mod tests;

pub use file::SnapshotFile;
pub(super) use file::{file_name, received_name};
pub(super) use format::Builder;
pub use receive::{ReceivedSnapshot, SnapshotWriter};
