//! Checks of a node's directory: what it is, its free space, and how fast its disk syncs.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use rustix::process::geteuid;

use super::finding::Finding;
use crate::cli::text::ms;
use crate::clock::{Clock, SystemClock, micros};
use crate::config::Config;
use crate::limits::{
    DOCTOR_FREE_BYTES_MIN, DOCTOR_FREE_PERCENT_WARN, DOCTOR_SYNC_BYTES, DOCTOR_SYNC_US_WARN, DOCTOR_SYNCS,
};
use crate::node;

/// Checks the directory of a node. Returns also whether a node has it open.
pub(super) fn checks(config: &Config) -> (Vec<Finding>, bool) {
    let (data, in_use) = directory(config);
    let Some(exists) = nearest(&config.data) else { return (vec![data], in_use) };
    let slow_ms = config.timing.heartbeat_ms;
    (vec![data, space(exists), syncs(exists, slow_ms)], in_use)
}

/// Returns the directory, or the nearest one above it that exists.
fn nearest(dir: &Path) -> Option<&Path> {
    let above = dir.ancestors().find(|dir| dir.is_dir());
    above.or_else(|| dir.is_relative().then(|| Path::new(".")))
}

/// Name of the check of the directory.
const DATA: &str = "data";

/// Checks that the directory belongs to this node and this user.
fn directory(config: &Config) -> (Finding, bool) {
    let dir = config.data.display();
    let examined = match node::examine(config) {
        Ok(examined) => examined,
        Err(error) => return (Finding::fail(DATA, error.to_string(), "see the manual's page on failures"), false),
    };
    let owner = std::fs::metadata(&config.data).map(|metadata| metadata.uid());
    if let Some(fault) = owner.ok().and_then(|owner| of_another(&config.data, owner, geteuid().as_raw())) {
        return (fault, examined.in_use);
    }
    if let Some(exposure) = examined.exposure {
        let (what, fix) = exposure.rsplit_once("; ").unwrap_or((&exposure, "make it private"));
        return (Finding::warn(DATA, what, fix), examined.in_use);
    }
    let state = match (examined.founded, examined.in_use) {
        (_, true) => "a process has it open",
        (true, false) => "belongs to this node, which does not run",
        (false, false) => "is empty: the node founds it at its first start",
    };
    (Finding::ok(DATA, format!("{dir} {state}")), examined.in_use)
}

/// Returns the failure of a directory that belongs to another user than this one, unless this is root.
fn of_another(dir: &Path, owner: u32, user: u32) -> Option<Finding> {
    if owner == user || user == 0 {
        return None;
    }
    let detail = format!("{} belongs to the user with id {owner}, and this is user {user}", dir.display());
    Some(Finding::fail(DATA, detail, "run this as the node's user, or change the owner"))
}

/// Checks the free space of the disk.
fn space(dir: &Path) -> Finding {
    match statvfs(dir) {
        Ok(disk) => free(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize),
        Err(error) => {
            let detail = format!("the free space of {} is unknown: {error}", dir.display());
            Finding::warn("space", detail, "check the path")
        }
    }
}

fn free(bytes: u64, all: u64) -> Finding {
    let percent = bytes.saturating_mul(100) / all.max(1);
    let detail = format!("{} MB free, {percent} % of the disk", bytes >> 20);
    let advice = "a full disk stops the node: free some space, or move its data";
    if bytes < DOCTOR_FREE_BYTES_MIN {
        return Finding::fail("space", detail, advice);
    }
    if percent < DOCTOR_FREE_PERCENT_WARN {
        return Finding::warn("space", detail, advice);
    }
    Finding::ok("space", detail)
}

/// Measures how long a synced write takes on this disk.
fn syncs(dir: &Path, heartbeat_ms: u64) -> Finding {
    let measured = Probe::new(dir).and_then(|mut probe| probe.measured());
    match measured {
        Ok(p99_us) => {
            let detail = format!(
                "{DOCTOR_SYNCS} synced writes of {DOCTOR_SYNC_BYTES} bytes in {}: p99 {} ms (want {} ms)",
                dir.display(),
                ms(p99_us),
                DOCTOR_SYNC_US_WARN / 1_000
            );
            let advice = "each commit waits for the disks of a majority: take one with power-loss protection";
            let bounds = [Some(DOCTOR_SYNC_US_WARN), Some(heartbeat_ms * 1_000)];
            Finding::below("disk", p99_us, bounds, detail, advice)
        }
        Err(error) => {
            let detail = format!("nothing can be written in {}: {error}", dir.display());
            Finding::fail("disk", detail, "make it writable for the node's user")
        }
    }
}

/// A file for measuring, removed at the end.
struct Probe {
    path: PathBuf,
    file: File,
}

impl Probe {
    fn new(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("doctor-{}.tmp", std::process::id()));
        let file = File::options().write(true).create_new(true).open(&path)?;
        Ok(Self { path, file })
    }

    /// Returns the 99th percentile of the time of a synced write, in microseconds.
    fn measured(&mut self) -> io::Result<u64> {
        let (clock, block) = (SystemClock::monotonic(), [0; DOCTOR_SYNC_BYTES]);
        let mut took = Vec::with_capacity(DOCTOR_SYNCS);
        for _ in 0..DOCTOR_SYNCS {
            let begun = clock.now();
            self.file.write_all(&block)?;
            self.file.sync_data()?;
            took.push(micros(clock.now().since(begun)));
        }
        took.sort_unstable();
        Ok(took[took.len() * 99 / 100])
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // A leftover is small, and a start of the node removes it.
        drop(std::fs::remove_file(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    /// The directory of another user is a failure that names both users. Root may use every directory.
    #[test]
    fn a_directory_of_another_user_fails() {
        let found = |owner, user| of_another(Path::new("/srv/n1"), owner, user);
        let fault = found(990, 1_000).expect("another user");
        let detail = "/srv/n1 belongs to the user with id 990, and this is user 1000";
        assert_eq!((fault.level, &*fault.detail), (Level::Fail, detail));
        assert_eq!([found(990, 990), found(990, 0)], [None, None]);
    }

    /// A nearly full disk is a warning, and one with less than the node may need is a failure.
    #[test]
    fn free_space_is_judged() {
        let level = |free_gib: u64, all_gib: u64| free(free_gib << 30, all_gib << 30).level;
        assert_eq!([level(100, 500), level(20, 500), level(1, 5)], [Level::Ok, Level::Warn, Level::Fail]);
    }

    /// The measurement leaves no file, and a disk that is slower than a heartbeat fails.
    #[test]
    fn a_disk_is_measured() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(syncs(folder.path(), 0).level == Level::Fail, "no disk syncs within 0 ms");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
        assert_eq!(syncs(&folder.path().join("missing"), 50).level, Level::Fail);
    }
}
