//! What happens to the processes of a command when its wrapper, or its guardian, is killed.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{Journal, ended, is_gone, pid, shown, until, wrapper};

/// Waits until the wrapper has started its guardian. Returns the guardian's process id.
fn guardian_of(wrapper: &Child) -> Pid {
    let parent = wrapper.id().to_string();
    let is_child = |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&parent));
    let mut found = None;
    until("a guardian", || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
        found = stats.find(|stat| is_child(stat)).and_then(|stat| stat.split(' ').next()?.parse().ok());
        found.is_some()
    });
    Pid::from_raw(found.unwrap()).unwrap()
}

/// Starts a wrapper of a script that writes its process ids to the file, as `a PID`, `b PID` and so on.
fn running(script: &str, count: usize) -> (Child, Vec<Pid>, Journal) {
    let journal = Journal::new();
    let child = wrapper(script.replace("SLATE", &shown(&journal.path()))).spawn().unwrap();
    let processes = ["a ", "b ", "c "][..count].iter().map(|word| journal.number_after(word)).collect();
    (child, processes, journal)
}

/// Scripts with background processes, a pipeline, and processes in other sessions, and the number of process ids that
/// each writes.
const SCRIPTS: [(&str, usize); 4] = [
    ("echo a $$ >> SLATE; while :; do sleep 1; done", 1),
    ("sleep 1000 & echo a $! >> SLATE; sleep 1000 & echo b $! >> SLATE; echo c $$ >> SLATE; wait", 3),
    ("sleep 1000 | (echo a $$ >> SLATE; sh -c 'echo b $$ >> SLATE; exec sleep 1000') | cat", 2),
    (
        "setsid sh -c 'echo a $$ >> SLATE; trap \"\" TERM HUP; sleep 1000' & \
         (setsid -f sh -c 'echo b $$ >> SLATE; exec sleep 1000'); echo c $$ >> SLATE; wait",
        3,
    ),
];

/// If the wrapper is killed, everything that its command has started is killed as well: background processes,
/// pipelines, and processes in other sessions. Its guardian ends.
#[test]
#[cfg(target_os = "linux")]
fn a_killed_wrapper_leaves_no_process() {
    for (script, count) in SCRIPTS {
        let (mut child, processes, _slate) = running(script, count);
        let guardian = guardian_of(&child);
        kill_process(pid(&child), Signal::KILL).unwrap();
        ended(&mut child);
        for process in processes {
            until(&format!("the end of {process:?} of {script}"), || is_gone(process));
        }
        until("the guardian's end", || is_gone(guardian));
    }
}

/// A wrapper that is killed while its command starts leaves no process, at any moment of the start.
#[test]
#[cfg(target_os = "linux")]
fn a_wrapper_killed_at_the_start_leaves_nothing() {
    for spins in 0..12 {
        let journal = Journal::new();
        let script = format!("echo a $$ >> {0}; sleep 1000 & echo b $! >> {0}; wait", shown(&journal.path()));
        let mut child = wrapper(script).spawn().unwrap();
        let guardian = guardian_of(&child);
        for _ in 0..spins * 20_000 {
            std::hint::spin_loop();
        }
        kill_process(pid(&child), Signal::KILL).unwrap();
        ended(&mut child);
        until("the guardian's end", || is_gone(guardian));
        for line in journal.text().lines() {
            let Some((_, number)) = line.split_once(' ') else { continue };
            let process = Pid::from_raw(number.parse().unwrap()).unwrap();
            assert!(is_gone(process), "{line} is left");
        }
    }
}

/// If the guardian is killed, the command is killed with it, and the wrapper kills the other processes and exits with
/// an error.
#[test]
#[cfg(target_os = "linux")]
fn a_killed_guardian_ends_the_run() {
    for (script, count) in SCRIPTS {
        let (mut child, processes, _slate) = running(script, count);
        kill_process(guardian_of(&child), Signal::KILL).unwrap();
        assert_eq!(ended(&mut child).code(), Some(70));
        for process in processes {
            assert!(is_gone(process), "{process:?} of {script} is left");
        }
    }
}

/// Signals of the terminal and the end of the command's group do not affect the guardian. It keeps none of the
/// command's streams open, so a reader of the command's output sees its end.
#[test]
#[cfg(target_os = "linux")]
fn the_guardian_stays_apart_from_the_command() {
    let (mut child, processes, _slate) = running(SCRIPTS[1].0, 3);
    let guardian = guardian_of(&child);
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::TSTP, Signal::TTIN, Signal::USR1] {
        kill_process(guardian, signal).unwrap();
    }
    let stream = |process: Pid, number: u32| -> PathBuf {
        fs::read_link(format!("/proc/{}/fd/{number}", process.as_raw_nonzero())).unwrap()
    };
    let comm = fs::read_to_string(format!("/proc/{}/comm", guardian.as_raw_nonzero())).unwrap();
    assert_eq!(comm, "lk-guardian\n", "it has another name, so that a kill by the program's name does not hit it");
    let output = stream(processes[2], 1);
    assert_eq!(output, stream(pid(&child), 1), "the command has the wrapper's streams");
    let held = fs::read_dir(format!("/proc/{}/fd", guardian.as_raw_nonzero())).unwrap().flatten();
    for descriptor in held {
        assert_ne!(fs::read_link(descriptor.path()).ok(), Some(output.clone()), "{descriptor:?}");
    }
    kill_process_group(processes[2], Signal::KILL).unwrap();
    assert_eq!(ended(&mut child).code(), Some(137));
    assert!(is_gone(guardian), "it ended before its wrapper");
}

/// A process that moved to another session is not awaited, and keeps running after a run that ends normally.
#[test]
#[cfg(target_os = "linux")]
fn a_run_that_ends_well_leaves_other_sessions_alone() {
    let script = "setsid -f sh -c 'echo a $$ >> SLATE; exec sleep 1000' > /dev/null; \
                  while ! grep -q a SLATE 2> /dev/null; do sleep 0.01; done; exit 3";
    let (mut child, processes, _slate) = running(script, 1);
    assert_eq!(ended(&mut child).code(), Some(3));
    assert!(!is_gone(processes[0]));
    kill_process(processes[0], Signal::KILL).unwrap();
}
