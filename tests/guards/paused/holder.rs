//! The process of a holder, as seen by the experiment.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

use super::resource::Resource;
use super::worker::VARIABLE;

/// The progress of a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    Begun,
    Holds(u64),
    /// It ended, and this was its last message.
    Ended(String),
}

/// A process, which is killed when this is dropped.
pub(super) struct Holder {
    process: Child,
    stage: watch::Receiver<Stage>,
}

impl Holder {
    /// Starts a holder that works on the resource, with this mode and these endpoints.
    pub(super) fn start(mut program: Command, what: &str, resource: Arc<Resource>) -> io::Result<Self> {
        program.env(VARIABLE, what).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = program.spawn()?;
        let (Some(answers), Some(lines)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("a process without pipes"));
        };
        let (stages, stage) = watch::channel(Stage::Begun);
        thread::spawn(move || serve(BufReader::new(lines), answers, &resource, &stages));
        Ok(Self { process, stage })
    }

    /// Waits until it holds the lock.
    pub(super) async fn token(&mut self) -> io::Result<u64> {
        match &*self.stage.wait_for(|stage| *stage != Stage::Begun).await.map_err(io::Error::other)? {
            Stage::Holds(token) => Ok(*token),
            stage @ (Stage::Begun | Stage::Ended(_)) => Err(io::Error::other(format!("no holder: {stage:?}"))),
        }
    }

    /// Waits until it has ended, and returns its last message.
    pub(super) async fn last_words(&mut self) -> io::Result<String> {
        let ended = self.stage.wait_for(|stage| matches!(stage, Stage::Ended(_))).await.map_err(io::Error::other)?;
        match &*ended {
            Stage::Ended(words) => Ok(words.clone()),
            Stage::Begun | Stage::Holds(_) => Err(io::Error::other("it has not ended")),
        }
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(id.ok_or_else(|| io::Error::other("no process"))?, signal)?)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Answers the holder's actions, and follows its progress.
fn serve(lines: impl BufRead, mut answers: impl Write, resource: &Resource, stages: &watch::Sender<Stage>) {
    let mut last = String::new();
    for line in lines.lines().map_while(Result::ok) {
        let number = |text: &str| text.trim().parse().unwrap_or_default();
        if let Some((_, token)) = line.split_once("token ") {
            stages.send_replace(Stage::Holds(number(token)));
        } else if let Some(token) = line.strip_prefix("act ") {
            let answer = match resource.act(number(token)) {
                Ok(()) => "done".to_owned(),
                Err(newest) => format!("stale {newest}"),
            };
            // The process may have ended before it could read this.
            writeln!(answers, "{answer}").and_then(|()| answers.flush()).ok();
        } else if line.starts_with("ended: ") {
            last = line;
        }
    }
    stages.send_replace(Stage::Ended(last));
}
