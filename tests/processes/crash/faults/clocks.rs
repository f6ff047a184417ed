//! Wall clocks that are set while a node runs. `libfaketime` reads what they show from a file; the monotonic clock, by
//! which leases are counted, stays as it is.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian and others put the library.
const LIBRARIES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
];

/// What this needs.
pub(super) fn possible() -> Result<(), String> {
    library().map(drop).ok_or_else(|| "libfaketime is not installed".to_owned())
}

fn library() -> Option<&'static str> {
    LIBRARIES.into_iter().find(|path| Path::new(path).exists())
}

fn file(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("clock{node}"))
}

/// Wall clocks begin as they are.
pub(crate) fn build(folder: &Path) {
    (1..=3).for_each(|node| set(folder, node, 0));
}

/// Sets a node's wall clock so many seconds ahead, or back.
pub(super) fn set(folder: &Path, node: usize, seconds: i64) {
    // The library reads the file once a second: it never sees half of one.
    let (file, new) = (file(folder, node), folder.join("clock.new"));
    fs::write(&new, format!("{seconds:+}s\n")).and_then(|()| fs::rename(new, file)).expect("a file");
}

/// What a node is started with, so that its clock can be set.
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
