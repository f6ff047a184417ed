//! `--result FILE`: the outcome of a run, written completely or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::orders::Ended;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct RunResult {
    /// Whether the lock was held at some time.
    pub(super) acquired: bool,
    /// Whether the lock was lost while it was held.
    pub(super) lost: bool,
    /// Exit code of the command; `None` if a signal ended it.
    pub(super) child_exit: Option<u8>,
    /// The signal that ended the command, or the wait.
    pub(super) signal: Option<u8>,
    /// Exit code of the run.
    pub(super) code: u8,
    /// The fencing token of the grant, if one lock was requested.
    pub(super) token: Option<String>,
    /// The fencing tokens by lock name.
    pub(super) tokens: BTreeMap<String, String>,
}

impl RunResult {
    /// Records how the command ended.
    pub(super) fn child_ended(&mut self, ended: Ended) {
        match ended {
            Ended::Code(code) => self.child_exit = Some(code),
            Ended::Signal(number) => self.signal = Some(number),
        }
    }
}

/// The result file, opened before any request is sent.
#[derive(Debug)]
pub(super) struct ResultFile {
    path: PathBuf,
    /// The path of the new file until it replaces the old one; `None` for a device or a pipe, which is written
    /// directly.
    temporary: Option<PathBuf>,
    file: File,
}

impl ResultFile {
    /// Opens the file. The result of an earlier run remains until the new one is complete.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let kind = fs::metadata(path).map(|there| there.file_type());
        if kind.as_ref().is_ok_and(|kind| !kind.is_file()) {
            let file = File::options().write(true).open(path)?;
            return Ok(Self { path: path.to_owned(), temporary: None, file });
        }
        let temporary = temporary_path(path);
        let file = File::create(&temporary)?;
        Ok(Self { path: path.to_owned(), temporary: Some(temporary), file })
    }

    /// Replaces the file atomically. This holds for a crash, too.
    pub(super) fn write(mut self, result: &RunResult) -> io::Result<()> {
        let mut text = serde_json::to_vec(result)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        let Some(temporary) = &self.temporary else { return Ok(()) };
        self.file.sync_all()?;
        fs::rename(temporary, &self.path)?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Only the first error is reported.
            let _ = fs::remove_file(temporary);
        }
    }
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file has every field, null if it does not apply, and no temporary file remains.
    #[test]
    fn the_result_replaces_the_file_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        fs::write(&path, "old").unwrap();
        let file = ResultFile::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old", "until the new one is whole");
        let mut result = RunResult { acquired: true, token: Some("7".into()), code: 137, ..RunResult::default() };
        result.child_ended(Ended::Signal(9));
        file.write(&result).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let expected =
            r#"{"acquired":true,"lost":false,"child_exit":null,"signal":9,"code":137,"token":"7","tokens":{}}"#
                .to_owned()
                + "\n";
        assert_eq!(text, expected);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// A file that cannot be opened is an error before the run. A result that is never written leaves no file, and a
    /// device is not replaced.
    #[test]
    fn an_unwritable_result_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(ResultFile::open(Path::new("/nonexistent/result.json")).is_err());
        assert!(ResultFile::open(directory.path()).is_err());
        drop(ResultFile::open(&directory.path().join("result.json")).unwrap());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let null = Path::new("/dev/null");
        ResultFile::open(null).unwrap().write(&RunResult::default()).unwrap();
        assert!(!fs::metadata(null).unwrap().is_file());
    }
}
