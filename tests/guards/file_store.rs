//! A store of one file each that refuses what comes from an earlier holder: the token stands in the file's first line, and
//! a write with an older token changes nothing.
//!
//! Compare and write are one step, because every writer takes the same operating-system lock for it. The new content is
//! written beside the old, made durable, and renamed over it: a reader sees the old file or the new one, and so does
//! whoever comes after a power cut.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is there, durably.
    Done,
    /// A later holder has written since: nothing was changed.
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
    /// The file under this path; it need not be there yet.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Writes as the holder with this token. The same holder may write as often as it likes.
    pub(crate) fn write(&self, token: u64, content: &[u8]) -> io::Result<Written> {
        let turn = File::create(self.beside("turn"))?;
        turn.lock()?;
        if let Some((newest, _)) = self.read()?.filter(|(newest, _)| token < *newest) {
            return Ok(Written::Stale { newest });
        }
        let new = self.beside("new");
        let mut file = File::create(&new)?;
        file.write_all(format!("{token}\n").as_bytes())?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        // The rename itself is durable only with its folder.
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(Written::Done)
    }

    /// The newest token and content; `None` where nobody has written yet.
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

    fn beside(&self, what: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{what}"));
        name.into()
    }
}
