//! Sets the wall clock of a running node. `libfaketime` reads the offset from a file. The monotonic clock, which leases
//! use, is unchanged.

use std::fs;
use std::path::{Path, PathBuf};

/// The paths of the library on Debian and other distributions.
const LIBRARIES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
];

/// Returns an error if the library is not installed.
pub(crate) fn possible() -> Result<(), String> {
    library().map(drop).ok_or_else(|| "libfaketime is not installed".to_owned())
}

fn library() -> Option<&'static str> {
    LIBRARIES.into_iter().find(|path| Path::new(path).exists())
}

fn file(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("clock{node}"))
}

/// Starts every wall clock without an offset.
pub(crate) fn build(folder: &Path) {
    (1..=3).for_each(|node| set(folder, node, 0));
}

/// Sets a node's wall clock ahead by this many seconds, or back if negative.
pub(crate) fn set(folder: &Path, node: usize, seconds: i64) {
    // The library reads the file once a second and must not see a partly written file.
    let (file, new) = (file(folder, node), folder.join("clock.new"));
    fs::write(&new, format!("{seconds:+}s\n")).and_then(|()| fs::rename(new, file)).expect("a file");
}

/// The environment with which a node is started, so that its clock can be set later.
pub(crate) fn environment(folder: &Path, node: usize) -> Vec<(String, String)> {
    let Some(library) = library() else { return Vec::new() };
    let file = file(folder, node);
    let variables = [
        ("LD_PRELOAD", library),
        ("FAKETIME_TIMESTAMP_FILE", file.to_str().expect("a path of plain letters")),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
        ("FAKETIME_CACHE_DURATION", "1"),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}
