//! The Python programs of the manual and of the README run with the client of `scripts/python`, at real nodes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cluster::Cluster;
use crate::lock_command::{code, count, shown};
use crate::venv;
use crate::wait::block_until;

/// The pages whose samples of Python use the client.
const PAGES: [&str; 3] = ["src/manual/python.md", "README.md", "scripts/python/README.md"];
/// Tests of the client that wait for outages of several seconds, or need their machine alone.
const LONG: [&str; 3] = ["test_contention", "test_failures", "test_process"];
/// What the other tests of the client import. `scripts/judge-python.sh` has their versions.
const PACKAGES: [&str; 3] = ["pytest==", "pytest-timeout==", "hypothesis=="];
/// Exits with 0 if this Python is new enough for the client.
const NEW_ENOUGH: &str = "import sys; sys.exit(sys.version_info < (3, 11))";

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/python")
}

/// Whether Python can run the client. If not, prints why, or fails if tests must not be skipped.
fn is_there() -> bool {
    let found = Command::new("python3").args(["-c", NEW_ENOUGH]).stdin(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        assert!(std::env::var_os("LOCKKEEPER_SKIP_NOTHING").is_none(), "there is no Python 3.11 or newer");
        eprintln!("SKIPPED: there is no Python 3.11 or newer");
    }
    found
}

/// The samples of a page as one program, each after the previous one.
fn program(page: &str) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).expect("a page");
    let samples = text.split("\n```python\n").skip(1).map(|rest| rest.split("\n```").next().expect("a sample"));
    samples.fold(String::new(), |mut whole, sample| {
        writeln!(whole, "{sample}").expect("memory");
        whole
    })
}

/// Runs a program with the addresses of the nodes, and returns what it printed.
fn run(program: &str, http: &str) -> Result<String, String> {
    let output = Command::new("python3")
        .args(["-W", "error", "-c", program])
        .env("PYTHONPATH", package().join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LOCKKEEPER_HTTP", http)
        .env("LOCKKEEPER_BIN", env!("CARGO_BIN_EXE_lockkeeper"))
        .env_remove("LOCKKEEPER_NAMESPACE")
        .stdin(Stdio::null())
        .output()
        .expect("Python");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(printed) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// The HTTP addresses of all nodes, as `LOCKKEEPER_HTTP` has them.
fn addresses(cluster: &Cluster) -> String {
    (1..=3).map(|node| format!("http://{}", cluster.http(node))).collect::<Vec<_>>().join(",")
}

/// Each program of the pages ends without an error, and prints the token of its lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_programs_of_the_pages_run() {
    if !is_there() {
        return;
    }
    let cluster = Cluster::start().await;
    let http = addresses(&cluster);
    for page in PAGES {
        // The README has a minute of work, which its reader interrupts.
        let program = program(page).replace("asyncio.sleep(60)", "asyncio.sleep(0.1)");
        let printed = run(&program, &http).unwrap_or_else(|why| panic!("{page}: {why}"));
        assert!(printed.contains(|c: char| c.is_ascii_digit()), "{page}: {printed}");
    }
    let wrong = run("from lockkeeper_client import Client\nClient('ftp://a:1')\n", &http).expect_err("no such scheme");
    assert!(wrong.contains("InvalidArgument: endpoints"), "{wrong}");
}

/// The program of the README for asyncio is cancelled when an operator breaks its hold, long before its work is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_cancels_the_program_of_the_readme() {
    if !is_there() {
        return;
    }
    let cluster = Cluster::start().await;
    let (http, endpoints) = (addresses(&cluster), cluster.endpoints().join(","));
    let samples = program("README.md");
    let sample = samples[samples.find("import asyncio").expect("the program")..].to_owned();
    let running = tokio::task::spawn_blocking(move || run(&sample, &http));
    block_until("the program has the lock", || count(&endpoints, "nightly", "holders") == 1);
    let held = shown(&endpoints, "nightly");
    let token = held["holders"][0]["token"].as_str().expect("a token");
    assert_eq!(code(&endpoints, &["break", "nightly", token, "--why", "its host is dead"]), Some(0));
    let why = running.await.expect("no panic").expect_err("its work is cancelled");
    assert!(why.contains("LockLost"), "{why}");
}

/// The tests of the client pass at real nodes, except the long ones: `scripts/judge-python.sh` runs all.
#[test]
fn the_short_tests_of_the_client_pass() {
    if !is_there() {
        return;
    }
    let judge = std::fs::read_to_string(package().join("../judge-python.sh")).expect("a script");
    let list = judge.split("wanted=(").nth(1).and_then(|rest| rest.split(')').next()).expect("a list of packages");
    let wanted: Vec<_> =
        list.split_whitespace().filter(|one| PACKAGES.iter().any(|name| one.starts_with(name))).collect();
    assert_eq!(wanted.len(), PACKAGES.len(), "{list}");
    let Some(python) = venv::with_packages(&wanted) else { return };
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    pytest.args(LONG.map(|file| format!("--ignore=tests/{file}.py"))).current_dir(package());
    for variable in ["LOCKKEEPER_HTTP", "LOCKKEEPER_NAMESPACE", "LOCKKEEPER_AUTH_TOKEN_FILE"] {
        pytest.env_remove(variable);
    }
    let scratch = tempfile::tempdir().expect("a folder");
    pytest.env("HYPOTHESIS_STORAGE_DIRECTORY", scratch.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    let printed = venv::run(pytest.env("LOCKKEEPER_BIN", env!("CARGO_BIN_EXE_lockkeeper")).stdin(Stdio::null()));
    let printed = printed.unwrap_or_else(|why| panic!("{why}"));
    assert!(printed.contains(" passed") && !printed.contains("skipped"), "{printed}");
}

/// The package has no dependency, and the version of the crate.
#[test]
fn the_package_needs_nothing_else() {
    let manifest = std::fs::read_to_string(package().join("pyproject.toml")).expect("a manifest");
    assert!(manifest.contains("\ndependencies = []\n"), "{manifest}");
    assert!(manifest.contains(&format!("\nversion = \"{}\"\n", env!("CARGO_PKG_VERSION"))), "the version of the crate");
}
