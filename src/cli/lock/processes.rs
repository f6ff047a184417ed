//! Finds the processes of a run in `/proc`, and kills them. Without `/proc` it finds none.

use std::ffi::OsString;
use std::fs;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgid, getpgrp, getpid, getppid, getsid, kill_process, kill_process_group,
    test_kill_process, wait,
};

use crate::limits;

/// A process, as `/proc` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    /// Id of the process.
    pub(super) pid: Pid,
    /// The first characters of its program's name.
    pub(super) name: String,
    /// The letter of its state. `T` is stopped, and `t` is stopped under a debugger. `Z` has ended, but its exit code
    /// was not read yet.
    state: char,
    parent: i32,
    group: i32,
}

/// Whether there is a `/proc` of this PID namespace. The `/proc` of another one is not used, because its ids differ.
fn has_proc() -> bool {
    let own = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    own == Some(getpid().as_raw_nonzero().get())
}

/// Returns every process of this PID namespace.
fn all() -> Vec<Process> {
    if !has_proc() {
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
    let state = fields.next()?.chars().next()?;
    let mut number = || fields.next()?.parse::<i32>().ok();
    let (parent, group) = (number()?, number()?);
    Some(Process { pid: Pid::from_raw(pid.parse().ok()?)?, name: name.to_owned(), state, parent, group })
}

/// Returns the processes of the group with this leader that have not ended.
pub(super) fn of_group(leader: Pid) -> Vec<Process> {
    let group = leader.as_raw_nonzero().get();
    all().into_iter().filter(|process| process.group == group && process.state != 'Z').collect()
}

fn one(pid: Pid) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
}

/// Whether the process with this id is stopped. If it exists but its state cannot be read, it counts as stopped.
pub(super) fn is_stopped(pid: Pid) -> bool {
    match one(pid) {
        Some(process) => matches!(process.state, 'T' | 't'),
        None => test_kill_process(pid) != Err(Errno::SRCH),
    }
}

/// Whether no shell could continue this process's group: the first ancestor outside the group is in another session, or
/// no such ancestor is found.
pub(super) fn is_orphaned() -> bool {
    let (group, session) = (getpgrp(), getsid(None).ok());
    let mut ancestor = getppid();
    while let Some(pid) = ancestor {
        if getpgid(Some(pid)).ok() != Some(group) {
            return getsid(Some(pid)).ok() != session;
        }
        ancestor = one(pid).and_then(|process| Pid::from_raw(process.parent));
    }
    true
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
/// After the group it kills, in rounds, only the children of this process, because their ids cannot be reused before
/// this process has waited for them. This process then adopts their children, and kills those in the next round. A
/// process that it is not allowed to kill (because it belongs to another user) is left running.
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
        assert_eq!((process.state, process.parent, process.group), ('S', 3, 4));
        assert_eq!(parse("12 (x) Z 1 12 12 0").unwrap().state, 'Z');
        assert_eq!(parse("12 (x"), None);
    }

    /// This process is in the list of its own group.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_processes_of_a_group_are_found() {
        assert!(of_group(rustix::process::getpgrp()).iter().any(|process| process.pid == getpid()));
    }
}
