//! `--result FILE`: what an exit code alone cannot tell, written whole or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::child::Ended;

/// What became of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct RunResult {
    /// The lock was held at some time.
    pub(super) acquired: bool,
    /// It was lost while it was held.
    pub(super) lost: bool,
    /// The command's own exit code, where it ended by itself.
    pub(super) child_exit: Option<u8>,
    /// The signal that ended the command, or the wait.
    pub(super) signal: Option<u8>,
    /// Exit code of the run.
    pub(super) code: u8,
    /// The grant's fencing token, of one lock.
    pub(super) token: Option<String>,
    /// The fencing tokens by name.
    pub(super) tokens: BTreeMap<String, String>,
}

impl RunResult {
    /// Takes note of how the command ended.
    pub(super) fn child_ended(&mut self, ended: Ended) {
        match ended {
            Ended::Code(code) => self.child_exit = Some(code),
            Ended::Signal(number) => self.signal = Some(number),
        }
    }

    /// Replaces the file: a reader sees the old one or this one, never a part. After a crash the same holds.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        let temporary = beside(path);
        let written = write_synced(&temporary, &text).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The error that matters is the first one.
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn write_synced(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file holds every field, null where there is nothing, and no temporary file stays.
    #[test]
    fn the_result_replaces_the_file_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        fs::write(&path, "old").unwrap();
        let mut result = RunResult { acquired: true, token: Some("7".into()), code: 137, ..RunResult::default() };
        result.child_ended(Ended::Signal(9));
        result.write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let expected =
            r#"{"acquired":true,"lost":false,"child_exit":null,"signal":9,"code":137,"token":"7","tokens":{}}"#
                .to_owned()
                + "\n";
        assert_eq!(text, expected);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// A directory that does not exist is an error, not a lost result.
    #[test]
    fn an_unwritable_result_is_an_error() {
        assert!(RunResult::default().write(Path::new("/nonexistent/result.json")).is_err());
    }
}
