//! Snapshot files: framed, checksummed, named by their entry; what a far-behind follower receives and a backup keeps.

mod file;
mod format;
mod receive;
#[cfg(test)]
mod tests;

pub use file::SnapshotFile;
pub(super) use file::{file_name, received_name};
pub(super) use format::Builder;
pub use receive::{ReceivedSnapshot, SnapshotWriter};
