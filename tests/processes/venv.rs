//! Python environments with pinned packages, in the target folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Packages that the tests of reflection need in addition to those that the page for other languages installs.
const REFLECTION: &[&str] = &["grpcio-reflection==1.85.1", "typing_extensions==4.16.0"];

/// Like [`with_packages`], with the packages that the manual's page for other languages names.
pub(crate) fn for_grpc(page: &str) -> Option<PathBuf> {
    let named = page.split("`pip install ").nth(1).and_then(|rest| rest.split('`').next());
    let named = named.expect("the packages of the page").split_whitespace();
    with_packages(&named.chain(REFLECTION.iter().copied()).collect::<Vec<_>>())
}

/// Returns the Python interpreter of an environment with these packages. If it cannot be installed, prints why and
/// returns `None`, or fails if tests must not be skipped.
#[expect(clippy::print_stderr, reason = "a skipped test prints why")]
pub(crate) fn with_packages(wanted: &[&str]) -> Option<PathBuf> {
    let made = installed(wanted);
    if let Err(why) = &made {
        assert!(std::env::var_os("LOCKKEEPER_SKIP_NOTHING").is_none(), "{why}, and LOCKKEEPER_SKIP_NOTHING is set");
        eprintln!("SKIPPED: {why}");
    }
    made.ok()
}

fn installed(wanted: &[&str]) -> Result<PathBuf, String> {
    assert!(wanted.iter().all(|package| package.contains("==")), "each package needs a version: {wanted:?}");
    let below = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = below.join(format!("python-{}", wanted.join("-").replace("==", "-")));
    let python = |folder: &Path| folder.join("bin/python3");
    if python(&folder).is_file() {
        return Ok(python(&folder));
    }
    // The folder gets its name only when it is complete, so that an interrupted run leaves no partial folder under that
    // name.
    let draft = tempfile::tempdir_in(below).expect("a folder").keep();
    let made = run(Command::new("python3").args(["-m", "venv"]).arg(&draft))
        .and_then(|_| {
            let mut install = Command::new(python(&draft));
            run(install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(wanted))
        })
        .map_err(|why| format!("Python with {wanted:?} cannot be installed: {why}"));
    if let Err(why) = made {
        let _ = std::fs::remove_dir_all(&draft);
        return Err(why);
    }
    // If another run was faster, its folder is used.
    if std::fs::rename(&draft, &folder).is_err() {
        let _ = std::fs::remove_dir_all(&draft);
    }
    Ok(python(&folder))
}

/// Runs a program, which must succeed. Returns its standard output.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let printed = String::from_utf8_lossy(&stdout).into_owned();
    if status.success() {
        return Ok(printed);
    }
    Err(format!("{command:?}: {status}: {printed}{}", String::from_utf8_lossy(&stderr)))
}
