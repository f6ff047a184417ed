//! How much of its disk a node uses.

use std::io;
use std::path::Path;

use super::open::MIRROR;

/// Sizes that belong to a node's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Size of the mirror's files, in bytes.
    pub mirror_bytes: u64,
    /// Space that the node may still use in the file system of its directory, in bytes.
    pub free_bytes: u64,
}

impl DiskUse {
    /// Measures a node's directory. Blocks for as long as the file system takes.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn of(data: &Path) -> io::Result<Self> {
        let system = rustix::fs::statvfs(data)?;
        Ok(Self {
            mirror_bytes: size_of(&data.join(MIRROR))?,
            free_bytes: system.f_bavail.saturating_mul(system.f_frsize),
        })
    }
}

/// Returns the size of all files below a directory; 0 if there is no such directory.
fn size_of(directory: &Path) -> io::Result<u64> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut bytes = 0;
    for entry in entries {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(data) if data.is_dir() => size_of(&entry.path())?,
            Ok(data) => data.len(),
            // The mirror may remove a file at any time.
            Err(_) => 0,
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of the mirror count, those in its folders included, and no other file.
    #[test]
    fn the_files_of_the_mirror_are_added_up() {
        let data = tempfile::tempdir().expect("a directory");
        let blobs = data.path().join(MIRROR).join("blobs");
        assert_eq!(DiskUse::of(data.path()).expect("measured").mirror_bytes, 0);
        std::fs::create_dir_all(&blobs).expect("a directory");
        for (path, bytes) in
            [(blobs.join("1"), 7), (blobs.with_file_name("db"), 30), (data.path().join("other"), 1_000)]
        {
            std::fs::write(path, vec![0; bytes]).expect("written");
        }
        let used = DiskUse::of(data.path()).expect("measured");
        assert_eq!(used.mirror_bytes, 37);
        assert!(0 < used.free_bytes);
        assert!(DiskUse::of(&data.path().join("none")).is_err());
    }
}
