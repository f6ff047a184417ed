//! Limits a node to one twentieth of a processor with a control group of version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};

/// The parents of processor groups and the file with the limit: version 1, then version 2.
const GROUPS: [(&str, &str); 2] = [("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"), ("/sys/fs/cgroup", "cpu.max")];
const PERIOD_US: u32 = 100_000;
const QUOTA_US: u32 = 5_000;

/// Returns an error if no control group with a limit can be created.
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

/// The group of a node, created at the first call.
pub(crate) fn group(folder: &Path, node: usize) -> Option<PathBuf> {
    let name = folder.file_name()?.to_str()?;
    GROUPS.iter().find_map(|(groups, limit)| {
        let group = Path::new(groups).join(format!("lockkeeper{name}-{node}"));
        fs::create_dir(&group).ok();
        group.join(limit).exists().then_some(group)
    })
}

/// Removes the groups, which must be empty.
pub(crate) fn remove(folder: &Path) {
    for group in (1..=3).filter_map(|node| group(folder, node)) {
        fs::remove_dir(group).ok();
    }
}

/// Moves a process into the group and limits its processor time.
pub(super) fn starve(group: &Path, process: u32) {
    fs::write(group.join("cgroup.procs"), process.to_string()).expect("a process in the group");
    limit(group, Some(QUOTA_US));
}

/// Removes the limit. The process stays in the group.
pub(super) fn restore(group: &Path) {
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
