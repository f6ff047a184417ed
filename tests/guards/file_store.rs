//! A file that refuses writes of earlier holders: its first line is the token, and a write with an older token changes
//! nothing.
//!
//! Comparing and writing are one step, because every writer takes the same operating-system lock. The new content is
//! written to another file, made durable, and renamed over the old one: a reader sees the old file or the new one, even
//! after a power failure.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// The content is durable.
    Done,
    /// A later holder has written before, so nothing was changed.
    Stale {
        /// The later holder's token.
        newest: u64,
    },
}

/// One guarded file.
#[derive(Debug, Clone)]
pub(crate) struct GuardedFile {
    path: PathBuf,
}

impl GuardedFile {
    /// The file with this path, which need not exist yet.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Writes as the holder with this token, which may write repeatedly.
    pub(crate) fn write(&self, token: u64, content: &[u8]) -> io::Result<Written> {
        let turn = File::create(self.sibling("turn"))?;
        turn.lock()?;
        if let Some((newest, _)) = self.read()?.filter(|(newest, _)| token < *newest) {
            return Ok(Written::Stale { newest });
        }
        let new = self.sibling("new");
        let mut file = File::create(&new)?;
        file.write_all(format!("{token}\n").as_bytes())?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        // The rename is durable only after a sync of its directory.
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(Written::Done)
    }

    /// The newest token and content; `None` if no holder has written yet.
    pub(crate) fn read(&self) -> io::Result<Option<(u64, Vec<u8>)>> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "its first line is no token");
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
        let token = std::str::from_utf8(&bytes[..end]).ok().and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
        Ok(Some((token, bytes[end + 1..].to_vec())))
    }

    fn sibling(&self, what: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{what}"));
        name.into()
    }
}
