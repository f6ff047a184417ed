//! `--result FILE`: the outcome of a run, written completely or not at all.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use super::orders::Ended;
use crate::cli::files::Outcome;

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

    /// Writes the result as a line of JSON.
    pub(super) fn write(&self, file: Outcome) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        file.write(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The file has every field, null if it does not apply, and no temporary file remains.
    #[test]
    fn the_result_replaces_the_file_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        fs::write(&path, "old").unwrap();
        let file = Outcome::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old", "until the new one is whole");
        let mut result = RunResult { acquired: true, token: Some("7".into()), code: 137, ..RunResult::default() };
        result.child_ended(Ended::Signal(9));
        result.write(file).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let expected =
            r#"{"acquired":true,"lost":false,"child_exit":null,"signal":9,"code":137,"token":"7","tokens":{}}"#
                .to_owned()
                + "\n";
        assert_eq!(text, expected);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
