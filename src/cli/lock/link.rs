//! The protocol between a wrapper and its guardian over a socket pair: first the command's three streams, then lines of
//! JSON. When one process finds the socket closed, the other one has ended.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::orders::{Ended, Orders};
use crate::cli::who::OWN_PROGRAM;
use crate::limits;

/// The last line of a wrapper. After it, the guardian ends without killing any process.
pub(super) const GOODBYE: &str = "goodbye";

/// A report of the guardian, as one line of JSON.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum GuardianReport {
    /// The command runs as the process with this id, which leads a group with the same id.
    Started(i32),
    /// A signal with this number has stopped the command.
    Stopped(i32),
    Ended(Ended),
    /// Another process that the command left behind has ended.
    OrphanEnded,
    /// The command could not be started.
    Failed(String),
}

/// The guardian of a wrapper. If it is dropped without a goodbye, the guardian kills the command.
#[derive(Debug)]
pub(super) struct Guardian {
    process: Child,
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl Guardian {
    /// Starts the guardian and, through it, the command. Returns the command's process, which leads its group.
    pub(super) async fn start(orders: &Orders, foreground: bool) -> io::Result<(Self, Pid)> {
        let Some((program, first)) = orders.guardian.split_first() else {
            return Err(io::Error::other("no guardian was named"));
        };
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program);
        command.arg0(OWN_PROGRAM).args(first);
        if foreground {
            command.arg("--foreground");
        }
        command.arg("--").args(&orders.command);
        for (name, value) in &orders.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.process_group(0).spawn()?;
        // This process must close its copy of the other end, or it could not detect the end of the guardian.
        drop(command);
        send_streams(&ours)?;
        ours.set_nonblocking(true)?;
        let (reader, writer) = tokio::net::UnixStream::from_std(ours)?.into_split();
        let mut guardian = Self { process, lines: BufReader::new(reader).lines(), writer };
        match guardian.next_report().await? {
            GuardianReport::Started(leader) => {
                let leader = Pid::from_raw(leader).ok_or_else(|| io::Error::other("the command has no process id"))?;
                Ok((guardian, leader))
            }
            GuardianReport::Failed(problem) => Err(io::Error::other(problem)),
            report @ (GuardianReport::Stopped(_) | GuardianReport::Ended(_) | GuardianReport::OrphanEnded) => {
                Err(io::Error::other(format!("the guardian said {report:?} before the command began")))
            }
        }
    }

    /// Waits for the next report about the command. Dropping the future loses no report.
    pub(super) async fn next_report(&mut self) -> io::Result<GuardianReport> {
        match self.lines.next_line().await {
            Ok(Some(line)) => Ok(serde_json::from_str(&line)?),
            Ok(None) | Err(_) => {
                Err(io::Error::other("the guardian of the command was killed, so the command was killed, too"))
            }
        }
    }

    /// Lets the guardian end without killing any process, and waits for its end.
    pub(super) async fn dismiss(mut self) {
        // A guardian that has ended needs no goodbye.
        let _ = self.writer.write_all(format!("{GOODBYE}\n").as_bytes()).await;
        let end = async { while let Ok(Some(_)) = self.lines.next_line().await {} };
        // A stopped guardian ends when it is continued.
        if tokio::time::timeout(Duration::from_millis(limits::GUARDIAN_ENDS_MS), end).await.is_ok() {
            let _ = self.process.wait();
        }
    }
}

/// Size of the control data for three descriptors, in bytes.
const SPACE: usize = rustix::cmsg_space!(ScmRights(3));

/// Sends this process's own three streams, for the command.
fn send_streams(socket: &UnixStream) -> io::Result<()> {
    let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [input.as_fd(), output.as_fd(), errors.as_fd()];
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&streams)) {
        return Err(io::Error::other("three descriptors do not fit into a message"));
    }
    sendmsg(socket, &[IoSlice::new(b"\n")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Receives the command's three streams; `None` if the wrapper has ended.
pub(super) fn receive_streams(socket: &UnixStream) -> io::Result<Option<[OwnedFd; 3]>> {
    // If the system cannot close the descriptors on exec, the command inherits them a second time.
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags))?;
    let mut streams = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            streams.extend(descriptors);
        }
    }
    Ok(streams.try_into().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report is one line, and is read as it was written.
    #[test]
    fn a_report_is_one_line() {
        let failed = GuardianReport::Failed("out of\nmemory".to_owned());
        let line = serde_json::to_string(&failed).unwrap();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<GuardianReport>(&line).unwrap(), failed);
        assert!(serde_json::from_str::<GuardianReport>("").is_err());
    }

    /// The three streams arrive with the first message. A wrapper that has ended sends none.
    #[test]
    fn the_streams_go_over_the_socket() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        send_streams(&ours).unwrap();
        assert!(receive_streams(&theirs).unwrap().is_some());
        drop(ours);
        assert!(receive_streams(&theirs).unwrap().is_none());
    }
}
