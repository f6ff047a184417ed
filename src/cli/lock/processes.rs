//! Finds the processes of a run in `/proc`, and kills them. Without `/proc` it finds none.

use std::ffi::OsString;
use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, wait};

use crate::limits;

/// A process, as `/proc` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    /// Id of the process.
    pub(super) pid: Pid,
    /// The first characters of its program's name.
    pub(super) name: String,
    /// Whether the process has ended, but its exit code was not read yet.
    zombie: bool,
    parent: i32,
    group: i32,
}

/// Returns every process of this namespace. A `/proc` of another namespace is not used, because its ids differ.
fn all() -> Vec<Process> {
    let own = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    if own != Some(getpid().as_raw_nonzero().get()) {
        return Vec::new();
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        fs::read_to_string(entry.path().join("stat")).ok()
    });
    stats.filter_map(|stat| parse(&stat)).collect()
}

/// Parses a line of `/proc/PID/stat`: the id, the name in brackets (which may contain any character), the state, the
/// parent and the group.
fn parse(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let zombie = fields.next()? == "Z";
    let mut number = || fields.next()?.parse::<i32>().ok();
    let (parent, group) = (number()?, number()?);
    Some(Process { pid: Pid::from_raw(pid.parse().ok()?)?, name: name.to_owned(), zombie, parent, group })
}

pub(super) fn of_group(leader: Pid) -> Vec<Process> {
    let group = leader.as_raw_nonzero().get();
    all().into_iter().filter(|process| process.group == group && !process.zombie).collect()
}

/// Makes this process the parent of its orphaned descendants, so that it can find them and wait for them.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(getpid())) {
        tracing::debug!(%error, "orphans of the command will not be adopted");
    }
}

/// Kills a group and every descendant of this process, in any group or session, and returns when none is left.
///
/// It kills only its own children, because their ids cannot be reused before this process has waited for them. Their
/// children are then adopted, and killed in the next round. A process that may not be killed (because it belongs to
/// another user) is left running.
pub(super) fn end_all(leader: Option<Pid>) {
    if let Some(leader) = leader {
        // If the group no longer exists, there is nothing to kill.
        let _ = kill_process_group(leader, Signal::KILL);
    }
    let own = getpid().as_raw_nonzero().get();
    let mut pause = Duration::from_millis(limits::GROUP_POLL_MS_MIN);
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let children = all().into_iter().filter(|process| process.parent == own);
        let killed = children.filter(|child| kill_process(child.pid, Signal::KILL).is_ok()).count();
        if killed == 0 {
            return;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(limits::GROUP_POLL_MS_MAX));
    }
}

/// Returns the path of this program. `/proc` finds it even after the file was replaced.
pub(in crate::cli) fn own_program() -> OsString {
    let linux = cfg!(target_os = "linux").then(|| OsString::from("/proc/self/exe"));
    linux.or_else(|| std::env::current_exe().ok().map(Into::into)).unwrap_or_else(|| "lockkeeper".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a program may contain blanks and brackets.
    #[test]
    fn a_line_of_stat_is_read_with_any_name() {
        let process = parse("12 (a) (b) S 3 4 5 0 -1").unwrap();
        assert_eq!((process.pid.as_raw_nonzero().get(), process.name.as_str()), (12, "a) (b"));
        assert_eq!((process.parent, process.group, process.zombie), (3, 4, false));
        assert!(parse("12 (x) Z 1 12 12 0").unwrap().zombie);
        assert_eq!(parse("12 (x"), None);
    }

    /// This process is in the list of its own group.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_processes_of_a_group_are_found() {
        assert!(of_group(rustix::process::getpgrp()).iter().any(|process| process.pid == getpid()));
    }
}
