//! A PostgreSQL server for one test: in a temporary directory, on a Unix socket, removed with the test.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Debian's user without rights, because PostgreSQL refuses to run as root.
const OTHER_USER: u32 = 65_534;

/// A running server.
pub(crate) struct Server {
    programs: PathBuf,
    folder: tempfile::TempDir,
}

/// The directory with `initdb` and `pg_ctl`: in the path, or Debian's directory for the newest version.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut versions: Vec<_> = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().collect();
    versions.sort_by_key(|version| version.file_name().to_string_lossy().parse::<u32>().unwrap_or_default());
    let debian = versions.into_iter().rev().map(|version| version.path().join("bin"));
    let complete = |folder: &PathBuf| ["initdb", "pg_ctl"].iter().all(|program| folder.join(program).is_file());
    std::env::split_paths(&path).chain(debian).find(complete)
}

/// Starts a server. Returns `None` with a message if PostgreSQL is not installed; a run that must not skip tests fails.
pub(crate) fn started() -> Option<Server> {
    let psql = Command::new("psql").arg("--version").output().is_ok_and(|output| output.status.success());
    let Some(programs) = programs().filter(|_| psql) else {
        assert!(
            std::env::var_os("LOCKKEEPER_SKIP_NOTHING").is_none(),
            "PostgreSQL is not installed, and LOCKKEEPER_SKIP_NOTHING is set"
        );
        eprintln!("SKIPPED: PostgreSQL is not installed (Debian: apt-get install postgresql)");
        return None;
    };
    let server = Server { programs, folder: tempfile::tempdir().expect("a folder") };
    if runs_as_root() {
        std::os::unix::fs::chown(server.folder.path(), Some(OTHER_USER), Some(OTHER_USER)).expect("given away");
    }
    let data = server.data();
    server.run("initdb", &["-D", &data, "-U", "lockkeeper", "-A", "trust", "-E", "UTF8", "--no-sync"]);
    let options = format!("-k {} -c listen_addresses='' -c fsync=off", server.socket());
    let log = server.folder.path().join("log").display().to_string();
    server.run("pg_ctl", &["-D", &data, "-l", &log, "-o", &options, "-w", "start"]);
    Some(server)
}

fn runs_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Server {
    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    /// The directory of its socket, which is the host of a connection.
    pub(crate) fn socket(&self) -> String {
        Path::display(self.folder.path()).to_string()
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.output(program, arguments);
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        assert!(output.status.success(), "{program}: {}\n{log}", String::from_utf8_lossy(&output.stderr));
    }

    fn output(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).current_dir(self.folder.path());
        if runs_as_root() {
            command.uid(OTHER_USER).gid(OTHER_USER);
        }
        // A server that outlives `pg_ctl` must not hold its pipes.
        command.stdout(std::process::Stdio::null()).output().expect("run")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.output("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
    }
}
