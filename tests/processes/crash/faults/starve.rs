//! A node that gets one twentieth of a processor: a control group of either version.

use std::fs;
use std::path::{Path, PathBuf};

/// The processors' groups: of version 1, and of version 2.
const GROUPS: [(&str, &str); 2] = [("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"), ("/sys/fs/cgroup", "cpu.max")];
const PERIOD_US: u32 = 100_000;
const QUOTA_US: u32 = 5_000;

/// What this needs: a group can be made that has a limit.
pub(super) fn possible() -> Result<(), String> {
    let probe = format!("lockkeeper-probe-{}", std::process::id());
    let made = GROUPS.iter().find(|(groups, limit)| {
        let group = Path::new(groups).join(&probe);
        let made = fs::create_dir(&group).is_ok() && group.join(limit).exists();
        fs::remove_dir(&group).ok();
        made
    });
    made.map(drop).ok_or_else(|| "no control group with a limit on processors can be made".to_owned())
}

/// A node's group, which is made at the first call.
pub(crate) fn group(folder: &Path, node: usize) -> Option<PathBuf> {
    let name = folder.file_name()?.to_str()?;
    GROUPS.iter().find_map(|(groups, limit)| {
        let group = Path::new(groups).join(format!("lockkeeper{name}-{node}"));
        fs::create_dir(&group).ok();
        group.join(limit).exists().then_some(group)
    })
}

/// Takes the groups away; nobody may be in them any more.
pub(crate) fn forget(folder: &Path) {
    for group in (1..=3).filter_map(|node| group(folder, node)) {
        fs::remove_dir(group).ok();
    }
}

/// Puts a process into the group and takes most of the processor from it.
pub(super) fn starve(group: &Path, process: u32) {
    fs::write(group.join("cgroup.procs"), process.to_string()).expect("a process in the group");
    limit(group, Some(QUOTA_US));
}

/// Gives it all back. The process stays in the group.
pub(super) fn feed(group: &Path) {
    limit(group, None);
}

fn limit(group: &Path, quota_us: Option<u32>) {
    let (file, text) = if group.join("cpu.max").exists() {
        ("cpu.max", format!("{} {PERIOD_US}", quota_us.map_or("max".to_owned(), |quota| quota.to_string())))
    } else {
        ("cpu.cfs_quota_us", quota_us.map_or("-1".to_owned(), |quota| quota.to_string()))
    };
    fs::write(group.join(file), text).expect("a limit");
}
